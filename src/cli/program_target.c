#include "cli/program_target.h"

#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/claim.h"
#include "base/fd.h"
#include "base/loop.h"
#include "base/memory.h"
#include "wire/frame.h"

enum {
        FRAME_HEADER_BYTES = 8,
        KERNEL_PROGRAM = 9, /* types of frames: docs/KERNEL-PROTOCOL.md */
        KERNEL_STARTED = 134,
        KERNEL_ENDED = 135,
        REPLY_MAX = 64,
        START_TIMEOUT_MS = 10000,
        USAGE_TIMEOUT_MS = 2000,
        SIGNAL_PROCESS_GROUP = 1 << 2, /* of pidfd_send_signal, from Linux 6.9 on */
};

/* ---- the daemon ---- */

static void lose_daemon(struct program_target *target) {
        fd_close(&target->client->fd);
        if (target->orphaned)
                target->orphaned(target->context);
}

/* `glovebox kill`: what a signal to this process does. */
static void program_target_take_event(const struct program_target *target, const struct message *message) {
        json_t *json = message->type == MESSAGE_EVENT && message->request == target->request
                               ? json_loadb(message->bytes, message->size, 0, NULL)
                               : NULL;
        const char *event = json_string_value(json_object_get(json, "event"));
        if (event && strcmp(event, "end") == 0)
                (void) kill(getpid(), SIGTERM);
        json_decref(json);
}

static void take_usage(struct program_target *target, const json_t *answer) {
        target->usage.cpu_us = (uint64_t) json_integer_value(json_object_get(answer, "cpu_us"));
        target->usage.memory_peak_bytes = (uint64_t) json_integer_value(json_object_get(answer, "memory_peak_bytes"));
        target->usage.oom_kills = (uint64_t) json_integer_value(json_object_get(answer, "oom_kills"));
        target->has_usage = true;
}

static json_t *program_target_parse(const struct message *message) {
        return json_loadb(message->bytes, message->size, 0, NULL);
}

/* The next message, if it is there: 1; 0: not yet; -1: the daemon is gone. */
static int next_message(struct program_target *target, int *fds, size_t *n_fds, struct message *ret_message) {
        struct daemon_client *client = target->client;
        int code = message_parser_next(&client->parser, ret_message);
        if (code != 0)
                return code;
        long n = message_parser_read_fds(&client->parser, client->fd, fds, n_fds);
        if (n == -EAGAIN || n == -EINTR)
                return 0;
        return n > 0 ? message_parser_next(&client->parser, ret_message) : -1;
}

/* The last answer. True: the program has ended. */
static bool program_target_take_answer(struct program_target *target, const struct message *message,
                                       struct relay_outcome *ret_outcome) {
        json_t *json = message->type == MESSAGE_ANSWER ? program_target_parse(message) : NULL;
        bool is_over = json && message->request == target->request;
        if (json && json_is_true(json_object_get(json, "ok")))
                take_usage(target, json);
        const json_t *status = json_object_get(json, "wait_status");
        if (is_over) {
                ret_outcome->end = status ? RELAY_EXITED : RELAY_BOX_DIED;
                ret_outcome->wait_status = (int) json_integer_value(status);
        }
        json_decref(json);
        return is_over;
}

/* ---- asking for a box ---- */

static int take_box(struct program_target *target, const struct message *message, const int *fds, size_t n_fds,
                    struct err *err) {
        json_t *json = program_target_parse(message);
        if (message->type == MESSAGE_ANSWER) {
                const json_t *error = json_object_get(json, "error");
                const char *text = json_string_value(json_object_get(error, "message"));
                const char *name = json_string_value(json_object_get(error, "code"));
                enum err_code code = ERR_SYSTEM;
                for (int i = 0; name && i < ERR_CODES; i++)
                        if (strcmp(err_code_name((enum err_code) i), name) == 0)
                                code = (enum err_code) i;
                (void) err_set(err, code, "%s", text ? text : "the daemon gave no reason");
                json_decref(json);
                return -1;
        }
        json_int_t slots = json_integer_value(json_object_get(json, "slots"));
        for (size_t i = 0, n = 0; i < PROGRAM_FDS && n < n_fds; i++)
                if (slots & (1 << i))
                        target->fds[i] = fds[n++];
        target->box = json;
        const char *group = json_string_value(json_object_get(json, "group"));
        target->claim_fd = group ? claim_make(group) : -1;
        return target->fds[PROGRAM_REPLIES] >= 0 && target->fds[PROGRAM_AGENT] >= 0
                       ? 0
                       : err_set(err, ERR_PROTOCOL, "the daemon handed over a box without its descriptors");
}

static const struct relay_target_type program_target_type;

