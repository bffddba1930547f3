#include "cli/ui/option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/units.h"
#include "cli/ui/suggest.h"
#include "cli/ui/terminal.h"

/* One walk along a command line. */
struct scan {
        const struct option_table *table;
        void *target;
        char **at;     /* the next word */
        uint64_t seen; /* bit i: row i was given */
        bool has_ended; /* by an option that is the last */
        struct err *err;
};

enum { SCAN_ON, SCAN_HELP };

static int assign_flag(const char *what, const char *text, bool *field, struct err *err) {
        static const char *const yes[] = { "1", "true", "yes", "on" }, *const no[] = { "0", "false", "no", "off" };
        for (size_t i = 0; i < ELEMENTS(yes); i++) {
                if (strcasecmp(text, yes[i]) != 0 && strcasecmp(text, no[i]) != 0)
                        continue;
                *field = strcasecmp(text, yes[i]) == 0;
                return 0;
        }
        return err_set(err, ERR_USAGE, "%s: \"%.40s\" is neither yes nor no; write 1 or 0", what, text);
}

static int assign_number(const struct option_row *row, const char *what, const char *text, uint64_t min, uint64_t max,
                         uint64_t *field, struct err *err) {
        switch (row->kind) {
        case OPTION_BYTES:
                return units_parse_bytes(what, text, min, max, field, err);
        case OPTION_DURATION:
                return units_parse_duration_ms(what, text, min, max, field, err);
        case OPTION_COUNT:
                return units_parse_count(what, text, min, max, field, err);
        default:
                return units_parse_thousandths(what, text, min, max, field, err);
        }
}

static void add_hint(const struct option_row *row, struct err *err) {
        if (!row->hint || !err)
                return;
        size_t used = strlen(err->message);
        (void) snprintf(err->message + used, sizeof(err->message) - used, "; %s", row->hint);
}

/* The hint belongs to values that are well-formed but out of range: only there does it answer the question. */
static int assign_bounded(const struct option_row *row, const char *what, const char *text, uint64_t *field,
                          struct err *err) {
        if (assign_number(row, what, text, row->min, row->max, field, err) == 0)
                return 0;
        uint64_t ignored;
        if (assign_number(row, what, text, 0, UINT64_MAX, &ignored, NULL) == 0)
                add_hint(row, err);
        return -1;
}

static int assign_choice(const struct option_row *row, const char *what, const char *text, int *field,
                         struct err *err) {
        char names[200] = "";
        size_t n = 0;
        for (const struct option_choice *choice = row->choices; choice->name; choice++, n++) {
                if (strcmp(choice->name, text) == 0) {
                        *field = choice->value;
                        return 0;
                }
                size_t used = strlen(names);
                (void) snprintf(names + used, sizeof(names) - used, "%s%s", n > 0 ? ", " : "", choice->name);
        }
        (void) err_set(err, ERR_USAGE,
                       n == 1 ? "%s: \"%.40s\" cannot be chosen, only \"%s\" can" : "%s: \"%.40s\" is not one of %s",
                       what, text, names);
        add_hint(row, err);
        return -1;
}

int option_assign(const struct option_row *row, const char *what, const char *text, void *target, struct err *err) {
        void *field = (char *) target + row->offset;
        switch (row->kind) {
        case OPTION_FLAG:
                return assign_flag(what, text, field, err);
        case OPTION_TEXT:
                if (*text == '\0')
                        return err_set(err, ERR_USAGE, "%s: the value is empty; give %s", what, row->argument);
                *(const char **) field = text;
                return 0;
        case OPTION_CODE:
                *(const char **) field = text;
                return 0;
        case OPTION_CHOICE:
                return assign_choice(row, what, text, field, err);
        case OPTION_PARSED:
                return row->parse(what, text, field, err);
        case OPTION_BYTES:
        case OPTION_DURATION:
        case OPTION_COUNT:
        case OPTION_THOUSANDTHS:
                return assign_bounded(row, what, text, field, err);
        }
        abort();
}

static bool is_named(const char *name, const char *text, size_t length) {
        return name && strlen(name) == length && strncmp(name, text, length) == 0;
}

static const struct option_row *find_name(const struct option_table *table, const char *name, size_t length) {
        for (size_t i = 0; i < table->n_rows; i++)
                if (is_named(table->rows[i].name, name, length) || is_named(table->rows[i].older_name, name, length))
                        return &table->rows[i];
        return NULL;
}

static const struct option_row *find_letter(const struct option_table *table, char letter) {
        for (size_t i = 0; i < table->n_rows; i++)
                if (table->rows[i].letter == letter)
                        return &table->rows[i];
        return NULL;
}

static bool is_known_option(const struct option_table *table, const char *word) {
        return strncmp(word, "--", 2) == 0 && (word[2] == '\0' || find_name(table, word + 2, strcspn(word + 2, "=")));
}

static const char *find_habit(const struct option_table *table, const char *word) {
        for (const struct option_habit *habit = table->habits; habit && habit->name; habit++)
                if (strcmp(habit->name, word) == 0)
                        return habit->advice;
        return NULL;
}

static int unknown_name(const struct scan *scan, const char *name, size_t length) {
        char word[64];
        (void) snprintf(word, sizeof(word), "%.*s", (int) (length < sizeof(word) ? length : sizeof(word) - 1), name);
        const char *advice = find_habit(scan->table, word);
        if (advice)
                return err_set(scan->err, ERR_USAGE, "unknown option --%s; %s", word, advice);
        struct suggestion near = { .word = word };
        for (size_t i = 0; i < scan->table->n_rows; i++)
                suggestion_consider(&near, scan->table->rows[i].name);
        suggestion_consider(&near, "help");
        const char *best = suggestion_best(&near);
        if (best)
                return err_set(scan->err, ERR_USAGE, "unknown option --%s; did you mean --%s?", word, best);
        return err_set(scan->err, ERR_USAGE, "unknown option --%s; --help lists the options", word);
}

