#include "mcp/channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "daemon/operation.h"
#include "daemon/socket_client.h"
#include "daemon/socket_request.h"
#include "daemon/upload.h"
#include "mcp/fixture.h"
#include "mcp/mcp.h"
#include "mcp/sandbox_text.h"
#include "session/session.h"
#include "session/session_config.h"
#include "session/session_config_check.h"

#define CHANNEL_NAME "mcp-"
enum { RUN_REPORTED_MS = 5, CHANNEL_ID_LENGTH = 26, ORPHANS_MS = 30 * 1000 };

/* The upload is the daemon's side of the DATA that comes in; it lives as long as the connection's request. */
struct channel {
        struct upload upload;
        struct channel *next;
        struct mcp_peer peer;
        struct channel_call *calls;
        size_t n_calls;
        bool is_open;
        bool keeps_sandboxes;
        bool is_closing;
        json_t *options;
        char *place;
        char *line; /* what there is of a message */
        size_t size, room;
        bool is_too_long; /* the rest of it is passed over */
};

static struct channel *channels; /* that are open */

struct channel_call {
        struct mcp_call call; /* the first */
        struct channel *channel;
        struct channel_call *next;
        struct loop_timer *run_timer; /* until the relay gets the id of its run */
};

static void send_line(struct channel *channel, const char *text, size_t size) {
        struct client_request *request = client_request_of(channel->upload.caller);
        enum { PIECE = 512 << 10, SMALL = 32 << 10 };
        char whole[SMALL + 1];
        if (channel->is_closing)
                return;
        if (size <= SMALL) { /* one message wakes the relay once */
                memcpy(whole, text, size);
                whole[size] = '\n';
                client_send(request->client, MESSAGE_DATA, request->number, whole, size + 1);
                return;
        }
        for (size_t at = 0; at < size; at += PIECE)
                client_send(request->client, MESSAGE_DATA, request->number, text + at,
                            size - at < PIECE ? size - at : PIECE);
        client_send(request->client, MESSAGE_DATA, request->number, "\n", 1);
}

/* ---- calls ---- */

static void on_notify(struct mcp_call *call, const char *text, size_t size) {
        struct channel *channel = ((struct channel_call *) call)->channel;
        if (client_wants_more(client_request_of(channel->upload.caller)->client))
                send_line(channel, text, size);
}

static void on_respond(struct mcp_call *call, int status, const char *text, size_t size) {
        (void) status;
        send_line(((struct channel_call *) call)->channel, text, size);
}

static void report_run(void *context) {
        struct channel_call *own = context;
        struct mcp_call *call = &own->call;
        struct client_request *request = client_request_of(own->channel->upload.caller);
        char run[160];
        own->run_timer = NULL;
        if (!call->link)
                return;
        (void) snprintf(run, sizeof(run), "%s.%s", call->sandbox, call->run_id);
        json_t *event = json_pack("{s:s, s:O, s:s}", "event", "run", "id", call->id, "run", run);
        _cleanup_free_ char *text = event ? json_dumps(event, JSON_COMPACT) : NULL;
        json_decref(event);
        if (text)
                client_send(request->client, MESSAGE_EVENT, request->number, text, strlen(text));
}

/* A run that ends at once gets no message of its own: its answer follows. */
static void mcp_channel_on_accepted(struct mcp_call *call, const char *sandbox, const char *run_id) {
        struct channel_call *own = (struct channel_call *) call;
        (void) sandbox;
        (void) run_id;
        if (call->is_run && !own->run_timer)
                own->run_timer =
                        loop_timer(call->peer->manager->loop, loop_now_ms() + RUN_REPORTED_MS, report_run, own);
}

static void on_release(struct mcp_call *call) {
        struct channel_call *own = (struct channel_call *) call;
        loop_timer_drop(&own->run_timer);
        for (struct channel_call **at = &own->channel->calls; *at; at = &(*at)->next)
                if (*at == own) {
                        *at = own->next;
                        own->channel->n_calls--;
                        break;
                }
        free(own);
}

static const struct mcp_link link = {
        .notify = on_notify, .respond = on_respond, .accepted = mcp_channel_on_accepted, .release = on_release
};

static void send_error(struct channel *channel, const json_t *id, struct mcp_error *error) {
        _cleanup_free_ char *text = mcp_error_text(id, error);
        if (text)
                send_line(channel, text, strlen(text));
}

