#include "base/share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct share_holder {
        struct share_holder *next;
        bool is_box;
        char name[SHARE_NAME_MAX + 1];
        uint64_t used[SHARE_ROWS_MAX];
};

void share_table_open(struct share_table *table, const struct share_row *rows, size_t n_rows, unsigned key_percent) {
        *table = (struct share_table) { .n_rows = n_rows,
                                        .key_percent = key_percent ? key_percent : SHARE_STANDARD_PERCENT };
        memcpy(table->rows, rows, n_rows * sizeof(*rows));
}

void share_table_release(struct share_table *table) {
        while (table->holders) {
                struct share_holder *holder = table->holders;
                table->holders = holder->next;
                free(holder);
        }
}

static struct share_holder *share_find(const struct share_table *table, const char *name, bool is_box) {
        struct share_holder *holder = table->holders;
        while (holder && (holder->is_box != is_box || strcmp(holder->name, name) != 0))
                holder = holder->next;
        return holder;
}

static struct share_holder *find_or_make(struct share_table *table, const char *name, bool is_box) {
        struct share_holder *holder = share_find(table, name, is_box);
        if (holder || !(holder = calloc(1, sizeof(*holder))))
                return holder;
        holder->is_box = is_box;
        (void) snprintf(holder->name, sizeof(holder->name), "%s", name);
        holder->next = table->holders;
        table->holders = holder;
        return holder;
}

static uint64_t held_by(const struct share_table *table, size_t row, const char *name, bool is_box) {
        const struct share_holder *holder = share_find(table, name, is_box);
        return holder ? holder->used[row] : 0;
}

static uint64_t part_of(uint64_t total, unsigned percent) {
        uint64_t part = total / 100 * percent + total % 100 * percent / 100;
        return part ? part : 1;
}

/* True if there is another key for which room must be left. */
static bool is_alone(const struct share_table *table, size_t row, const struct share_claim *claim) {
        return *claim->key ? table->n_keys <= 1 && !table->rows[row].operator_too : table->n_keys == 0;
}

static const char *whose_claim(const struct share_claim *claim) {
        return *claim->key ? "this key" : "the operator";
}

static int refuse_share(const struct share_row *row, const char *whose, uint64_t has, uint64_t max, const char *why,
                        struct err *err) {
        return err_set(err, ERR_LIMIT, "%s has %llu of %llu %s and may have %llu: %s; %s", whose,
                       (unsigned long long) has, (unsigned long long) row->total, row->what, (unsigned long long) max,
                       why, row->remedy);
}

/* The sum of all shares leaves room for the claim. May this key have so much of it, while there are others? */
static int judge_fair_share(const struct share_table *table, const struct share_row *row,
                            const struct share_claim *claim, uint64_t has, uint64_t used, struct err *err) {
        uint64_t amount = claim->amount, reserve = row->total / SHARE_RESERVE_PART;
        uint64_t share = part_of(row->total, table->key_percent);
        const char *whose = whose_claim(claim);
        if (has + amount > share)
                return refuse_share(row, whose, has, share, "the rest is for other keys (--key-share)", err);
        if (table->key_percent < 100 && has + amount > reserve && used + amount > row->total - reserve)
                return refuse_share(row, whose, has, reserve, "little is left, and that is for keys that have less",
                                    err);
        return 0;
}

int share_judge(const struct share_table *table, size_t row_number, const struct share_claim *claim, uint64_t has,
                uint64_t used, struct err *err) {
        const struct share_row *row = &table->rows[row_number];
        uint64_t total = row->total, amount = claim->amount;
        if (claim->key_max && has + amount > claim->key_max)
                return err_set(err, ERR_LIMIT, "%s has %llu %s and may have %llu; %s", whose_claim(claim),
                               (unsigned long long) has, row->what, (unsigned long long) claim->key_max, row->remedy);
        if (total == 0)
                return 0;
        if (used + amount > total)
                return err_set(
                        err, ERR_LIMIT, "%llu of %llu %s are in use by all together%s%s%s; %s, or try again later",
                        (unsigned long long) used, (unsigned long long) total, row->what, row->setting ? " (" : "",
                        row->setting ? row->setting : "", row->setting ? ")" : "", row->remedy);
        if (claim->key_max || is_alone(table, row_number, claim) || (row->fits_once && has == 0))
                return 0;
        return judge_fair_share(table, row, claim, has, used, err);
}

static int judge_claim(const struct share_table *table, size_t row_number, const struct share_claim *claim,
                       struct err *err) {
        const struct share_row *row = &table->rows[row_number];
        uint64_t box_max = row->box_percent ? part_of(row->total, row->box_percent) : 0;
        if (claim->box && box_max) {
                uint64_t has = held_by(table, row_number, claim->box, true);
                if (has + claim->amount > box_max)
                        return refuse_share(row, "this sandbox", has, box_max, "the rest is for others", err);
        }
        return share_judge(table, row_number, claim, held_by(table, row_number, claim->key, false),
                           table->used[row_number], err);
}

bool share_has_room(const struct share_table *table, size_t row, const struct share_claim *claim) {
        return judge_claim(table, row, claim, NULL) == 0;
}

int share_take(struct share_table *table, size_t row, const struct share_claim *claim, struct err *err) {
        if (!claim->is_granted && judge_claim(table, row, claim, err) < 0)
                return -1;
        struct share_holder *key = find_or_make(table, claim->key, false);
        struct share_holder *box = key && claim->box ? find_or_make(table, claim->box, true) : NULL;
        if (!key || (claim->box && !box))
                return err_set(err, ERR_SYSTEM, "out of memory");
        key->used[row] += claim->amount;
        if (box)
                box->used[row] += claim->amount;
        table->used[row] += claim->amount;
        return 0;
}

/* A holder that has nothing is removed from the table. */
static void give_back(struct share_table *table, size_t row, const char *name, bool is_box, uint64_t amount) {
        struct share_holder *holder = share_find(table, name, is_box);
        if (!holder)
                return;
        holder->used[row] -= amount < holder->used[row] ? amount : holder->used[row];
        for (size_t i = 0; i < table->n_rows; i++)
                if (holder->used[i])
                        return;
        struct share_holder **at = &table->holders;
        while (*at != holder)
                at = &(*at)->next;
        *at = holder->next;
        free(holder);
}

void share_give(struct share_table *table, size_t row, const struct share_claim *claim) {
        give_back(table, row, claim->key, false, claim->amount);
        if (claim->box)
                give_back(table, row, claim->box, true, claim->amount);
        table->used[row] -= claim->amount < table->used[row] ? claim->amount : table->used[row];
}

uint64_t share_used(const struct share_table *table, size_t row, const char *key) {
        return key ? held_by(table, row, key, false) : table->used[row];
}
