#include "egress/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "http/text.h"

enum { METHOD_MAX = 32, LENGTH_DIGITS_MAX = 18, NAMED_MAX = 16 };

void refusal_set(struct refusal *refusal, int status, const char *advice, const char *format, ...) {
        va_list args;
        va_start(args, format);
        (void) vsnprintf(refusal->reason, sizeof(refusal->reason), format, args);
        va_end(args);
        refusal->status = status;
        (void) snprintf(refusal->advice, sizeof(refusal->advice), "%s", advice);
}

#define ADVICE_CLIENT "Check the client, or its http_proxy and https_proxy variables."

static int request_malformed(struct refusal *refusal, const char *what) {
        refusal_set(refusal, 400, ADVICE_CLIENT, "the request is malformed: %s", what);
        return -1;
}

void request_release(struct request *request) {
        free(request->head);
        *request = (struct request) { 0 };
}

long request_scan(const char *bytes, size_t size, size_t *scanned, struct refusal *refusal) {
        for (size_t i = *scanned; i < size && i < REQUEST_HEAD_MAX; i++) {
                if (bytes[i] == '\0')
                        return request_malformed(refusal, "a NUL byte in its head");
                if (bytes[i] != '\n') {
                        if (i > 0 && bytes[i - 1] == '\r')
                                return request_malformed(refusal, "a bare carriage return");
                        continue;
                }
                if (i == 0 || bytes[i - 1] != '\r')
                        return request_malformed(refusal, "a line ends without a carriage return");
                if (i == 1)
                        return request_malformed(refusal, "it begins with an empty line");
                if (bytes[i - 2] == '\n')
                        return (long) i + 1;
        }
        *scanned = size;
        if (size < REQUEST_HEAD_MAX)
                return 0;
        refusal_set(refusal, 431, "Send fewer or shorter headers.", "the head of the request is longer than %d KiB",
                    REQUEST_HEAD_MAX >> 10);
        return -1;
}

/* ---- the request line ---- */

/* One line without its CRLF. */
struct line {
        const char *text;
        size_t size;
};

static bool next_head_line(const char **at, const char *end, struct line *ret_line) {
        const char *newline = memchr(*at, '\n', (size_t) (end - *at));
        if (!newline || newline == *at)
                return false;
        *ret_line = (struct line) { *at, (size_t) (newline - *at) - 1 };
        *at = newline + 1;
        return ret_line->size > 0;
}

/* "/" pchar* ["?" …] of RFC 3986. */
static bool is_url_path(const char *text, size_t size) {
        for (size_t i = 0; i < size; i++) {
                char c = text[i];
                bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                             (c && strchr("-._~!$&'()*+,;=:@/?", c));
                bool escape = c == '%' && size - i > 2 && http_hex_value(text[i + 1]) >= 0 &&
                              http_hex_value(text[i + 2]) >= 0;
                if (!plain && !escape)
                        return false;
        }
        return true;
}

static int refuse_request_host(struct refusal *refusal, const char *wrong) {
        refusal_set(refusal, 400, "Name the host as DNS does, or write an address in its usual form.",
                    "the host of the request cannot be used: %s", wrong);
        return -1;
}

struct target {
        struct line method, path;
        bool is_old; /* HTTP/1.0 */
};

static int parse_absolute_url(struct line url, struct request *request, struct target *target,
                              struct refusal *refusal) {
        static const char scheme[] = "http://";
        size_t skip = sizeof(scheme) - 1;
        if (url.size < skip || !http_same_sized(url.text, skip, scheme)) {
                refusal_set(refusal, 400,
                            "Ask a proxy for http://host/path, or for CONNECT host:443 with https. " ADVICE_CLIENT,
                            "this is a proxy: the request names no http:// URL");
                return -1;
        }
        const char *authority = url.text + skip, *end = url.text + url.size, *path = authority;
        while (path < end && *path != '/' && *path != '?')
                path++;
        size_t authority_size = (size_t) (path - authority);
        if (memchr(authority, '@', authority_size))
                return refuse_request_host(refusal, "user information in front of it");
        request->port = 80;
        const char *wrong = egress_authority_parse(authority, authority_size, &request->host, &request->port);
        if (wrong)
                return refuse_request_host(refusal, wrong);
        target->path = (struct line) { path, (size_t) (end - path) };
        return is_url_path(path, target->path.size)
                       ? 0
                       : request_malformed(refusal, "its path has a character that a URL may not have");
}

