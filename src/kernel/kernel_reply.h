/* One frame from a kernel, as text. Its payload was checked to be a JSON object as it arrived (json_scan.h); only small
 * ones become a tree. An attacker may have written it: a field may be anything, or missing. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json_scan.h"

enum kernel_field {
        KERNEL_FIELD_ID,
        KERNEL_FIELD_STATUS,
        KERNEL_FIELD_EXIT_CODE,
        KERNEL_FIELD_EXECUTION_COUNT,
        KERNEL_FIELD_RESULT,
        KERNEL_FIELD_ERROR,
        KERNEL_FIELD_DATA,
        KERNEL_FIELDS,
};

extern const char *const kernel_field_names[]; /* for json_scan_start */

struct kernel_reply {
        const char *payload;
        size_t size;
        struct {
                const char *text; /* in the payload; NULL: there is none, or it is null */
                size_t size;
        } fields[KERNEL_FIELDS];
};

/* From what the scanner found in this payload, which is borrowed. */
struct kernel_reply kernel_reply_of(const struct json_scan *scan, const char *payload, size_t size);

/* True if the field is exactly this text, without escapes. */
bool kernel_reply_is(const struct kernel_reply *reply, enum kernel_field field, const char *text);

/* An integer; 0 when it is something else. */
int64_t kernel_reply_number(const struct kernel_reply *reply, enum kernel_field field);

bool kernel_reply_is_string(const struct kernel_reply *reply, enum kernel_field field);

/* A tree of it all (a new reference), or NULL if it is too large. */
json_t *kernel_reply_parse(const struct kernel_reply *reply);

/* Its own copy of the payload, to be freed with kernel_reply_release; false: out of memory. */
bool kernel_reply_copy(const struct kernel_reply *reply, struct kernel_reply *ret_copy);
void kernel_reply_release(struct kernel_reply *copy);
