#include "cli/verb.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/ui/option_help.h"
#include "cli/ui/suggest.h"
#include "cli/ui/terminal.h"

const struct verb *verb_find(const char *name) {
        for (size_t i = 0; i < n_verbs; i++)
                if (strcmp(verbs[i].name, name) == 0)
                        return &verbs[i];
        return NULL;
}

bool verb_part_is(const char *name, const char *typed) {
        static const char *const synonyms[][4] = {
                { "ls", "list" },  { "rm", "remove", "delete" }, { "new", "create", "make" }, { "show", "inspect" },
                { "log", "logs" }, { "hibernate", "sleep" },     { "import", "load" },
        };
        if (strcmp(name, typed) == 0)
                return true;
        for (size_t i = 0; i < ELEMENTS(synonyms); i++) {
                bool has_name = false, has_typed = false;
                for (size_t k = 0; k < ELEMENTS(synonyms[i]) && synonyms[i][k]; k++) {
                        has_name |= strcmp(synonyms[i][k], name) == 0;
                        has_typed |= strcmp(synonyms[i][k], typed) == 0;
                }
                if (has_name && has_typed)
                        return true;
        }
        return false;
}

/* The verb that has a part of this name: "hibernate" is one of "session". */
static const struct verb *find_by_part(const char *name) {
        for (size_t i = 0; i < n_verbs; i++)
                for (size_t k = 0; k < verbs[i].n_parts; k++)
                        if (strcmp(verbs[i].parts[k].name, name) == 0)
                                return &verbs[i];
        return NULL;
}

/* Words of other tools. */
static const struct {
        const char *typed, *instead;
} other_words[] = {
        { "bash", "glovebox run -l bash -c COMMAND, or glovebox exec NAME -- bash -c COMMAND" },
        { "daemon", "glovebox serve --background, glovebox status or glovebox stop" },
        { "down", "glovebox stop" },
        { "images", "glovebox image list" },
        { "info", "glovebox status" },
        { "inspect", "glovebox session show NAME, or glovebox image show NAME" },
        { "list", "glovebox session ls, or glovebox image list" },
        { "ls", "glovebox session ls" },
        { "pip", "glovebox session install NAME PACKAGE" },
        { "pull", "docker pull IMAGE, then docker save IMAGE | glovebox image import NAME -" },
        { "python", "glovebox run FILE, or glovebox repl" },
        { "python3", "glovebox run FILE, or glovebox repl" },
        { "restart", "glovebox session restart NAME; for the daemon, glovebox stop and glovebox serve --background" },
        { "rm", "glovebox session rm NAME, or glovebox image rm NAME" },
        { "rmi", "glovebox image rm NAME" },
        { "sh", "glovebox run -l bash -c COMMAND, or glovebox exec NAME -- bash -c COMMAND" },
        { "shell", "glovebox repl NAME, or glovebox exec NAME -- bash -c COMMAND" },
        { "shutdown", "glovebox stop" },
        { "start", "glovebox serve --background" },
        { "up", "glovebox serve --background" },
        { "version", "glovebox --version" },
};

static const char *find_other_word(const char *name) {
        for (size_t i = 0; i < ELEMENTS(other_words); i++)
                if (strcmp(other_words[i].typed, name) == 0)
                        return other_words[i].instead;
        return NULL;
}

int verb_fail_unknown(const char *name) {
        struct suggestion near = { .word = name };
        const struct verb *whole = find_by_part(name);
        for (size_t i = 0; i < n_verbs; i++)
                suggestion_consider(&near, verbs[i].name);
        const char *best = suggestion_best(&near), *instead = find_other_word(name);
        struct err err;
        if (instead)
                (void) err_set(&err, ERR_USAGE, "unknown verb \"%s\"; write: %s", name, instead);
        else if (whole)
                (void) err_set(&err, ERR_USAGE, "unknown verb \"%.60s\"; did you mean \"glovebox %s %.60s\"?", name,
                               whole->name, name);
        else if (best)
                (void) err_set(&err, ERR_USAGE, "unknown verb \"%.60s\"; did you mean \"%s\"?", name, best);
        else if (access(name, F_OK) == 0)
                (void) err_set(&err, ERR_USAGE, "unknown verb \"%.60s\"; to run the file write: glovebox run %.60s",
                               name, name);
        else
                (void) err_set(&err, ERR_USAGE, "unknown verb \"%.60s\"; \"glovebox --help\" lists the verbs", name);
        return terminal_fail(&err);
}

