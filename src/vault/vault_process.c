/* The vault's process.
 *
 * A daemon forks it twice, so that it is a child of init, in its own session, with no other descriptor than the
 * listening socket. One loop waits for the daemon's requests and for new connections. It never waits for a daemon: an
 * answer that does not fit into the socket closes the connection. Only VAULT_END, being empty and alone for a minute,
 * or SIGKILL ends it. A connection is exchanged for another only when it is closed, and what was sent before that is
 * done first. */
#include "vault/vault_process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/peer.h"
#include "base/process_title.h"
#include "vault/vault_message.h"

enum { SPARE_FDS = 32, ENTRIES_MAX = 100000 };

struct entry {
        struct entry *next;
        uint64_t serial;
        char name[VAULT_NAME_MAX + 1];
        int fds[VAULT_FDS_MAX];
        size_t n_fds;
        size_t note_size;
        unsigned char note[];
};

struct process {
        int listen_fd;
        int client_fd;
        const char *path;
        struct stat socket;    /* the one that is ours to unlink */
        struct entry *entries; /* in the order of their serial numbers */
        uint64_t last_serial;
        size_t n_entries, n_fds, fds_max;
};

static void free_entry(struct process *process, struct entry *entry) {
        process->n_fds -= entry->n_fds;
        process->n_entries--;
        vault_message_close_fds(entry->fds, entry->n_fds);
        free(entry);
}

/* Where the pointer to the entry of this name is, or the end of the list. */
static struct entry **vault_process_find(struct process *process, const char *name) {
        struct entry **at = &process->entries;
        while (*at && strcmp((*at)->name, name) != 0)
                at = &(*at)->next;
        return at;
}

/* Takes the descriptors over on success. */
static enum vault_status vault_process_put(struct process *process, const struct vault_message *message, int *fds,
                                           size_t n_fds) {
        size_t length = strlen(message->name);
        if (length < 1 || length > VAULT_NAME_MAX)
                return VAULT_MALFORMED;
        /* The ones of a replaced entry are counted twice for a moment, as they are open twice. */
        if (process->n_fds + n_fds + SPARE_FDS > process->fds_max || process->n_entries >= ENTRIES_MAX)
                return VAULT_FULL;
        struct entry *entry = calloc(1, sizeof(*entry) + message->note_size);
        if (!entry)
                return VAULT_FULL;
        memcpy(entry->name, message->name, length);
        memcpy(entry->note, message->note, message->note_size);
        entry->note_size = message->note_size;
        memcpy(entry->fds, fds, sizeof(int) * n_fds);
        entry->n_fds = n_fds;
        process->n_fds += n_fds;
        process->n_entries++;

        struct entry **at = vault_process_find(process, message->name), *old = *at;
        /* A replaced entry keeps its place, so that a walk through the list finds it once. */
        entry->serial = old ? old->serial : ++process->last_serial;
        entry->next = old ? old->next : NULL;
        *at = entry;
        if (old)
                free_entry(process, old);
        return VAULT_OK;
}

static enum vault_status vault_process_drop(struct process *process, const char *name) {
        struct entry **at = vault_process_find(process, name), *entry = *at;
        if (!entry)
                return VAULT_NONE;
        *at = entry->next;
        free_entry(process, entry);
        return VAULT_OK;
}

/* Takes the lock that openers hold, if it is free. */
static int try_lock(const struct process *process) {
        char path[PATH_MAX + 8];
        (void) snprintf(path, sizeof(path), "%s.lock", process->path);
        _cleanup_fd_ int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
                return -errno;
        return take_fd(&fd);
}

/* Under the lock, so that the socket of a successor is never removed. If another process has the lock, it finds this
 * socket dead and replaces it. */
static void remove_socket(const struct process *process) {
        struct stat status;
        if (lstat(process->path, &status) == 0 && status.st_dev == process->socket.st_dev &&
            status.st_ino == process->socket.st_ino)
                (void) unlink(process->path);
}

static _Noreturn void end_process(struct process *process) {
        while (process->entries) {
                struct entry *entry = process->entries;
                process->entries = entry->next;
                free_entry(process, entry);
        }
        int lock_fd = try_lock(process);
        if (lock_fd >= 0)
                remove_socket(process);
        /* The connection closes when the process ends, so a client that waits for that knows that everything else is
         * done. */
        _exit(EXIT_SUCCESS);
}

