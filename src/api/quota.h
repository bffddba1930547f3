/* The quotas of keys, and their use. */
#pragma once

#include <stdint.h>

/* 0: no bound. */
struct quota {
        uint64_t sandboxes; /* at a time */
        uint64_t runs;      /* at a time, waiting ones too */
        uint64_t rate;      /* requests in a minute */
};

/* The usage of one owner; it keeps its address until the table is freed. */
struct quota_use {
        struct quota_use *next;
        char owner[65];
        struct quota quota;
        double tokens; /* requests that may come at once */
        uint64_t filled_ms;
};

struct quota_table {
        struct quota_use *uses;
};

void quota_table_release(struct quota_table *table);

/* The usage of this owner, made if missing, with the current quota. NULL: out of memory. */
struct quota_use *quota_find(struct quota_table *table, const char *owner, const struct quota *quota);

/* Counts one request. Returns 0 if it is allowed, otherwise the seconds to wait. A minute's requests may come at
 * once. */
unsigned quota_count_request(struct quota_use *use, uint64_t now_ms);
