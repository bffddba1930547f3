#include "cli/ui/completion_shells.h"

#include <stdio.h>
#include <string.h>

#include "cli/verb.h"

/* ---- zsh ---- */

/* Inside '...' of a specification of _arguments or _describe. The first sentence is enough. */
static void put_zsh(const char *text) {
        for (; *text && strncmp(text, "; ", 2) != 0; text++) {
                if (*text == '\'')
                        (void) fputs("'\\''", stdout);
                else if (strchr("[]:\\", *text))
                        (void) printf("\\%c", *text);
                else
                        (void) putchar(*text);
        }
}

static const char *const zsh_offers[] = {
        [COMPLETE_NOTHING] = " ",
        [COMPLETE_FILES] = "_files",
        [COMPLETE_DIRECTORIES] = "_files -/",
        [COMPLETE_IMAGES] = "_glovebox_images",
        [COMPLETE_SESSIONS] = "_glovebox_sessions",
};

static void put_zsh_option(const struct option_row *row) {
        const char *repeat = row->kind == OPTION_PARSED ? "*" : "";
        for (int form = 0; form < 2; form++) {
                if (form == 1 && !row->letter)
                        continue;
                (void) printf(" \\\n            '%s", repeat);
                if (form == 1)
                        (void) printf("-%c", row->letter);
                else
                        (void) printf("--%s%s", row->name, row->kind == OPTION_FLAG ? "" : "=");
                (void) printf("[");
                put_zsh(row->help);
                (void) printf("]");
                if (row->kind != OPTION_FLAG) {
                        (void) printf(":");
                        put_zsh(row->argument ? row->argument : "value");
                        (void) printf(":");
                        if (row->choices) {
                                (void) printf("(");
                                for (const struct option_choice *choice = row->choices; choice->name; choice++)
                                        (void) printf("%s%s", choice == row->choices ? "" : " ", choice->name);
                                (void) printf(")");
                        } else
                                (void) printf("%s", zsh_offers[row->completion]);
                }
                (void) printf("'");
        }
}

static void put_zsh_arguments(const struct option_table *table, enum option_completion operands) {
        (void) printf("        _arguments -s '--help[explain it]'");
        for (size_t i = 0; table && i < table->n_rows; i++)
                put_zsh_option(&table->rows[i]);
        if (operands != COMPLETE_NOTHING)
                (void) printf(" \\\n            '*:operand:%s'", zsh_offers[operands]);
        (void) printf(" ;;\n");
}

static void put_zsh_parts(const struct verb *verb) {
        (void) printf("        if (( CURRENT == 3 )); then\n            local -a parts=(");
        for (size_t i = 0; i < verb->n_parts; i++) {
                (void) printf("'%s:", verb->parts[i].name);
                put_zsh(verb->parts[i].summary);
                (void) printf("' ");
        }
        (void) printf(")\n            _describe verb parts; return\n        fi\n        local part=$words[3]\n"
                      "        shift 2 words; (( CURRENT -= 2 ))\n        case $part in\n");
        for (size_t i = 0; i < verb->n_parts; i++) {
                (void) printf("        %s)\n", verb->parts[i].name);
                put_zsh_arguments(&verb->parts[i].options, verb->parts[i].completion);
        }
        (void) printf("        esac ;;\n");
}

