#include "cli/ui/option_help.h"

#include <string.h>

#include "cli/ui/terminal.h"

enum { COLUMN = 27, WIDTH_MIN = 50, WIDTH_MAX = 110 };

static unsigned width_of(FILE *file) {
        unsigned width = terminal_width(fileno(file), 80);
        return width < WIDTH_MIN ? WIDTH_MIN : width > WIDTH_MAX ? WIDTH_MAX : width;
}

/* Prints words from column `at` on, wrapped, later lines beginning at column `indent`; ends the line. */
static void print_wrapped(FILE *file, const char *text, size_t length, unsigned at, unsigned indent) {
        unsigned width = width_of(file);
        const char *end = text + length;
        bool first = true;
        while (text < end) {
                size_t word = strcspn(text, " \n");
                if (text + word > end)
                        word = (size_t) (end - text);
                if (!first && at + 1 + word > width) {
                        (void) fprintf(file, "\n%*s", (int) indent, "");
                        at = indent;
                } else if (!first) {
                        (void) fputc(' ', file);
                        at++;
                }
                (void) fprintf(file, "%.*s", (int) word, text);
                at += (unsigned) word;
                first = false;
                text += word;
                while (text < end && *text == ' ')
                        text++;
        }
        (void) fputc('\n', file);
}

void help_print_heading(FILE *file, const char *text) {
        (void) fprintf(file, "%s%s%s\n", terminal_style(fileno(file), TERMINAL_BOLD), text,
                       terminal_style(fileno(file), TERMINAL_PLAIN));
}

void help_print_paragraphs(FILE *file, const char *text) {
        while (*text) {
                size_t length = strcspn(text, "\n");
                print_wrapped(file, text, length, 0, 0);
                text += length + (text[length] == '\n');
                if (*text)
                        (void) fputc('\n', file);
        }
}

/* Columns of a text in UTF-8 without wide characters. */
static int columns_of(const char *text) {
        int n = 0;
        for (; *text; text++)
                n += (*text & 0xc0) != 0x80;
        return n;
}

static void print_item(FILE *file, const char *term, const char *text, unsigned indent) {
        int used = (int) indent + columns_of(term);
        (void) fprintf(file, "%*s%s", (int) indent, "", term);
        if (used + 2 > COLUMN)
                (void) fprintf(file, "\n%*s", COLUMN, "");
        else
                (void) fprintf(file, "%*s", COLUMN - used, "");
        print_wrapped(file, text, strlen(text), COLUMN, COLUMN);
}

void help_print_item(FILE *file, const char *term, const char *text) {
        print_item(file, term, text, 2);
}

/* "the time limit (default 30s; SANDBOX_TIMEOUT or TIMEOUT)" */
static void write_option_text(const struct option_row *row, char *ret_text, size_t size) {
        char variables[100] = "", standard[100] = "";
        if (row->variable)
                (void) snprintf(variables, sizeof(variables), "%s%s%s", row->variable, row->alias ? " or " : "",
                                row->alias ? row->alias : "");
        if (row->standard)
                (void) snprintf(standard, sizeof(standard), "default %s", row->standard);
        const char *between = *standard && *variables ? "; " : "";
        if (*standard || *variables)
                (void) snprintf(ret_text, size, "%s (%s%s%s)", row->help, standard, between, variables);
        else
                (void) snprintf(ret_text, size, "%s", row->help);
}

void help_print_option(FILE *file, const struct option_row *row, unsigned indent) {
        char term[100], text[600];
        int used = row->letter ? snprintf(term, sizeof(term), "-%c, --%s", row->letter, row->name)
                               : snprintf(term, sizeof(term), "--%s", row->name);
        if (row->argument && used > 0 && (size_t) used < sizeof(term))
                (void) snprintf(term + used, sizeof(term) - (size_t) used, " %s", row->argument);
        write_option_text(row, text, sizeof(text));
        print_item(file, term, text, indent);
}

void help_print_options(FILE *file, const struct option_table *table) {
        const char *group = NULL;
        for (size_t i = 0; i < table->n_rows; i++) {
                const struct option_row *row = &table->rows[i];
                if (!group || strcmp(group, row->group) != 0) {
                        (void) fputc('\n', file);
                        help_print_heading(file, row->group);
                        group = row->group;
                }
                help_print_option(file, row, 2);
        }
}
