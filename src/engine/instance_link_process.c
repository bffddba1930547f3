/* The helper process that connects to instances, and its children, one for each connection: see instance_link.h. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/process_title.h"
#include "engine/incus.h"
#include "engine/incus_call.h"
#include "engine/instance.h"
#include "engine/instance_link_settings.h"
#include "engine/remote_tunnel.h"
#include "engine/stdio_channel.h"
#include "engine/stream_join.h"
#include "wire/message.h"

enum {
        LINKS_MAX = 512,
        LOCK_MS = 600000, /* while another connection makes the instance */
        RETRY_MS = 50,
        GREETING_MS = 60000,
        ERROR_OUTPUT_MAX = 600,
};

struct link {
        const struct engine_settings *settings;
        struct instance_files files;
        const struct instance_engine *engine;
        struct instance_order order;
        int local_fd;
        int marker_fd; /* -1: an instance without a session */
};

/* A program whose standard streams are connected to the instance. */
struct channel {
        pid_t pid;
        int in_fd, out_fd, error_fd;
};

/* ---- errors ---- */

_Noreturn static void instance_link_send_error(const struct link *link, const struct err *why) {
        json_t *answer = json_pack("{s:b, s:{s:s, s:s}}", "ok", 0, "error", "code", err_code_name(why->code), "message",
                                   why->message);
        _cleanup_free_ char *text = answer ? json_dumps(answer, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
        static const char other[] =
                "{\"ok\":false,\"error\":{\"code\":\"system\",\"message\":\"the message of the server is "
                "not UTF-8\"}}";
        struct message_queue queue = message_queue_make(64 << 10);
        const char *sent = text ? text : other;
        (void) message_queue_send(&queue, link->local_fd, MESSAGE_ANSWER, REMOTE_TUNNEL_NOTICE, 0, sent, strlen(sent));
        _exit(EXIT_SUCCESS);
}

static bool instance_link_is_wanted(const struct link *link) {
        struct pollfd polled = { .fd = link->local_fd, .events = 0 };
        return poll(&polled, 1, 0) == 0;
}

/* ---- the marker ---- */

static int marker_lock(struct link *link, struct err *err) {
        uint64_t deadline_ms = loop_now_ms() + LOCK_MS;
        link->marker_fd = -1;
        if (!*link->order.marker)
                return 0;
        link->marker_fd = open(link->order.marker, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (link->marker_fd < 0)
                return err_sys(err, errno, "opening %.300s", link->order.marker);
        while (flock(link->marker_fd, LOCK_EX | LOCK_NB) < 0) {
                if (errno != EWOULDBLOCK || loop_now_ms() >= deadline_ms)
                        return err_set(err, ERR_TIMEOUT, "the session's instance is still being made");
                if (!instance_link_is_wanted(link))
                        _exit(EXIT_SUCCESS);
                (void) poll(NULL, 0, RETRY_MS);
        }
        return 0;
}

/* Fills true if the session has an instance. The marker then contains the name of its server. */
static int marker_check(const struct link *link, bool *ret_is_made, struct err *err) {
        char server[300];
        ssize_t n = link->marker_fd < 0 ? 0 : pread(link->marker_fd, server, sizeof(server) - 1, 0);
        *ret_is_made = n > 0;
        if (n <= 0)
                return 0;
        server[n] = '\0';
        if (strcmp(server, incus_remote(link->settings)) == 0)
                return 0;
        return err_set(
                err, ERR_UNSUPPORTED,
                "this session is in an instance of the incus server \"%.100s\", and this daemon uses \"%.100s\": "
                "start it with INCUS_REMOTE=%.100s, or remove the session",
                server, incus_remote(link->settings), server);
}

static int marker_make_instance(const struct link *link, struct err *err) {
        const char *server = incus_remote(link->settings);
        if (link->engine->make(link->settings, &link->order, &link->files, err) < 0)
                return -1;
        if (link->marker_fd < 0 ||
            (pwrite(link->marker_fd, server, strlen(server), 0) > 0 && fsync(link->marker_fd) == 0))
                return 0;
        return err_sys(err, errno, "writing %.300s", link->order.marker);
}

/* ---- the program ---- */

_Noreturn static void exec_channel_program(const char *const *argv, int in_fd, int out_fd, int error_fd) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) signal(SIGPIPE, SIG_DFL);
        if (dup2(in_fd, 0) == 0 && dup2(out_fd, 1) == 1 && dup2(error_fd, 2) == 2 &&
            syscall(SYS_close_range, 3, ~0u, 0) == 0)
                (void) execvp(argv[0], (char *const *) (uintptr_t) argv);
        _exit(127);
}

