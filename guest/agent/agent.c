/* The agent: PID 1 of every box. It is static, uses the C library only, and is as sealed as the code it starts.
 *
 * Theory of operation. The host holds the other end of one socket (descriptor 3, or the one named as the argument). On
 * requests of the host the agent starts processes and handles files. It relays input and output if the host cannot pass
 * descriptors, reaps all processes of the box, and reports how each process that it started ended. It has one thread
 * and one poll, never blocks on the host, a process or a file, and bounds.h limits its memory. When the host closes the
 * socket or sends QUIT, the agent exits, and Linux kills every other process of the box with it. Nothing in the box can
 * signal, trace or read the agent: it is PID 1, and not dumpable. Tenant code never sees the socket: each descriptor is
 * close-on-exec. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "link.h"
#include "removal.h"
#include "users.h"
#include "watch.h"
#include "write.h"

enum { CONTROL_FD = 3 };

static void reap_children(int signal_fd) {
        struct signalfd_siginfo ignored[8];
        (void) !read(signal_fd, ignored, sizeof(ignored));
        struct rusage usage;
        int status;
        pid_t pid;
        while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
                children_reaped(pid, status, &usage);
                users_reaped(pid, status);
        }
}

/* False: the host has closed the socket, sent QUIT, or broke the protocol. The box ends. */
static bool serve_host(void) {
        struct frame frame;
        int code = link_receive(&frame);
        if (code <= 0)
                return code == 0;
        bool going_on = request_serve(&frame);
        frame_release(&frame);
        return going_on;
}

/* SIGCHLD arrives through a descriptor. The calls that cause the other two return an error anyway; they are blocked and
 * not ignored, because processes that we start would inherit ignored signals. */
static int block_signals(void) {
        sigset_t signals;
        sigemptyset(&signals);
        sigaddset(&signals, SIGPIPE);
        sigaddset(&signals, SIGXFSZ);
        sigaddset(&signals, SIGCHLD);
        if (sigprocmask(SIG_BLOCK, &signals, NULL) < 0)
                return -1;
        sigdelset(&signals, SIGPIPE);
        sigdelset(&signals, SIGXFSZ);
        return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool is_readable(int fd) {
        struct pollfd polled = { .fd = fd, .events = POLLIN };
        return poll(&polled, 1, 0) == 1;
}

static bool agent_turn(int control_fd, int signal_fd) {
        static struct polls polls;
        polls.n = 0;
        int wanted = (link_is_full() ? 0 : POLLIN) | (link_has_queue() ? POLLOUT : 0);
        size_t control = polls_add(&polls, control_fd, (short) wanted);
        size_t deaths = polls_add(&polls, signal_fd, POLLIN);
        watches_wait(&polls);
        children_wait(&polls);
        users_wait(&polls);
        if (poll(polls.fds, (nfds_t) polls.n, removals_pending() ? 0 : -1) < 0 && errno != EINTR)
                return false;
        if (polls_happened(&polls, control) & ~POLLIN)
                link_flush();
        if (polls_happened(&polls, deaths))
                reap_children(signal_fd);
        children_move(&polls);
        watches_move(&polls);
        removals_move();
        if (polls_happened(&polls, control) & ~POLLOUT && !link_is_full() && !serve_host())
                return false;
        if (users_happened(&polls)) {
                /* The host sends a permit before it sends the command to the kernel: so frames of the host are handled
                 * first. */
                while (!link_is_full() && is_readable(control_fd))
                        if (!serve_host())
                                return false;
                users_move();
        }
        return !link_is_broken();
}

int main(int argc, char **argv) {
        int control_fd = argc > 1 ? atoi(argv[1]) : CONTROL_FD;
        /* Same-uid code in the box must not open /proc/1/{mem,environ,fd,root}. */
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                return EXIT_FAILURE;
        if (fcntl(control_fd, F_SETFD, FD_CLOEXEC) < 0)
                return EXIT_FAILURE;
        if (argc > 2 && strcmp(argv[2], "users") == 0 && users_begin() < 0)
                return EXIT_FAILURE;
        int signal_fd = block_signals();
        if (signal_fd < 0)
                return EXIT_FAILURE;
        link_open(control_fd);
        link_send(FRAME_READY, 0, NULL);
        while (agent_turn(control_fd, signal_fd))
                ;
        writes_release();
        users_release();
        return EXIT_SUCCESS;
}
