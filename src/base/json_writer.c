#include "base/json_writer.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

void json_writer_release(struct json_writer *text) {
        free(text->bytes);
        *text = (struct json_writer) { 0 };
}

/* Where the next `size` bytes go, or NULL. */
static char *json_writer_make_room(struct json_writer *text, size_t size) {
        if (text->failed || size > SIZE_MAX / 4 || text->size > SIZE_MAX / 4) {
                text->failed = true;
                return NULL;
        }
        if (text->size + size > text->room) {
                size_t room = text->room ? text->room : 1024;
                while (room < text->size + size)
                        room *= 2;
                char *grown = realloc(text->bytes, room);
                if (!grown) {
                        text->failed = true;
                        return NULL;
                }
                text->bytes = grown;
                text->room = room;
        }
        return text->bytes + text->size;
}

void json_writer_put(struct json_writer *text, const char *bytes, size_t size) {
        char *to = size > 0 ? json_writer_make_room(text, size) : NULL;
        if (!to)
                return;
        memcpy(to, bytes, size);
        text->size += size;
}

void json_writer_put_number(struct json_writer *text, int64_t number) {
        char digits[24];
        size_t at = sizeof(digits);
        uint64_t left = number < 0 ? 0 - (uint64_t) number : (uint64_t) number;
        do
                digits[--at] = (char) ('0' + left % 10);
        while (left /= 10);
        if (number < 0)
                digits[--at] = '-';
        json_writer_put(text, digits + at, sizeof(digits) - at);
}

void json_writer_put_bool(struct json_writer *text, bool value) {
        json_writer_put(text, value ? "true" : "false", value ? 4 : 5);
}

static int on_dump(const char *bytes, size_t size, void *context) {
        struct json_writer *text = context;
        json_writer_put(text, bytes, size);
        return text->failed ? -1 : 0;
}

/* How a byte below 128 is written after a backslash: one letter; 'u' for \u00XX; 0: as it is. */
static const char escapes[128] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r', ['"'] = '"', ['\\'] = '\\',
#define U(byte) [byte] = 'u'
        U(0),         U(1),         U(2),         U(3),         U(4),         U(5),        U(6),          U(7),  U(11),
        U(14),        U(15),        U(16),        U(17),        U(18),        U(19),       U(20),         U(21), U(22),
        U(23),        U(24),        U(25),        U(26),        U(27),        U(28),       U(29),         U(30), U(31),
#undef U
};

/* How each byte is written. One whole entry is copied whatever its size, which is quicker than asking. */
static struct written {
        char text[7];
        uint8_t size;
} written[256];
enum { BEHIND = sizeof(struct written) }; /* bytes that may be written behind the last one */

static void fill_written(void) {
        static const char hex[] = "0123456789abcdef";
        for (unsigned byte = 0; byte < ELEMENTS(written); byte++) {
                char escape = byte < sizeof(escapes) ? escapes[byte] : 0;
                written[byte] =
                        !escape ? (struct written) { { (char) byte }, 1 }
                        : escape != 'u'
                                ? (struct written) { { '\\', escape }, 2 }
                                : (struct written) { { '\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15] }, 6 };
        }
}

static size_t written_size(char byte) {
        if (!written[0].size)
                fill_written();
        return written[(unsigned char) byte].size;
}

/* True if none of the next eight bytes needs an escape. A megabyte, byte by byte, takes milliseconds. */
static bool are_plain(const char *bytes, size_t left) {
        const uint64_t ones = 0x0101010101010101, tops = ones << 7;
        uint64_t eight;
        if (left < sizeof(eight))
                return false;
        memcpy(&eight, bytes, sizeof(eight));
        uint64_t quote = eight ^ ones * '"', backslash = eight ^ ones * '\\';
        uint64_t found = (eight - ones * ' ') | (quote - ones) | (backslash - ones);
        return !(found & tops) && !(eight & tops);
}

static size_t written_size_of(const char *bytes, size_t size) {
        size_t total = 0;
        for (size_t i = 0; i < size;)
                if (are_plain(bytes + i, size - i)) {
                        total += sizeof(uint64_t);
                        i += sizeof(uint64_t);
                } else
                        total += written_size(bytes[i++]);
        return total;
}

size_t json_writer_fitting(const char *bytes, size_t size, size_t max) {
        size_t fitting = 0, total = 0;
        while (fitting < size) {
                bool is_plain = max - total >= sizeof(uint64_t) && are_plain(bytes + fitting, size - fitting);
                size_t more = is_plain ? sizeof(uint64_t) : written_size(bytes[fitting]);
                if (more > max - total)
                        break;
                total += more;
                fitting += is_plain ? sizeof(uint64_t) : 1;
        }
        while (fitting < size && fitting > 0 && ((unsigned char) bytes[fitting] & 0xc0) == 0x80)
                fitting--;
        return fitting;
}

/* Measured first, then written at once: a megabyte of control characters takes milliseconds. */
void json_writer_put_string(struct json_writer *text, const char *bytes, size_t size) {
        _cleanup_free_ char *repaired = NULL;
        if (!utf8_is_valid(bytes, size)) {
                if (utf8_repair(bytes, size, &repaired, &size) < 0) {
                        text->failed = true;
                        return;
                }
                bytes = repaired;
        }
        size_t total = 2 + written_size_of(bytes, size);
        char *to = json_writer_make_room(text, total + BEHIND);
        if (!to)
                return;
        if (!written[0].size)
                fill_written();
        *to++ = '"';
        for (size_t i = 0; i < size;) {
                if (are_plain(bytes + i, size - i)) {
                        memcpy(to, bytes + i, sizeof(uint64_t));
                        to += sizeof(uint64_t);
                        i += sizeof(uint64_t);
                        continue;
                }
                const struct written *entry = &written[(unsigned char) bytes[i++]];
                memcpy(to, entry, sizeof(*entry));
                to += entry->size;
        }
        *to = '"';
        text->size += total;
}

static void put_object(struct json_writer *text, const json_t *object) {
        const char *key;
        json_t *value;
        bool is_first = true;
        json_writer_put_literal(text, "{");
        json_object_foreach ((json_t *) (uintptr_t) object, key, value) {
                if (!is_first)
                        json_writer_put_literal(text, ",");
                is_first = false;
                json_writer_put_string(text, key, strlen(key));
                json_writer_put_literal(text, ":");
                json_writer_put_value(text, value);
        }
        json_writer_put_literal(text, "}");
}

/* The members of a run are written here; the rest is the library's. */
void json_writer_put_value(struct json_writer *text, const json_t *value) {
        if (!value || json_is_null(value))
                json_writer_put_literal(text, "null");
        else if (json_is_string(value))
                json_writer_put_string(text, json_string_value(value), json_string_length(value));
        else if (json_is_object(value))
                put_object(text, value);
        else if (json_is_array(value) && json_array_size(value) == 0)
                json_writer_put_literal(text, "[]");
        else if (json_dump_callback(value, on_dump, text, JSON_COMPACT | JSON_ENCODE_ANY) < 0)
                text->failed = true;
}
