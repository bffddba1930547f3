/* The relay between an MCP client and the daemon.
 *
 * Theory of operation. Bytes of standard input go to the daemon as they come; what the daemon sends is written line by
 * line, whole lines only. The relay decides nothing, but it remembers which requests have no answer yet, and which run
 * each of them waits for (the daemon says so). When the connection to the daemon ends, it waits for the next daemon, or
 * starts one, and opens the channel again: runs have gone on, so each is read again in the place of the call that
 * waited for it. When the client closes standard input and still reads, calls under way have a moment to be answered
 * (`echo '{…}' | glovebox mcp`). Then, or when the client is killed, the relay ends, and the daemon ends what the
 * client left. */
#include "cli/mcp_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/memory.h"
#include "client/daemon_client.h"
#include "mcp/mcp.h"

enum {
        REQUEST = 1,             /* the number of the channel on its connection */
        INPUT_STEP = 128 << 10,
        QUEUE_FULL = 512 << 10,  /* input is not read while this much waits */
        LINE_MAX_BYTES = MCP_ANSWER_MAX + (64 << 10),
        PENDING_MAX = 1024,
        REOPEN_MS = 20 * 1000,
        LINGER_MS = 1500,        /* after the end of the input; clients wait two seconds before they send signals */
        PATIENCE_MS = 3 * 1000, /* time for a service manager to restart the daemon; then the relay starts one */
};

/* A request without an answer. */
struct pending {
        struct pending *next;
        char *id;     /* as JSON */
        char *run;    /* SANDBOX.RUN that it waits for, or NULL */
        json_t *meta; /* params._meta, or NULL; it shows the era of the request */
};

struct line {
        char *bytes;
        size_t size, room;
        bool is_too_long;
};

struct relay {
        const struct socket_place *place;
        json_t *opening;
        struct daemon_client client;
        struct pending *pending;
        size_t n_pending;
        struct line in, out;
        uint64_t input_ended_ms; /* 0: it goes on */
        bool is_refused;
        struct err refusal;
};

/* ---- lines ---- */

static int line_add(struct line *line, const char *bytes, size_t size, size_t max) {
        if (line->is_too_long || size > max - line->size) {
                line->is_too_long = true;
                line->size = 0;
                return 0;
        }
        if (line->size + size > line->room) {
                size_t room = line->size + size + line->size / 2 + 4096;
                char *grown = realloc(line->bytes, room);
                if (!grown)
                        return -ENOMEM;
                line->bytes = grown;
                line->room = room;
        }
        memcpy(line->bytes + line->size, bytes, size);
        line->size += size;
        return 0;
}

static void line_clear(struct line *line) {
        line->size = 0;
        line->is_too_long = false;
        if (line->room > 1 << 20) {
                free(line->bytes);
                *line = (struct line) { 0 };
        }
}

/* ---- requests that wait ---- */

static void pending_free(struct pending *pending) {
        free(pending->id);
        free(pending->run);
        json_decref(pending->meta);
        free(pending);
}

static struct pending **pending_find(struct relay *relay, const char *id, size_t size) {
        struct pending **at = &relay->pending;
        while (*at && (strlen((*at)->id) != size || memcmp((*at)->id, id, size) != 0))
                at = &(*at)->next;
        return at;
}

static void pending_drop(struct relay *relay, const char *id, size_t size) {
        struct pending **at = pending_find(relay, id, size), *found = *at;
        if (!found)
                return;
        *at = found->next;
        relay->n_pending--;
        pending_free(found);
}