void completion_print_zsh(void) {
        (void) printf("#compdef glovebox\n"
                      "# zsh completion for glovebox; made by \"glovebox completion zsh\"\n"
                      "_glovebox_images() { local -a names=(${(f)\"$(glovebox image list --names 2>/dev/null)\"}); "
                      "compadd -a names }\n"
                      "_glovebox_sessions() { local -a names=(${(f)\"$(glovebox session ls --names 2>/dev/null)\"}); "
                      "compadd -a names }\n"
                      "_glovebox() {\n    if (( CURRENT == 2 )); then\n        local -a verbs=(");
        for (size_t i = 0; i < n_verbs; i++) {
                (void) printf("'%s:", verbs[i].name);
                put_zsh(verbs[i].summary);
                (void) printf("' ");
        }
        (void) printf(")\n        _describe verb verbs; return\n    fi\n    case $words[2] in\n");
        for (size_t i = 0; i < n_verbs; i++) {
                (void) printf("    %s)\n", verbs[i].name);
                if (verbs[i].parts)
                        put_zsh_parts(&verbs[i]);
                else {
                        (void) printf("        shift words; (( CURRENT-- ))\n");
                        put_zsh_arguments(verbs[i].options, verbs[i].completion);
                }
        }
        (void) printf(
                "    esac\n}\n"
                "if [[ $funcstack[1] == _glovebox ]]; then _glovebox \"$@\"; else compdef _glovebox glovebox; fi\n");
}

/* ---- fish ---- */

static void put_fish(const char *text) {
        (void) putchar('\'');
        for (; *text && strncmp(text, "; ", 2) != 0; text++) {
                if (*text == '\'' || *text == '\\')
                        (void) putchar('\\');
                (void) putchar(*text);
        }
        (void) putchar('\'');
}

static void put_fish_offer(enum option_completion offer) {
        static const char *const offers[] = {
                [COMPLETE_NOTHING] = " -f",
                [COMPLETE_FILES] = " -F",
                [COMPLETE_DIRECTORIES] = " -f -a '(__fish_complete_directories)'",
                [COMPLETE_IMAGES] = " -f -a '(glovebox image list --names 2>/dev/null)'",
                [COMPLETE_SESSIONS] = " -f -a '(glovebox session ls --names 2>/dev/null)'",
        };
        (void) fputs(offers[offer], stdout);
}

static void put_fish_table(const char *when, const struct option_table *table, enum option_completion operands) {
        for (size_t i = 0; table && i < table->n_rows; i++) {
                const struct option_row *row = &table->rows[i];
                (void) printf("complete -c glovebox -n '%s' -l %s", when, row->name);
                if (row->letter)
                        (void) printf(" -s %c", row->letter);
                if (row->kind != OPTION_FLAG) {
                        (void) printf(" -r");
                        if (row->choices) {
                                (void) printf(" -f -a '");
                                for (const struct option_choice *choice = row->choices; choice->name; choice++)
                                        (void) printf("%s ", choice->name);
                                (void) printf("'");
                        } else
                                put_fish_offer(row->completion);
                }
                (void) printf(" -d ");
                put_fish(row->help);
                (void) printf("\n");
        }
        if (operands != COMPLETE_NOTHING) {
                (void) printf("complete -c glovebox -n '%s'", when);
                put_fish_offer(operands);
                (void) printf("\n");
        }
}

void completion_print_fish(void) {
        char when[200];
        (void) printf("# fish completion for glovebox; made by \"glovebox completion fish\"\n"
                      "complete -c glovebox -f\n");
        for (size_t i = 0; i < n_verbs; i++) {
                const struct verb *verb = &verbs[i];
                (void) printf("complete -c glovebox -n __fish_use_subcommand -a %s -d ", verb->name);
                put_fish(verb->summary);
                (void) printf("\n");
                (void) snprintf(when, sizeof(when), "__fish_seen_subcommand_from %s", verb->name);
                if (!verb->parts)
                        put_fish_table(when, verb->options, verb->completion);
                for (size_t k = 0; k < verb->n_parts; k++) {
                        const struct verb_part *part = &verb->parts[k];
                        (void) printf("complete -c glovebox -n '__fish_seen_subcommand_from %s; and test (count "
                                      "(commandline -opc)) -eq 2' -a %s -d ",
                                      verb->name, part->name);
                        put_fish(part->summary);
                        (void) printf("\n");
                        (void) snprintf(when, sizeof(when),
                                        "__fish_seen_subcommand_from %s; and __fish_seen_subcommand_from %s",
                                        verb->name, part->name);
                        put_fish_table(when, &part->options, part->completion);
                }
        }
}
