/* The quotas of keys, and their use. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0: no bound. */
struct quota {
        uint64_t sandboxes; /* at a time */
        uint64_t runs;      /* at a time, waiting ones too */
        uint64_t rate;      /* requests in a minute */
};

/* What one owner uses; stays where it is as long as the table lives. */
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

/* The owner's, made when it is not there yet; its quota is brought up to date. NULL: out of memory. */
struct quota_use *quota_find(struct quota_table *table, const char *owner, const struct quota *quota);

/* Counts one request. Returns 0 if it is allowed, otherwise the seconds to wait. A minute's requests may come at
 * once. */
unsigned quota_count_request(struct quota_use *use, uint64_t now_ms);
