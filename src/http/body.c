#include "http/body.h"

#include "http/text.h"

void http_body_begin(struct http_body *body, int64_t length) {
        *body = (struct http_body) { .is_chunked = length < 0, .is_done = length == 0 };
        if (length > 0)
                body->left = (uint64_t) length;
}

static void body_refuse(struct http_refusal *refusal, const char *why) {
        *refusal = (struct http_refusal) { 400, why };
}

static void take_size_digit(struct http_body *body, char c, struct http_refusal *refusal) {
        int digit = http_hex_value(c);
        if (c == '\r' && body->n_digits > 0)
                body->step = CHUNK_SIZE_LF;
        else if (digit < 0 || body->n_digits == HTTP_CHUNK_DIGITS_MAX)
                body_refuse(refusal, "a chunk's size is not a hexadecimal number alone on its line");
        else {
                body->left = body->left << 4 | (uint64_t) digit;
                body->n_digits++;
        }
}

static void take_framing(struct http_body *body, char c, struct http_refusal *refusal) {
        static const struct {
                char expected;
                enum http_chunk_step next;
        } steps[] = {
                [CHUNK_SIZE_LF] = { '\n', CHUNK_DATA },  [CHUNK_DATA_CR] = { '\r', CHUNK_DATA_LF },
                [CHUNK_DATA_LF] = { '\n', CHUNK_SIZE },  [CHUNK_END_CR] = { '\r', CHUNK_END_LF },
                [CHUNK_END_LF] = { '\n', CHUNK_END_LF },
        };
        enum http_chunk_step step = body->step;
        if (step == CHUNK_SIZE) {
                take_size_digit(body, c, refusal);
                return;
        }
        if (c != steps[step].expected) {
                body_refuse(refusal, step >= CHUNK_END_CR
                                             ? "the last chunk is followed by something else than an empty line"
                                             : "a chunk does not end where its size says");
                return;
        }
        body->step = steps[step].next;
        if (step == CHUNK_SIZE_LF && body->left == 0)
                body->step = CHUNK_END_CR;
        if (step == CHUNK_DATA_LF)
                body->n_digits = 0;
        body->is_done = step == CHUNK_END_LF;
}

size_t http_body_take(struct http_body *body, const char *bytes, size_t size, const char **ret_data, size_t *ret_size,
                      struct http_refusal *refusal) {
        *refusal = (struct http_refusal) { 0 };
        *ret_data = bytes;
        *ret_size = 0;
        if (body->is_chunked && body->step != CHUNK_DATA) {
                take_framing(body, *bytes, refusal);
                return 1;
        }
        *ret_size = body->left < size ? (size_t) body->left : size;
        body->left -= *ret_size;
        body->received += *ret_size;
        if (body->left == 0 && body->is_chunked)
                body->step = CHUNK_DATA_CR;
        else if (body->left == 0)
                body->is_done = true;
        return *ret_size;
}
