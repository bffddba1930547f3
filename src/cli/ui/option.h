/* Options of the command line: rows of a table, and one parser for all verbs.
 *
 * A row says everything about an option once: how it is written, which environment variable gives its default, how its
 * value is checked, where the value goes, and what the help, the completion and the man page's test say about it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum option_kind {
        OPTION_FLAG,        /* bool */
        OPTION_TEXT,        /* const char *, borrowed from the command line or the environment; never empty */
        OPTION_CODE,        /* the same, but "" is a value too */
        OPTION_BYTES,       /* uint64_t, min and max in bytes */
        OPTION_DURATION,    /* uint64_t, min and max in milliseconds */
        OPTION_COUNT,       /* uint64_t */
        OPTION_THOUSANDTHS, /* uint64_t, min and max in thousandths */
        OPTION_CHOICE,      /* int, one of `choices` */
        OPTION_PARSED,      /* `parse` does it, and gets the field; may be repeated */
};

/* The values that a shell may offer. */
enum option_completion { COMPLETE_NOTHING, COMPLETE_FILES, COMPLETE_DIRECTORIES, COMPLETE_IMAGES, COMPLETE_SESSIONS };

struct option_choice {
        const char *name; /* NULL ends the list */
        int value;
};

struct option_row {
        const char *name; /* without the dashes */
        char letter;      /* 0: there is no short form */
        enum option_kind kind;
        size_t offset;        /* of the value in the target */
        const char *argument; /* what stands for the value in the help; NULL for a flag */
        const char *variable; /* the environment variable that gives the default, or NULL */
        const char *alias;    /* another variable for the same, by which other programs know it, or NULL */
        const char *older_name;     /* what earlier versions called it: works, and no help shows it; or NULL */
        const char *older_variable; /* the same for the variable */
        const char *standard; /* the default as one would type it, or NULL */
        const char *group;    /* heading in the help */
        const char *help;
        const char *hint; /* added to the message when a value is out of range or not a choice, or NULL */
        uint64_t min, max;
        const struct option_choice *choices;
        int (*parse)(const char *what, const char *text, void *field, struct err *err);
        bool is_last; /* what follows its value is operands */
        bool once; /* giving it twice is a mistake; otherwise the last one counts */
        enum option_completion completion;
};

/* An option of another program that people type here: what to do instead. */
struct option_habit {
        const char *name; /* "rm", or letters as they are typed: "it" */
        const char *advice;
};

struct option_table {
        const struct option_row *rows;
        size_t n_rows;          /* at most OPTION_ROWS_MAX */
        bool operands_anywhere; /* false: the first operand ends the options, as for a script and its arguments */
        const struct option_habit *habits; /* ended by one without a name, or NULL */
        size_t n_leading;       /* that many operands end nothing: a session's name before options and a script */
};

enum { OPTION_ROWS_MAX = 64 };

/* What was left on the command line. */
struct option_rest {
        char **operands;   /* NULL-terminated, in the caller's own array */
        bool after_dashes; /* the options were ended by "--" */
        bool help;         /* -h or --help was met: nothing after it was looked at, no variable was read */
};

/* Reads `args` (NULL-terminated, without the verb; reordered in place) into `target`, then the environment variables of
 * options that were not given. An empty variable counts as unset. Returns 0, or -1 with ERR_USAGE: target may then be
 * partly written. Strings in target are borrowed from args and from the environment. */
int option_parse(const struct option_table *table, void *target, char **args, struct option_rest *ret_rest,
                 struct err *err);

/* Checks one value and writes it. `what` opens the error message ("--memory", "the environment variable ..."). */
int option_assign(const struct option_row *row, const char *what, const char *text, void *target, struct err *err);
