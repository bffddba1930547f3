#include "session/reaper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/passing.h"
#include "session/remove_tree.h"

enum {
        WAITING_MAX = 1000,
        PATIENCE_MS = 5000, /* for the processes of one box */
        STOP_MS = 20000,
        MESSAGE_FDS = 3,
};

enum message_kind {
        MESSAGE_BURY,   /* pidfd and lease of a box, and the name of its control group */
        MESSAGE_REMOVE, /* a path */
        MESSAGE_CLOSE,  /* files that nobody else has open */
};

struct message {
        enum message_kind kind;
        char name[1024];
};

static struct {
        pid_t pid; /* 0: none */
        int fd;
} reaper = { .fd = -1 };

/* ---- the process ---- */

/* Boxes that are still dying. */
static struct grave {
        char group[64];
        int pidfd, lease_fd; /* its user id belongs to nobody else before it is gone */
        uint64_t until_ms;
} graves[WAITING_MAX];
static size_t n_graves;

static void close_grave(const struct cgroup_host *host, size_t i) {
        (void) cgroup_destroy_by_name(host, graves[i].group, NULL); /* kills and waits, should anything be left */
        fd_close(&graves[i].pidfd);
        fd_close(&graves[i].lease_fd);
        graves[i] = graves[--n_graves];
}

/* False when there will be no more. */
static bool take_message(const struct cgroup_host *host, int fd) {
        struct message message;
        int fds[MESSAGE_FDS];
        ssize_t size = passing_receive(fd, &message, sizeof(message), fds, MESSAGE_FDS, 0);
        if (size <= (ssize_t) offsetof(struct message, name))
                return false;
        ((char *) &message)[size - 1] = '\0';
        if (message.kind == MESSAGE_REMOVE)
                remove_tree(message.name);
        if (message.kind != MESSAGE_BURY) {
                for (size_t i = 0; i < MESSAGE_FDS; i++)
                        fd_close(&fds[i]);
                return true;
        }
        if (n_graves == WAITING_MAX)
                close_grave(host, 0);
        struct grave *grave = &graves[n_graves++];
        *grave = (struct grave) { .pidfd = fds[0], .lease_fd = fds[1], .until_ms = loop_now_ms() + PATIENCE_MS };
        (void) snprintf(grave->group, sizeof(grave->group), "%.63s", message.name);
        return true;
}

static void serve(const struct cgroup_host *host, int fd) __attribute__((noreturn));
static void serve(const struct cgroup_host *host, int fd) {
        static struct pollfd polled[WAITING_MAX + 1];
        (void) prctl(PR_SET_NAME, "glovebox-reaper");
        (void) signal(SIGINT, SIG_IGN); /* what ends the daemon lets us finish */
        (void) signal(SIGTERM, SIG_IGN);
        for (bool asked = true; asked || n_graves > 0;) {
                size_t n = n_graves;
                for (size_t i = 0; i < n; i++)
                        polled[i] = (struct pollfd) { .fd = graves[i].pidfd, .events = POLLIN };
                polled[n] = (struct pollfd) { .fd = asked ? fd : -1, .events = POLLIN };
                (void) poll(polled, (nfds_t) n + 1, n > 0 ? 1000 : -1);
                for (size_t i = n; i-- > 0;)
                        if (polled[i].revents || graves[i].pidfd < 0 || loop_now_ms() >= graves[i].until_ms)
                                close_grave(host, i);
                if (polled[n].revents)
                        asked = take_message(host, fd);
        }
        _exit(EXIT_SUCCESS);
}

/* ---- the daemon's side ---- */

int reaper_start(const struct cgroup_host *host, struct err *err) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return err_sys(err, errno, "making a socket pair");
        pid_t pid = fork();
        if (pid == 0) {
                /* Keep nothing of the daemon's: a listening socket held here would outlive it. */
                (void) dup2(ends[1], 3);
                (void) syscall(SYS_close_range, 4, ~0u, 0);
                (void) fcntl(3, F_SETFD, FD_CLOEXEC);
                struct cgroup_host copy = *host;
                serve(&copy, 3);
        }
        fd_close(&ends[1]);
        if (pid < 0) {
                int code = errno;
                fd_close(&ends[0]);
                return err_sys(err, code, "starting the reaper");
        }
        reaper.pid = pid;
        reaper.fd = ends[0];
        return 0;
}

void reaper_stop(void) {
        fd_close(&reaper.fd);
        if (reaper.pid <= 0)
                return;
        int pidfd = (int) syscall(SYS_pidfd_open, reaper.pid, 0);
        struct pollfd polled = { .fd = pidfd, .events = POLLIN };
        if (pidfd >= 0 && poll(&polled, 1, STOP_MS) == 1)
                (void) waitpid(reaper.pid, NULL, 0);
        fd_close(&pidfd);
        reaper.pid = 0;
}

static bool give(enum message_kind kind, const char *name, const int *fds, size_t n_fds) {
        struct message message;
        size_t size = strlen(name) + 1;
        if (reaper.fd < 0 || size > sizeof(message.name))
                return false;
        message.kind = kind;
        memcpy(message.name, name, size);
        return passing_send(reaper.fd, &message, offsetof(struct message, name) + size, fds, n_fds, MSG_DONTWAIT) == 0;
}

void reaper_bury(struct cgroup *cgroup, int pidfd, int lease_fd) {
        const int fds[] = { pidfd, lease_fd };
        if (cgroup->host && pidfd >= 0 && give(MESSAGE_BURY, cgroup->name, fds, ELEMENTS(fds)))
                cgroup_release(cgroup);
        else
                (void) cgroup_destroy(cgroup, NULL);
}

void reaper_remove_tree(const char *path) {
        if (!give(MESSAGE_REMOVE, path, NULL, 0))
                remove_tree(path);
}

void reaper_close(int *fds, size_t n_fds) {
        if (n_fds <= MESSAGE_FDS)
                (void) give(MESSAGE_CLOSE, "", fds, n_fds);
        for (size_t i = 0; i < n_fds; i++)
                fd_close(&fds[i]);
}
