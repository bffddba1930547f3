#include "http/head.h"

#include <stdlib.h>
#include <string.h>

#include "http/host.h"
#include "http/text.h"

static void head_refuse(struct http_refusal *refusal, int status, const char *why) {
        *refusal = (struct http_refusal) { status, why };
}

void http_head_free(struct http_head *head) {
        free(head->bytes);
        *head = (struct http_head) { 0 };
}

void http_head_reset(struct http_head *head) {
        char *bytes = head->bytes;
        size_t room = head->room;
        if (room > HTTP_HEAD_KEPT) {
                free(bytes);
                bytes = NULL;
                room = 0;
        }
        /* Not the table of headers: n_headers says how much of it counts. */
        head->used = head->line_start = head->n_headers = 0;
        head->path = head->query = head->host = 0;
        head->seen = 0;
        head->length = 0;
        head->has_line = head->is_old = head->wants_close = head->expects_continue = false;
        head->bytes = bytes;
        head->room = room;
}

static uint16_t head_position(const struct http_head *head, const char *at) {
        return (uint16_t) (at - head->bytes);
}

/* ---- the request line ---- */

/* Origin form: "/" pchar* ["?" ...], as RFC 3986 has it, with every escape whole. */
static bool is_target(const char *target) {
        static const char allowed[] =
                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=:@/?";
        if (*target != '/')
                return false;
        while (*(target += strspn(target, allowed)) == '%') {
                int high = http_hex_value(target[1]);
                int low = high < 0 ? -1 : http_hex_value(target[2]);
                if (low < 0 || high + low == 0)
                        return false;
                target += 3;
        }
        return *target == '\0';
}

static void take_version(struct http_head *head, const char *version, struct http_refusal *refusal) {
        if (strcmp(version, "HTTP/1.1") == 0)
                return;
        if (strcmp(version, "HTTP/1.0") == 0)
                head->is_old = head->wants_close = true;
        else if (strncmp(version, "HTTP/", 5) == 0 && version[5] >= '0' && version[5] <= '9')
                head_refuse(refusal, 505, "this server speaks HTTP/1.1");
        else
                head_refuse(refusal, 400, "the request line does not end with HTTP/1.1");
}

static void take_request_line(struct http_head *head, char *line, struct http_refusal *refusal) {
        char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
        if (!version) {
                head_refuse(refusal, 400,
                            "the request line is not a method, a path and HTTP/1.1 with one space between each");
                return;
        }
        *target++ = '\0';
        *version++ = '\0';
        if (!http_is_token(line, strlen(line)) || strlen(line) > HTTP_METHOD_MAX)
                head_refuse(refusal, 400, "the method is not a word that HTTP allows");
        else
                take_version(head, version, refusal);
        if (refusal->status)
                return;
        if (!is_target(target)) {
                head_refuse(refusal, 400, "the target is not a path of URL characters; percent-encode all others");
                return;
        }
        head->path = head_position(head, target);
        char *query = strchr(target, '?');
        if (query) {
                *query++ = '\0';
                head->query = head_position(head, query);
        }
        head->has_line = true;
}

/* ---- headers that mean something to the server itself ---- */

static void take_length(struct http_head *head, const char *value, struct http_refusal *refusal) {
        size_t n = strspn(value, "0123456789");
        if (n == 0 || value[n] != '\0')
                head_refuse(refusal, 400, "Content-Length is not a number");
        else if (n > HTTP_LENGTH_DIGITS_MAX)
                head_refuse(refusal, 413, "Content-Length is larger than anything that could be taken");
        else
                head->length = strtoll(value, NULL, 10);
}

static void take_encoding(struct http_head *head, const char *value, struct http_refusal *refusal) {
        if (!http_same(value, "chunked"))
                head_refuse(refusal, 501, "the only Transfer-Encoding this server takes is chunked");
        head->length = -1;
}

static void take_host(struct http_head *head, const char *value, struct http_refusal *refusal) {
        if (!http_host_is_valid(value))
                head_refuse(refusal, 400, "Host is not a host name or address with or without a port");
        head->host = head_position(head, value);
}

static void take_connection_header(struct http_head *head, const char *value, struct http_refusal *refusal) {
        for (;;) {
                value = http_skip_spaces(value);
                size_t size = 0;
                while (http_is_token_character(value[size]))
                        size++;
                if (http_same_sized(value, size, "close"))
                        head->wants_close = true;
                value = http_skip_spaces(value + size);
                if (*value == '\0')
                        return;
                if (*value++ != ',') {
                        head_refuse(refusal, 400, "Connection is not a list of words");
                        return;
                }
        }
}

static void take_expect(struct http_head *head, const char *value, struct http_refusal *refusal) {
        if (!http_same(value, "100-continue"))
                head_refuse(refusal, 417, "the only expectation this server knows is 100-continue");
        head->expects_continue = true;
}

/* Headers that affect the meaning may occur once only: with two of them a request could be read in two ways. */
static const struct {
        const char *name;
        void (*take)(struct http_head *head, const char *value, struct http_refusal *refusal);
        bool may_repeat;
} known[] = {
        { "Host", take_host, false },
        { "Content-Length", take_length, false },
        { "Transfer-Encoding", take_encoding, false },
        { "Connection", take_connection_header, true },
        { "Expect", take_expect, false },
        { "Authorization", NULL, false },
        { "Content-Type", NULL, false },
        { "Content-Encoding", NULL, false },
        { "Content-Range", NULL, false },
        { "Origin", NULL, false },
        { "Range", NULL, false },
        { "If-Range", NULL, false },
        { "X-API-Key", NULL, false },
        { "Last-Event-ID", NULL, false },
};
enum { KNOWN_HOST, KNOWN_LENGTH, KNOWN_ENCODING, KNOWN = sizeof(known) / sizeof(known[0]) };

