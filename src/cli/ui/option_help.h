/* Help text: paragraphs and two columns, wrapped to the terminal that reads it. */
#pragma once

#include <stdio.h>

#include "cli/ui/option.h"

void help_print_heading(FILE *file, const char *text);

/* Each line of `text` is one paragraph. */
void help_print_paragraphs(FILE *file, const char *text);

/* "  term      what it is", the second column wrapped. */
void help_print_item(FILE *file, const char *term, const char *text);

/* One option, `indent` columns in; and all of a table, under the headings of their groups. */
void help_print_option(FILE *file, const struct option_row *row, unsigned indent);
void help_print_options(FILE *file, const struct option_table *table);
