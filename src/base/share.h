/* Shares: how much of each limited resource every key holds, and whether a key may take more.
 *
 * Every shared resource is a row of a table: sandboxes, boxes being made, bytes of output put aside, connections of the
 * proxy. A holder is a key of the service (the operator is the one without a name). The rules are the same for all:
 *   - all holders together never have more than the total;
 *   - if there are several keys, one holder has at most its share of the total (half, unless the operator says
 *     otherwise), and one box at most the row's share for a box;
 *   - the last eighth is kept for holders that have little: a holder that would have more than that eighth gets none of
 *     it. So one greedy holder, or several together, leave room for the next one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
        SHARE_ROWS_MAX = 9,
        SHARE_NAME_MAX = 64,         /* of a key or a box */
        SHARE_STANDARD_PERCENT = 50, /* of the total, for one key */
        SHARE_RESERVE_PART = 8,      /* the reserve is the total divided by this */
};

struct share_row {
        const char *what;     /* "sandboxes", for messages and metrics */
        const char *remedy;   /* what to do when there is no more: "destroy some" */
        uint64_t total;       /* 0: no bound */
        unsigned box_percent; /* of the total, for one box; 0: no bound but its key's */
        const char *setting;  /* that sets the total, for messages; NULL: none */
        bool operator_too;    /* the operator's own sessions use it as well: a single key is not alone */
};

struct share_holder;

struct share_table {
        struct share_row rows[SHARE_ROWS_MAX];
        size_t n_rows;
        unsigned key_percent;
        unsigned n_keys; /* number of keys, including those that hold nothing */
        uint64_t used[SHARE_ROWS_MAX];
        struct share_holder *holders;
};

/* A request for a share. */
struct share_claim {
        const char *key;    /* "": the operator */
        const char *box;    /* NULL: no box in particular */
        uint64_t amount;
        uint64_t key_max;   /* limit that the operator set for this key, instead of its share; 0: none */
        bool is_granted;    /* too small to be refused; it is only counted */
};

/* Copies the rows; key_percent 0 means the standard. */
void share_table_open(struct share_table *table, const struct share_row *rows, size_t n_rows, unsigned key_percent);
void share_table_release(struct share_table *table);

/* Checks a claim of a resource that is counted elsewhere: the holder has `has`, all together have `used`. ERR_LIMIT:
 * the claim is too large; the message names the share, how much of it is in use, and what to do. */
int share_judge(const struct share_table *table, size_t row, const struct share_claim *claim, uint64_t has,
                uint64_t used, struct err *err);

/* Counts the claim, if it is granted. ERR_LIMIT as above; ERR_SYSTEM when memory is short. */
int share_take(struct share_table *table, size_t row, const struct share_claim *claim, struct err *err);

/* Would it be granted? */
bool share_has_room(const struct share_table *table, size_t row, const struct share_claim *claim);

/* Gives back what was taken. */
void share_give(struct share_table *table, size_t row, const struct share_claim *claim);

/* The amount that this key holds; NULL: that all hold. */
uint64_t share_used(const struct share_table *table, size_t row, const char *key);