static int channel_start(const struct link *link, struct channel *ret_channel, struct err *err) {
        int in[2], out[2], errors[2];
        struct instance_command command;
        if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(errors, O_CLOEXEC) < 0)
                return err_sys(err, errno, "making pipes");
        link->engine->channel(link->settings, &link->order, &link->files, &command);
        pid_t pid = fork();
        if (pid == 0)
                exec_channel_program(command.argv, in[0], out[1], errors[1]);
        fd_close(&in[0]);
        fd_close(&out[1]);
        fd_close(&errors[1]);
        *ret_channel = (struct channel) { pid, in[1], out[0], errors[0] };
        return pid < 0 ? err_sys(err, errno, "starting %s", command.argv[0]) : 0;
}

/* Reads the program's error output so far, as one line. */
static void channel_read_errors(const struct channel *channel, char ret_text[static ERROR_OUTPUT_MAX]) {
        (void) fd_set_nonblocking(channel->error_fd);
        ssize_t n = read(channel->error_fd, ret_text, ERROR_OUTPUT_MAX - 1);
        ret_text[n > 0 ? n : 0] = '\0';
        for (char *at = ret_text; *at; at++)
                if ((unsigned char) *at < 0x20 || (unsigned char) *at >= 0x7f)
                        *at = ' ';
}

static void channel_end(struct channel *channel) {
        if (channel->pid > 0) {
                (void) kill(channel->pid, SIGKILL);
                (void) waitpid(channel->pid, NULL, 0);
        }
        fd_close(&channel->in_fd);
        fd_close(&channel->out_fd);
        fd_close(&channel->error_fd);
}

/* Waits for the greeting. Another first line is not from Glovebox. */
static int channel_await_greeting(const struct channel *channel, struct err *err) {
        static const char greeting[] = STDIO_CHANNEL_GREETING;
        uint64_t deadline_ms = loop_now_ms() + GREETING_MS;
        char errors[ERROR_OUTPUT_MAX];
        for (size_t n = 0; n < sizeof(greeting) - 1;) {
                char byte;
                struct pollfd polled = { .fd = channel->out_fd, .events = POLLIN };
                uint64_t now_ms = loop_now_ms();
                if (now_ms >= deadline_ms)
                        return err_set(err, ERR_TIMEOUT, "the instance does not answer in time");
                if (poll(&polled, 1, (int) (deadline_ms - now_ms)) != 1)
                        continue;
                if (read(channel->out_fd, &byte, 1) != 1 || byte != greeting[n++]) {
                        (void) poll(NULL, 0, RETRY_MS); /* the error output may arrive a moment later */
                        channel_read_errors(channel, errors);
                        return err_set(err, ERR_GONE, "the instance does not answer: %s", errors);
                }
        }
        return 0;
}

static int channel_connect(const struct link *link, struct channel *ret_channel, struct err *err) {
        if (channel_start(link, ret_channel, err) < 0)
                return -1;
        if (channel_await_greeting(ret_channel, err) == 0)
                return 0;
        channel_end(ret_channel);
        return -1;
}

/* ---- one connection ---- */

