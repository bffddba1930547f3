/* Untrusted input of the MCP server: a message of JSON-RPC with a tool's arguments or a resource's URI in it. Every
 * line of the input is a message; each request is carried out against operations that only look at what they are asked
 * for. A request has exactly one answer, which is one line of JSON with the request's id. The first line of the input
 * that begins with "R" is instead the result of a run, as a kernel may have written it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "daemon/operation.h"
#include "mcp/ask.h"
#include "mcp/mcp.h"
#include "mcp/slice.h"
#include "session/manager.h"
#include "session/session_info.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static struct session_manager manager;
static struct mcp_peer peer = { .manager = &manager, .owner = "stranger", .place = "No network." };
static size_t n_answers, n_calls;
static const char *run_result = "{}";
static size_t run_result_size = 2;

/* ---- the layers below: what they are asked for is looked at, and a run's result is the input's ---- */

static void must(bool is_so) {
        if (!is_so)
                abort();
}

static bool is_name(const char *name) {
        return *name && strlen(name) < 140 && !strpbrk(name, "/\n ") && *name != '.';
}

static void answer_run(struct mcp_call *call, const char *name, ask_finish *finish) {
        must(is_name(name));
        (void) mcp_output_add(&call->output, "some output\n\xff\n", 14);
        call->is_asked = false;
        finish(call, run_result, run_result_size);
}

int ask_require(const struct mcp_call *call, const char *name, struct err *err) {
        must(is_name(name));
        return strcmp(call->sandbox, "gone") == 0 ? err_set(err, ERR_NOT_FOUND, "gone") : 0;
}

int ask_check_timeout(const struct mcp_call *call, uint64_t timeout_ms, struct err *err) {
        (void) call;
        (void) err;
        must(timeout_ms <= 86400 * 1000);
        return 0;
}

void ask_python(struct mcp_call *call, const char *name, json_t *code, uint64_t timeout_ms, ask_finish *finish) {
        (void) timeout_ms;
        must(json_is_string(code));
        answer_run(call, name, finish);
}

void ask_shell(struct mcp_call *call, const char *name, json_t *command, uint64_t timeout_ms, ask_finish *finish) {
        (void) timeout_ms;
        must(json_is_string(command));
        answer_run(call, name, finish);
}

void ask_install(struct mcp_call *call, const char *name, json_t *packages, uint64_t timeout_ms, ask_finish *finish) {
        (void) timeout_ms;
        must(json_is_array(packages));
        answer_run(call, name, finish);
}

const char *ask_find_waited_for(const struct mcp_call *call) {
        return call->output.seen % 2 ? "0123456789abcdef0123456789abcdef" : NULL;
}

void ask_read_run(struct mcp_call *call, const char *name, const char *run_id, ask_finish *finish) {
        must(strlen(run_id) == 32);
        answer_run(call, name, finish);
}

void ask_cancel_run(struct mcp_call *call, const char *name, const char *run_id, ask_finish *finish) {
        must(is_name(name) && strlen(run_id) == 32);
        finish(call, "{\"interrupted\":true}", 20);
}

void ask_interrupt(struct mcp_call *call, const char *name, ask_finish *finish) {
        must(is_name(name));
        finish(call, "{\"interrupted\":false}", 21);
}

void ask_create(struct mcp_call *call, const char *name, ask_finish *finish) {
        must(is_name(name));
        finish(call, "{}", 2);
}

void ask_list(struct mcp_call *call, session_visit *each, void *context) {
        (void) call;
        each(context, &(const struct session_info) { .id = "id", .name = "mcp-x\"y", .state = "idle" });
}

void ask_remove(struct mcp_call *call, const char *name, ask_finish *finish) {
        must(is_name(name));
        finish(call, "{}", 2);
}

void ask_open(struct mcp_call *call, const char *name, const char *path, json_t *arguments, ask_opened *then) {
        struct err err;
        must(is_name(name) && strlen(path) < 4096);
        (void) err_set(&err, ERR_NOT_FOUND, "there is no such file");
        then(call, arguments, NULL, &err);
}

json_t *ask_list_directory(const struct ask_file *file, bool *ret_cut, struct err *err) {
        (void) file;
        (void) ret_cut;
        (void) err_set(err, ERR_NOT_FOUND, "there is no such directory");
        return NULL;
}

void ask_write(struct mcp_call *call, const char *name, const char *path, const struct ask_bytes *content,
               ask_written *then) {
        struct err err;
        must(is_name(name) && strlen(path) < 4096);
        unsigned sum = 0;
        for (size_t i = 0; i < content->size; i++) /* all of it is there to be read */
                sum += (unsigned char) content->bytes[i];
        (void) err_set(&err, ERR_REFUSED, "no");
        then(call, path, content->size, sum == 77 ? &err : NULL);
}

/* ---- the transport ---- */

static void on_notify(struct mcp_call *call, const char *text, size_t size) {
        (void) call;
        (void) text;
        (void) size;
}

static void on_respond(struct mcp_call *call, int status, const char *text, size_t size) {
        must(status >= 200 && status < 600 && !memchr(text, '\n', size) && size <= MCP_ANSWER_MAX);
        json_t *json = json_loadb(text, size, 0, NULL);
        must(json_is_object(json) && json_equal(json_object_get(json, "id"), call->id));
        must(!json_object_get(json, "result") != !json_object_get(json, "error"));
        json_decref(json);
        n_answers++;
}

static void on_release(struct mcp_call *call) {
        free(call);
        n_calls--;
}

static const struct mcp_link link = { .notify = on_notify, .respond = on_respond, .release = on_release };

static void handle(const char *line, size_t size) {
        struct mcp_message message;
        struct mcp_error error;
        json_t *json = NULL;
        if (mcp_message_parse(line, size, &json, &message, &error) < 0 ||
            mcp_message_check_era(&message, NULL, &error) < 0) {
                free(mcp_error_text(message.id, &error));
                json_decref(json);
                return;
        }
        if (message.kind == MCP_REQUEST) {
                struct mcp_call *call = calloc(1, sizeof(*call));
                must(call != NULL);
                n_answers = 0;
                n_calls++;
                mcp_call_init(call, &link, &peer, &message);
                mcp_call_start(call, &message);
                must(n_answers == 1 && n_calls == 0);
        }
        json_decref(json);
}

static void read_result(const char *line, size_t size) {
        json_t *json = json_loadb(line, size, JSON_REJECT_DUPLICATES, NULL);
        const struct slice whole = { line, size };
        struct slice key, value;
        size_t n = 0;
        if (json_is_object(json)) { /* what the daemon passes on was checked to be an object */
                for (size_t at = 0; slice_next(whole, &at, &key, &value);)
                        n++;
                must(n == json_object_size(json));
                run_result = line;
                run_result_size = size;
        }
        json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
        const char *text = (const char *) bytes, *end = text + size;
        if (!manager.loop && loop_make(&manager.loop, NULL) < 0)
                abort();
        run_result = "{}";
        run_result_size = 2;
        while (text < end) {
                const char *feed = memchr(text, '\n', (size_t) (end - text));
                size_t length = (size_t) ((feed ? feed : end) - text);
                if (length > 0 && *text == 'R')
                        read_result(text + 1, length - 1);
                else
                        handle(text, length);
                text = feed ? feed + 1 : end;
        }
        return 0;
}
