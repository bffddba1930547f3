/* `glovebox help`: the tables of verbs and options as text, and with --tables as JSON for tools. */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/ui/terminal.h"
#include "cli/verb.h"

static json_t *option_to_json(const struct option_row *row) {
        const char letter[] = { row->letter, '\0' };
        json_t *object =
                json_pack("{s:s, s:s?, s:s?, s:s?, s:s?, s:s?, s:s, s:s}", "name", row->name, "letter",
                          row->letter ? letter : NULL, "argument", row->argument, "variable", row->variable, "alias",
                          row->alias, "default", row->standard, "group", row->group, "help", row->help);
        json_t *choices = row->choices ? json_array() : json_null();
        for (const struct option_choice *choice = row->choices; choice && choice->name; choice++)
                (void) json_array_append_new(choices, json_string(choice->name));
        (void) json_object_set_new(object, "choices", choices);
        return object;
}

static json_t *options_to_json(const struct option_table *table) {
        json_t *array = json_array();
        for (size_t i = 0; table && i < table->n_rows; i++)
                (void) json_array_append_new(array, option_to_json(&table->rows[i]));
        return array;
}

static json_t *verb_to_json(const struct verb *verb) {
        json_t *parts = json_array();
        for (size_t i = 0; i < verb->n_parts; i++) {
                const struct verb_part *part = &verb->parts[i];
                (void) json_array_append_new(parts, json_pack("{s:s, s:s, s:s, s:o}", "name", part->name, "operands",
                                                              part->operands, "summary", part->summary, "options",
                                                              options_to_json(&part->options)));
        }
        return json_pack("{s:s, s:s, s:o, s:o}", "name", verb->name, "summary", verb->summary, "options",
                         options_to_json(verb->options), "verbs", parts);
}

/* Without memory some object is NULL, and jansson returns that up to here. */
static int print_tables(void) {
        json_t *array = json_array();
        for (size_t i = 0; i < n_verbs; i++)
                (void) json_array_append_new(array, verb_to_json(&verbs[i]));
        json_t *root = json_pack("{s:s, s:o}", "version", GLOVEBOX_VERSION, "verbs", array);
        int failed = !root || json_dumpf(root, stdout, JSON_INDENT(2)) < 0;
        json_decref(root);
        if (failed) {
                struct err err;
                (void) err_set(&err, ERR_SYSTEM, "cannot print the tables; is the disk full?");
                return terminal_fail(&err);
        }
        (void) fputc('\n', stdout);
        return 0;
}

int verb_help(int argc, char **argv) {
        (void) argc;
        const struct verb *self = verb_find("help");
        bool tables = false; /* the only row, at offset 0 */
        struct option_rest rest;
        struct err err;
        if (option_parse(self->options, &tables, argv + 1, &rest, &err) < 0)
                return terminal_fail(&err);
        if (rest.help)
                verb_print_help(stdout, self);
        else if (tables)
                return print_tables();
        else if (!rest.operands[0])
                verb_print_overview(stdout);
        else if (rest.operands[1]) {
                (void) err_set(&err, ERR_USAGE, "help explains one verb at a time; write: glovebox help %.60s",
                               rest.operands[0]);
                return terminal_fail(&err);
        } else {
                const struct verb *verb = verb_find(rest.operands[0]);
                if (!verb)
                        return verb_fail_unknown(rest.operands[0]);
                verb_print_help(stdout, verb);
        }
        return 0;
}