static int parse_request_line(struct line line, struct request *request, struct target *target,
                              struct refusal *refusal) {
        const char *space = memchr(line.text, ' ', line.size);
        if (!space)
                return request_malformed(refusal, "no request line");
        const char *rest = space + 1, *end = line.text + line.size;
        const char *second = memchr(rest, ' ', (size_t) (end - rest));
        if (!second)
                return request_malformed(refusal, "no request line");
        struct line version = { second + 1, (size_t) (end - second) - 1 };
        target->method = (struct line) { line.text, (size_t) (space - line.text) };
        target->is_old = http_same_sized(version.text, version.size, "HTTP/1.0");
        if (!target->is_old && !http_same_sized(version.text, version.size, "HTTP/1.1"))
                return request_malformed(refusal, "the version is neither HTTP/1.1 nor HTTP/1.0");
        if (target->method.size > METHOD_MAX || !http_is_token(target->method.text, target->method.size))
                return request_malformed(refusal, "the method is not a token of HTTP");
        struct line url = { rest, (size_t) (second - rest) };
        request->is_connect = target->method.size == 7 && memcmp(target->method.text, "CONNECT", 7) == 0;
        if (!request->is_connect)
                return parse_absolute_url(url, request, target, refusal);
        const char *wrong = egress_authority_parse(url.text, url.size, &request->host, &request->port);
        if (!wrong && request->port == 0)
                wrong = "no port behind it";
        return wrong ? refuse_request_host(refusal, wrong) : 0;
}

/* ---- headers ---- */

struct header {
        struct line name, value;
};

struct headers {
        struct header all[REQUEST_HEADERS_MAX];
        size_t count;
        struct line named[NAMED_MAX]; /* the headers that Connection names, for this hop only */
        size_t n_named;
        bool has_length, has_host;
};

static bool header_is(const struct header *header, const char *name) {
        return http_same_sized(header->name.text, header->name.size, name);
}

static int request_parse_header(struct line line, struct header *ret_header, struct refusal *refusal) {
        const char *colon = memchr(line.text, ':', line.size);
        if (!colon || !http_is_token(line.text, (size_t) (colon - line.text)))
                return request_malformed(refusal, "a header line is not a name, a colon and a value");
        struct line value = { colon + 1, (size_t) (line.text + line.size - colon) - 1 };
        while (value.size && (*value.text == ' ' || *value.text == '\t'))
                value = (struct line) { value.text + 1, value.size - 1 };
        while (value.size && (value.text[value.size - 1] == ' ' || value.text[value.size - 1] == '\t'))
                value.size--;
        if (!http_is_value(value.text, value.size))
                return request_malformed(refusal, "a header's value holds a control character");
        *ret_header = (struct header) { { line.text, (size_t) (colon - line.text) }, value };
        return 0;
}

static int request_take_length(struct headers *headers, const struct header *header, struct request *request,
                               struct refusal *refusal) {
        uint64_t length = 0;
        if (headers->has_length || header->value.size == 0 || header->value.size > LENGTH_DIGITS_MAX)
                return request_malformed(refusal, "Content-Length is repeated, or is no number");
        for (size_t i = 0; i < header->value.size; i++) {
                if (header->value.text[i] < '0' || header->value.text[i] > '9')
                        return request_malformed(refusal, "Content-Length is no number");
                length = 10 * length + (uint64_t) (header->value.text[i] - '0');
        }
        headers->has_length = true;
        request->body_size = length;
        return 0;
}

static int request_take_connection(struct headers *headers, struct line value, struct refusal *refusal) {
        while (value.size) {
                const char *comma = memchr(value.text, ',', value.size);
                size_t size = comma ? (size_t) (comma - value.text) : value.size;
                struct line token = { value.text, size };
                value = (struct line) { value.text + size, value.size - size };
                if (comma)
                        value = (struct line) { value.text + 1, value.size - 1 };
                while (token.size && (*token.text == ' ' || *token.text == '\t'))
                        token = (struct line) { token.text + 1, token.size - 1 };
                while (token.size && (token.text[token.size - 1] == ' ' || token.text[token.size - 1] == '\t'))
                        token.size--;
                if (token.size == 0)
                        continue;
                if (headers->n_named == NAMED_MAX || !http_is_token(token.text, token.size))
                        return request_malformed(refusal, "Connection is not a short list of tokens");
                headers->named[headers->n_named++] = token;
        }
        return 0;
}