int program_target_ask(struct program_target *ret_target, struct daemon_client *client, json_t *body, struct err *err) {
        *ret_target = PROGRAM_TARGET_NONE;
        ret_target->base.type = &program_target_type;
        ret_target->client = client;
        ret_target->request = ++client->last_request;
        _cleanup_free_ char *text = json_dumps(body, JSON_COMPACT);
        if (!text)
                return err_set(err, ERR_SYSTEM, "out of memory");
        int code = message_send(client->fd, MESSAGE_REQUEST, ret_target->request, text, strlen(text));
        if (code < 0)
                return err_sys(err, -code, "asking the daemon for a box");
        for (;;) {
                struct pollfd watched = { .fd = client->fd, .events = POLLIN };
                struct message message;
                int fds[MESSAGE_FDS_MAX];
                size_t n_fds = ELEMENTS(fds);
                if (poll(&watched, 1, -1) < 0)
                        return err_sys(err, errno, "waiting for the daemon");
                code = next_message(ret_target, fds, &n_fds, &message);
                if (code < 0)
                        return err_set(err, ERR_GONE, "the daemon ended before it answered");
                if (code > 0)
                        return take_box(ret_target, &message, fds, n_fds, err);
        }
}

void program_target_release(struct program_target *target) {
        for (size_t i = 0; i < PROGRAM_FDS; i++)
                fd_close(&target->fds[i]);
        fd_close(&target->claim_fd);
        json_decref(target->box);
        target->box = NULL;
}

/* ---- starting it ---- */

static int write_whole(int fd, const void *bytes, size_t size, struct err *err) {
        for (const char *at = bytes; size > 0;) {
                ssize_t n = write(fd, at, size);
                struct pollfd watched = { .fd = fd, .events = POLLOUT };
                if (n < 0 && errno == EAGAIN && poll(&watched, 1, START_TIMEOUT_MS) > 0)
                        continue;
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(err, errno, "handing the program to its box");
                at += n;
                size -= (size_t) n;
        }
        return 0;
}

int program_target_start(struct program_target *target, const char *payload, size_t size, struct err *err) {
        _cleanup_free_ char *frame = malloc(FRAME_HEADER_BYTES + size);
        if (!frame)
                return err_set(err, ERR_SYSTEM, "out of memory");
        const uint32_t wire_size = htole32((uint32_t) size);
        memset(frame, 0, FRAME_HEADER_BYTES);
        memcpy(frame, &wire_size, sizeof(wire_size));
        frame[4] = KERNEL_PROGRAM;
        memcpy(frame + FRAME_HEADER_BYTES, payload, size);
        (void) signal(SIGPIPE, SIG_IGN); /* its status reports that a box has died */
        return write_whole(target->fds[PROGRAM_REQUESTS], frame, FRAME_HEADER_BYTES + size, err);
}

/* ---- while it runs ---- */

static void kill_box(struct relay_target *base) {
        const struct program_target *target = (const struct program_target *) base;
        (void) syscall(SYS_pidfd_send_signal, target->fds[PROGRAM_AGENT], SIGKILL, NULL, 0);
}

static int signal_by_agent(const struct program_target *target, int signal_number) {
        struct frame_writer payload = { 0 };
        frame_put_u32(&payload, (uint32_t) signal_number);
        frame_put_u32(&payload, 1);
        int code = frame_send(target->fds[PROGRAM_CONTROL], FRAME_SIGNAL, 1, &payload, NULL, 0);
        frame_writer_release(&payload);
        return code;
}

static int signal_program(struct relay_target *base, int signal_number) {
        const struct program_target *target = (const struct program_target *) base;
        int fd = target->fds[PROGRAM_PROCESS];
        if (fd < 0)
                return signal_by_agent(target, signal_number);
        if (syscall(SYS_pidfd_send_signal, fd, signal_number, NULL, SIGNAL_PROCESS_GROUP) == 0)
                return 0;
        return syscall(SYS_pidfd_send_signal, fd, signal_number, NULL, 0) < 0 ? -errno : 0;
}

enum { W_REPLIES, W_STATUS, W_DAEMON };

static size_t program_target_watch(struct relay_target *base, struct pollfd *ret_watched) {
        const struct program_target *target = (const struct program_target *) base;
        ret_watched[W_REPLIES] = (struct pollfd) { .fd = target->fds[PROGRAM_REPLIES], .events = POLLIN };
        ret_watched[W_STATUS] = (struct pollfd) { .fd = target->fds[PROGRAM_STATUS], .events = POLLIN };
        bool is_orphan = target->client->fd < 0 && target->fds[PROGRAM_STATUS] < 0;
        ret_watched[W_DAEMON] =
                (struct pollfd) { .fd = is_orphan ? target->fds[PROGRAM_AGENT] : target->client->fd, .events = POLLIN };
        return 3;
}

/* ENDED is "exit STATUS" or "failed ERRNO". The box reports it, so it is as trustworthy as its wait status. */
static bool take_end(const char *text, struct relay_outcome *ret_outcome) {
        int number;
        if (sscanf(text, "exit %d", &number) == 1) {
                ret_outcome->end = RELAY_EXITED;
                ret_outcome->wait_status = (number & 0xff) << 8;
                return true;
        }
        if (sscanf(text, "failed %d", &number) == 1) {
                ret_outcome->end = RELAY_NOT_STARTED;
                ret_outcome->failed_errno = number;
                return true;
        }
        return false;
}

