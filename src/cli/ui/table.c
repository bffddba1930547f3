#include "cli/ui/table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ui/terminal.h"

struct table table_make(const char *const *headings, size_t n_columns) {
        struct table table = { .n_columns = n_columns < TABLE_COLUMNS_MAX ? n_columns : TABLE_COLUMNS_MAX };
        for (size_t i = 0; i < table.n_columns; i++)
                table_add(&table, headings[i]);
        return table;
}

void table_release(struct table *table) {
        for (size_t i = 0; i < table->n_cells; i++)
                free(table->cells[i]);
        free(table->cells);
        *table = (struct table) { 0 };
}

/* A cell that memory did not suffice for is shown as one that is empty. */
void table_add(struct table *table, const char *text) {
        if (table->n_cells == table->room) {
                size_t room = table->room ? 2 * table->room : 64;
                char **grown = realloc(table->cells, room * sizeof(*grown));
                if (!grown)
                        return;
                table->cells = grown;
                table->room = room;
        }
        char *cell = strdup(text && *text ? text : "-");
        if (cell)
                terminal_make_harmless(cell);
        table->cells[table->n_cells++] = cell;
}

void table_add_format(struct table *table, const char *format, ...) {
        char *text = NULL;
        va_list args;
        va_start(args, format);
        int length = vasprintf(&text, format, args);
        va_end(args);
        table_add(table, length < 0 ? NULL : text);
        if (length >= 0)
                free(text);
}

/* Characters, not bytes: what begins no character of UTF-8 is not counted. */
static size_t width_of(const char *text) {
        size_t width = 0;
        for (; text && *text; text++)
                width += ((unsigned char) *text & 0xc0) != 0x80;
        return width;
}

void table_print(const struct table *table, FILE *file) {
        size_t widths[TABLE_COLUMNS_MAX] = { 0 };
        for (size_t i = 0; i < table->n_cells; i++) {
                size_t width = width_of(table->cells[i]), *widest = &widths[i % table->n_columns];
                *widest = width > *widest ? width : *widest;
        }
        for (size_t i = 0; i < table->n_cells; i++) {
                size_t column = i % table->n_columns;
                (void) fputs(table->cells[i] ? table->cells[i] : "", file);
                if (column + 1 == table->n_columns)
                        (void) fputc('\n', file);
                else
                        (void) fprintf(file, "%*s", (int) (widths[column] - width_of(table->cells[i]) + 2), "");
        }
}

const char *format_age(uint64_t ms, char buffer[static 32]) {
        static const struct {
                uint64_t seconds;
                char unit;
        } units[] = { { 24 * 60 * 60, 'd' }, { 60 * 60, 'h' }, { 60, 'm' }, { 1, 's' } };
        uint64_t seconds = ms / 1000;
        (void) snprintf(buffer, 32, "now");
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
                if (seconds < units[i].seconds)
                        continue;
                (void) snprintf(buffer, 32, "%" PRIu64 "%c", seconds / units[i].seconds, units[i].unit);
                break;
        }
        return buffer;
}
