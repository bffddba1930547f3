/* Errors as application/problem+json (RFC 9457). */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "http/connection.h"
#include "http/status.h"

enum { PROBLEM_MAX = 32 << 10, PROBLEM_TEXT_MAX = 4 << 10 };

static const char problem_type[] = "application/problem+json";

static int add_escaped(struct http_out *json, const char *text) {
        for (int code; *text; text++) {
                unsigned char c = (unsigned char) *text;
                char escape[8] = { (char) c };
                if (c < 0x20 || c == '"' || c == '\\')
                        (void) snprintf(escape, sizeof(escape), c < 0x20 ? "\\u%04x" : "\\%c", c);
                if ((code = http_out_add_text(json, escape, PROBLEM_MAX)) < 0)
                        return code;
        }
        return 0;
}

/* ,"name":"text" with whatever is in the text made well-formed. */
static int add_member(struct http_out *json, const char *name, const char *text) {
        _cleanup_free_ char *repaired = NULL;
        size_t size;
        int code = utf8_repair(text, strnlen(text, PROBLEM_TEXT_MAX), &repaired, &size);
        if (code < 0 || (code = http_out_add_text(json, ",\"", PROBLEM_MAX)) < 0 ||
            (code = http_out_add_text(json, name, PROBLEM_MAX)) < 0 ||
            (code = http_out_add_text(json, "\":\"", PROBLEM_MAX)) < 0 || (code = add_escaped(json, repaired)) < 0)
                return code;
        return http_out_add_text(json, "\"", PROBLEM_MAX);
}

static int problem_build(struct http_out *json, int status, const char *code, const char *detail, const char *remedy) {
        char start[64];
        (void) snprintf(start, sizeof(start), "{\"status\":%d", status);
        if (http_out_add_text(json, start, PROBLEM_MAX) < 0 ||
            add_member(json, "title", http_status_reason(status)) < 0 || add_member(json, "code", code) < 0 ||
            add_member(json, "detail", detail) < 0 || (remedy && add_member(json, "remedy", remedy) < 0))
                return -ENOMEM;
        return http_out_add_text(json, "}\n", PROBLEM_MAX);
}

static void clean_out(struct http_out *out) {
        http_out_free(out);
}

void http_problem(struct http_request *request, int status, const char *code, const char *detail, const char *remedy) {
        _cleanup_(clean_out) struct http_out json = { 0 };
        if (problem_build(&json, status, code, detail, remedy) == 0 &&
            http_respond(request, status, problem_type, json.bytes + json.start, http_out_size(&json)) == 0)
                return;
        http_stream_abort(request); /* no memory for the answer: closes the connection */
}

void http_problem_err(struct http_request *request, const struct err *err) {
        http_problem(request, err_code_http_status(err->code), err_code_name(err->code), err->message, NULL);
}

void http_problem_queue(struct http_connection *connection, int status, const char *code, const char *detail,
                        const char *remedy) {
        _cleanup_(clean_out) struct http_out json = { 0 };
        char head[256];
        if (problem_build(&json, status, code, detail, remedy) < 0)
                return;
        int n = snprintf(head, sizeof(head),
                         "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                         "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
                         status, http_status_reason(status), problem_type, http_out_size(&json));
        if (http_out_add(&connection->out, head, (size_t) n, HTTP_OUT_MAX) == 0)
                (void) http_out_add(&connection->out, json.bytes + json.start, http_out_size(&json), HTTP_OUT_MAX);
}
