/* JSON as it is written: text that grows. For what every run needs, where a tree of values costs more than the text.
 * Running out of memory is remembered and need be asked for only once, at the end. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_writer {
        char *bytes;
        size_t size, room;
        bool failed; /* out of memory: what is there is of no use */
};

void json_writer_release(struct json_writer *text);
#define _cleanup_json_writer_ __attribute__((cleanup(json_writer_release)))

void json_writer_put(struct json_writer *text, const char *bytes, size_t size); /* as they are */
#define json_writer_put_literal(text, literal) json_writer_put(text, "" literal, sizeof(literal) - 1)

void json_writer_put_number(struct json_writer *text, int64_t number);
void json_writer_put_bool(struct json_writer *text, bool value);
void json_writer_put_value(struct json_writer *text, const json_t *value); /* NULL is null */

/* How many of these bytes, up to a character's end, are written in at most `max` by json_writer_put_string; not
 * counting that what is no UTF-8 grows. */
size_t json_writer_fitting(const char *bytes, size_t size, size_t max);

/* Quoted. The bytes may be any: what is no UTF-8 becomes U+FFFD. */
void json_writer_put_string(struct json_writer *text, const char *bytes, size_t size);
