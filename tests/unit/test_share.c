/* Shares: no key has everything, and keys that have little get some. */
#include "base/share.h"
#include "tap.h"

enum { THINGS, BYTES, ROWS };

static const struct share_row rows[ROWS] = {
        [THINGS] = { .what = "things", .remedy = "drop some", .total = 16, .setting = "--max-things" },
        [BYTES] = { .what = "bytes", .remedy = "read some", .total = 1000, .box_percent = 20, .operator_too = true },
};

static uint64_t take_all(struct share_table *table, size_t row, const char *key, const char *box, struct err *err) {
        const struct share_claim one = { .key = key, .box = box, .amount = 1 };
        uint64_t n = 0;
        while (n < 5000 && share_take(table, row, &one, err) == 0)
                n++;
        return n;
}

static void test_keys(void) {
        struct share_table table;
        struct err err = { 0 };
        share_table_open(&table, rows, ROWS, 0);
        table.n_keys = 1;
        ok(take_all(&table, THINGS, "alone", NULL, &err) == 16, "whoever is alone may have all");
        ok(strstr(err.message, "16 of 16 things") && strstr(err.message, "--max-things") &&
                   strstr(err.message, "drop some") && err.code == ERR_LIMIT,
           "and the message says what is in use: %s", err.message);
        share_give(&table, THINGS, &(struct share_claim) { .key = "alone", .amount = 16 });
        table.n_keys = 4;
        ok(take_all(&table, THINGS, "a", NULL, &err) == 8, "one of several has half");
        ok(strstr(err.message, "has 8 of 16 things and may have 8") && strstr(err.message, "--key-share"),
           "and the error says so: %s", err.message);
        ok(take_all(&table, THINGS, "b", NULL, &err) == 6, "two together leave an eighth: %s", err.message);
        ok(take_all(&table, THINGS, "c", NULL, &err) == 2, "which is there for a third");
        ok(share_used(&table, THINGS, NULL) == 16 && share_used(&table, THINGS, "c") == 2, "all are counted");
        share_give(&table, THINGS, &(struct share_claim) { .key = "a", .amount = 8 });
        ok(share_used(&table, THINGS, "a") == 0 && take_all(&table, THINGS, "d", NULL, &err) == 6,
           "what is given back is for the next");
        share_table_release(&table);
}

static void test_boxes(void) {
        struct share_table table;
        struct err err = { 0 };
        share_table_open(&table, rows, ROWS, 60);
        ok(take_all(&table, BYTES, "", "box 1", &err) == 200, "one box has its part");
        ok(strstr(err.message, "this sandbox has 200 of 1000 bytes"), "and the error says so: %s", err.message);
        ok(take_all(&table, BYTES, "", "box 2", &err) == 200, "another one too");
        table.n_keys = 1;
        ok(take_all(&table, BYTES, "key", "box 3", &err) + take_all(&table, BYTES, "key", "box 4", &err) +
                           take_all(&table, BYTES, "key", "box 5", &err) + take_all(&table, BYTES, "key", NULL, &err) ==
                   475,
           "a single key leaves room to the operator, whose sessions use the same: %s", err.message);
        share_table_release(&table);
}

static void test_words_of_the_operator(void) {
        struct share_table table;
        struct err err = { 0 };
        share_table_open(&table, rows, ROWS, 0);
        table.n_keys = 9;
        const struct share_claim named = { .key = "a", .amount = 12, .key_max = 12 };
        ok(share_take(&table, THINGS, &named, &err) == 0, "a quota of a key's own counts instead of its share");
        ok(!share_has_room(&table, THINGS, &(struct share_claim) { .key = "a", .amount = 1, .key_max = 12 }),
           "and bounds it");
        ok(share_take(&table, THINGS, &(struct share_claim) { .key = "b", .amount = 100, .is_granted = true }, &err) ==
                           0 &&
                   share_used(&table, THINGS, "b") == 100,
           "what is granted is only counted");
        share_table_release(&table);
}

int main(void) {
        test_keys();
        test_boxes();
        test_words_of_the_operator();
        return done_testing();
}