static void vault_process_answer(struct process *process, enum vault_operation operation, enum vault_status status,
                                 const struct entry *entry) {
        struct vault_message message = { .mark = VAULT_MARK, .operation = operation, .status = status };
        if (entry) {
                message.serial = entry->serial;
                message.note_size = (uint32_t) entry->note_size;
                memcpy(message.name, entry->name, sizeof(entry->name));
                memcpy(message.note, entry->note, entry->note_size);
        }
        if (vault_message_send(process->client_fd, &message, entry ? entry->fds : NULL, entry ? entry->n_fds : 0,
                               MSG_DONTWAIT) < 0)
                fd_close(&process->client_fd);
}

static void vault_process_serve(struct process *process, const struct vault_message *request, int *fds, size_t n_fds) {
        enum vault_status status = VAULT_MALFORMED;
        const struct entry *entry = NULL;
        bool taken = false;
        switch (request->operation) {
        case VAULT_PUT:
                status = vault_process_put(process, request, fds, n_fds);
                taken = status == VAULT_OK;
                break;
        case VAULT_DROP:
                status = vault_process_drop(process, request->name);
                break;
        case VAULT_NEXT:
                entry = process->entries;
                while (entry && entry->serial <= request->serial)
                        entry = entry->next;
                status = entry ? VAULT_OK : VAULT_NONE;
                break;
        case VAULT_END:
                status = VAULT_OK;
                break;
        default:
                break;
        }
        if (!taken)
                vault_message_close_fds(fds, n_fds);
        vault_process_answer(process, request->operation, status, entry);
        if (request->operation == VAULT_END)
                end_process(process);
}

/* Does all that the daemon asked for so far, and sees whether it is gone. */
static void drain_client(struct process *process) {
        while (process->client_fd >= 0) {
                static struct vault_message request;
                int fds[VAULT_FDS_MAX];
                size_t n_fds = 0;
                int code = vault_message_receive(process->client_fd, &request, fds, &n_fds, MSG_DONTWAIT);
                if (code == -EAGAIN)
                        return;
                if (code > 0)
                        vault_process_serve(process, &request, fds, n_fds);
                else if (code == -EMFILE)
                        vault_process_answer(process, VAULT_PUT, VAULT_FULL, NULL);
                else if (code == -EBADMSG)
                        vault_process_answer(process, VAULT_PUT, VAULT_MALFORMED, NULL);
                else
                        fd_close(&process->client_fd);
        }
}

static void accept_client(struct process *process) {
        _cleanup_fd_ int fd = accept4(process->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
                /* The host is out of descriptors or memory; retrying at once would only waste time. */
                if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                        (void) poll(NULL, 0, 100);
                return;
        }
        struct ucred peer;
        socklen_t size = sizeof(peer);
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != geteuid() || peer_is_in_box(fd))
                return;
        drain_client(process);
        if (process->client_fd >= 0) {
                struct vault_message busy = { .mark = VAULT_MARK, .operation = VAULT_HELLO, .status = VAULT_BUSY };
                (void) vault_message_send(fd, &busy, NULL, 0, MSG_DONTWAIT);
                return;
        }
        process->client_fd = take_fd(&fd);
        struct vault_message hello = {
                .mark = VAULT_MARK, .operation = VAULT_HELLO, .status = VAULT_OK, .serial = (uint64_t) getpid()
        };
        if (vault_message_send(process->client_fd, &hello, NULL, 0, MSG_DONTWAIT) < 0)
                fd_close(&process->client_fd);
}

/* True if the vault has a reason to stay. */
static bool holds_something(const struct process *process) {
        for (const struct entry *entry = process->entries; entry; entry = entry->next)
                if (entry->name[0] != '.')
                        return true;
        return false;
}

