/* The vault's process.
 *
 * Theory of operation. A daemon forks twice, so that the vault is a child of init, in its own session, with no other
 * descriptor than the listening socket. One loop waits for the daemon's requests and for new connections. It never
 * waits for a daemon: if an answer does not fit into the socket, the connection is closed. The vault ends after
 * VAULT_END, after SIGKILL, or after a minute without a daemon if it has no entry or its socket was removed (with the
 * data directory): then no daemon can find it. It serves a new connection only when the old one is closed, and after the
 * requests of the old one. */
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

struct vault_entry {
        struct vault_entry *next;
        uint64_t serial;
        char name[VAULT_NAME_MAX + 1];
        int fds[VAULT_FDS_MAX];
        size_t n_fds;
        size_t note_size;
        unsigned char note[];
};

struct vault_process {
        int listen_fd;
        int client_fd;
        const char *path;
        struct stat socket; /* the socket that this process may unlink */
        int socket_fd; /* the same, opened as a path: it follows the file if the directory is renamed */
        struct vault_entry *entries; /* in the order of their serial numbers */
        uint64_t last_serial;
        size_t n_entries, n_fds, fds_max;
};

static void vault_entry_free(struct vault_process *process, struct vault_entry *entry) {
        process->n_fds -= entry->n_fds;
        process->n_entries--;
        vault_message_close_fds(entry->fds, entry->n_fds);
        free(entry);
}

/* Returns the link to the entry of this name, or the link at the end of the list. */
static struct vault_entry **vault_process_find(struct vault_process *process, const char *name) {
        struct vault_entry **at = &process->entries;
        while (*at && strcmp((*at)->name, name) != 0)
                at = &(*at)->next;
        return at;
}

/* Takes ownership of the descriptors on success. */
static enum vault_status vault_process_put(struct vault_process *process, const struct vault_message *message, int *fds,
                                           size_t n_fds) {
        size_t length = strlen(message->name);
        if (length < 1 || length > VAULT_NAME_MAX)
                return VAULT_MALFORMED;
        /* Descriptors of a replaced entry count twice for a moment, because they are open twice. */
        if (process->n_fds + n_fds + SPARE_FDS > process->fds_max || process->n_entries >= ENTRIES_MAX)
                return VAULT_FULL;
        struct vault_entry *entry = calloc(1, sizeof(*entry) + message->note_size);
        if (!entry)
                return VAULT_FULL;
        memcpy(entry->name, message->name, length);
        memcpy(entry->note, message->note, message->note_size);
        entry->note_size = message->note_size;
        memcpy(entry->fds, fds, sizeof(int) * n_fds);
        entry->n_fds = n_fds;
        process->n_fds += n_fds;
        process->n_entries++;

        struct vault_entry **at = vault_process_find(process, message->name), *old = *at;
        /* A replaced entry keeps its place, so that a walk through the list finds it once. */
        entry->serial = old ? old->serial : ++process->last_serial;
        entry->next = old ? old->next : NULL;
        *at = entry;
        if (old)
                vault_entry_free(process, old);
        return VAULT_OK;
}

static enum vault_status vault_process_drop(struct vault_process *process, const char *name) {
        struct vault_entry **at = vault_process_find(process, name), *entry = *at;
        if (!entry)
                return VAULT_NONE;
        *at = entry->next;
        vault_entry_free(process, entry);
        return VAULT_OK;
}

/* Takes the lock of vault_open, if it is free. Returns its descriptor or -errno. */
static int try_vault_lock(const struct vault_process *process) {
        char path[PATH_MAX + 8];
        (void) snprintf(path, sizeof(path), "%s.lock", process->path);
        _cleanup_fd_ int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
                return -errno;
        return take_fd(&fd);
}

/* Call it with the lock held, so that it never removes the socket of a new vault. If another process has the lock, that
 * process finds this socket dead and replaces it. */
static void vault_remove_socket(const struct vault_process *process) {
        struct stat status;
        if (lstat(process->path, &status) == 0 && status.st_dev == process->socket.st_dev &&
            status.st_ino == process->socket.st_ino)
                (void) unlink(process->path);
}

static _Noreturn void vault_process_end(struct vault_process *process) {
        while (process->entries) {
                struct vault_entry *entry = process->entries;
                process->entries = entry->next;
                vault_entry_free(process, entry);
        }
        int lock_fd = try_vault_lock(process);
        if (lock_fd >= 0)
                vault_remove_socket(process);
        /* The connection closes when the process ends. So a client that waits for it finds everything else done. */
        _exit(EXIT_SUCCESS);
}

