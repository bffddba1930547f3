/* Requests on the daemon's socket: the only place that turns the JSON of docs/PROTOCOL.md into operations. */
#pragma once

#include <jansson.h>

#include "base/err.h"

struct caller;
struct file_request;

struct socket_row {
        const char *name;
        int (*carry_out)(struct caller *caller, json_t *json, struct err *err);
};

/* Carries out the operation that "op" names. 0: it was answered, or will be; -1: refused, with err. */
int socket_request_carry_out(struct caller *caller, json_t *json, struct err *err);

/* ---- rows that need more than a few lines (socket_data.c) ---- */

/* execute: with its code, or with code that follows as DATA. */
int socket_request_execute(struct caller *caller, json_t *json, struct err *err);

/* Reads the members that all operations on files share. The texts are those of `json`. */
struct file_request socket_request_file(json_t *json);

/* A file as DATA, to the client or from it. */
int socket_request_read_file(struct caller *caller, json_t *json, struct err *err);
int socket_request_write_file(struct caller *caller, json_t *json, struct err *err);
