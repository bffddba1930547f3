/* The life of a call: a transport starts it, and it is answered once. It exists until its run ends, also without a
 * client, so that quotas count active runs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/loop.h"
#include "base/memory.h"
#include "daemon/daemon.h"
#include "mcp/content.h"
#include "mcp/mcp.h"
#include "mcp/server.h"
#include "mcp/task.h"
#include "session/session.h"

static const struct caller_type caller_type;

void mcp_call_init(struct mcp_call *call, const struct mcp_link *link, struct mcp_peer *peer,
                   const struct mcp_message *message) {
        json_t *token = json_object_get(message->meta, "progressToken");
        const json_t *extensions = mcp_message_capability(message, "extensions");
        call->link = call->home = link;
        call->peer = peer;
        call->era = message->era;
        call->id = json_incref(message->id);
        call->progress_token = json_is_string(token) || json_is_integer(token) ? json_incref(token) : NULL;
        call->takes_tasks = message->era == MCP_MODERN && json_object_get(extensions, MCP_TASKS_EXTENSION);
        call->wants_log = json_object_get(message->meta, MCP_META "logLevel") != NULL;
        call->started_ms = loop_now_ms();
        call->caller = (struct caller) {
                .type = &caller_type, .manager = peer->manager, .owner = peer->owner, .from = peer->from, .cursor = 1
        };
}

static void call_free(struct mcp_call *call) {
        loop_timer_drop(&call->timer);
        loop_timer_drop(&call->beat);
        mcp_output_release(&call->output);
        json_decref(call->id);
        json_decref(call->progress_token);
        call->home->release(call);
}

void mcp_call_start(struct mcp_call *call, const struct mcp_message *message) {
        server_handle(call, message);
}

/* ---- the answer ---- */

static void call_respond(struct mcp_call *call, int status, const char *text, size_t size) {
        const struct mcp_link *link = call->link;
        loop_timer_drop(&call->timer);
        loop_timer_drop(&call->beat);
        if (link)
                link->respond(call, status, text, size);
        call->link = NULL;
}

/* The client has disconnected: waits for the run, and drops its answer. */
static void go_on_alone(struct mcp_call *call) {
        call->link = NULL;
        loop_timer_drop(&call->timer);
        loop_timer_drop(&call->beat);
        mcp_output_release(&call->output);
        call->caller.from = NULL;
        call->caller.stream = true;
        call->caller.cursor = UINT64_MAX;
}

static void call_answer(struct mcp_call *call, int status, const char *text, size_t size) {
        call_respond(call, status, text, size);
        if (!call->is_asked)
                call_free(call);
        else if (call->is_run)
                go_on_alone(call);
        else {
                caller_leave(&call->caller);
                call_free(call);
        }
}

void mcp_call_fail(struct mcp_call *call, const struct mcp_error *error) {
        struct mcp_error copy = *error;
        _cleanup_free_ char *text = mcp_error_text(call->id, &copy);
        static const char nothing[] = "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32603,\"message\":\"out of memory\"}}";
        int status = call->era == MCP_MODERN ? error->status : error->status == 404 ? 200 : error->status;
        call_answer(call, status, text ? text : nothing, text ? strlen(text) : sizeof(nothing) - 1);
}