static void channel_cancel(struct channel *channel, const struct mcp_message *message) {
        const json_t *id = json_object_get(message->params, "requestId");
        for (struct channel_call *own = channel->calls; id && own; own = own->next)
                if (own->call.link && json_equal(own->call.id, id)) {
                        mcp_call_cancel(&own->call);
                        return;
                }
}

static void begin_call(struct channel *channel, const struct mcp_message *message) {
        struct mcp_error error;
        struct channel_call *own = channel->n_calls < MCP_CALLS_MAX ? calloc(1, sizeof(*own)) : NULL;
        if (!own) {
                (void) mcp_error_set(&error, MCP_INTERNAL_ERROR, 200,
                                     "%d calls are under way, or no memory is left; wait for some of them",
                                     MCP_CALLS_MAX);
                send_error(channel, message->id, &error);
                return;
        }
        own->channel = channel;
        own->next = channel->calls;
        channel->calls = own;
        channel->n_calls++;
        mcp_call_init(&own->call, &link, &channel->peer, message);
        mcp_call_start(&own->call, message);
}

static void handle_line(struct channel *channel, const char *line, size_t size) {
        struct mcp_message message;
        struct mcp_error error;
        json_t *json = NULL;
        if (size > 0 && line[size - 1] == '\r')
                size--;
        if (size == 0)
                return;
        if (mcp_message_parse(line, size, &json, &message, &error) < 0 ||
            mcp_message_check_era(&message, NULL, &error) < 0)
                send_error(channel, message.id, &error);
        else if (message.kind == MCP_REQUEST)
                begin_call(channel, &message);
        else if (message.kind == MCP_NOTIFICATION && strcmp(message.method, "notifications/cancelled") == 0)
                channel_cancel(channel, &message);
        json_decref(json);
}

/* ---- lines out of pieces ---- */

static void refuse_long(struct channel *channel) {
        struct mcp_error error;
        channel->is_too_long = true;
        channel->size = 0;
        (void) mcp_error_set(&error, MCP_INVALID_REQUEST, 413,
                             "the message is larger than %d bytes; write large contents in several steps",
                             MCP_MESSAGE_MAX);
        send_error(channel, NULL, &error);
}

static int channel_keep_input(struct channel *channel, const char *bytes, size_t size) {
        if (channel->is_too_long)
                return 0;
        if (size > MCP_MESSAGE_MAX - channel->size) {
                refuse_long(channel);
                return 0;
        }
        if (channel->size + size > channel->room) {
                size_t room = channel->size + size + (channel->size + size) / 2;
                char *grown = realloc(channel->line, room);
                if (!grown)
                        return -1;
                channel->line = grown;
                channel->room = room;
        }
        memcpy(channel->line + channel->size, bytes, size);
        channel->size += size;
        return 0;
}

static void take_line(struct channel *channel) {
        size_t size = channel->size;
        bool was_too_long = channel->is_too_long;
        channel->size = 0;
        channel->is_too_long = false;
        if (!was_too_long)
                handle_line(channel, channel->line, size);
        if (channel->room > 64 << 10) {
                free(channel->line);
                channel->line = NULL;
                channel->room = 0;
        }
}

/* The sum of all messages is not bounded. */
static int mcp_channel_on_piece(struct upload *upload, const char *bytes, size_t size, struct err *err) {
        struct channel *channel = (struct channel *) upload;
        while (size > 0) {
                const char *feed = memchr(bytes, '\n', size);
                size_t part = feed ? (size_t) (feed - bytes) : size;
                if (!feed || channel->size > 0 || channel->is_too_long) {
                        if (channel_keep_input(channel, bytes, part) < 0)
                                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                        if (feed)
                                take_line(channel);
                } else
                        handle_line(channel, bytes, part);
                bytes += feed ? part + 1 : part;
                size -= feed ? part + 1 : part;
        }
        return 0;
}

/* ---- its end ---- */

static bool method_is_open(const char *name) {
        const struct channel *channel = channels;
        while (channel && strncmp(name, channel->peer.prefix, strlen(channel->peer.prefix)) != 0)
                channel = channel->next;
        return channel != NULL;
}

/* "mcp-", 26 letters and digits, "-": made by a channel that keeps nothing. */
static bool is_of_channel(const char *name) {
        static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
        return strncmp(name, CHANNEL_NAME, strlen(CHANNEL_NAME)) == 0 &&
               strspn(name + strlen(CHANNEL_NAME), letters) == CHANNEL_ID_LENGTH &&
               name[strlen(CHANNEL_NAME) + CHANNEL_ID_LENGTH] == '-';
}