static void vault_process_answer(struct vault_process *process, enum vault_operation operation,
                                 enum vault_status status, const struct vault_entry *entry) {
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

static void vault_process_serve(struct vault_process *process, const struct vault_message *request, int *fds,
                                size_t n_fds) {
        enum vault_status status = VAULT_MALFORMED;
        const struct vault_entry *entry = NULL;
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
                vault_process_end(process);
}

/* Serves all requests received so far. Closes the connection if the daemon has closed it. */
static void vault_process_read_client(struct vault_process *process) {
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

static void vault_process_accept(struct vault_process *process) {
        _cleanup_fd_ int fd = accept4(process->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
                /* The host is out of descriptors or memory: an immediate retry would fail, too. */
                if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                        (void) poll(NULL, 0, 100);
                return;
        }
        struct ucred peer;
        socklen_t size = sizeof(peer);
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != geteuid() || peer_is_in_box(fd))
                return;
        vault_process_read_client(process);
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

/* True if the vault is not empty (vault.h). */
static bool has_counted_entries(const struct vault_process *process) {
        for (const struct vault_entry *entry = process->entries; entry; entry = entry->next)
                if (entry->name[0] != '.')
                        return true;
        return false;
}

static bool vault_socket_is_removed(const struct vault_process *process) {
        struct stat status;
        return fstat(process->socket_fd, &status) == 0 && status.st_nlink == 0;
}

/* Exits, unless a daemon is connecting. Such a daemon holds the lock or is in the queue of the socket. */
static void vault_process_exit_if_unused(struct vault_process *process) {
        int lock_fd = try_vault_lock(process);
        struct pollfd last = { .fd = process->listen_fd, .events = POLLIN };
        if (lock_fd >= 0 && poll(&last, 1, 0) == 0) {
                vault_remove_socket(process);
                _exit(EXIT_SUCCESS);
        }
        if (lock_fd == -ENOENT) /* the data directory was removed: no daemon will connect */
                _exit(EXIT_SUCCESS);
        fd_close(&lock_fd);
}

static _Noreturn void vault_process_loop(struct vault_process *process, int idle_ms) {
        int64_t idle_since = (int64_t) clock_now_ms();
        for (;;) {
                bool idle = process->client_fd < 0;
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
                        vault_process_read_client(process);
                if (waits[0].revents)
                        vault_process_accept(process);
                if (code > 0 || !idle || left > 0)
                        continue;
                if (!has_counted_entries(process) || vault_socket_is_removed(process))
                        vault_process_exit_if_unused(process);
                idle_since = (int64_t) clock_now_ms();
        }
}

/* Closes all inherited descriptors but the socket, which becomes descriptor 3. */
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

static void reset_vault_signals(void) {
        for (int number = 1; number < NSIG; number++)
                (void) signal(number, SIG_DFL);
        static const int ignored[] = { SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM };
        for (size_t i = 0; i < ELEMENTS(ignored); i++)
                (void) signal(ignored[i], SIG_IGN);
        sigset_t none;
        (void) sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
}

/* ps shows the data directory, which contains the socket. */
static void set_vault_title(const char *path) {
        char dir[PATH_MAX];
        const char *slash = strrchr(path, '/');
        (void) snprintf(dir, sizeof(dir), "%.*s", slash ? (int) (slash - path) : 0, path);
        process_title_set("vault", dir);
}

_Noreturn void vault_process_run(int listen_fd, const char *path, int idle_ms) {
        reset_vault_signals();
        set_vault_title(path);
        (void) prctl(PR_SET_PDEATHSIG, 0);
        (void) umask(077);
        static char own_path[PATH_MAX];
        (void) snprintf(own_path, sizeof(own_path), "%s", path);
        static struct vault_process process = { .client_fd = -1, .path = own_path };
        process.listen_fd = close_inherited(listen_fd);
        /* The working directory would keep a file system busy. */
        if (chdir("/") < 0)
                _exit(EXIT_FAILURE);
        struct rlimit limit;
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
                limit.rlim_cur = limit.rlim_max;
                (void) setrlimit(RLIMIT_NOFILE, &limit);
                (void) getrlimit(RLIMIT_NOFILE, &limit);
                process.fds_max = limit.rlim_cur;
        }
        process.socket_fd = open(own_path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (process.socket_fd < 0 || fstat(process.socket_fd, &process.socket) < 0 ||
            fd_set_nonblocking(process.listen_fd) < 0)
                _exit(EXIT_FAILURE);
        vault_process_loop(&process, idle_ms);
}
