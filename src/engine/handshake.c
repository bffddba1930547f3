#include "engine/handshake.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/loop.h"
#include "base/memory.h"
#include "wire/frame.h"

enum { LOOK_MS = 250, WORDS_S = 20 };

static int wait_for_connection(int listen_fd, uint64_t deadline_ms, int (*is_alive)(void *context, struct err *err),
                               void *context, struct err *err) {
        for (;;) {
                struct pollfd polled = { .fd = listen_fd, .events = POLLIN };
                if (poll(&polled, 1, LOOK_MS) > 0)
                        return 0;
                if (is_alive(context, err) < 0)
                        return -1;
                if (loop_now_ms() >= deadline_ms)
                        return err_set(err, ERR_TIMEOUT, "the box was started, but its agent did not report in time");
        }
}

static int take_listener(int control_fd, int *ret_listener_fd, struct err *err) {
        char byte;
        int fd = -1;
        ssize_t size = fd_passing_receive(control_fd, &byte, 1, &fd, 1, 0);
        if (size == 1 && fd >= 0) {
                *ret_listener_fd = fd;
                return 0;
        }
        fd_close(&fd);
        return err_set(err, ERR_UNSUPPORTED,
                       "this box cannot hand out the socket of its proxy: its runtime has a network stack of its own "
                       "(gVisor); name it with --gvisor-runtime, so that a relay is used");
}

/* One that is in the box alone: a tmpfs of the engine's. */
static int take_workspace(int control_fd, int *ret_fd, struct err *err) {
        char byte;
        int fd = -1;
        if (fd_passing_receive(control_fd, &byte, 1, &fd, 1, 0) == 1 && fd >= 0) {
                *ret_fd = fd;
                return 0;
        }
        fd_close(&fd);
        return err_set(err, ERR_UNSUPPORTED, "this box cannot hand out its workspace: use another runtime");
}

static int take_first_frame(int control_fd, struct err *err) {
        struct frame frame;
        int code = frame_receive(control_fd, &frame);
        if (code < 0)
                return err_sys(err, -code, "waiting for the box's agent");
        struct frame_reader fields = frame_read(&frame);
        uint32_t number = 0;
        _cleanup_free_ char *step = NULL;
        code = 0;
        if (frame.type == FRAME_FAILED && frame_get_u32(&fields, &number) && frame_get_text(&fields, &step))
                code = err_set(err, ERR_SYSTEM, "the box could not be sealed: %.200s: %s", step,
                               strerror((int) number));
        else if (frame.type != FRAME_READY)
                code = err_set(err, ERR_PROTOCOL, "the box's agent does not say that it is ready");
        frame_release(&frame);
        return code;
}

int handshake_accept(int listen_fd, uint64_t deadline_ms, int (*is_alive)(void *context, struct err *err),
                     void *context, int *ret_control_fd, int *ret_listener_fd, int *ret_workspace_fd, struct err *err) {
        if (wait_for_connection(listen_fd, deadline_ms, is_alive, context, err) < 0)
                return -1;
        _cleanup_fd_ int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
                return err_sys(err, errno, "taking the connection of the box's agent");
        struct timeval words = { .tv_sec = WORDS_S }, none = { 0 };
        _cleanup_fd_ int listener = -1, workspace = -1;
        (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &words, sizeof(words));
        if ((ret_workspace_fd && take_workspace(fd, &workspace, err) < 0) ||
            (ret_listener_fd && take_listener(fd, &listener, err) < 0) || take_first_frame(fd, err) < 0)
                return -1;
        (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
        fd_passing_refuse(fd); /* the agent is ours, and sends none from here on */
        if (ret_listener_fd)
                *ret_listener_fd = take_fd(&listener);
        if (ret_workspace_fd)
                *ret_workspace_fd = take_fd(&workspace);
        *ret_control_fd = take_fd(&fd);
        return 0;
}
