/* The daemon's side of the vault. */
#include "vault/vault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/unix_listener.h"
#include "vault/vault_message.h"
#include "vault/vault_process.h"

enum {
        GREETING_SECONDS = 30,
        ANSWER_SECONDS = 5,
        LOCK_TRIES = 1000,
        LOCK_PAUSE_MS = 10,
        OPEN_TRIES = 100,
        BACKLOG = 16
};

static int vault_lock(const char *path, struct err *err) {
        char name[PATH_MAX + 8];
        (void) snprintf(name, sizeof(name), "%s.lock", path);
        _cleanup_fd_ int fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return err_sys(err, errno, "cannot open %s", name);
        for (int i = 0; i < LOCK_TRIES; i++) {
                if (flock(fd, LOCK_EX | LOCK_NB) == 0)
                        return take_fd(&fd);
                if (errno != EWOULDBLOCK && errno != EINTR)
                        return err_sys(err, errno, "cannot lock %s", name);
                (void) poll(NULL, 0, LOCK_PAUSE_MS);
        }
        return err_set(err, ERR_TIMEOUT, "another process has held %s for long: find it with `fuser %s`", name, name);
}

/* A stopped vault (SIGSTOP) must not block the daemon forever. */
static int vault_set_timeouts(int fd, int seconds) {
        struct timeval limit = { .tv_sec = seconds };
        if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
            setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
                return -errno;
        return 0;
}

static int vault_make_socket(void) {
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        int code = vault_set_timeouts(fd, GREETING_SECONDS);
        return code < 0 ? code : take_fd(&fd);
}

/* Returns a connected socket, or -errno. */
static int vault_connect(const struct sockaddr_un *address) {
        _cleanup_fd_ int fd = vault_make_socket();
        if (fd < 0)
                return fd;
        int code;
        do
                code = connect(fd, (const struct sockaddr *) address, sizeof(*address));
        while (code < 0 && errno == EINTR);
        if (code < 0)
                return -errno;
        struct ucred peer;
        socklen_t size = sizeof(peer);
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
                return -errno;
        return peer.uid == geteuid() ? take_fd(&fd) : -EPERM;
}

static int vault_start(const struct sockaddr_un *address, const char *path) {
        /* Bound here, so that connections are queued while the new process starts. */
        _cleanup_fd_ int listen_fd = unix_listener_bind(address, SOCK_SEQPACKET, BACKLOG);
        if (listen_fd < 0)
                return listen_fd;
        pid_t child = fork();
        int code = child < 0 ? -errno : 0;
        if (child == 0) {
                (void) setsid();
                pid_t grandchild = fork();
                if (grandchild == 0)
                        vault_process_run(listen_fd, path, VAULT_IDLE_MS);
                _exit(grandchild < 0 ? errno : 0);
        }
        int status = 0;
        if (child > 0) {
                pid_t waited;
                do
                        waited = waitpid(child, &status, 0);
                while (waited < 0 && errno == EINTR);
                /* If SIGCHLD is ignored, there is no status; the connection then shows whether the vault started. */
                if (waited == child && status != 0)
                        code = WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
        }
        if (code < 0)
                (void) unlink(path);
        return code;
}