static bool has_seen(const struct http_head *head, int which) {
        return head->seen & 1u << which;
}

static void take_known(struct http_head *head, const char *name, const char *value, struct http_refusal *refusal) {
        for (int i = 0; i < KNOWN; i++) {
                if (!http_same(name, known[i].name))
                        continue;
                if (has_seen(head, i) && !known[i].may_repeat)
                        head_refuse(refusal, 400, "a header that may occur only once occurs twice");
                else if (known[i].take)
                        known[i].take(head, value, refusal);
                head->seen |= 1u << i;
                return;
        }
}

static void take_header(struct http_head *head, char *line, size_t size, struct http_refusal *refusal) {
        char *colon = memchr(line, ':', size);
        if (*line == ' ' || *line == '\t')
                head_refuse(refusal, 400, "a header is folded over two lines");
        else if (!colon || !http_is_token(line, (size_t) (colon - line)))
                head_refuse(refusal, 400, "a header line is not a name, a colon and a value");
        else if (!http_is_value(colon + 1, (size_t) (line + size - colon - 1)))
                head_refuse(refusal, 400, "a header's value holds a control character");
        else if (head->n_headers == HTTP_HEADERS_MAX)
                head_refuse(refusal, 431, "the request has more than 100 headers");
        if (refusal->status)
                return;
        *colon = '\0';
        for (char *end = line + size; end > colon + 1 && (end[-1] == ' ' || end[-1] == '\t'); end--)
                end[-1] = '\0';
        const char *value = http_skip_spaces(colon + 1);
        head->headers[head->n_headers].name = head_position(head, line);
        head->headers[head->n_headers++].value = head_position(head, value);
        take_known(head, line, value, refusal);
}

/* ---- the whole ---- */

static void check_whole(const struct http_head *head, struct http_refusal *refusal) {
        if (!has_seen(head, KNOWN_HOST))
                head_refuse(refusal, 400, "the Host header is missing");
        else if (has_seen(head, KNOWN_LENGTH) && has_seen(head, KNOWN_ENCODING))
                head_refuse(refusal, 400, "Content-Length and Transfer-Encoding exclude each other");
        else if (has_seen(head, KNOWN_ENCODING) && head->is_old)
                head_refuse(refusal, 400, "HTTP/1.0 has no Transfer-Encoding");
}

/* One line, its CRLF included. True: it was the empty one at the end. */
static bool take_line(struct http_head *head, char *line, size_t size, struct http_refusal *refusal) {
        if (size < 2 || line[size - 2] != '\r') {
                head_refuse(refusal, 400, "a line of the head ends without a carriage return");
                return false;
        }
        size -= 2;
        line[size] = '\0';
        if (memchr(line, '\0', size) || memchr(line, '\r', size)) {
                head_refuse(refusal, 400, "a line of the head holds a NUL or a bare carriage return");
                return false;
        }
        if (!head->has_line)
                take_request_line(head, line, refusal);
        else if (size > 0)
                take_header(head, line, size, refusal);
        else {
                check_whole(head, refusal);
                return !refusal->status;
        }
        return false;
}

static bool head_append(struct http_head *head, const char *bytes, size_t size) {
        if (head->used + size > head->room) {
                size_t room = head->room ? head->room : 1024;
                while (room < head->used + size)
                        room *= 2;
                char *grown = realloc(head->bytes, room);
                if (!grown)
                        return false;
                head->bytes = grown;
                head->room = room;
        }
        memcpy(head->bytes + head->used, bytes, size);
        head->used += size;
        return true;
}

size_t http_head_take(struct http_head *head, const char *bytes, size_t size, bool *ret_done,
                      struct http_refusal *refusal) {
        size_t at = 0;
        *refusal = (struct http_refusal) { 0 };
        *ret_done = false;
        while (at < size && !*ret_done) {
                const char *newline = memchr(bytes + at, '\n', size - at);
                size_t n = newline ? (size_t) (newline - bytes) - at + 1 : size - at;
                size_t line_left = HTTP_LINE_MAX - (head->used - head->line_start);
                size_t head_left = HTTP_HEAD_MAX - head->used;
                if (n > line_left && line_left <= head_left)
                        head_refuse(refusal, head->has_line ? 431 : 414, "a line of the head is longer than 8 KiB");
                else if (n > head_left)
                        head_refuse(refusal, 431, "the head is longer than 32 KiB");
                else if (!head_append(head, bytes + at, n))
                        head_refuse(refusal, 503, "out of memory");
                if (refusal->status)
                        return size;
                at += n;
                if (!newline)
                        break;
                *ret_done = take_line(head, head->bytes + head->line_start, head->used - head->line_start, refusal);
                head->line_start = head->used;
                if (refusal->status)
                        return size;
        }
        return at;
}

const char *http_head_find(const struct http_head *head, const char *name) {
        for (size_t i = 0; i < head->n_headers; i++)
                if (http_same(head->bytes + head->headers[i].name, name))
                        return head->bytes + head->headers[i].value;
        return NULL;
}
