/* Checks untrusted JSON piece by piece as it arrives, and keeps it as text. It builds no tree, so the memory used is
 * that of the bytes, and each piece takes the same time. It notes the positions of those members of the outermost
 * object that the caller needs. Strict: RFC 8259, in one line, valid UTF-8, no lone surrogates, bounded depth. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_SCAN_DEPTH_MAX = 256, JSON_SCAN_WANTED_MAX = 8, JSON_SCAN_KEY_MAX = 24 };

struct json_scan {
        const char *const *wanted; /* names of members, NULL-terminated */
        struct {
                size_t at, size; /* of the value, in bytes from the start; size 0: there is none */
        } found[JSON_SCAN_WANTED_MAX];

        /* how far it is */
        size_t at;
        int state;
        uint32_t depth;
        uint64_t is_object[JSON_SCAN_DEPTH_MAX / 64]; /* one bit for each level */
        bool in_key, failed;
        uint8_t utf8_left, utf8_low, utf8_high; /* bytes of a character that must follow, and bounds of the next */
        uint8_t hex_left;
        uint16_t unit, high_unit; /* of \uXXXX: what there is, and the first half of a pair */
        const char *literal;      /* rest of true, false, null */
        char key[JSON_SCAN_KEY_MAX];
        size_t key_size; /* JSON_SCAN_KEY_MAX: too long, or with an escape: not wanted */
        int current;     /* which of `wanted` is being read, or -1 */
        size_t value_at;
};

void json_scan_start(struct json_scan *scan, const char *const *wanted);

/* The next bytes. False: it is not JSON, whatever follows. */
bool json_scan_feed(struct json_scan *scan, const char *bytes, size_t size);

/* True if all of it was one object, in which no wanted member occurred twice. */
bool json_scan_is_object(const struct json_scan *scan);
