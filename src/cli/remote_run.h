/* Follows a run that the daemon carries out: prints its output as it comes, passes on Ctrl-C, and prints the result as
 * `run` does. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/random_id.h"
#include "client/daemon_client.h"

struct input_feed;

struct remote_run {
        struct daemon_client *client;
        const char *session; /* Ctrl-C interrupts the run in it; NULL: hanging up ends the run */
        bool json;           /* nothing is shown while it runs */
        bool quiet;          /* no lines about artifacts */
        bool show_value;     /* the last expression's value, as a REPL prints it */

        struct input_feed *feed; /* standard input, if the run requests it; or NULL */

        char run_id[RANDOM_ID_SIZE]; /* empty without a session */
        bool interrupted;  /* the first Ctrl-C was passed on */
        bool output_shown; /* at least one byte was passed on */
        bool pip_refused;  /* pip's message on standard error that it refuses to install was seen */
        bool network_missed; /* a program's message that it could not reach another host */
        size_t displays_shown;
        int end_signal; /* set when DAEMON_CALL_LEFT: SIGPIPE if the output has no reader */
};

/* Calls the daemon with `request` (its calls and wake are filled in here). Signals are caught from here to the end of
 * the call. As daemon_client_call. */
int remote_run_call(struct remote_run *remote, struct daemon_request *request, json_t **ret_result, struct err *err);

/* Prints the rest of the result. Returns the exit status. */
int remote_run_report(const struct remote_run *remote, const json_t *result, struct err *err);

/* Prints how to continue, and returns the exit status, if the run was left to run on. */
int remote_run_leave(const struct remote_run *remote);

/* 0, 1, 124, 137, 130 or the program's own. */
int remote_run_exit_status(const json_t *result);
