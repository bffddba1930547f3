/* The operations of docs/PROTOCOL.md: one table, one row each. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"

struct caller;
struct session;

/* Carries out a request. 0: it was answered, or will be; -1: refused, err says why, nothing was changed. */
int operation_run(struct caller *caller, json_t *json, struct err *err);

/* ---- for the rows, which live in operation_*.c ---- */

struct operation {
        const char *name;
        int (*run)(struct caller *caller, json_t *json, struct err *err);
};

/* Tables of rows, each ended by a NULL name. */
extern const struct operation operations_session[], operations_run[], operations_file[],
        operations_install[], operations_process[], operations_daemon[];

/* The session that the request names; ERR_NOT_FOUND says which do exist. */
struct session *operation_session(struct caller *caller, json_t *json, struct err *err);

/* A text field: NULL with err when it is missing or not a text. */
const char *operation_text(json_t *json, const char *key, struct err *err);