/* Removes the socket of a dead vault. -EEXIST: the path is not a socket. */
static int remove_stale_socket(const char *path) {
        struct stat status;
        if (lstat(path, &status) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (!S_ISSOCK(status.st_mode))
                return -EEXIST;
        return unlink(path) < 0 ? -errno : 0;
}

/* 1: connected; 0: the vault ended meanwhile, so the caller tries again; -1: refused. */
static int vault_greet(int fd, pid_t *ret_pid, struct err *err) {
        struct vault_message hello;
        int fds[VAULT_FDS_MAX];
        size_t n_fds = 0;
        int code = vault_message_receive(fd, &hello, fds, &n_fds, 0);
        if (code == 0 || code == -ECONNRESET)
                return 0;
        if (code == -EAGAIN)
                return err_set(err, ERR_TIMEOUT,
                               "the process glovebox-vault does not answer; check whether it is stopped");
        if (code < 0 && code != -EBADMSG)
                return err_sys(err, -code, "cannot exchange messages with the vault");
        if (code > 0)
                vault_message_close_fds(fds, n_fds);
        if (code < 0 || hello.operation != VAULT_HELLO)
                return err_set(err, ERR_PROTOCOL,
                               "the vault that holds the running boxes is of another version: finish with the "
                               "version that started it, or end the process glovebox-vault and with it those boxes");
        if (hello.status == VAULT_BUSY)
                return err_set(err, ERR_BUSY, "another Glovebox daemon is connected to the vault: stop it first");
        *ret_pid = (pid_t) hello.serial;
        return 1;
}

static int vault_open_locked(const struct sockaddr_un *address, const char *path, struct vault *ret_vault,
                             bool *ret_new, struct err *err) {
        bool started = false;
        for (int i = 0; i < OPEN_TRIES; i++) {
                _cleanup_fd_ int fd = vault_connect(address);
                if (fd == -ECONNREFUSED || fd == -ENOENT) {
                        int code = remove_stale_socket(path);
                        if (code >= 0)
                                code = vault_start(address, path);
                        if (code < 0)
                                return err_sys(err, -code, "cannot start the vault at %s", path);
                        started = true;
                        continue;
                }
                if (fd == -EPERM)
                        return err_set(err, ERR_PERMISSION, "the vault at %s belongs to another user", path);
                if (fd < 0)
                        return err_sys(err, -fd, "cannot connect to the vault at %s", path);
                int greeted = vault_greet(fd, &ret_vault->pid, err);
                if (greeted < 0)
                        return -1;
                if (greeted > 0) {
                        (void) vault_set_timeouts(fd, ANSWER_SECONDS);
                        ret_vault->fd = take_fd(&fd);
                        *ret_new = started;
                        return 0;
                }
                (void) poll(NULL, 0, LOCK_PAUSE_MS);
        }
        return err_set(err, ERR_SYSTEM, "the vault at %s ends as soon as it is started: see the system's log", path);
}

/* A socket address has room for 107 characters. A longer path goes through /proc/self/fd: its directory must stay open
 * in *ret_dir_fd while the address is used. */
static int vault_find_address(const char *path, struct sockaddr_un *ret_address, int *ret_dir_fd, struct err *err) {
        *ret_address = (struct sockaddr_un) { .sun_family = AF_UNIX };
        size_t room = sizeof(ret_address->sun_path), length = strlen(path);
        const char *slash = strrchr(path, '/');
        if (path[0] != '/' || length >= PATH_MAX || strlen(slash) > room / 2)
                return err_set(err, ERR_USAGE,
                               "the vault's path must begin with / and be a path that a socket can have: %.500s", path);
        if (length < room) {
                memcpy(ret_address->sun_path, path, length + 1);
                return 0;
        }
        char dir[PATH_MAX];
        memcpy(dir, path, (size_t) (slash - path) + 1);
        dir[slash - path + 1] = '\0';
        *ret_dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (*ret_dir_fd < 0)
                return err_sys(err, errno, "cannot open the directory of the vault");
        (void) snprintf(ret_address->sun_path, room, "/proc/self/fd/%d%.60s", *ret_dir_fd, slash);
        return 0;
}

int vault_open(const char *path, struct vault *ret_vault, bool *ret_new, struct err *err) {
        struct sockaddr_un address;
        _cleanup_fd_ int dir_fd = -1;
        if (vault_find_address(path, &address, &dir_fd, err) < 0)
                return -1;
        _cleanup_fd_ int lock_fd = vault_lock(path, err);
        return lock_fd < 0 ? -1 : vault_open_locked(&address, path, ret_vault, ret_new, err);
}

bool vault_is_running(const char *path) {
        struct sockaddr_un address;
        _cleanup_fd_ int dir_fd = -1;
        struct stat status;
        if (lstat(path, &status) < 0 || !S_ISSOCK(status.st_mode) ||
            vault_find_address(path, &address, &dir_fd, NULL) < 0)
                return false;
        _cleanup_fd_ int lock_fd = vault_lock(path, NULL); /* a daemon that starts now must not find the vault busy */
        _cleanup_fd_ int fd = lock_fd < 0 ? -1 : vault_connect(&address);
        return fd >= 0;
}

void vault_close(struct vault *vault) {
        fd_close(&vault->fd);
}

/* Sends a request and receives its answer. Returns the status of the answer, or -1. */
static int vault_request(struct vault *vault, struct vault_message *message, const int *fds, size_t n_fds,
                         int ret_fds[static VAULT_FDS_MAX], size_t *ret_n_fds, struct err *err) {
        uint32_t operation = message->operation;
        message->mark = VAULT_MARK;
        *ret_n_fds = 0;
        int code = vault_message_send(vault->fd, message, fds, n_fds, 0);
        if (code == 0)
                code = vault_message_receive(vault->fd, message, ret_fds, ret_n_fds, 0);
        if (code == 0 || code == -EPIPE || code == -ECONNRESET)
                return err_set(err, ERR_GONE, "the vault has ended; descriptors that only the vault held are lost");
        if (code == -EMFILE)
                return err_set(err, ERR_LIMIT,
                               "too many open files to take boxes back from the vault: raise the limit of open "
                               "files (ulimit -n)");
        if (code == -EAGAIN)
                return err_set(err, ERR_TIMEOUT,
                               "the vault has not answered for %d seconds: see whether the process "
                               "glovebox-vault is stopped",
                               ANSWER_SECONDS);
        if (code < 0)
                return err_sys(err, -code, "cannot exchange messages with the vault");
        if (message->operation == operation && message->status == VAULT_FULL)
                return err_set(err, ERR_LIMIT,
                               "the vault cannot hold more descriptors: raise the hard limit of open files "
                               "(ulimit -Hn) and restart it");
        if (message->operation != operation || message->status == VAULT_MALFORMED)
                return err_set(err, ERR_PROTOCOL, "the vault rejected the request: it is of another version");
        return (int) message->status;
}

static int message_set_name(struct vault_message *message, const char *name, struct err *err) {
        size_t length = strnlen(name, VAULT_NAME_MAX + 1);
        if (length < 1 || length > VAULT_NAME_MAX)
                return err_set(err, ERR_USAGE, "a name in the vault has 1 to %d characters", VAULT_NAME_MAX);
        memcpy(message->name, name, length);
        return 0;
}

int vault_put(struct vault *vault, const char *name, const void *note, size_t note_size, const int *fds, size_t n_fds,
              struct err *err) {
        struct vault_message message = { .operation = VAULT_PUT };
        if (message_set_name(&message, name, err) < 0)
                return -1;
        if (note_size > VAULT_NOTE_MAX || n_fds > VAULT_FDS_MAX)
                return err_set(err, ERR_LIMIT, "an entry of the vault has at most %d bytes and %d descriptors",
                               VAULT_NOTE_MAX, VAULT_FDS_MAX);
        if (note_size > 0)
                memcpy(message.note, note, note_size);
        message.note_size = (uint32_t) note_size;
        int none[VAULT_FDS_MAX];
        size_t n_none;
        return vault_request(vault, &message, fds, n_fds, none, &n_none, err) < 0 ? -1 : 0;
}

int vault_drop(struct vault *vault, const char *name, struct err *err) {
        struct vault_message message = { .operation = VAULT_DROP };
        if (message_set_name(&message, name, err) < 0)
                return -1;
        int none[VAULT_FDS_MAX];
        size_t n_none;
        int status = vault_request(vault, &message, NULL, 0, none, &n_none, err);
        if (status == VAULT_NONE)
                return err_set(err, ERR_NOT_FOUND, "the vault has no entry %s", name);
        return status < 0 ? -1 : 0;
}

int vault_each(struct vault *vault,
               void (*each)(const char *name, const void *note, size_t note_size, int *fds, size_t n_fds,
                            void *context),
               void *context, struct err *err) {
        uint64_t serial = 0;
        for (;;) {
                struct vault_message message = { .operation = VAULT_NEXT, .serial = serial };
                int fds[VAULT_FDS_MAX];
                size_t n_fds;
                int status = vault_request(vault, &message, NULL, 0, fds, &n_fds, err);
                if (status < 0)
                        return -1;
                if (status == VAULT_NONE)
                        return 0;
                serial = message.serial;
                each(message.name, message.note, message.note_size, fds, n_fds, context);
        }
}

int vault_end(struct vault *vault, struct err *err) {
        struct vault_message message = { .operation = VAULT_END };
        int fds[VAULT_FDS_MAX];
        size_t n_fds;
        if (vault_request(vault, &message, NULL, 0, fds, &n_fds, err) < 0)
                return -1;
        /* The vault closes the connection when it ends. */
        int code = vault_message_receive(vault->fd, &message, fds, &n_fds, 0);
        vault_close(vault);
        if (code == -EAGAIN)
                return err_set(err, ERR_TIMEOUT, "the vault does not end");
        return 0;
}
