#include "box/host/cleanup_watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/process_title.h"

void cleanup_remove_file(const char *path) {
        char directory[4200];
        const char *slash = strrchr(path, '/');
        (void) unlink(path);
        (void) snprintf(directory, sizeof(directory), "%.*s", slash ? (int) (slash - path) : 0, path);
        (void) rmdir(directory);
}

_Noreturn static void watchdog_wait(const struct cgroup_host *host, const char *name, const char *file, int fd) {
        /* A new session: Ctrl-C does not reach it. */
        (void) setsid();
        process_title_set("watchdog", name);
        signal(SIGHUP, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        (void) dup2(fd, 3);
        int null_fd = open("/dev/null", O_RDWR);
        for (int i = 0; i < 3; i++)
                (void) dup2(null_fd, i);
        (void) syscall(SYS_close_range, 4, ~0u, 0);
        if (chdir("/") < 0)
                _exit(EXIT_FAILURE);
        char dismissed;
        if (fd_read_exactly(3, &dismissed, 1) < 0) {
                (void) cgroup_destroy_by_name(host, name, NULL);
                if (file)
                        cleanup_remove_file(file);
        }
        _exit(EXIT_SUCCESS);
}

int cleanup_watchdog_start(const struct cgroup_host *host, const char *name, const char *file,
                           struct cleanup_watchdog *ret_watchdog, struct err *err) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0)
                return err_sys(err, errno, "making a pipe");
        pid_t pid = fork();
        if (pid < 0) {
                int code = errno;
                fd_close(&ends[0]);
                fd_close(&ends[1]);
                return err_sys(err, code, "starting the watchdog");
        }
        if (pid == 0) {
                fd_close(&ends[1]);
                watchdog_wait(host, name, file, ends[0]);
        }
        fd_close(&ends[0]);
        *ret_watchdog = (struct cleanup_watchdog) { pid, ends[1] };
        return 0;
}

void cleanup_watchdog_dismiss(struct cleanup_watchdog *watchdog) {
        if (watchdog->pid <= 0)
                return;
        (void) fd_write_all(watchdog->fd, "d", 1);
        fd_close(&watchdog->fd);
        (void) waitpid(watchdog->pid, NULL, 0);
        watchdog->pid = 0;
}