static bool is_orphan(const char *name, void *context) {
        (void) context;
        return is_of_channel(name) && !method_is_open(name);
}

/* If a relay and a daemon are killed together, sandboxes without an owner remain. A living relay opens its channel
 * again soon after the daemon has started. */
static void remove_orphans(struct session_manager *manager) {
        if (loop_now_ms() - manager->started_ms >= ORPHANS_MS)
                operation_session_remove_all(manager, is_orphan, NULL);
}

static bool is_of_this_channel(const char *name, void *prefix) {
        return strncmp(name, prefix, strlen(prefix)) == 0;
}

static void on_finish(struct upload *upload) {
        caller_answer(upload->caller, json_object()); /* the rest is on_abandon's, which follows */
}

static void on_abandon(struct upload *upload) {
        struct channel *channel = (struct channel *) upload;
        struct session_manager *manager = channel->peer.manager;
        bool is_left = !manager->draining; /* otherwise this daemon exits, and the relay waits for the next one */
        channel->is_closing = true;
        for (struct channel **at = &channels; *at; at = &(*at)->next)
                if (*at == channel) {
                        *at = channel->next;
                        break;
                }
        while (channel->calls) {
                struct mcp_call *call = &channel->calls->call;
                struct run *run =
                        is_left && call->link && call->is_asked && call->is_run ? caller_run(&call->caller) : NULL;
                call->caller.cancel_on_disconnect = run != NULL;
                mcp_call_drop(call);
        }
        if (channel->is_open && is_left && !channel->keeps_sandboxes)
                operation_session_remove_all(manager, is_of_this_channel, channel->peer.prefix);
        json_decref(channel->options);
        free(channel->place);
        free(channel->line);
}

/* ---- its beginning ---- */

static int channel_read_options(const struct caller *caller, struct channel *channel, json_t *json, struct err *err) {
        static const char *const own[] = { "op", "name", "keep", "operator", NULL };
        enum { N_NOT_OPTIONS = 3 }; /* of them */
        const char *name = json_string_value(json_object_get(json, "name"));
        if (session_config_check_options(json, "mcp", own, err) < 0)
                return -1;
        if (!name)
                return err_set(err, ERR_USAGE, "\"name\" must be given, as text");
        if (registry_check_name(name, err) < 0 || strlen(name) >= MCP_PREFIX_MAX)
                return err_set(err, ERR_USAGE, "\"name\" must be that of a session, of less than %d characters",
                               MCP_PREFIX_MAX);
        (void) snprintf(channel->peer.prefix, sizeof(channel->peer.prefix), "%s-", name);
        channel->keeps_sandboxes = json_is_true(json_object_get(json, "keep"));
        channel->options = json_copy(json);
        for (size_t i = 0; channel->options && i < N_NOT_OPTIONS; i++)
                (void) json_object_del(channel->options, own[i]);
        struct registry_session ignored; /* refused here, not by each call of a tool */
        if (channel->options &&
            session_config_from_json(caller, channel->options, SESSION_CONFIG_LOOK_NOT, &ignored, err) < 0)
                return -1;
        channel->place = sandbox_text_describe(channel->options);
        return channel->place ? 0 : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
}

static int open_channel(struct caller *caller, json_t *json, struct err *err) {
        struct channel *channel = calloc(1, sizeof(*channel));
        if (!channel)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        int code = caller_is_operator(caller) ? channel_read_options(caller, channel, json, err)
                                              : err_set(err, ERR_REFUSED, "a channel is the operator's; use POST /mcp");
        if (code < 0) {
                json_decref(channel->options);
                free(channel->place);
                free(channel);
                return -1;
        }
        caller_begin(caller, "mcp", NULL);
        channel->peer.manager = caller->manager;
        channel->peer.owner = "";
        channel->peer.is_private = true;
        channel->peer.options = channel->options;
        channel->peer.place = channel->place;
        channel->peer.has_fixtures = fixture_is_enabled();
        channel->upload = (struct upload) { .caller = caller,
                                            .piece = mcp_channel_on_piece,
                                            .finish = on_finish,
                                            .abandon = on_abandon,
                                            .json = json_incref(json) };
        if (upload_begin(&channel->upload, err) < 0)
                return -1;
        channel->is_open = true;
        channel->next = channels;
        channels = channel;
        remove_orphans(caller->manager);
        return 0;
}

const struct socket_row channel_rows[] = { { "mcp", open_channel }, { NULL, NULL } };
