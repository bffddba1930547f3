/* A multipart body, whole and in pieces: no crash, and the same parts with the same bytes either way. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "http/multipart.h"
#include "http/out.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition) {
        if (!condition)
                abort();
}

static void tell(struct http_out *told, const char *bytes, size_t size) {
        must(http_out_add(told, bytes, size, 64 << 20) == 0);
}

static int on_part(void *context, const struct multipart_part *part, struct err *err) {
        (void) err;
        tell(context, part->name, strlen(part->name) + 1);
        if (part->file_name)
                tell(context, part->file_name, strlen(part->file_name) + 1);
        if (part->type)
                tell(context, part->type, strlen(part->type) + 1);
        return 0;
}

static int on_data(void *context, const char *bytes, size_t size, struct err *err) {
        (void) err;
        must(size > 0);
        tell(context, bytes, size);
        return 0;
}

static int on_part_end(void *context, struct err *err) {
        (void) err;
        tell(context, "end", 4);
        return 0;
}

static bool run(const char *type, const char *bytes, size_t size, size_t piece, struct http_out *told) {
        static const struct multipart_events events = { on_part, on_data, on_part_end };
        struct multipart *multipart;
        struct err err;
        if (multipart_open(type, &events, told, &multipart, &err) < 0)
                return false;
        int code = 0;
        for (size_t at = 0; at < size && code == 0; at += piece)
                code = multipart_feed(multipart, bytes + at, size - at < piece ? size - at : piece, &err);
        if (code == 0)
                code = multipart_finish(multipart, &err);
        must(code == 0 || (err.code == ERR_USAGE && err.message[0]));
        multipart_close(multipart);
        return code == 0;
}

/* The first byte is the size of the pieces, then the Content-Type up to a NUL, then the body. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const uint8_t *end = size > 1 ? memchr(data + 1, '\0', size - 1) : NULL;
        if (!end)
                return 0;
        const char *type = (const char *) data + 1, *body = (const char *) end + 1;
        size_t body_size = (size_t) (data + size - end) - 1;
        struct http_out whole = { 0 }, cut = { 0 };
        bool is_good = run(type, body, body_size, body_size ? body_size : 1, &whole);
        must(run(type, body, body_size, (size_t) data[0] % 16 + 1, &cut) == is_good);
        size_t n = http_out_size(&whole);
        must(n == http_out_size(&cut) && (n == 0 || memcmp(whole.bytes, cut.bytes, n) == 0));
        http_out_free(&whole);
        http_out_free(&cut);
        return 0;
}