static int request_take_header(struct headers *headers, const struct header *header, struct request *request,
                               struct refusal *refusal) {
        if (headers->count == REQUEST_HEADERS_MAX) {
                refusal_set(refusal, 431, "Send fewer headers.", "the request has more than %d headers",
                            REQUEST_HEADERS_MAX);
                return -1;
        }
        headers->all[headers->count++] = *header;
        if (header_is(header, "Content-Length"))
                return request_take_length(headers, header, request, refusal);
        if (header_is(header, "Connection") || header_is(header, "Proxy-Connection"))
                return request_take_connection(headers, header->value, refusal);
        if (header_is(header, "Host")) {
                if (headers->has_host)
                        return request_malformed(refusal, "two Host headers");
                headers->has_host = true;
        }
        if (header_is(header, "Transfer-Encoding")) {
                refusal_set(refusal, 411, "Send the body with a Content-Length, or use https.",
                            "this proxy does not accept Transfer-Encoding");
                return -1;
        }
        return 0;
}

/* ---- the new head for the server ---- */

/* True for a header of this hop only, or one that the new head has anyway. */
static bool header_is_dropped(const struct headers *headers, const struct header *header) {
        static const char *const names[] = { "Connection",
                                             "Proxy-Connection",
                                             "Proxy-Authorization",
                                             "Proxy-Authenticate",
                                             "Keep-Alive",
                                             "TE",
                                             "Trailer",
                                             "Upgrade",
                                             "Host",
                                             "Content-Length",
                                             "HTTP2-Settings",
                                             "Close" /* our own Connection header names it */ };
        for (size_t i = 0; i < ELEMENTS(names); i++)
                if (header_is(header, names[i]))
                        return true;
        for (size_t i = 0; i < headers->n_named; i++)
                if (headers->named[i].size == header->name.size &&
                    strncasecmp(headers->named[i].text, header->name.text, header->name.size) == 0)
                        return true;
        return false;
}

static int request_write_head(const struct target *target, const struct headers *headers, struct request *request) {
        char shown[EGRESS_SHOWN_ROOM];
        (void) egress_host_show(&request->host, request->port, shown);
        if (request->port == 80)
                *strrchr(shown, ':') = '\0';
        FILE *file = open_memstream(&request->head, &request->head_size);
        if (!file)
                return -1;
        bool has_slash = target->path.size > 0 && *target->path.text == '/';
        (void) fprintf(file, "%.*s %s%.*s HTTP/1.%c\r\nHost: %s\r\n", (int) target->method.size, target->method.text,
                       has_slash ? "" : "/", (int) target->path.size, target->path.text, target->is_old ? '0' : '1',
                       shown);
        for (size_t i = 0; i < headers->count; i++) {
                const struct header *header = &headers->all[i];
                if (!header_is_dropped(headers, header))
                        (void) fprintf(file, "%.*s: %.*s\r\n", (int) header->name.size, header->name.text,
                                       (int) header->value.size, header->value.text);
        }
        if (headers->has_length)
                (void) fprintf(file, "Content-Length: %llu\r\n", (unsigned long long) request->body_size);
        (void) fputs("Connection: close\r\n\r\n", file);
        return fclose(file) == 0 ? 0 : -1;
}

int request_parse(const char *head, size_t size, struct request *ret_request, struct refusal *refusal) {
        _cleanup_(request_release) struct request request = { 0 };
        _cleanup_free_ struct headers *headers = calloc(1, sizeof(*headers));
        struct target target = { 0 };
        const char *at = head, *end = head + size;
        struct line line;
        if (!headers || !next_head_line(&at, end, &line))
                return request_malformed(refusal, "no request line");
        if (parse_request_line(line, &request, &target, refusal) < 0)
                return -1;
        while (next_head_line(&at, end, &line)) {
                struct header header;
                if (request_parse_header(line, &header, refusal) < 0 ||
                    request_take_header(headers, &header, &request, refusal) < 0)
                        return -1;
        }
        if (request.is_connect && request.body_size)
                return request_malformed(refusal, "CONNECT has no body");
        if (!request.is_connect && request_write_head(&target, headers, &request) < 0) {
                refusal_set(refusal, 503, "Try again later.", "the proxy is out of memory");
                return -1;
        }
        *ret_request = request;
        request.head = NULL;
        return 0;
}
