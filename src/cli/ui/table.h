/* Text in columns, for people. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { TABLE_COLUMNS_MAX = 8 };

struct table {
        size_t n_columns, n_cells, room;
        char **cells; /* owned, row by row */
};

/* The headings are the first row. */
struct table table_make(const char *const *headings, size_t n_columns);
void table_release(struct table *table);

/* Copies the next cell in, control characters made harmless; NULL or "" is shown as "-". */
void table_add(struct table *table, const char *text);
void table_add_format(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Columns as wide as their widest cell, two blanks between them, none after the last. */
void table_print(const struct table *table, FILE *file);

/* "now", "12s", "3m", "5h", "12d": the largest unit that fits. */
const char *format_age(uint64_t ms, char buffer[static 32]);
