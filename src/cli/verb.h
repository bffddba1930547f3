/* The verbs of the command: rows of a table. The help, the completion and the man page's test read the same rows. */
#pragma once

#include <stdio.h>

#include "cli/ui/option.h"

/* One word after a verb: "list" in "glovebox image list". */
struct verb_part {
        const char *name;
        const char *operands; /* as the help shows them, or "" */
        const char *summary;
        struct option_table options;
        enum option_completion completion; /* of the operands */
};

struct verb {
        const char *name;
        const char *summary;                /* one line, for "glovebox --help" */
        int (*run)(int argc, char **argv);  /* argv[0] is the verb's name; returns the exit status */
        const char *synopsis;               /* lines */
        const char *description;            /* paragraphs */
        const struct option_table *options; /* NULL: it has none, or its parts have them */
        const struct verb_part *parts;      /* NULL, or rows */
        size_t n_parts;
        enum option_completion completion; /* of the operands */
        const char *epilogue;              /* examples, exit statuses; or NULL */
};

extern const struct verb verbs[];
extern const size_t n_verbs;

/* NULL when there is none of this name. */
const struct verb *verb_find(const char *name);

/* True if `typed` is the part's name or what other programs call it: "list" for "ls", "remove" for "rm". */
bool verb_part_is(const char *name, const char *typed);

/* Prints "unknown verb" with the nearest one, and returns the exit status. */
int verb_fail_unknown(const char *name);

/* "glovebox --help" and "glovebox help VERB". */
void verb_print_overview(FILE *file);
void verb_print_help(FILE *file, const struct verb *verb);
void verb_print_part_help(FILE *file, const struct verb *verb, const struct verb_part *part);

int verb_run(int argc, char **argv);
int verb_exec(int argc, char **argv);
int verb_image(int argc, char **argv);
int verb_doctor(int argc, char **argv);
int verb_completion(int argc, char **argv);
int verb_help(int argc, char **argv);