void verb_print_overview(FILE *file) {
        help_print_paragraphs(file, "Glovebox runs untrusted code in a sealed box: no network, no privileges, hard "
                                    "limits, nothing left behind.\n");
        (void) fputs("\nUsage: glovebox VERB [OPTION...]\n\n", file);
        help_print_heading(file, "Verbs");
        for (size_t i = 0; i < n_verbs; i++)
                help_print_item(file, verbs[i].name, verbs[i].summary);
        (void) fputs("\n", file);
        help_print_heading(file, "Options");
        help_print_item(file, "-h, --help", "this text; after a verb, the help of that verb");
        help_print_item(file, "--version", "the version");
        (void) fputs("\n"
                     "Try\n"
                     "  glovebox run -c 'print(6*7)'\n"
                     "  glovebox run --help\n"
                     "  glovebox doctor\n",
                     file);
}

/* Every part of a verb that connects to the daemon takes the options of its socket. */
#define SHARED_GROUP "Daemon"

static bool is_shared(const struct option_row *row) {
        return strcmp(row->group, SHARED_GROUP) == 0;
}

static void print_part(FILE *file, const struct verb_part *part) {
        char term[200];
        (void) snprintf(term, sizeof(term), "%s%s%s", part->name, *part->operands ? " " : "", part->operands);
        help_print_item(file, term, part->summary);
        for (size_t i = 0; i < part->options.n_rows; i++)
                if (!is_shared(&part->options.rows[i]))
                        help_print_option(file, &part->options.rows[i], 4);
}

/* Once, below all parts. */
static void print_shared_options(FILE *file, const struct option_table *table) {
        bool headed = false;
        for (size_t i = 0; i < table->n_rows; i++) {
                if (!is_shared(&table->rows[i]))
                        continue;
                if (!headed) {
                        (void) fputc('\n', file);
                        help_print_heading(file, SHARED_GROUP);
                }
                headed = true;
                help_print_option(file, &table->rows[i], 2);
        }
}

void verb_print_part_help(FILE *file, const struct verb *verb, const struct verb_part *part) {
        help_print_heading(file, "Usage");
        (void) fprintf(file, "  glovebox %s %s%s%s%s\n\n", verb->name, part->name,
                       part->options.n_rows ? " [OPTION...]" : "", *part->operands ? " " : "", part->operands);
        char summary[200];
        (void) snprintf(summary, sizeof(summary), "%c%s.", toupper((unsigned char) part->summary[0]),
                        part->summary + 1);
        help_print_paragraphs(file, summary);
        help_print_options(file, &part->options);
}

void verb_print_help(FILE *file, const struct verb *verb) {
        help_print_heading(file, "Usage");
        for (const char *line = verb->synopsis, *end; *line; line = end) {
                end = strchrnul(line, '\n');
                end += *end == '\n';
                (void) fputs("  ", file);
                (void) fwrite(line, 1, (size_t) (end - line), file);
        }
        (void) fputs("\n", file);
        help_print_paragraphs(file, verb->description);
        if (verb->parts) {
                (void) fputs("\n", file);
                help_print_heading(file, "Verbs");
                for (size_t i = 0; i < verb->n_parts; i++)
                        print_part(file, &verb->parts[i]);
                print_shared_options(file, &verb->parts[0].options);
        }
        if (verb->options)
                help_print_options(file, verb->options);
        if (verb->epilogue)
                (void) fprintf(file, "\n%s", verb->epilogue);
}
