/* Finds pieces of valid JSON text (a run's result, which the daemon wrote) without making a tree: a result may hold
 * megabytes of images, which are passed on unchanged. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slice {
        const char *bytes; /* NULL: there is none */
        size_t size;
};

/* The member of an object, or none. The key has no escapes. */
struct slice slice_get(struct slice object, const char *key);

/* Walks over the members of an object or the elements of an array. *at begins with 0; ret_key may be NULL. */
bool slice_next(struct slice whole, size_t *at, struct slice *ret_key, struct slice *ret_value);

bool slice_is(struct slice value, const char *text); /* a text without escapes, and this one */
bool slice_is_true(struct slice value);
int64_t slice_number(struct slice value); /* 0: it is none */

/* The text of a JSON string, fresh and with a NUL, or NULL: none, too large (max, of the JSON), or no memory. */
char *slice_text(struct slice value, size_t max);