void mcp_call_result(struct mcp_call *call, const struct json_writer *members, const char *meta) {
        _cleanup_json_writer_ struct json_writer text = { 0 };
        json_writer_put_literal(&text, "{\"jsonrpc\":\"2.0\",\"id\":");
        json_writer_put_value(&text, call->id);
        json_writer_put_literal(&text, ",\"result\":{");
        size_t begin = text.size;
        json_writer_put(&text, members->bytes, members->size);
        bool has_type = members->size >= 12 && memcmp(members->bytes, "\"resultType\"", 12) == 0;
        if (call->era == MCP_MODERN && !has_type) {
                json_writer_put(&text, ",", text.size > begin);
                json_writer_put_literal(&text, "\"resultType\":\"complete\"");
        }
        if (call->era == MCP_MODERN || meta) {
                json_writer_put(&text, ",", text.size > begin);
                json_writer_put_literal(&text, "\"_meta\":{");
                if (call->era == MCP_MODERN)
                        json_writer_put_literal(&text, "\"" MCP_META "serverInfo\":" MCP_SERVER_INFO);
                if (call->era == MCP_MODERN && meta)
                        json_writer_put_literal(&text, ",");
                if (meta)
                        json_writer_put(&text, meta, strlen(meta));
                json_writer_put_literal(&text, "}");
        }
        json_writer_put_literal(&text, "}}");
        struct mcp_error error;
        if (!text.failed && !members->failed && text.size <= MCP_ANSWER_MAX) {
                call_answer(call, 200, text.bytes, text.size);
                return;
        }
        (void) mcp_error_set(&error, MCP_INTERNAL_ERROR, 200, "the answer is larger than %d MiB, or no memory is left",
                             MCP_ANSWER_MAX >> 20);
        mcp_call_fail(call, &error);
}

void mcp_call_say(struct mcp_call *call, const char *text, size_t size, bool is_error) {
        _cleanup_json_writer_ struct json_writer members = { 0 };
        content_put_text_result(&members, text, size, is_error);
        mcp_call_result(call, &members, NULL);
}

void mcp_call_refuse(struct mcp_call *call, const struct err *err) {
        struct mcp_error error;
        if (call->is_resource || call->is_task) { /* these have no result that could contain it */
                bool is_missing = call->is_resource && call->era == MCP_LEGACY;
                (void) mcp_error_set(&error, is_missing ? MCP_RESOURCE_NOT_FOUND : MCP_INVALID_PARAMS, 200, "%.500s",
                                     err->message);
                if (call->is_resource && call->context)
                        error.data = json_pack("{s:s}", "uri", (const char *) call->context);
                mcp_call_fail(call, &error);
                return;
        }
        char text[1400];
        int size = snprintf(text, sizeof(text), "%s (%s)", err->message, err_code_name(err->code));
        mcp_call_say(call, text, (size_t) size, true);
}

void mcp_call_notify(struct mcp_call *call, const char *method, const char *params, size_t size) {
        _cleanup_json_writer_ struct json_writer text = { 0 };
        if (!call->link)
                return;
        json_writer_put_literal(&text, "{\"jsonrpc\":\"2.0\",\"method\":");
        json_writer_put_string(&text, method, strlen(method));
        json_writer_put_literal(&text, ",\"params\":");
        json_writer_put(&text, params, size);
        json_writer_put_literal(&text, "}");
        if (!text.failed)
                call->link->notify(call, text.bytes, text.size);
}

/* ---- progress ---- */

static void report_progress(struct mcp_call *call) {
        char line[200];
        uint64_t now_ms = loop_now_ms();
        mcp_output_last_line(&call->output, line, sizeof(line));
        if (!*line)
                (void) snprintf(line, sizeof(line), "running, %" PRIu64 " s", (now_ms - call->started_ms) / 1000);
        _cleanup_json_writer_ struct json_writer params = { 0 };
        json_writer_put_literal(&params, "{\"progressToken\":");
        json_writer_put_value(&params, call->progress_token);
        json_writer_put_literal(&params, ",\"progress\":");
        json_writer_put_number(&params, (int64_t) ++call->progress);
        json_writer_put_literal(&params, ",\"message\":");
        json_writer_put_string(&params, line, strlen(line));
        json_writer_put_literal(&params, "}");
        call->progressed_ms = now_ms;
        if (!params.failed)
                mcp_call_notify(call, "notifications/progress", params.bytes, params.size);
}

/* A client that waits for a silent run gets progress. */
static void on_beat(void *context) {
        struct mcp_call *call = context;
        call->beat = loop_timer(call->peer->manager->loop, loop_now_ms() + MCP_BEAT_MS, on_beat, call);
        if (loop_now_ms() - call->progressed_ms >= MCP_BEAT_MS)
                report_progress(call);
}

