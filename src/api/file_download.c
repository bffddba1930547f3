#include "api/file_download.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api_request.h"
#include "api/sending.h"
#include "base/fd.h"
#include "base/memory.h"
#include "http/range.h"
#include "http/text.h"
#include "store/artifact.h"
#include "store/workspace.h"

/* ---- the bytes ---- */

enum { READ_PIECE = 16 << 10 }; /* for each of hundreds of clients that do not read, beside its queue */

struct file_source {
        struct sending_source source;
        int fd;
        uint64_t at, left;
};

static ssize_t read_piece(struct sending_source *source, char *bytes) {
        struct file_source *file = (struct file_source *) source;
        size_t wanted = file->left < READ_PIECE ? (size_t) file->left : READ_PIECE;
        ssize_t n = wanted ? workspace_read(file->fd, bytes, wanted, file->at) : 0;
        if (n < 0)
                return n;
        file->at += (uint64_t) n; /* 0 before the end: the file was shortened, and the response ends too early */
        file->left -= (uint64_t) n;
        return n;
}

static void close_file(struct sending_source *source) {
        struct file_source *file = (struct file_source *) source;
        fd_close(&file->fd);
        free(file);
}

/* ---- the head ---- */

/* The type follows from the name, not from the contents; types that a browser would execute become plain bytes. */
static const char *type_of(const char *name) {
        static const char *const active[] = { "text/html", "image/svg+xml", "application/xml", "application/pdf" };
        const char *type = artifact_mime(name);
        for (size_t i = 0; i < ELEMENTS(active); i++)
                if (strcmp(type, active[i]) == 0)
                        return "application/octet-stream";
        return type;
}

int file_download_name(struct api_request *api_request, const char *name) {
        char plain[256], value[1200];
        _cleanup_free_ char *encoded = http_encode(name, false);
        size_t n = 0;
        for (; name[n] && n + 1 < sizeof(plain); n++) /* for old clients: letters without a meaning in a header */
                plain[n] = http_is_token_character(name[n]) && !strchr("%'*", name[n]) ? name[n] : '_';
        plain[n] = '\0';
        if (!encoded)
                return -1;
        (void) snprintf(value, sizeof(value), "attachment; filename=\"%s\"; filename*=UTF-8''%.800s", plain, encoded);
        return http_add_header(api_request->request, "Content-Disposition", value) < 0 ? -1 : 0;
}

/* True if the tag is in the list of an If-None-Match. */
static bool tag_is_listed(const char *list, const char *tag) {
        return list && *tag && (strcmp(list, "*") == 0 || strstr(list, tag) != NULL);
}

/* True if the client wants a part. A client that has an older version sends If-Range, and gets the whole file. */
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
        if (file_download_name(api_request, name) < 0 || http_add_header(request, "Accept-Ranges", "bytes") < 0 ||
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

bool file_download_head(struct api_request *api_request, const struct file_download_file *file,
                        struct file_download_part *ret_part) {
        struct http_request *request = api_request->request;
        char text[96];
        enum http_range_kind kind = choose_range(request, file->size, file->tag, &ret_part->first, &ret_part->length);
        ret_part->status = kind == HTTP_RANGE_PART ? 206 : 200;
        ret_part->type = type_of(file->name);
        if (tag_is_listed(http_header(request, "If-None-Match"), file->tag)) {
                (void) http_add_header(request, "ETag", file->tag);
                (void) http_respond(request, 304, NULL, "", 0);
                api_request_free(api_request);
                return false;
        }
        if (kind == HTTP_RANGE_NONE) {
                refuse_range(api_request, file->size);
                return false;
        }
        if (add_head(api_request, file->name, file->tag) < 0) {
                api_request_problem(api_request, 503, "busy", "the service is out of memory", "try again in a moment");
                return false;
        }
        (void) snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long) ret_part->first,
                        (unsigned long long) (ret_part->first + ret_part->length - 1), (unsigned long long) file->size);
        if (kind == HTTP_RANGE_PART)
                (void) http_add_header(request, "Content-Range", text);
        return true;
}

void file_download_begin(struct api_request *api_request, int fd, const struct stat *status, const char *name) {
        struct file_download_file served = { .name = name, .size = (uint64_t) status->st_size };
        struct file_download_part part;
        workspace_tag(status, served.tag);
        struct file_source *file = malloc(sizeof(*file));
        if (!file) {
                fd_close(&fd);
                api_request_problem(api_request, 503, "busy", "the service is out of memory", "try again in a moment");
                return;
        }
        if (!file_download_head(api_request, &served, &part)) {
                free(file);
                fd_close(&fd);
                return;
        }
        *file = (struct file_source) { { read_piece, close_file }, fd, part.first, part.length };
        sending_begin(api_request, &file->source, part.status, part.type, (int64_t) part.length);
}
