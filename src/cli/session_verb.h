#pragma once

#include "cli/verb.h"

/* The verbs below `session`, for the table of verbs; and the options of `status` and `stop`. */
enum { SESSION_PARTS = 11 };
extern const struct verb_part session_parts[SESSION_PARTS];
extern const struct option_table status_option_table, stop_option_table;

int verb_session(int argc, char **argv);
int verb_status(int argc, char **argv);
int verb_stop(int argc, char **argv);

/* As `session install`; the session must exist. Returns the exit status, or -1 with err. */
struct daemon_client;
int session_install(struct daemon_client *client, const char *session, char **packages, bool json, struct err *err);
