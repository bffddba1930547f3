/* `glovebox completion SHELL`: a script made from the tables of verbs and options, so it is never outdated. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "cli/ui/completion_shells.h"
#include "cli/ui/terminal.h"
#include "cli/verb.h"

static const char head[] =
        "# bash completion for glovebox; made by \"glovebox completion bash\"\n"
        "_glovebox_reply() { mapfile -t COMPREPLY < <(compgen \"$@\" -- \"$current\"); }\n"
        "_glovebox_paths() { compopt -o filenames 2>/dev/null; _glovebox_reply \"$@\"; }\n"
        "_glovebox_images() { _glovebox_reply -W \"$(\"${COMP_WORDS[0]}\" image list --names 2>/dev/null)\"; }\n"
        "_glovebox_sessions() { _glovebox_reply -W \"$(\"${COMP_WORDS[0]}\" session ls --names 2>/dev/null)\"; }\n"
        "_glovebox() {\n"
        "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} verb= part= dashes= i\n"
        "    COMPREPLY=()\n"
        "    # bash splits --option=value at the sign\n"
        "    if [[ $current == = ]]; then current=\n"
        "    elif [[ $previous == = ]]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
        "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "        if [[ ${COMP_WORDS[i]} == -- ]]; then dashes=$i; break; fi\n"
        "        [[ ${COMP_WORDS[i]} == -* ]] && continue\n"
        "        if [[ -z $verb ]]; then verb=${COMP_WORDS[i]}\n"
        "        elif [[ -z $part ]]; then part=${COMP_WORDS[i]}; fi\n"
        "    done\n"
        "    if [[ -n $dashes ]]; then\n"
        "        if ((COMP_CWORD == dashes + 1)); then _glovebox_reply -c; else _glovebox_paths -f; fi\n"
        "        return\n"
        "    fi\n"
        "    case $verb in\n";

static const char tail[] = "    esac\n"
                           "}\n"
                           "complete -F _glovebox glovebox\n";

static const char *const offers[] = {
        [COMPLETE_NOTHING] = ":",
        [COMPLETE_FILES] = "_glovebox_paths -f",
        [COMPLETE_DIRECTORIES] = "_glovebox_paths -d",
        [COMPLETE_IMAGES] = "_glovebox_images",
        [COMPLETE_SESSIONS] = "_glovebox_sessions",
};

/* Completes the value of an option: one branch for each option that takes one. */
static void print_values(const struct option_table *table, const char *indent) {
        (void) printf("%scase $previous in\n", indent);
        for (size_t i = 0; i < table->n_rows; i++) {
                const struct option_row *row = &table->rows[i];
                if (row->kind == OPTION_FLAG)
                        continue;
                (void) printf("%s", indent);
                if (row->letter)
                        (void) printf("-%c|", row->letter);
                (void) printf("--%s) ", row->name);
                if (row->choices) {
                        (void) printf("_glovebox_reply -W '");
                        for (const struct option_choice *choice = row->choices; choice->name; choice++)
                                (void) printf("%s%s", choice == row->choices ? "" : " ", choice->name);
                        (void) printf("'");
                } else
                        (void) printf("%s", offers[row->completion]);
                (void) printf("; return ;;\n");
        }
        (void) printf("%sesac\n", indent);
}

/* An option where a dash stands, otherwise what the operands are. */
static void print_words(const struct option_table *table, enum option_completion operands, const char *indent) {
        if (table)
                print_values(table, indent);
        (void) printf("%sif [[ $current == -* ]]; then _glovebox_reply -W '", indent);
        for (size_t i = 0; table && i < table->n_rows; i++)
                (void) printf("--%s ", table->rows[i].name);
        (void) printf("--help'; else %s; fi\n", offers[operands]);
}

static void print_parts(const struct verb *verb) {
        (void) printf("        case $part in\n        '') _glovebox_reply -W '");
        for (size_t i = 0; i < verb->n_parts; i++)
                (void) printf("%s ", verb->parts[i].name);
        (void) printf("--help' ;;\n");
        for (size_t i = 0; i < verb->n_parts; i++) {
                (void) printf("        %s)\n", verb->parts[i].name);
                print_words(&verb->parts[i].options, verb->parts[i].completion, "            ");
                (void) printf("            ;;\n");
        }
        (void) printf("        esac\n");
}

static void print_bash(void) {
        (void) fputs(head, stdout);
        (void) printf("    '') _glovebox_reply -W '");
        for (size_t i = 0; i < n_verbs; i++)
                (void) printf("%s ", verbs[i].name);
        (void) printf("--help --version' ;;\n    help) _glovebox_reply -W '");
        for (size_t i = 0; i < n_verbs; i++)
                (void) printf("%s ", verbs[i].name);
        (void) printf("' ;;\n");
        for (size_t i = 0; i < n_verbs; i++) {
                if (strcmp(verbs[i].name, "help") == 0)
                        continue;
                (void) printf("    %s)\n", verbs[i].name);
                if (verbs[i].parts)
                        print_parts(&verbs[i]);
                else
                        print_words(verbs[i].options, verbs[i].completion, "        ");
                (void) printf("        ;;\n");
        }
        (void) fputs(tail, stdout);
}

int verb_completion(int argc, char **argv) {
        (void) argc;
        static const struct option_table none = { .operands_anywhere = true };
        struct option_rest rest;
        struct err err;
        if (option_parse(&none, NULL, argv + 1, &rest, &err) < 0)
                return terminal_fail(&err);
        if (rest.help) {
                verb_print_help(stdout, verb_find("completion"));
                return 0;
        }
        static const struct {
                const char *shell;
                void (*print)(void);
        } scripts[] = { { "bash", print_bash }, { "zsh", completion_print_zsh }, { "fish", completion_print_fish } };
        for (size_t i = 0; rest.operands[0] && !rest.operands[1] && i < ELEMENTS(scripts); i++)
                if (strcmp(rest.operands[0], scripts[i].shell) == 0) {
                        scripts[i].print();
                        return 0;
                }
        (void) err_set(
                &err, ERR_USAGE,
                "there are completion scripts for three shells: write \"glovebox completion bash\", or zsh, or fish");
        return terminal_fail(&err);
}
