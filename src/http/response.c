/* The answer of a handler. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "http/connection.h"
#include "http/status.h"
#include "http/text.h"

/* No cache stores an answer, and no browser runs it as a page or guesses its type, unless the handler says otherwise.
 * */
static const struct {
        const char *name, *line;
} defaults[] = {
        { "X-Content-Type-Options", "X-Content-Type-Options: nosniff\r\n" },
        { "Cache-Control", "Cache-Control: no-store\r\n" },
        { "Content-Security-Policy", "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n" },
};
enum { DEFAULTS = sizeof(defaults) / sizeof(defaults[0]) };

static const char *const framing[] = { "Content-Length", "Transfer-Encoding", "Connection", "Content-Type",
                                       "Trailer",        "Upgrade",           "Keep-Alive" };

int http_add_header(struct http_request *request, const char *name, const char *value) {
        if (!http_is_token(name, strlen(name)) || !http_is_value(value, strlen(value)))
                return -EINVAL;
        for (size_t i = 0; i < sizeof(framing) / sizeof(framing[0]); i++)
                if (http_same(name, framing[i]))
                        return -EINVAL;
        struct http_out *fields = &request->fields;
        size_t before = http_out_size(fields);
        if (http_out_add_text(fields, name, HTTP_FIELDS_MAX) < 0 ||
            http_out_add(fields, ": ", 2, HTTP_FIELDS_MAX) < 0 ||
            http_out_add_text(fields, value, HTTP_FIELDS_MAX) < 0 ||
            http_out_add(fields, "\r\n", 2, HTTP_FIELDS_MAX) < 0) {
                http_out_cut(fields, before);
                return -ENOBUFS;
        }
        for (unsigned i = 0; i < DEFAULTS; i++)
                if (http_same(name, defaults[i].name))
                        request->replaced |= 1u << i;
        return 0;
}

/* ---- the head ---- */

static int add_first_lines(struct http_out *out, int status, const char *type) {
        char text[128];
        int n = snprintf(text, sizeof(text), "HTTP/1.1 %d %s\r\n", status, http_status_reason(status));
        int code = http_out_add(out, text, (size_t) n, HTTP_OUT_MAX);
        if (code < 0 || !type)
                return code;
        if ((code = http_out_add_text(out, "Content-Type: ", HTTP_OUT_MAX)) < 0 ||
            (code = http_out_add_text(out, type, HTTP_OUT_MAX)) < 0)
                return code;
        return http_out_add(out, "\r\n", 2, HTTP_OUT_MAX);
}

static int add_framing(struct http_connection *connection, int status, int64_t length) {
        char text[64] = "";
        if (length >= 0 && status != 204 && status != 304)
                (void) snprintf(text, sizeof(text), "Content-Length: %" PRId64 "\r\n", length);
        else if (connection->answer == ANSWER_CHUNKED)
                (void) strcpy(text, "Transfer-Encoding: chunked\r\n");
        int code = http_out_add_text(&connection->out, text, HTTP_OUT_MAX);
        if (code < 0 || http_connection_can_keep(connection))
                return code;
        connection->keeps = false;
        return http_out_add_text(&connection->out, "Connection: close\r\n", HTTP_OUT_MAX);
}

static int add_fields(struct http_request *request, struct http_out *out) {
        int code = 0;
        for (unsigned i = 0; i < DEFAULTS && code == 0; i++)
                if (!(request->replaced & 1u << i))
                        code = http_out_add_text(out, defaults[i].line, HTTP_OUT_MAX);
        const struct http_out *fields = &request->fields;
        if (code == 0 && http_out_size(fields) > 0)
                code = http_out_add(out, fields->bytes + fields->start, http_out_size(fields), HTTP_OUT_MAX);
        return code < 0 ? code : http_out_add(out, "\r\n", 2, HTTP_OUT_MAX);
}

/* Queues the whole head or nothing. */
static int add_head(struct http_connection *connection, int status, const char *type, int64_t length) {
        struct http_out *out = &connection->out;
        size_t before = http_out_size(out);
        int code = add_first_lines(out, status, type);
        if (code == 0)
                code = add_framing(connection, status, length);
        if (code == 0)
                code = add_fields(&connection->request, out);
        if (code < 0)
                http_out_cut(out, before);
        return code;
}

/* ---- the whole answer ---- */

static bool is_bodiless(const struct http_request *request, int status) {
        return status == 204 || status == 304 || strcmp(http_method(request), "HEAD") == 0;
}