/* Exits, unless a daemon connects or is about to: then it holds the lock. */
static void exit_if_unused(struct process *process) {
        int lock_fd = try_lock(process);
        struct pollfd last = { .fd = process->listen_fd, .events = POLLIN };
        if (lock_fd >= 0 && poll(&last, 1, 0) == 0) {
                remove_socket(process);
                _exit(EXIT_SUCCESS);
        }
        if (lock_fd == -ENOENT) /* the data directory was removed: no daemon will connect */
                _exit(EXIT_SUCCESS);
        fd_close(&lock_fd);
}

static _Noreturn void serve_loop(struct process *process, int idle_ms) {
        int64_t idle_since = (int64_t) clock_now_ms();
        for (;;) {
                bool idle = process->client_fd < 0 && !holds_something(process);
                int64_t now = (int64_t) clock_now_ms();
                if (!idle)
                        idle_since = now;
                int64_t left = idle_since + idle_ms - now;
                struct pollfd waits[] = { { .fd = process->listen_fd, .events = POLLIN },
                                          { .fd = process->client_fd, .events = POLLIN } };
                int code = poll(waits, ELEMENTS(waits), !idle ? -1 : left > 0 ? (int) left : 0);
                if (code < 0) {
                        if (errno != EINTR)
                                (void) poll(NULL, 0, 100);
                        continue;
                }
                if (waits[1].revents)
                        drain_client(process);
                if (waits[0].revents)
                        accept_client(process);
                if (code > 0 || !idle || left > 0)
                        continue;
                exit_if_unused(process);
                idle_since = (int64_t) clock_now_ms();
        }
}

/* Nothing of the daemon's is kept but the socket, which becomes descriptor 3. */
static int close_inherited(int listen_fd) {
        if (listen_fd < 3) {
                listen_fd = fcntl(listen_fd, F_DUPFD, 3);
                if (listen_fd < 0)
                        _exit(EXIT_FAILURE);
        }
        if (listen_fd != 3 && dup2(listen_fd, 3) < 0)
                _exit(EXIT_FAILURE);
        if (syscall(SYS_close_range, 4u, ~0u, 0u) < 0) {
                struct rlimit limit;
                long max = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < 1 << 20 ? (long) limit.rlim_max
                                                                                             : 1 << 20;
                for (long fd = 4; fd < max; fd++)
                        (void) close((int) fd);
        }
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int fd = 0; fd < 3; fd++)
                if (null_fd < 0 || dup2(null_fd, fd) < 0)
                        (void) close(fd);
        if (null_fd > 3)
                (void) close(null_fd);
        (void) fcntl(3, F_SETFD, FD_CLOEXEC);
        return 3;
}

static void settle_signals(void) {
        for (int number = 1; number < NSIG; number++)
                (void) signal(number, SIG_DFL);
        static const int ignored[] = { SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM };
        for (size_t i = 0; i < ELEMENTS(ignored); i++)
                (void) signal(ignored[i], SIG_IGN);
        sigset_t none;
        (void) sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The data directory: the socket lies in it. */
static void set_title(const char *path) {
        char dir[PATH_MAX];
        const char *slash = strrchr(path, '/');
        (void) snprintf(dir, sizeof(dir), "%.*s", slash ? (int) (slash - path) : 0, path);
        process_title_set("vault", dir);
}

_Noreturn void vault_process_run(int listen_fd, const char *path, int idle_ms) {
        settle_signals();
        set_title(path);
        (void) prctl(PR_SET_PDEATHSIG, 0);
        (void) umask(077);
        static char own_path[PATH_MAX];
        (void) snprintf(own_path, sizeof(own_path), "%s", path);
        static struct process process = { .client_fd = -1, .path = own_path };
        process.listen_fd = close_inherited(listen_fd);
        /* Keeps no file system busy. */
        if (chdir("/") < 0)
                _exit(EXIT_FAILURE);
        struct rlimit limit;
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
                limit.rlim_cur = limit.rlim_max;
                (void) setrlimit(RLIMIT_NOFILE, &limit);
                (void) getrlimit(RLIMIT_NOFILE, &limit);
                process.fds_max = limit.rlim_cur;
        }
        if (lstat(own_path, &process.socket) < 0 || fd_set_nonblocking(process.listen_fd) < 0)
                _exit(EXIT_FAILURE);
        serve_loop(&process, idle_ms);
}
