#include "base/base64.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_put(struct json_writer *text, const void *bytes, size_t size) {
        const unsigned char *from = bytes;
        char piece[4096];
        size_t used = 0;
        for (size_t i = 0; i < size; i += 3) {
                size_t n = size - i < 3 ? size - i : 3;
                uint32_t word = (uint32_t) from[i] << 16 | (n > 1 ? (uint32_t) from[i + 1] << 8 : 0) |
                                (n > 2 ? from[i + 2] : 0u);
                for (size_t k = 0; k < 4; k++)
                        piece[used++] = k > n ? '=' : letters[word >> (18 - 6 * k) & 63];
                if (used == sizeof(piece)) {
                        json_writer_put(text, piece, used);
                        used = 0;
                }
        }
        json_writer_put(text, piece, used);
}

static int base64_digit(char c) {
        return c >= 'A' && c <= 'Z'   ? c - 'A'
               : c >= 'a' && c <= 'z' ? c - 'a' + 26
               : c >= '0' && c <= '9' ? c - '0' + 52
               : c == '+'             ? 62
               : c == '/'             ? 63
                                      : -1;
}

int base64_decode(const char *text, size_t size, void *ret_bytes, size_t *ret_size) {
        unsigned char *to = ret_bytes;
        size_t n = 0, pads = 0;
        if (size % 4 != 0)
                return -EINVAL;
        while (pads < 2 && size > pads && text[size - 1 - pads] == '=')
                pads++;
        for (size_t i = 0; i < size; i += 4) {
                uint32_t word = 0;
                for (size_t k = 0; k < 4; k++) {
                        int value = i + k >= size - pads ? 0 : base64_digit(text[i + k]);
                        if (value < 0)
                                return -EINVAL;
                        word = word << 6 | (uint32_t) value;
                }
                to[n++] = (unsigned char) (word >> 16);
                to[n++] = (unsigned char) (word >> 8);
                to[n++] = (unsigned char) word;
        }
        *ret_size = n - pads;
        return 0;
}
