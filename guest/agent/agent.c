/* The agent: PID 1 of every box. Static, libc only, as sealed as the code it starts.
 *
 * Theory of operation. The host holds the other end of one socket (descriptor 3). The host asks for processes; the
 * agent starts them, reaps everything that dies in the box, and tells how each process it started ended. When the host
 * closes the socket or says QUIT, the agent exits, and the kernel kills every other process of the box with it, however
 * it hid. Nothing in the box can signal, trace or read the agent: it is PID 1, and not dumpable. Tenant code never
 * sees the socket: each descriptor is close-on-exec. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"
#include "wire/frame.h"

enum { CONTROL_FD = 3 };

/* Processes the host asked for and has not been told the end of. */
static struct {
        pid_t pid;
        uint32_t id;
} started[256];
static size_t n_started;

static void answer(enum frame_type type, uint32_t id, const struct frame_writer *payload) {
        /* A host that does not listen any more has no use for the box. */
        if (frame_send(CONTROL_FD, type, id, payload, NULL, 0) < 0)
                _exit(EXIT_FAILURE);
}

static void answer_failed(uint32_t id, int code, const char *step) {
        struct frame_writer payload = { 0 };
        frame_put_u32(&payload, (uint32_t) -code);
        frame_put_text(&payload, step);
        answer(FRAME_FAILED, id, &payload);
        frame_writer_release(&payload);
}

static void handle_start(struct frame *frame) {
        struct process process = { .fds = frame->fds, .n_fds = frame->n_fds };
        struct frame_reader fields = frame_read(frame);
        const char *step = "reading the request";
        int code = -EPROTO;
        if (n_started == sizeof(started) / sizeof(started[0])) {
                code = -EAGAIN;
                step = "too many processes started by the host";
        } else if (frame_get_text(&fields, &process.cwd) && frame_get_texts(&fields, &process.argv) &&
                   frame_get_texts(&fields, &process.envp) && process.argv[0])
                code = process_start(&process, &step);
        if (code < 0)
                answer_failed(frame->id, code, step);
        else {
                started[n_started].pid = process.pid;
                started[n_started++].id = frame->id;
                struct frame_writer payload = { 0 };
                frame_put_u32(&payload, (uint32_t) process.pid);
                answer(FRAME_STARTED, frame->id, &payload);
                frame_writer_release(&payload);
        }
        process_release(&process);
}

static void handle_signal(const struct frame *frame) {
        struct frame_reader fields = frame_read(frame);
        uint32_t signal_number, whole_group;
        if (!frame_get_u32(&fields, &signal_number) || !frame_get_u32(&fields, &whole_group) || signal_number > 64)
                return;
        for (size_t i = 0; i < n_started; i++)
                if (started[i].id == frame->id)
                        (void) kill(whole_group ? -started[i].pid : started[i].pid, (int) signal_number);
}

static void handle_frame(void) {
        struct frame frame;
        if (frame_receive(CONTROL_FD, &frame) < 0)
                _exit(EXIT_SUCCESS); /* the host is gone, or talks nonsense: the box ends */
        switch (frame.type) {
        case FRAME_START:
                handle_start(&frame);
                break;
        case FRAME_SIGNAL:
                handle_signal(&frame);
                break;
        case FRAME_QUIT:
        default:
                _exit(EXIT_SUCCESS);
        }
        frame_release(&frame);
}

static void reap(void) {
        struct rusage usage;
        int status;
        pid_t pid;
        while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
                for (size_t i = 0; i < n_started; i++) {
                        if (started[i].pid != pid)
                                continue;
                        uint64_t cpu_us = (uint64_t) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u +
                                          (uint64_t) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
                        struct frame_writer payload = { 0 };
                        frame_put_u32(&payload, (uint32_t) status);
                        frame_put_u64(&payload, cpu_us);
                        frame_put_u64(&payload, (uint64_t) usage.ru_maxrss);
                        answer(FRAME_EXITED, started[i].id, &payload);
                        frame_writer_release(&payload);
                        started[i] = started[--n_started];
                        break;
                }
        }
}

int main(void) {
        /* Same-uid code in the box must not open /proc/1/{mem,environ,fd,root}. */
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                return EXIT_FAILURE;
        if (fcntl(CONTROL_FD, F_SETFD, FD_CLOEXEC) < 0)
                return EXIT_FAILURE;
        sigset_t children;
        sigemptyset(&children);
        sigaddset(&children, SIGCHLD);
        if (sigprocmask(SIG_BLOCK, &children, NULL) < 0)
                return EXIT_FAILURE;
        int child_fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
        if (child_fd < 0)
                return EXIT_FAILURE;
        answer(FRAME_READY, 0, NULL);

        struct pollfd watched[] = { { .fd = CONTROL_FD, .events = POLLIN }, { .fd = child_fd, .events = POLLIN } };
        for (;;) {
                if (poll(watched, 2, -1) < 0 && errno != EINTR)
                        return EXIT_FAILURE;
                if (watched[1].revents) {
                        struct signalfd_siginfo ignored[8];
                        (void) !read(child_fd, ignored, sizeof(ignored));
                        reap();
                }
                if (watched[0].revents)
                        handle_frame();
        }
}
