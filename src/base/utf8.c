#include "base/utf8.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Which second bytes may follow a first one (Unicode, table 3-7); all later bytes are 80..bf. */
static const struct {
        unsigned char second_low, second_high;
        size_t length;
} forms[] = {
        { 0, 0, 1 },       { 0x80, 0xbf, 2 }, { 0xa0, 0xbf, 3 }, { 0x80, 0xbf, 3 }, { 0x80, 0x9f, 3 },
        { 0x80, 0xbf, 3 }, { 0x90, 0xbf, 4 }, { 0x80, 0xbf, 4 }, { 0x80, 0x8f, 4 },
};

/* The form that a first byte begins, plus 1; 0: none. */
static const uint8_t form_of[256] = {
        [0x00 ... 0x7f] = 1, [0xc2 ... 0xdf] = 2, [0xe0] = 3,          [0xe1 ... 0xec] = 4, [0xed] = 5,
        [0xee ... 0xef] = 6, [0xf0] = 7,          [0xf1 ... 0xf3] = 8, [0xf4] = 9,
};

/* The number of bytes of the character at `at`, or of the ill-formed part that one U+FFFD replaces. */
static size_t utf8_measure(const unsigned char *at, size_t left, bool *ret_good) {
        *ret_good = false;
        size_t form = form_of[*at], n = 1;
        if (form == 0)
                return 1;
        while (n < forms[form - 1].length && n < left) {
                unsigned char low = n == 1 ? forms[form - 1].second_low : 0x80;
                unsigned char high = n == 1 ? forms[form - 1].second_high : 0xbf;
                if (at[n] < low || at[n] > high)
                        break;
                n++;
        }
        *ret_good = n == forms[form - 1].length;
        return n;
}

int utf8_repair(const char *bytes, size_t size, char **ret_text, size_t *ret_size) {
        static const char replacement[] = "\xef\xbf\xbd";
        if (size > (SIZE_MAX - 1) / 3)
                return -ENOMEM;
        char *text = malloc(3 * size + 1); /* the worst: every byte becomes three */
        if (!text)
                return -ENOMEM;
        size_t used = 0;
        for (size_t at = 0; at < size;) {
                bool good;
                size_t n = utf8_measure((const unsigned char *) bytes + at, size - at, &good);
                const char *from = good ? bytes + at : replacement;
                size_t length = good ? n : 3;
                memcpy(text + used, from, length);
                used += length;
                at += n;
        }
        text[used] = '\0';
        *ret_text = text;
        *ret_size = used;
        return 0;
}

size_t utf8_character_length(const char *bytes, size_t size) {
        bool good;
        size_t n = utf8_measure((const unsigned char *) bytes, size, &good);
        return good ? n : 0;
}

bool utf8_is_valid(const char *bytes, size_t size) {
        bool good = true;
        for (size_t at = 0; at < size && good;) {
                uint64_t eight;
                if (size - at >= sizeof(eight)) { /* most text is ASCII */
                        memcpy(&eight, bytes + at, sizeof(eight));
                        if (!(eight & 0x8080808080808080)) {
                                at += sizeof(eight);
                                continue;
                        }
                }
                at += utf8_measure((const unsigned char *) bytes + at, size - at, &good);
        }
        return good;
}