/* ---- the session layer ---- */

/* The answer is full, or its time is over: the output so far becomes the answer, and the run continues. */
static void mcp_call_on_time(void *context) {
        struct mcp_call *call = context;
        call->timer = NULL;
        content_answer_unfinished(call);
}

void mcp_call_wait(struct mcp_call *call, uint64_t wait_ms) {
        loop_timer_drop(&call->timer);
        call->timer = loop_timer(call->peer->manager->loop, loop_now_ms() + wait_ms, mcp_call_on_time, call);
}

void mcp_call_expect(struct mcp_call *call, void (*finish)(struct mcp_call *call, const char *text, size_t size)) {
        call->finish = finish;
        call->is_asked = true;
}

void mcp_call_settle(struct mcp_call *call, int code, const struct err *err) {
        if (code < 0)
                caller_refuse(&call->caller, err);
}

static void mcp_call_on_answer(struct caller *caller, const char *text, size_t size, json_t *json) {
        struct mcp_call *call = (struct mcp_call *) caller;
        (void) json;
        call->is_asked = false;
        if (call->link)
                call->finish(call, text, size);
        else
                call_free(call);
}

static void mcp_call_on_refuse(struct caller *caller, const struct err *err) {
        struct mcp_call *call = (struct mcp_call *) caller;
        call->is_asked = false;
        if (call->link)
                mcp_call_refuse(call, err);
        else
                call_free(call);
}

static void mcp_call_on_accepted(struct caller *caller, const char *run_id) {
        struct mcp_call *call = (struct mcp_call *) caller;
        (void) snprintf(call->run_id, sizeof(call->run_id), "%s", run_id);
        if (call->link && call->link->accepted)
                call->link->accepted(call, call->sandbox, run_id);
        if (call->link && call->progress_token && !call->beat) {
                call->progressed_ms = loop_now_ms();
                call->beat = loop_timer(call->peer->manager->loop, loop_now_ms() + MCP_BEAT_MS, on_beat, call);
        }
}

static void mcp_call_on_output(struct caller *caller, const struct caller_output *output) {
        struct mcp_call *call = (struct mcp_call *) caller;
        if (!call->link)
                return;
        if (!mcp_output_add(&call->output, output->bytes, output->size) && !call->is_full) {
                call->is_full = true;
                mcp_call_wait(call, 0); /* not from in here: the caller goes on with the caller */
        }
        if (call->progress_token && call->is_run && loop_now_ms() - call->progressed_ms >= MCP_PROGRESS_MS)
                report_progress(call);
}

static void mcp_call_on_display(struct caller *caller, const char *data, size_t size) {
        (void) caller; /* the result has them all */
        (void) data;
        (void) size;
}

static bool mcp_call_wants_more(const struct caller *caller) {
        const struct mcp_call *call = (const struct mcp_call *) caller;
        return call->link && !call->is_full;
}

static const struct caller_type caller_type = { .answer = mcp_call_on_answer,
                                                .refuse = mcp_call_on_refuse,
                                                .accepted = mcp_call_on_accepted,
                                                .output = mcp_call_on_output,
                                                .display = mcp_call_on_display,
                                                .wants_more = mcp_call_wants_more,
                                                .via = "mcp" };

/* ---- clients that leave ---- */

void mcp_call_leave(struct mcp_call *call, bool ends_run) {
        struct run *run = call->is_asked ? caller_run(&call->caller) : NULL;
        if (call->is_run && call->is_asked && (run || call->caller.stand_in)) {
                go_on_alone(call);
                if (ends_run && run)
                        session_cancel(run->session, run); /* it counts until it has ended, which may be now */
                else if (ends_run)
                        mcp_call_drop(call);
                return;
        }
        mcp_call_drop(call);
}

void mcp_call_cancel(struct mcp_call *call) {
        if (call->link)
                mcp_call_leave(call, true);
}

void mcp_call_drop(struct mcp_call *call) {
        call->link = NULL;
        if (call->is_asked)
                caller_leave(&call->caller);
        call_free(call);
}
