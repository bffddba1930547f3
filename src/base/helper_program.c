#include "base/helper_program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/priority.h"
#include "base/process_title.h"

enum { ORDERS_FD = 3 };

_Noreturn static void become_helper(const struct helper_program_kind *kind, int orders_fd, const char *owner) {
        char title[64];
        (void) snprintf(title, sizeof(title), "glovebox: %s", kind->name);
        char *argv[] = { title, (char *) (uintptr_t) kind->argument, (char *) (uintptr_t) owner, NULL };
        char *none[] = { NULL };
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 && dup2(null_fd, STDOUT_FILENO) >= 0 &&
            (orders_fd == ORDERS_FD ? fcntl(ORDERS_FD, F_SETFD, 0) : dup2(orders_fd, ORDERS_FD)) >= 0 &&
            syscall(SYS_close_range, ORDERS_FD + 1, ~0u, 0) == 0)
                (void) execve("/proc/self/exe", argv, none);
        _exit(EXIT_FAILURE);
}

int helper_program_start(const struct helper_program_kind *kind, const void *settings, const char *owner,
                         struct helper_program *ret_helper, struct err *err) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return err_sys(err, errno, "making a socket pair");
        bool is_sent = send(ends[0], settings, kind->settings_size, MSG_NOSIGNAL) == (ssize_t) kind->settings_size;
        pid_t pid = is_sent ? fork() : -1;
        int fork_errno = errno;
        if (pid == 0) {
                priority_stand_apart();
                become_helper(kind, ends[1], owner);
        }
        fd_close(&ends[1]);
        if (pid < 0) {
                fd_close(&ends[0]);
                return err_sys(err, fork_errno, "starting the helper process \"%s\"", kind->name);
        }
        *ret_helper = (struct helper_program) { pid, ends[0] };
        return 0;
}

void helper_program_stop(struct helper_program *helper) {
        fd_close(&helper->fd);
        if (helper->pid > 0) {
                (void) kill(helper->pid, SIGKILL);
                (void) waitpid(helper->pid, NULL, 0);
        }
        *helper = HELPER_PROGRAM_DOWN;
}

int helper_program_begin(const struct helper_program_kind *kind, int argc, char **argv, void *ret_settings) {
        if (argc != 3 || strcmp(argv[1], kind->argument) != 0)
                return -1;
        argv = process_title_init(argc, argv);
        process_title_set(kind->name, argv[2]);
        if (fcntl(ORDERS_FD, F_SETFD, FD_CLOEXEC) < 0 ||
            recv(ORDERS_FD, ret_settings, kind->settings_size, 0) != (ssize_t) kind->settings_size)
                _exit(EXIT_FAILURE); /* started by hand, or the parent is gone */
        return ORDERS_FD;
}