static int begin_answer(struct http_request *request, int status, const char *type, int64_t length) {
        struct http_connection *connection = http_connection_of(request);
        if (connection->answer != ANSWER_OWED)
                return -EALREADY;
        if (status < 200 || status > 599 || (type && !http_is_value(type, strlen(type))))
                return -EINVAL;
        request->is_bodiless = is_bodiless(request, status);
        if (length >= 0 || status == 204 || status == 304)
                connection->answer = ANSWER_FIXED;
        else
                connection->answer = request->head.is_old ? ANSWER_TO_CLOSE : ANSWER_CHUNKED;
        request->answer_left = length > 0 ? (uint64_t) length : 0;
        bool kept = connection->keeps;
        if (connection->answer == ANSWER_TO_CLOSE)
                connection->keeps = false;
        int code = add_head(connection, status, type, length);
        if (code < 0) {
                connection->answer = ANSWER_OWED;
                connection->keeps = kept;
        }
        return code == -ENOBUFS ? -EFBIG : code;
}

int http_respond(struct http_request *request, int status, const char *type, const void *bytes, size_t size) {
        struct http_connection *connection = http_connection_of(request);
        if (size > HTTP_OUT_MAX / 2)
                return -EFBIG;
        size_t before = http_out_size(&connection->out);
        bool kept = connection->keeps;
        int code = begin_answer(request, status, type, (int64_t) size);
        if (code < 0)
                return code;
        if (!request->is_bodiless)
                code = http_out_add(&connection->out, bytes, size, HTTP_OUT_MAX);
        if (code < 0) {
                http_out_cut(&connection->out, before);
                connection->answer = ANSWER_OWED;
                connection->keeps = kept;
                return code == -ENOBUFS ? -EFBIG : code;
        }
        http_connection_answered(connection, true);
        return 0;
}

/* ---- in pieces ---- */

int http_stream_begin(struct http_request *request, int status, const char *type, int64_t length) {
        int code = begin_answer(request, status, type, length);
        if (code == 0)
                http_connection_wake(http_connection_of(request));
        return code;
}

bool http_stream_wants_more(const struct http_request *request) {
        return http_out_size(&http_connection_of(request)->out) < HTTP_OUT_HIGH;
}

static int add_chunk(struct http_out *out, const void *bytes, size_t size) {
        char line[32];
        int n = snprintf(line, sizeof(line), "%zx\r\n", size);
        size_t before = http_out_size(out);
        int code = http_out_add(out, line, (size_t) n, HTTP_OUT_MAX);
        if (code == 0)
                code = http_out_add(out, bytes, size, HTTP_OUT_MAX);
        if (code == 0)
                code = http_out_add(out, "\r\n", 2, HTTP_OUT_MAX);
        if (code < 0)
                http_out_cut(out, before);
        return code;
}

int http_stream_write(struct http_request *request, const void *bytes, size_t size) {
        struct http_connection *connection = http_connection_of(request);
        if (connection->answer <= ANSWER_OWED)
                return -EBADF;
        if (connection->answer == ANSWER_FIXED && size > request->answer_left)
                return -EMSGSIZE;
        int code = 0;
        if (size > 0 && !request->is_bodiless) {
                code = connection->answer == ANSWER_CHUNKED ? add_chunk(&connection->out, bytes, size)
                                                            : http_out_add(&connection->out, bytes, size, HTTP_OUT_MAX);
        }
        if (code < 0)
                return code;
        if (connection->answer == ANSWER_FIXED)
                request->answer_left -= size;
        http_connection_wake(connection);
        request->wants_drained = !http_stream_wants_more(request);
        return request->wants_drained;
}

void http_stream_end(struct http_request *request) {
        struct http_connection *connection = http_connection_of(request);
        if (connection->answer <= ANSWER_OWED)
                return;
        bool is_whole = connection->answer != ANSWER_FIXED || request->answer_left == 0 || request->is_bodiless;
        if (is_whole && connection->answer == ANSWER_CHUNKED && !request->is_bodiless)
                /* Past the bound by five bytes rather than never ended. */
                is_whole = http_out_add(&connection->out, "0\r\n\r\n", 5, HTTP_OUT_MAX + 5) == 0;
        http_connection_answered(connection, is_whole);
}

void http_stream_abort(struct http_request *request) {
        struct http_connection *connection = http_connection_of(request);
        if (connection->answer != ANSWER_NONE)
                http_connection_answered(connection, false);
}
