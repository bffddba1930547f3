#include "http/out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "http/limits.h"

static int out_make_room(struct http_out *out, size_t size) {
        size_t used = http_out_size(out);
        if (out->room - out->end >= size)
                return 0;
        if (out->start > 0 && out->room - used >= size && out->start >= used) {
                memcpy(out->bytes, out->bytes + out->start, used);
                out->start = 0;
                out->end = used;
                return 0;
        }
        size_t room = out->room ? out->room : 1024;
        while (room - used < size)
                room *= 2;
        char *grown = malloc(room);
        if (!grown)
                return -ENOMEM;
        if (used > 0)
                memcpy(grown, out->bytes + out->start, used);
        free(out->bytes);
        *out = (struct http_out) { grown, 0, used, room };
        return 0;
}

int http_out_add(struct http_out *out, const void *bytes, size_t size, size_t max) {
        if (size == 0)
                return 0;
        if (size > max || http_out_size(out) > max - size)
                return -ENOBUFS;
        int code = out_make_room(out, size);
        if (code < 0)
                return code;
        memcpy(out->bytes + out->end, bytes, size);
        out->end += size;
        return 0;
}

int http_out_add_text(struct http_out *out, const char *text, size_t max) {
        return http_out_add(out, text, strlen(text), max);
}

void http_out_drop(struct http_out *out, size_t size) {
        out->start += size;
        if (out->start == out->end)
                out->start = out->end = 0;
}

void http_out_trim(struct http_out *out) {
        if (http_out_size(out) == 0 && out->room > HTTP_OUT_KEPT)
                http_out_free(out);
}

void http_out_cut(struct http_out *out, size_t size) {
        out->end = out->start + size;
}

void http_out_free(struct http_out *out) {
        free(out->bytes);
        *out = (struct http_out) { 0 };
}
