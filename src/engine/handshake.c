#include "engine/handshake.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/loop.h"
#include "base/memory.h"
#include "wire/frame.h"

enum { ALIVE_CHECK_MS = 250 };

static int wait_for_connection(int listen_fd, uint64_t deadline_ms, int (*is_alive)(void *context, struct err *err),
                               void *context, struct err *err) {
        for (;;) {
                struct pollfd polled = { .fd = listen_fd, .events = POLLIN };
                if (poll(&polled, 1, ALIVE_CHECK_MS) > 0)
                        return 0;
                if (is_alive(context, err) < 0)
                        return -1;
                if (loop_now_ms() >= deadline_ms)
                        return err_set(err, ERR_TIMEOUT, "the box was started, but its agent did not report in time");
        }
}

/* There is one deadline for the whole handshake: an agent that sends single bytes cannot extend it. */
static int wait_for_agent(int control_fd, uint64_t deadline_ms) {
        struct pollfd polled = { .fd = control_fd, .events = POLLIN };
        uint64_t now = loop_now_ms();
        int n = now >= deadline_ms ? 0 : poll(&polled, 1, (int) (deadline_ms - now));
        return n > 0 || (n < 0 && errno == EINTR) ? 0 : n < 0 ? -errno : -ETIMEDOUT;
}

/* Receives one byte with one descriptor. Returns the descriptor or -errno. */
static int receive_descriptor(int control_fd, uint64_t deadline_ms) {
        for (;;) {
                char byte;
                int fd = -1, code = wait_for_agent(control_fd, deadline_ms);
                if (code < 0)
                        return code;
                ssize_t size = fd_passing_receive(control_fd, &byte, 1, &fd, 1, MSG_DONTWAIT);
                if (size == 1 && fd >= 0)
                        return fd;
                fd_close(&fd);
                if (size != -EAGAIN)
                        return size < 0 ? (int) size : -EPROTO;
        }
}

/* The proxy will accept connections on it, and the box is untrusted. */
static bool is_tcp_listener(int fd) {
        int domain = 0, type = 0, listens = 0;
        socklen_t size = sizeof(int);
        return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_INET &&
               getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
               getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens;
}

static int receive_listener(int control_fd, uint64_t deadline_ms, int *ret_listener_fd, struct err *err) {
        int fd = receive_descriptor(control_fd, deadline_ms);
        if (fd >= 0 && is_tcp_listener(fd)) {
                *ret_listener_fd = fd;
                return 0;
        }
        fd_close(&fd);
        return err_set(err, ERR_UNSUPPORTED,
                       "this box cannot hand out the socket of its proxy: its runtime has a network stack of its own "
                       "(gVisor); name it with --gvisor-runtime, so that a relay is used");
}

/* The workspace is a tmpfs that the engine made in the box. */
static int receive_workspace(int control_fd, uint64_t deadline_ms, int *ret_fd, struct err *err) {
        struct stat status;
        int fd = receive_descriptor(control_fd, deadline_ms);
        if (fd >= 0 && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
                *ret_fd = fd;
                return 0;
        }
        fd_close(&fd);
        return err_set(err, ERR_UNSUPPORTED, "this box cannot hand out its workspace: use another runtime");
}

static int receive_agent_frame(int control_fd, uint64_t deadline_ms, struct frame *ret_frame) {
        struct frame_inbox inbox = { 0 };
        int code;
        do {
                code = wait_for_agent(control_fd, deadline_ms);
                if (code == 0)
                        code = frame_inbox_receive(&inbox, control_fd, MSG_DONTWAIT, ret_frame);
        } while (code == 0);
        if (code < 0)
                frame_inbox_release(&inbox);
        return code < 0 ? code : 0;
}

/* The text of an untrusted box becomes part of our message: it must not add lines. */
static void make_printable(char *text) {
        for (; *text; text++)
                if (*text < ' ' || *text > '~')
                        *text = '?';
}

static int receive_first_frame(int control_fd, uint64_t deadline_ms, struct err *err) {
        struct frame frame;
        int code = receive_agent_frame(control_fd, deadline_ms, &frame);
        if (code < 0)
                return err_sys(err, -code, "waiting for the box's agent");
        struct frame_reader fields = frame_read(&frame);
        uint32_t number = 0;
        _cleanup_free_ char *step = NULL;
        if (frame.type == FRAME_FAILED && frame_get_u32(&fields, &number) && frame_get_text(&fields, &step)) {
                make_printable(step);
                code = err_set(err, ERR_SYSTEM, "the box could not be sealed: %.200s: %s", step,
                               strerror((int) number));
        } else if (frame.type != FRAME_READY)
                code = err_set(err, ERR_PROTOCOL, "the box's agent did not report that it is ready");
        frame_release(&frame);
        return code;
}

int handshake_accept(int listen_fd, uint64_t deadline_ms, int (*is_alive)(void *context, struct err *err),
                     void *context, int *ret_control_fd, int *ret_listener_fd, int *ret_workspace_fd, struct err *err) {
        if (wait_for_connection(listen_fd, deadline_ms, is_alive, context, err) < 0)
                return -1;
        _cleanup_fd_ int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
                return err_sys(err, errno, "accepting the connection of the box's agent");
        _cleanup_fd_ int listener = -1, workspace = -1;
        if ((ret_workspace_fd && receive_workspace(fd, deadline_ms, &workspace, err) < 0) ||
            (ret_listener_fd && receive_listener(fd, deadline_ms, &listener, err) < 0) ||
            receive_first_frame(fd, deadline_ms, err) < 0)
                return -1;
        fd_passing_refuse(fd); /* the agent is our program and sends no more descriptors */
        if (ret_listener_fd)
                *ret_listener_fd = take_fd(&listener);
        if (ret_workspace_fd)
                *ret_workspace_fd = take_fd(&workspace);
        *ret_control_fd = take_fd(&fd);
        return 0;
}
