#include "api/serving.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/api_request.h"
#include "api/sending.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "http/range.h"
#include "http/text.h"
#include "store/artifact.h"

enum { TAG_SIZE = 2 + 32 + 1, SETTLED_NS = 50 * 1000000 };

/* ---- the bytes ---- */

struct file_source {
        struct sending_source source;
        int fd;
        uint64_t at, left;
};

static ssize_t read_piece(struct sending_source *source, char *bytes) {
        struct file_source *file = (struct file_source *) source;
        size_t wanted = file->left < SENDING_PIECE ? (size_t) file->left : SENDING_PIECE;
        ssize_t n = wanted ? pread(file->fd, bytes, wanted, (off_t) file->at) : 0;
        if (n < 0)
                return -errno;
        file->at += (uint64_t) n; /* 0 before the end: it was shortened meanwhile, and the client will see that */
        file->left -= (uint64_t) n;
        return n;
}

static void close_file(struct sending_source *source) {
        struct file_source *file = (struct file_source *) source;
        fd_close(&file->fd);
        free(file);
}

/* ---- the head ---- */

/* Names, not contents, decide; and what a browser would run is nothing but bytes. */
static const char *type_of(const char *name) {
        static const char *const active[] = { "text/html", "image/svg+xml", "application/xml", "application/pdf" };
        const char *type = artifact_mime(name);
        for (size_t i = 0; i < ELEMENTS(active); i++)
                if (strcmp(type, active[i]) == 0)
                        return "application/octet-stream";
        return type;
}

int serving_name(struct api_request *api_request, const char *name) {
        char plain[256], value[1200];
        _cleanup_free_ char *encoded = http_encode(name, false);
        size_t n = 0;
        for (; name[n] && n + 1 < sizeof(plain); n++) /* for old clients: letters that mean nothing in a header */
                plain[n] = http_is_token_character(name[n]) && !strchr("%'*", name[n]) ? name[n] : '_';
        plain[n] = '\0';
        if (!encoded)
                return -1;
        (void) snprintf(value, sizeof(value), "attachment; filename=\"%s\"; filename*=UTF-8''%.800s", plain, encoded);
        return http_add_header(api_request->request, "Content-Disposition", value) < 0 ? -1 : 0;
}

/* What changes whenever the file does. It is made of the change time, which code cannot set as it can the time of
 * modification; but clocks of file systems tick every few milliseconds, so that a change of the last moment proves
 * nothing: then there is none, "". */
static void make_tag(const struct stat *status, char ret_tag[static TAG_SIZE]) {
        uint64_t of[] = { status->st_dev, status->st_ino, (uint64_t) status->st_size, (uint64_t) status->st_ctim.tv_sec,
                          (uint64_t) status->st_ctim.tv_nsec };
        char hex[2 * SHA256_SIZE + 1];
        struct timespec now;
        (void) clock_gettime(CLOCK_REALTIME, &now);
        int64_t age_ns =
                (int64_t) (now.tv_sec - status->st_ctim.tv_sec) * 1000000000 + (now.tv_nsec - status->st_ctim.tv_nsec);
        ret_tag[0] = '\0';
        if (age_ns < SETTLED_NS)
                return;
        (void) snprintf(ret_tag, TAG_SIZE, "\"%.32s\"", sha256_hex(of, sizeof(of), hex));
}

/* Is the tag in the list of an If-None-Match? */
static bool is_listed(const char *list, const char *tag) {
        return list && *tag && (strcmp(list, "*") == 0 || strstr(list, tag) != NULL);
}

/* Does the client want a part? One that has an older version asks with If-Range, and gets the whole. */
static enum http_range_kind choose_range(const struct http_request *request, uint64_t size, const char *tag,
                                         uint64_t *ret_first, uint64_t *ret_length) {
        const char *condition = http_header(request, "If-Range");
        const char *range = strcmp(http_method(request), "GET") == 0 ? http_header(request, "Range") : NULL;
        if (condition && (!*tag || strcmp(condition, tag) != 0))
                range = NULL;
        *ret_first = 0;
        *ret_length = size;
        return http_range_parse(range, size, ret_first, ret_length);
}

static int add_head(struct api_request *api_request, const char *name, const char *tag) {
        struct http_request *request = api_request->request;
        if (serving_name(api_request, name) < 0 || http_add_header(request, "Accept-Ranges", "bytes") < 0 ||
            http_add_header(request, "Content-Security-Policy", "default-src 'none'; sandbox; frame-ancestors 'none'") <
                    0 ||
            http_add_header(request, "Cross-Origin-Resource-Policy", "same-origin") < 0)
                return -1;
        return *tag ? http_add_header(request, "ETag", tag) : 0;
}

static void refuse_range(struct api_request *api_request, uint64_t size) {
        char text[64];
        (void) snprintf(text, sizeof(text), "bytes */%llu", (unsigned long long) size);
        (void) http_add_header(api_request->request, "Content-Range", text);
        (void) snprintf(text, sizeof(text), "the file has %llu bytes", (unsigned long long) size);
        api_request_problem(api_request, 416, "range", text, "ask for a range that begins before its end");
}

void serving_begin(struct api_request *api_request, int fd, const struct stat *status, const char *name) {
        struct http_request *request = api_request->request;
        uint64_t size = (uint64_t) status->st_size, first, length;
        char tag[TAG_SIZE], text[96];
        make_tag(status, tag);
        enum http_range_kind kind = choose_range(request, size, tag, &first, &length);
        struct file_source *file = malloc(sizeof(*file));
        if (file)
                *file = (struct file_source) { { read_piece, close_file }, fd, first, length };
        if (is_listed(http_header(request, "If-None-Match"), tag)) {
                (void) http_add_header(request, "ETag", tag);
                (void) http_respond(request, 304, NULL, "", 0);
                api_request_free(api_request);
        } else if (kind == HTTP_RANGE_NONE)
                refuse_range(api_request, size);
        else if (!file || add_head(api_request, name, tag) < 0)
                api_request_problem(api_request, 503, "busy", "the service is out of memory", "try again in a moment");
        else {
                (void) snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long) first,
                                (unsigned long long) (first + length - 1), (unsigned long long) size);
                if (kind == HTTP_RANGE_PART)
                        (void) http_add_header(request, "Content-Range", text);
                sending_begin(api_request, &file->source, kind == HTTP_RANGE_PART ? 206 : 200, type_of(name),
                              (int64_t) length);
                return;
        }
        free(file);
        fd_close(&fd);
}
