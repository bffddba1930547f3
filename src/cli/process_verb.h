/* Verbs on running sessions and runs: ps, top, kill, logs, cp. */
#pragma once

#include "cli/verb.h"

extern const struct option_table ps_option_table, top_option_table, kill_option_table, logs_option_table,
        cp_option_table;

int verb_ps(int argc, char **argv);
int verb_top(int argc, char **argv);
int verb_kill(int argc, char **argv);
int verb_logs(int argc, char **argv);
int verb_cp(int argc, char **argv);

/* session log --run: prints the output of a run, follows it while it is active, and returns its exit status; -1 with
 * err. */
struct daemon_client;
int process_follow_run(struct daemon_client *client, const char *session, const char *run, bool json, struct err *err);
