/* Sessions that another Glovebox has: the remote (engine `remote`), or one in an instance of the session's own
 * (engine/instance.h). Only the name of such a session is here. Each operation on it is passed on over a connection
 * (session/remote_link.h), in the format of docs/PROTOCOL.md, and the caller gets the answer as if it came from here.
 * Its runs, journal, files and variables are the remote's, which keeps them if either daemon dies.
 *
 * A connection may break at any time. Requests that can be repeated are repeated until --remote-timeout ends:
 * a run with the id that was chosen for it here, so that the remote executes it once; its output from the event and the
 * byte that were passed on last. Others (a file half sent) are refused with that reason. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "daemon/operation.h"

struct caller;
struct session;
struct session_manager;

/* The caller's session of that name if it is at the remote, else NULL. */
struct session *remote_find(const struct caller *caller, const char *name);

/* Would a session with these options (NULL: none) be made at the remote? */
bool remote_is_wanted(const struct session_manager *manager, json_t *options);

/* Passes a request on (a new reference is taken): "op" and its members, with the local name of the session. DATA that
 * follows on the socket goes along. */
int remote_pass(struct caller *caller, struct session *session, json_t *request, struct err *err);

/* The same by the name of an operation and its other members, of which it takes the reference; NULL: there are none. */
int remote_pass_new(struct caller *caller, struct session *session, const char *op, json_t *fields, struct err *err);

/* Removes it there and here. An instance goes with all that is in it, and nothing waits for that. */
int remote_remove(struct caller *caller, struct session *session, bool keep_files, struct err *err);

/* Makes the session there; one that is refused, and was made here for it, goes again. */
int remote_create(struct caller *caller, struct session *session, bool is_new, struct err *err);

/* A run, of code or of a command. `session` NULL: an ephemeral one. */
int remote_run(struct caller *caller, struct session *session, const struct run_request *request, bool is_new,
               struct err *err);

/* All limits of a session, as a request has them. */
json_t *remote_write_limits(const struct limits *limits);

/* The session's name at the remote, unique among all daemons that use the same key. */
enum { REMOTE_NAME_MAX = 80 };
void remote_name(const struct session *session, char ret_name[static REMOTE_NAME_MAX]);
