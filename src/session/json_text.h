/* JSON as it is written: text that grows. For what every run needs, where a tree of values costs more than the text.
 * Running out of memory is remembered and need be asked for only once, at the end. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_text {
        char *bytes;
        size_t size, room;
        bool failed; /* out of memory: what is there is of no use */
};

void json_text_release(struct json_text *text);
#define _cleanup_json_text_ __attribute__((cleanup(json_text_release)))

void json_text_put(struct json_text *text, const char *bytes, size_t size); /* as they are */
#define json_text_put_literal(text, literal) json_text_put(text, "" literal, sizeof(literal) - 1)

void json_text_put_number(struct json_text *text, int64_t number);
void json_text_put_bool(struct json_text *text, bool value);
void json_text_put_value(struct json_text *text, const json_t *value); /* NULL is null */

/* How many of these bytes, up to a character's end, are written in at most `max` by json_text_put_string; not counting
 * that what is no UTF-8 grows. */
size_t json_text_fitting(const char *bytes, size_t size, size_t max);

/* Quoted. The bytes may be any: what is no UTF-8 becomes U+FFFD. */
void json_text_put_string(struct json_text *text, const char *bytes, size_t size);