/* Marks the row as given and writes its value: `inlined` is what stood in the same word, or NULL. `written` is the
 * option as it was typed, for the messages. */
static int take_option(struct scan *scan, const struct option_row *row, const char *written, const char *inlined) {
        uint64_t bit = 1ull << (row - scan->table->rows);
        if (row->once && (scan->seen & bit))
                return err_set(scan->err, ERR_USAGE, "option %s is given twice; give it once", written);
        scan->seen |= bit;
        if (row->kind == OPTION_FLAG) {
                if (inlined)
                        return err_set(scan->err, ERR_USAGE, "option %s takes no value; leave \"=%.40s\" out", written,
                                       inlined);
                *(bool *) ((char *) scan->target + row->offset) = true;
                if (strcmp(row->name, "json") == 0)
                        terminal_expect_json();
                return 0;
        }
        const char *text = inlined ? inlined : *scan->at;
        if (!text)
                return err_set(scan->err, ERR_USAGE, "option %s needs a value: %s %s", written, written, row->argument);
        if (!inlined && is_known_option(scan->table, text))
                return err_set(scan->err, ERR_USAGE,
                               "option %s needs a value, but %.40s follows; if that is the value write --%s=%.40s",
                               written, text, row->name, text);
        if (!inlined)
                scan->at++;
        scan->has_ended = row->is_last;
        return option_assign(row, written, text, scan->target, scan->err);
}

/* "name" or "name=value", the dashes already gone. */
static int take_long(struct scan *scan, const char *text) {
        size_t length = strcspn(text, "=");
        if (length == 4 && strncmp(text, "help", 4) == 0)
                return SCAN_HELP;
        const struct option_row *row = find_name(scan->table, text, length);
        if (!row)
                return unknown_name(scan, text, length);
        char written[64];
        (void) snprintf(written, sizeof(written), "--%s", row->name);
        return take_option(scan, row, written, text[length] == '=' ? text + length + 1 : NULL);
}

/* "qv", "c", "cVALUE": flags may stand together, and a value may stand in the same word. */
static int take_letters(struct scan *scan, const char *text) {
        for (; *text; text++) {
                if (*text == 'h')
                        return SCAN_HELP;
                const struct option_row *row = find_letter(scan->table, *text);
                if (!row) {
                        const char *advice = find_habit(scan->table, text);
                        return err_set(scan->err, ERR_USAGE, "unknown option -%.20s; %s", text,
                                       advice ? advice : "--help lists the options");
                }
                const char written[] = { '-', *text, '\0' };
                if (row->kind != OPTION_FLAG)
                        return take_option(scan, row, written, text[1] ? text + 1 : NULL);
                if (take_option(scan, row, written, NULL) < 0)
                        return -1;
        }
        return SCAN_ON;
}

/* The first of its variables that is set, and its value; NULL: none is. */
static const char *find_variable(const struct option_row *row, const char **ret_text) {
        const char *const names[] = { row->variable, row->alias, row->older_variable };
        for (size_t i = 0; i < ELEMENTS(names); i++) {
                const char *text = names[i] ? getenv(names[i]) : NULL;
                if (text && *text) {
                        *ret_text = text;
                        return names[i];
                }
        }
        return NULL;
}

static int read_variables(const struct scan *scan) {
        for (size_t i = 0; i < scan->table->n_rows; i++) {
                const struct option_row *row = &scan->table->rows[i];
                const char *text, *name = find_variable(row, &text);
                if (!name || (scan->seen & (1ull << i)))
                        continue;
                char what[100];
                (void) snprintf(what, sizeof(what), "the environment variable %s", name);
                if (option_assign(row, what, text, scan->target, scan->err) < 0)
                        return -1;
        }
        return 0;
}

/* After a mistake in the options: one that comes later says how it is to be reported. */
static void look_for_json(const struct option_table *table, char *const *words) {
        for (; find_name(table, "json", 4) && *words && strcmp(*words, "--") != 0; words++)
                if (strcmp(*words, "--json") == 0)
                        terminal_expect_json();
}

int option_parse(const struct option_table *table, void *target, char **args, struct option_rest *ret_rest,
                 struct err *err) {
        struct scan scan = { .table = table, .target = target, .at = args, .err = err };
        struct option_rest rest = { .operands = args };
        size_t kept = 0; /* operands met so far, moved to the front: never past scan.at */
        while (*scan.at && !scan.has_ended) {
                char *word = *scan.at;
                if (strcmp(word, "--") == 0) {
                        rest.after_dashes = true;
                        scan.at++;
                        break;
                }
                bool operand = word[0] != '-' || word[1] == '\0';
                if (operand && !table->operands_anywhere && kept >= table->n_leading)
                        break;
                scan.at++;
                if (operand) {
                        args[kept++] = word;
                        continue;
                }
                int result = word[1] == '-' ? take_long(&scan, word + 2) : take_letters(&scan, word + 1);
                if (result < 0) {
                        look_for_json(table, scan.at);
                        return -1;
                }
                if (result == SCAN_HELP) {
                        rest.help = true;
                        *ret_rest = rest;
                        return 0;
                }
        }
        if (read_variables(&scan) < 0)
                return -1;
        while (*scan.at)
                args[kept++] = *scan.at++;
        args[kept] = NULL;
        *ret_rest = rest;
        return 0;
}