static int explain_lost_instance(const struct link *link, struct err *err) {
        if (err->code != ERR_NOT_FOUND)
                return -1;
        return err_set(err, ERR_NOT_FOUND,
                       "the instance %s of this session is not on the incus server %.100s any more: its variables and "
                       "files are lost; remove the session",
                       link->order.name, incus_remote(link->settings));
}

/* Connects to an existing instance directly and queries the server only if the instance does not answer, because a
 * query takes long. */
static int instance_link_open(struct link *link, struct channel *ret_channel, struct err *err) {
        bool is_made;
        if (marker_lock(link, err) < 0 || marker_check(link, &is_made, err) < 0 ||
            (!is_made && marker_make_instance(link, err) < 0))
                return -1;
        if (channel_connect(link, ret_channel, err) == 0)
                return 0;
        if (link->engine->revive(link->settings, &link->order, err) < 0)
                return explain_lost_instance(link, err);
        return channel_connect(link, ret_channel, err);
}

_Noreturn static void instance_link_serve(struct link *link) {
        struct channel channel;
        struct err err = { 0 };
        link->order.name[INSTANCE_NAME_MAX - 1] = '\0';
        link->engine = instance_engine_find(link->order.engine);
        process_title_set("instance", link->order.name);
        if (!link->engine)
                (void) err_set(&err, ERR_SYSTEM, "there are no instances of the engine %.15s", link->order.engine);
        if (!link->engine || instance_link_open(link, &channel, &err) < 0)
                instance_link_send_error(link, &err);
        fd_close(&link->marker_fd);
        stream_join((struct stream_end) { link->local_fd, link->local_fd },
                    (struct stream_end) { channel.out_fd, channel.in_fd });
        channel_end(&channel);
        _exit(EXIT_SUCCESS);
}

/* ---- the helper ---- */

static void import_environment(const struct instance_link_settings *settings) {
        static char kept[INSTANCE_LINK_ENVIRONMENT_MAX];
        memcpy(kept, settings->environment, sizeof(kept));
        kept[sizeof(kept) - 1] = '\0';
        for (size_t at = 0; at < settings->environment_size && at < sizeof(kept); at += strlen(kept + at) + 1)
                (void) putenv(kept + at);
}

static void receive_link_order(const struct engine_settings *settings, const struct instance_files *files,
                               int orders_fd, size_t *n_links) {
        static struct link link;
        int fd = -1;
        ssize_t n = fd_passing_receive(orders_fd, &link.order, sizeof(link.order), &fd, 1, 0);
        if (n == -EINTR)
                return;
        if (n <= 0)
                _exit(EXIT_SUCCESS); /* the daemon has exited */
        while (*n_links > 0 && waitpid(-1, NULL, WNOHANG) > 0)
                (*n_links)--;
        if (n != sizeof(link.order) || fd < 0 || *n_links >= LINKS_MAX) {
                fd_close(&fd);
                return;
        }
        link.settings = settings;
        link.files = *files;
        link.local_fd = fd;
        pid_t helper = getpid(), pid = fork();
        if (pid == 0) {
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                fd_close(&orders_fd);
                if (getppid() != helper)
                        _exit(EXIT_SUCCESS);
                instance_link_serve(&link);
        }
        *n_links += pid > 0;
        fd_close(&fd);
}

_Noreturn void instance_link_run(const struct instance_link_settings *settings, int orders_fd) {
        struct engine_settings engines = ENGINE_SETTINGS_DEFAULT;
        const struct instance_files files = { settings->program, settings->kernel_dir };
        size_t n_links = 0;
        (void) signal(SIGPIPE, SIG_IGN);
        import_environment(settings);
        engines.incus_socket = settings->incus_socket;
        engines.incus_remote = settings->incus_remote;
        if (*incus_socket(&engines))
                (void) setenv("INCUS_SOCKET", incus_socket(&engines), 1);
        for (;;) /* receive_link_order reaps ended children */
                receive_link_order(&engines, &files, orders_fd, &n_links);
}
