/* A writer of JSON text, for the results of runs: a tree of values would cost more than the text. It remembers that
 * memory ran out, so callers check only once, at the end. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_writer {
        char *bytes;
        size_t size, room;
        bool failed; /* out of memory: the text is not usable */
};

void json_writer_release(struct json_writer *text);
#define _cleanup_json_writer_ __attribute__((cleanup(json_writer_release)))

void json_writer_put(struct json_writer *text, const char *bytes, size_t size); /* as they are */
#define json_writer_put_literal(text, literal) json_writer_put(text, "" literal, sizeof(literal) - 1)

void json_writer_put_number(struct json_writer *text, int64_t number);
void json_writer_put_bool(struct json_writer *text, bool value);
void json_writer_put_value(struct json_writer *text, const json_t *value); /* NULL is null */

/* How many of these bytes, up to a character's end, are written in at most `max` by json_writer_put_string; not
 * counting the growth of ill-formed UTF-8. */
size_t json_writer_fitting(const char *bytes, size_t size, size_t max);

/* Writes a quoted string. Ill-formed UTF-8 becomes U+FFFD. */
void json_writer_put_string(struct json_writer *text, const char *bytes, size_t size);