/* Frames arrive whole, because they are shorter than PIPE_BUF. After an invalid one no more are read. */
static bool serve_replies(struct program_target *target, struct relay_outcome *ret_outcome) {
        char bytes[4 * REPLY_MAX];
        ssize_t n = read(target->fds[PROGRAM_REPLIES], bytes, sizeof(bytes) - 1);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return false;
        for (ssize_t at = 0; at + FRAME_HEADER_BYTES <= n;) {
                uint32_t size;
                char text[REPLY_MAX + 1];
                memcpy(&size, bytes + at, sizeof(size));
                size = le32toh(size);
                int type = (unsigned char) bytes[at + 4];
                if (size > REPLY_MAX || at + FRAME_HEADER_BYTES + (ssize_t) size > n)
                        break;
                (void) snprintf(text, sizeof(text), "%.*s", (int) size, bytes + at + FRAME_HEADER_BYTES);
                target->is_started |= type == KERNEL_STARTED;
                if (type == KERNEL_ENDED && take_end(text, ret_outcome))
                        return true;
                at += FRAME_HEADER_BYTES + (ssize_t) size;
                if (at == n)
                        return false;
        }
        fd_close(&target->fds[PROGRAM_REPLIES]); /* it executed another program, or died: the wait status tells which */
        target->is_started = true;
        return false;
}

static bool takes_input(const struct relay_target *base) {
        return ((const struct program_target *) base)->is_started;
}

static bool serve_status(struct program_target *target, struct relay_outcome *ret_outcome) {
        int status;
        ssize_t n = read(target->fds[PROGRAM_STATUS], &status, sizeof(status));
        if (n < 0 && errno == EINTR)
                return false;
        if (n != sizeof(status)) { /* its supervisor is dead, and so is the box */
                ret_outcome->end = RELAY_BOX_DIED;
                return true;
        }
        ret_outcome->end = RELAY_EXITED;
        ret_outcome->wait_status = status;
        return true;
}

/* The daemon has exited: this process reads from the agent from now on. */
static bool serve_orphan(struct program_target *target, struct relay_outcome *ret_outcome) {
        struct pollfd agent = { .fd = target->fds[PROGRAM_AGENT], .events = POLLIN };
        if (target->fds[PROGRAM_STATUS] >= 0 || poll(&agent, 1, 0) <= 0)
                return false;
        ret_outcome->end = RELAY_BOX_DIED;
        return true;
}

static bool serve_daemon(struct program_target *target, struct relay_outcome *ret_outcome) {
        for (;;) {
                struct message message;
                size_t n_fds = 0;
                int code = next_message(target, NULL, &n_fds, &message);
                if (code < 0) {
                        lose_daemon(target);
                        return serve_orphan(target, ret_outcome);
                }
                if (code == 0)
                        return false;
                program_target_take_event(target, &message);
                if (program_target_take_answer(target, &message, ret_outcome))
                        return true;
        }
}

static bool program_target_serve(struct relay_target *base, const struct pollfd *watched,
                                 struct relay_outcome *ret_outcome) {
        struct program_target *target = (struct program_target *) base;
        if (watched[W_REPLIES].revents && serve_replies(target, ret_outcome))
                return true;
        if (watched[W_STATUS].revents && serve_status(target, ret_outcome))
                return true;
        if (!watched[W_DAEMON].revents)
                return false;
        return target->client->fd < 0 ? serve_orphan(target, ret_outcome) : serve_daemon(target, ret_outcome);
}

static const struct relay_target_type program_target_type = {
        kill_box, signal_program, program_target_watch, program_target_serve, takes_input, true
};

/* ---- afterwards ---- */

void program_target_ask_usage(struct program_target *target) {
        const char *id = json_string_value(json_object_get(target->box, "id"));
        char text[200];
        uint64_t deadline_ms = loop_now_ms() + USAGE_TIMEOUT_MS;
        if (target->has_usage || target->client->fd < 0 || !id)
                return;
        (void) snprintf(text, sizeof(text), "{\"op\":\"program.usage\",\"id\":\"%.60s\"}", id);
        if (message_send(target->client->fd, MESSAGE_REQUEST, ++target->client->last_request, text, strlen(text)) < 0)
                return;
        while (!target->has_usage && loop_now_ms() < deadline_ms) {
                struct pollfd watched = { .fd = target->client->fd, .events = POLLIN };
                struct message message;
                struct relay_outcome ignored;
                size_t n_fds = 0;
                int code = next_message(target, NULL, &n_fds, &message);
                if (code > 0) /* an answer to this, or the one to the program, which has it too */
                        (void) program_target_take_answer(target, &message, &ignored);
                else if (code < 0 || poll(&watched, 1, USAGE_TIMEOUT_MS) <= 0)
                        return;
        }
}
