#include "api/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "session/caller.h"

/* ---- one event ---- */

/* `text` is JSON on one line. Number 0: none; a client that reconnects continues from the event before. */
static void stream_put_event(struct api_request *api_request, const char *name, uint64_t number, const char *text,
                             size_t size) {
        struct http_request *request = api_request->request;
        char head[96];
        int n = 0;
        if (api_request->form == API_REQUEST_EVENTS && number)
                n = snprintf(head, sizeof(head), "event: %s\nid: %llu\ndata: ", name, (unsigned long long) number);
        else if (api_request->form == API_REQUEST_EVENTS)
                n = snprintf(head, sizeof(head), "event: %s\ndata: ", name);
        const char *tail = api_request->form == API_REQUEST_EVENTS ? "\n\n" : "\n";
        /* One write: an event is sent whole or not at all. */
        _cleanup_free_ char *whole = malloc((size_t) n + size + 2);
        if (!whole)
                return; /* the end will not fit either, and the stream is aborted */
        memcpy(whole, head, (size_t) n);
        memcpy(whole + n, text, size);
        memcpy(whole + n + size, tail, strlen(tail));
        if (http_stream_write(request, whole, (size_t) n + size + strlen(tail)) < 0)
                api_request->is_broken = true;
        api_request->sent_ms = loop_now_ms();
}

/* Takes the reference. */
static void stream_put_json(struct api_request *api_request, const char *name, uint64_t number, json_t *event) {
        _cleanup_free_ char *text = json_dumps(event, JSON_COMPACT);
        json_decref(event);
        if (text)
                stream_put_event(api_request, name, number, text, strlen(text));
        else
                api_request->is_broken = true;
}

void stream_begin(struct api_request *api_request, const char *run_id) {
        const char *type = api_request->form == API_REQUEST_EVENTS ? "text/event-stream" : "application/x-ndjson";
        (void) http_add_header(api_request->request, "X-Run-Id", run_id);
        (void) http_add_header(api_request->request, "X-Accel-Buffering", "no"); /* for proxies that would collect it */
        if (http_stream_begin(api_request->request, 200, type, HTTP_CHUNKED) < 0)
                return; /* the answer comes as one, then */
        api_request->is_begun = true;
        api_request->service->counted.streams++;
        stream_put_json(api_request, "start", 0, json_pack("{s:s, s:s}", "event", "start", "run_id", run_id));
}

/* ---- output ---- */

/* How many bytes at the end are the beginning of a character. */
static size_t partial_size(const char *bytes, size_t size) {
        for (size_t back = 1; back <= 3 && back <= size; back++) {
                unsigned char c = (unsigned char) bytes[size - back];
                size_t needs = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
                if (c >= 0xc0)
                        return needs > back ? back : 0;
                if (c < 0x80)
                        return 0;
        }
        return 0;
}

static void stream_put_text(struct api_request *api_request, bool is_error, uint64_t number, const char *bytes,
                            size_t size) {
        static const char *const names[] = { "stdout", "stderr" };
        _cleanup_free_ char *repaired = NULL;
        json_t *text = json_stringn(bytes, size);
        if (!text && utf8_repair(bytes, size, &repaired, &size) == 0)
                text = json_stringn(repaired, size);
        json_t *event = json_pack("{s:s, s:o}", "event", names[is_error], "text", text ? text : json_string(""));
        if (number)
                json_object_set_new(event, "number", json_integer((json_int_t) number));
        stream_put_json(api_request, names[is_error], number, event);
}

/* Joins a character that the boundary of two pieces has cut. */
void stream_put_output(struct api_request *api_request, const struct caller_output *output) {
        char *held = api_request->partial[output->is_error].bytes;
        size_t *held_size = &api_request->partial[output->is_error].size;
        size_t size = *held_size + output->size;
        _cleanup_free_ char *bytes = malloc(size + 1);
        if (!bytes) {
                api_request->is_broken = true;
                return;
        }
        memcpy(bytes, held, *held_size);
        memcpy(bytes + *held_size, output->bytes, output->size);
        *held_size = partial_size(bytes, size);
        memcpy(held, bytes + size - *held_size, *held_size);
        /* A number confirms everything up to here, so there is none while a part of a character is held, of either
         * stream. */
        bool is_whole = output->is_last && api_request->partial[0].size == 0 && api_request->partial[1].size == 0;
        if (output->is_last)
                api_request->number = output->number;
        if (size > *held_size || is_whole)
                stream_put_text(api_request, output->is_error, is_whole ? output->number : 0, bytes, size - *held_size);
}

static void stream_put_partial(struct api_request *api_request) {
        for (int i = 0; i < 2; i++)
                if (api_request->partial[i].size > 0)
                        stream_put_text(api_request, i == 1, 0, api_request->partial[i].bytes,
                                        api_request->partial[i].size);
}

void stream_put_display(struct api_request *api_request, const char *data, size_t size) {
        _cleanup_json_writer_ struct json_writer event = { 0 };
        json_writer_put_literal(&event, "{\"event\":\"display\",\"data\":");
        json_writer_put(&event, data, size);
        json_writer_put_literal(&event, "}");
        if (event.failed)
                api_request->is_broken = true;
        else
                stream_put_event(api_request, "display", 0, event.bytes, event.size);
}

void stream_beat(struct api_request *api_request) {
        const char *beat = api_request->form == API_REQUEST_EVENTS ? ":\n\n" : "\n";
        if (http_stream_wants_more(api_request->request))
                (void) http_stream_write(api_request->request, beat, strlen(beat));
        api_request->sent_ms = loop_now_ms();
}

/* ---- the end ---- */

/* A stream that lost data must not look complete. */
static void stream_finish(struct api_request *api_request) {
        if (api_request->is_broken)
                http_stream_abort(api_request->request);
        else
                http_stream_end(api_request->request);
        api_request->request = NULL;
}

void stream_end(struct api_request *api_request, const char *result, size_t size) {
        stream_put_partial(api_request);
        uint64_t number = api_request->number + 1;
        _cleanup_free_ char *text = malloc(size + 96);
        if (text) {
                int n = snprintf(text, 96,
                                 "{\"event\":\"result\",\"number\":%llu,\"result\":", (unsigned long long) number);
                memcpy(text + n, result, size);
                text[(size_t) n + size] = '}';
                stream_put_event(api_request, "result", number, text, (size_t) n + size + 1);
        } else
                api_request->is_broken = true;
        stream_finish(api_request);
}

void stream_end_with_problem(struct api_request *api_request, int status, const char *code, const char *detail,
                             const char *remedy) {
        stream_put_partial(api_request);
        json_t *problem = json_pack("{s:i, s:s, s:s}", "status", status, "code", code, "detail", detail);
        if (remedy)
                json_object_set_new(problem, "remedy", json_string(remedy));
        stream_put_json(api_request, "error", 0, json_pack("{s:s, s:o}", "event", "error", "problem", problem));
        stream_finish(api_request);
}
