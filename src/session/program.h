/* A program: a `glovebox run` in a box of the daemon. The daemon finds or makes the box and hands it over to the
 * caller, who has the daemon's user id: the pipes of its Python, its agent, its workspace. From then on the caller
 * communicates with the box directly. The daemon enforces the limits, removes the box when the program has ended or its
 * caller has exited, and reports the usage. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

struct caller;
struct session_manager;
struct session;

struct program_request {
        json_t *options; /* those of a session, and "script" and "script_at" (docs/PROTOCOL.md); borrowed */
        bool is_light;
        bool wants_listener; /* the caller has a proxy of its own */
        const char *what;    /* what it runs, for `glovebox ps`; or NULL */
};

/* Requests a box. The box is sent as an event; the answer follows when the program has ended. */
int program_begin(struct caller *caller, const struct program_request *request, struct err *err);

/* The resources that the program of this session has used so far. */
int program_usage(struct caller *caller, const char *id, struct err *err);

/* The session's kernel is ready: hands it over. */
void program_hand_over(struct session *session);

/* It could not be made. */
void program_fail(struct session *session, const struct err *err);

/* The daemon exits: programs that were handed over continue without it. */
void program_let_go_all(struct session_manager *manager);

/* Requests that its caller sends it SIGTERM, as if the caller had received one; if neither reacts, the box is ended.
 * False: it has no caller. */
bool program_ask_to_end(struct session *session);

/* Its kernel has ended. */
void program_end(struct session *session);
