/* From the options of a command line to the fields of `session.create`. */
#pragma once

#include <jansson.h>

#include "cli/run_options.h"

enum session_mode { SESSION_MODE_UNSAID, SESSION_MODE_FAST, SESSION_MODE_FRESH };

/* The options of `exec` and `session new`. In `run`, an option that was not given is zero: the daemon's default
 * applies.
 * */
struct session_options {
        struct run_options run; /* its socket_choice has the daemon's socket */
        int mode;               /* enum session_mode */
        bool users;
        const char *user; /* of one command, or NULL */
};

#define SESSION_OPTIONS_DEFAULT ((struct session_options) { .run = { .language = RUN_LANGUAGE_BY_NAME } })

extern const struct option_table exec_option_table;
enum { SESSION_NEW_ROWS = 22 };
extern const struct option_row session_new_rows[SESSION_NEW_ROWS];

void session_options_release(struct session_options *options);

/* Adds the given options to `body`. Paths are made absolute: the daemon has a current directory of its own. */
int session_request_put(const struct session_options *options, json_t *body, struct err *err);

/* Prints on standard error which options an existing session did not take. `answer` is that of session.create. */
void session_request_warn(const struct session_options *options, const char *name, const json_t *answer);
