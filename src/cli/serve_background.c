#include "cli/serve_background.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/memory.h"
#include "cli/ui/terminal.h"
#include "client/daemon_client.h"
#include "daemon/daemon.h"
#include "store/registry.h"

enum { OTHER_TIMEOUT_MS = 10000, LOG_MAX_BYTES = 8 << 20, READY_FD = 3 };

static int open_log(const char *data_dir, struct err *err) {
        char path[DATA_DIR_PATH_MAX + 32], old[DATA_DIR_PATH_MAX + 32];
        (void) snprintf(path, sizeof(path), "%s/daemon.log", data_dir);
        (void) snprintf(old, sizeof(old), "%s/daemon.log.1", data_dir);
        struct stat status;
        if (lstat(path, &status) == 0 && status.st_size > LOG_MAX_BYTES)
                (void) rename(path, old);
        const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK; /* a FIFO: ENXIO */
        int fd = open(path, flags, 0600);
        return fd < 0 ? err_sys(err, errno, "opening the log %s", path) : fd;
}

static void report_ready(void *context) {
        int *fd = context;
        (void) fd_write_all(*fd, "R", 1);
        fd_close(fd);
}

/* In the child: never returns to the verb's own way. */
_Noreturn static void become_daemon(struct serve_options *options, int log_fd, int ready_fd) {
        struct err err = { 0 };
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC), fd = READY_FD;
        (void) umask(077);
        if (setsid() < 0 || chdir("/") < 0 || null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 ||
            dup2(log_fd, STDOUT_FILENO) < 0 || dup2(log_fd, STDERR_FILENO) < 0 ||
            (ready_fd != READY_FD && dup3(ready_fd, READY_FD, O_CLOEXEC) < 0) ||
            close_range(READY_FD + 1, ~0u, 0) < 0) {
                fd = ready_fd;
                (void) err_sys(&err, errno, "going to the background");
        } else {
                options->ready = report_ready;
                options->ready_context = &fd;
                if (serve_run(options, &err) == 0)
                        _exit(0);
                (void) terminal_fail(&err); /* into the log */
        }
        if (fd >= 0 && fd_write_all(fd, "E", 1) == 0)
                (void) fd_write_all(fd, &err, sizeof(err));
        _exit(err_code_exit_status(err.code));
}

/* True if the daemon that holds the data directory serves elsewhere: waiting for this socket would be in vain. */
static bool serves_elsewhere(const struct serve_options *options) {
        char path[REGISTRY_SOCKET_MAX];
        registry_find_socket(options->data_dir, path);
        return *path && strcmp(path, options->socket_path) != 0;
}

/* Another daemon holds the socket or the data directory: does it answer within reasonable time? */
static int wait_for_other(const struct serve_options *options) {
        uint64_t deadline = loop_now_ms() + OTHER_TIMEOUT_MS;
        struct err ignored;
        while (loop_now_ms() < deadline) {
                struct daemon_client client;
                if (daemon_client_connect(options->socket_path, &client, &ignored) == 0) {
                        daemon_client_close(&client);
                        return 0;
                }
                if (serves_elsewhere(options))
                        break;
                (void) nanosleep(&(const struct timespec) { .tv_nsec = 50 * 1000 * 1000 }, NULL);
        }
        return -1; /* the daemon's own error stays: it names the process that holds the lock */
}

/* Helpers of the daemon may hold the pipe open, so its end cannot be waited for: the process is checked, too. */
static int read_byte(int from_fd, pid_t pid, char *ret_byte) {
        for (bool dead = false;;) {
                struct pollfd watched = { .fd = from_fd, .events = POLLIN };
                int n = poll(&watched, 1, dead ? 0 : 200);
                if (n > 0)
                        return read(from_fd, ret_byte, 1) == 1 ? 0 : -1;
                if (dead)
                        return -1;
                dead = waitpid(pid, NULL, WNOHANG) == pid; /* once more: its last message may be in the pipe */
        }
}

static int wait_until_ready(const struct serve_options *options, int from_fd, pid_t pid, struct err *err) {
        char tag;
        struct err reported;
        if (read_byte(from_fd, pid, &tag) < 0 ||
            (tag != 'R' && fd_read_exactly(from_fd, &reported, sizeof(reported)) < 0))
                return err_set(err, ERR_SYSTEM, "the daemon died while it started; its log is %.800s/daemon.log",
                               options->data_dir);
        if (tag == 'R')
                return 0;
        reported.message[sizeof(reported.message) - 1] = '\0';
        *err = reported;
        return err->code == ERR_BUSY ? wait_for_other(options) : -1;
}

/* The address of the API of the daemon at the other end; "" if it has only the UNIX socket, or does not report it. */
static void ask_address(struct daemon_client *client, char ret_address[static 128]) {
        json_t *answer = NULL;
        struct err ignored;
        const char *address = NULL;
        if (daemon_client_ask(client, "status", NULL, &answer, &ignored) == 0)
                address = json_string_value(json_object_get(json_object_get(answer, "daemon"), "api"));
        (void) snprintf(ret_address, 128, "%s", address ? address : "");
        json_decref(answer);
}

/* Options count only when a daemon starts: if one runs already without the requested port, that must not look like
 * success. */
static int meet_other(const struct serve_options *options, const struct service_settings *service,
                      struct daemon_client *other, struct err *err) {
        char address[128], wanted[128];
        ask_address(other, address);
        (void) snprintf(wanted, sizeof(wanted), "http://%s:%u", service->host ? service->host : "", service->port);
        if (service->host && (service->port == 0 ? !*address : strcmp(address, wanted) != 0))
                return err_set(err, ERR_BUSY,
                               "a daemon is serving at %s already, and its API is %s%s; to serve it at %s, end this "
                               "one first (glovebox stop; its sessions stay), then repeat this",
                               options->socket_path, *address ? "at " : "on its UNIX socket alone", address, wanted);
        (void) fprintf(stderr, "glovebox: a daemon is serving at %s already\n", options->socket_path);
        return 0;
}

static void say_address(const struct serve_options *options, const struct service_settings *service) {
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        char address[128];
        struct err ignored;
        if (!service->host || daemon_client_connect(options->socket_path, &client, &ignored) < 0)
                return;
        ask_address(&client, address);
        if (*address)
                (void) fprintf(stderr, "glovebox: the API is at %s, its description at %s/docs\n", address, address);
}

int serve_in_background(struct serve_options *options, const struct service_settings *service, struct err *err) {
        _cleanup_(daemon_client_close) struct daemon_client other = DAEMON_CLIENT_NONE;
        struct err ignored;
        if (daemon_client_connect(options->socket_path, &other, &ignored) == 0)
                return meet_other(options, service, &other, err);
        _cleanup_fd_ int log_fd = open_log(options->data_dir, err);
        int ends[2];
        if (log_fd < 0)
                return -1;
        if (pipe2(ends, O_CLOEXEC) < 0)
                return err_sys(err, errno, "making a pipe");
        _cleanup_fd_ int from_fd = ends[0];
        (void) fflush(NULL);
        pid_t pid = fork();
        if (pid == 0)
                become_daemon(options, log_fd, ends[1]);
        int fork_errno = errno;
        fd_close(&ends[1]);
        if (pid < 0)
                return err_sys(err, fork_errno, "starting the daemon");
        if (wait_until_ready(options, from_fd, pid, err) < 0)
                return -1;
        say_address(options, service);
        return 0;
}