static char *id_text(const json_t *id) {
        return json_is_string(id) || json_is_integer(id) ? json_dumps(id, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
}

/* A message of the client: a request is added to the list, a cancellation removes one. The daemon refuses malformed
 * messages. */
static void note_message(struct relay *relay, const char *bytes, size_t size) {
        json_t *json = json_loadb(bytes, size, 0, NULL);
        json_t *params = json_object_get(json, "params"), *method = json_object_get(json, "method");
        const char *name = json_string_value(method);
        char *id = method ? id_text(json_object_get(json, "id")) : NULL;
        if (name && strcmp(name, "notifications/cancelled") == 0) {
                _cleanup_free_ char *cancelled = id_text(json_object_get(params, "requestId"));
                if (cancelled)
                        pending_drop(relay, cancelled, strlen(cancelled));
        }
        struct pending *pending = id && relay->n_pending < PENDING_MAX ? calloc(1, sizeof(*pending)) : NULL;
        if (pending) {
                pending->id = take_ptr(id);
                pending->meta = json_incref(json_object_get(params, "_meta"));
                pending->next = relay->pending;
                relay->pending = pending;
                relay->n_pending++;
        }
        free(id);
        json_decref(json);
}

/* A message of the daemon is an answer if it begins with the id. */
static void note_answer(struct relay *relay, const char *bytes, size_t size) {
        static const char begin[] = "{\"jsonrpc\":\"2.0\",\"id\":";
        size_t at = sizeof(begin) - 1, end;
        if (size <= at || memcmp(bytes, begin, at) != 0)
                return;
        if (bytes[at] == '"') {
                for (end = at + 1; end < size && bytes[end] != '"'; end++)
                        end += bytes[end] == '\\';
                end++;
        } else
                for (end = at; end < size && bytes[end] != ','; end++)
                        ;
        if (end <= size)
                pending_drop(relay, bytes + at, end - at);
}

static void note_run(struct relay *relay, const char *bytes, size_t size) {
        json_t *event = json_loadb(bytes, size, 0, NULL);
        const char *run = json_string_value(json_object_get(event, "run"));
        _cleanup_free_ char *id = id_text(json_object_get(event, "id"));
        struct pending *found = id && run ? *pending_find(relay, id, strlen(id)) : NULL;
        if (found) {
                free(found->run);
                found->run = strdup(run);
        }
        json_decref(event);
}

/* ---- to the client ---- */

/* -errno: the output has no reader. */
static int write_line(const char *bytes, size_t size) {
        int code = fd_write_all(STDOUT_FILENO, bytes, size);
        return code < 0 ? code : 0;
}

static int write_failure(const struct pending *pending, const char *why) {
        _cleanup_free_ char *text = NULL;
        int size = asprintf(&text, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32603,\"message\":\"%s\"}}\n",
                            pending->id, why);
        return size < 0 ? -ENOMEM : write_line(text, (size_t) size);
}

static int mcp_relay_take_data(struct relay *relay, const char *bytes, size_t size) {
        while (size > 0) {
                const char *feed = memchr(bytes, '\n', size);
                size_t part = feed ? (size_t) (feed - bytes) + 1 : size;
                int code = line_add(&relay->out, bytes, part, LINE_MAX_BYTES);
                if (code == 0 && feed && !relay->out.is_too_long) {
                        note_answer(relay, relay->out.bytes, relay->out.size);
                        code = write_line(relay->out.bytes, relay->out.size);
                }
                if (feed)
                        line_clear(&relay->out);
                if (code < 0)
                        return code;
                bytes += part;
                size -= part;
        }
        return 0;
}

/* ---- the daemon ---- */

static int send_data(struct relay *relay, const char *bytes, size_t size) {
        int code = message_queue_send(&relay->client.queue, relay->client.fd, MESSAGE_DATA, REQUEST, 0, bytes, size);
        return code < 0 ? code : 0;
}

static int open_channel(struct relay *relay, unsigned flags, struct err *err) {
        _cleanup_free_ char *text = json_dumps(relay->opening, JSON_COMPACT);
        if (!text)
                return err_set(err, ERR_SYSTEM, "out of memory");
        if (daemon_client_open(relay->place, flags, &relay->client, err) < 0)
                return -1;
        int had = fcntl(relay->client.fd, F_GETFL);
        (void) fcntl(relay->client.fd, F_SETFL, had | O_NONBLOCK);
        int code = message_queue_send(&relay->client.queue, relay->client.fd, MESSAGE_REQUEST, REQUEST, 0, text,
                                      strlen(text));
        return code < 0 ? err_sys(err, -code, "asking the daemon for a channel") : 0;
}

/* The run of a call whose daemon went away, read in its place; without a run there is nothing that could be read. */
static int read_again(struct relay *relay, struct pending *pending) {
        if (!pending->run)
                return write_failure(pending, "the daemon was restarted before it had accepted this call; call again");
        json_t *id = json_loads(pending->id, JSON_DECODE_ANY, NULL);
        json_t *params = json_pack("{s:s, s:{s:s, s:i}}", "name", "read_output", "arguments", "run_id", pending->run,
                                   "wait_s", MCP_WAIT_MAX_MS / 1000);
        if (pending->meta)
                json_object_set(params, "_meta", pending->meta);
        json_t *call =
                json_pack("{s:s, s:o, s:s, s:o}", "jsonrpc", "2.0", "id", id, "method", "tools/call", "params", params);
        _cleanup_free_ char *text = json_dumps(call, JSON_COMPACT);
        json_decref(call);
        return text && send_data(relay, text, strlen(text)) == 0 ? send_data(relay, "\n", 1) : -ENOMEM;
}

/* Requests that are answered here leave the list; the others stay. */
static int read_all_again(struct relay *relay) {
        int code = 0;
        for (struct pending **at = &relay->pending, *pending; code == 0 && (pending = *at);) {
                bool is_lost = !pending->run;
                code = read_again(relay, pending);
                if (is_lost) {
                        *at = pending->next;
                        relay->n_pending--;
                        pending_free(pending);
                } else
                        at = &pending->next;
        }
        return code;
}

/* 1 if a call waits or there is input to pass on; -1: the input has ended. */
static int is_wanted(const struct relay *relay) {
        struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
        (void) poll(&input, 1, 0);
        if (relay->input_ended_ms || (input.revents & (POLLHUP | POLLERR | POLLNVAL) && !(input.revents & POLLIN)))
                return -1;
        return relay->n_pending > 0 || input.revents & POLLIN;
}

/* 0; 1: the client has disconnected meanwhile; -1. A stopped daemon is started by the next call, not before. */
static int reopen(struct relay *relay, struct err *err) {
        uint64_t begin_ms = loop_now_ms(), wanted_ms = 0;
        daemon_client_close(&relay->client);
        line_clear(&relay->out);
        for (;;) {
                int wanted = is_wanted(relay);
                uint64_t now_ms = loop_now_ms();
                if (wanted < 0)
                        return 1;
                wanted_ms = !wanted ? 0 : wanted_ms ? wanted_ms : now_ms;
                bool starts = wanted && now_ms - begin_ms > PATIENCE_MS;
                if (open_channel(relay, starts ? DAEMON_START : 0, err) == 0)
                        break;
                daemon_client_close(&relay->client);
                if (wanted_ms && now_ms - wanted_ms > REOPEN_MS)
                        return -1;
                (void) nanosleep(&(const struct timespec) { .tv_nsec = 100 * 1000 * 1000 }, NULL);
        }
        if (relay->in.size > 0 && !relay->in.is_too_long && send_data(relay, relay->in.bytes, relay->in.size) < 0)
                return err_set(err, ERR_GONE, "the daemon went away again");
        return read_all_again(relay) < 0 ? err_set(err, ERR_GONE, "the client or the daemon went away") : 0;
}

static void take_refusal(struct relay *relay, const struct message *message) {
        json_t *answer = json_loadb(message->bytes, message->size, 0, NULL);
        const char *why = json_string_value(json_object_get(json_object_get(answer, "error"), "message"));
        relay->is_refused = true;
        (void) err_set(&relay->refusal, ERR_REFUSED, "%s", why ? why : "the daemon closed the channel");
        json_decref(answer);
}

/* 0; 1: the connection has ended; -errno: the client's side has. */
static int mcp_relay_take_messages(struct relay *relay) {
        long n = message_parser_read(&relay->client.parser, relay->client.fd);
        if (n == -EAGAIN || n == -EINTR)
                return 0;
        if (n <= 0)
                return 1;
        struct message message;
        int code;
        while ((code = message_parser_next(&relay->client.parser, &message)) > 0) {
                int failed = 0;
                if (message.type == MESSAGE_DATA)
                        failed = mcp_relay_take_data(relay, message.bytes, message.size);
                else if (message.type == MESSAGE_EVENT)
                        note_run(relay, message.bytes, message.size);
                else if (message.type == MESSAGE_ANSWER)
                        take_refusal(relay, &message);
                if (failed < 0)
                        return failed;
        }
        return code < 0 ? 1 : 0;
}

/* ---- from the client ---- */

/* A last line without a line feed is a message, too. As take_input. */
static int end_input(struct relay *relay) {
        bool is_message = relay->in.size > 0 && !relay->in.is_too_long;
        if (is_message)
                note_message(relay, relay->in.bytes, relay->in.size);
        line_clear(&relay->in);
        relay->input_ended_ms = loop_now_ms();
        return is_message && send_data(relay, "\n", 1) < 0 ? 1 : 0;
}

/* Milliseconds to wait for answers after the end of the input; -1: it goes on, 0: no longer. */
static int linger_ms(const struct relay *relay) {
        if (!relay->input_ended_ms)
                return -1;
        uint64_t past_ms = loop_now_ms() - relay->input_ended_ms;
        return relay->n_pending == 0 || past_ms >= LINGER_MS ? 0 : (int) (LINGER_MS - past_ms);
}

/* 0; 1: the daemon is gone; -errno: the input has ended. */
static int take_input(struct relay *relay) {
        static char bytes[INPUT_STEP];
        ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return 0;
        if (n <= 0)
                return n == 0 ? end_input(relay) : -EPIPE;
        for (size_t at = 0; at < (size_t) n;) {
                const char *feed = memchr(bytes + at, '\n', (size_t) n - at);
                size_t part = feed ? (size_t) (feed - bytes) - at : (size_t) n - at;
                if (line_add(&relay->in, bytes + at, part, MCP_MESSAGE_MAX) < 0)
                        return -ENOMEM;
                if (feed) {
                        if (!relay->in.is_too_long)
                                note_message(relay, relay->in.bytes, relay->in.size);
                        line_clear(&relay->in);
                }
                at += part + (feed ? 1 : 0);
        }
        return send_data(relay, bytes, (size_t) n) < 0 ? 1 : 0;
}

/* ---- the whole ---- */

/* As take_input. */
static int mcp_relay_turn(struct relay *relay) {
        size_t queued = message_queue_size(&relay->client.queue);
        int wait_ms = linger_ms(relay);
        if (wait_ms == 0)
                return -EPIPE;
        bool reads = queued < QUEUE_FULL && !relay->input_ended_ms;
        struct pollfd fds[] = { { .fd = reads ? STDIN_FILENO : -1, .events = POLLIN },
                                { .fd = relay->client.fd, .events = POLLIN | (queued ? POLLOUT : 0) },
                                { .fd = STDOUT_FILENO, .events = 0 } }; /* POLLERR: no reader */
        if (poll(fds, 3, wait_ms) < 0)
                return errno == EINTR ? 0 : -errno;
        if (fds[2].revents & (POLLERR | POLLNVAL))
                return -EPIPE;
        if (fds[1].revents & POLLOUT && message_queue_flush(&relay->client.queue, relay->client.fd) < 0)
                return 1;
        int code = fds[1].revents & (POLLIN | POLLHUP | POLLERR) ? mcp_relay_take_messages(relay) : 0;
        if (code == 0 && fds[0].revents)
                code = take_input(relay);
        return code;
}

int mcp_relay_run(const struct socket_place *place, json_t *opening, struct err *err) {
        struct relay relay = { .place = place, .opening = opening, .client = DAEMON_CLIENT_NONE };
        (void) signal(SIGPIPE, SIG_IGN);
        int code = open_channel(&relay, DAEMON_START, err);
        while (code == 0) {
                int ended = mcp_relay_turn(&relay);
                if (relay.is_refused) {
                        *err = relay.refusal;
                        code = -1;
                } else if (ended < 0)
                        break;
                else if (ended > 0)
                        code = reopen(&relay, err);
        }
        if (code > 0)
                code = 0;
        for (struct pending *next; code < 0 && relay.pending; relay.pending = next) {
                next = relay.pending->next;
                (void) write_failure(relay.pending, "the daemon is gone and cannot be started again; see the log of "
                                                    "this server");
                pending_free(relay.pending);
        }
        while (relay.pending) {
                struct pending *pending = relay.pending;
                relay.pending = pending->next;
                pending_free(pending);
        }
        daemon_client_close(&relay.client);
        free(relay.in.bytes);
        free(relay.out.bytes);
        return code;
}
