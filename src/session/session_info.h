/* The description of a session: the daemon's own facts as a struct, and one function that writes them as JSON. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "box/limits.h"

struct session;

/* Texts and lists are the session's own: good until something is done with it. */
struct session_info {
        const char *id, *name, *state, *image, *mode;
        char engine[16]; /* that makes its boxes */
        const char *owner;     /* the key that it belongs to; "": the operator's */
        const char *workspace; /* where its files lie on the host */
        int64_t created_ms, used_ms;
        uint64_t memory_bytes, cpu_ms; /* of its kernel, now */
        int64_t pid;                   /* of its kernel on the host, or 0 */
        bool allow_weaker;
        struct limits limits;
        json_t *held_back; /* what kept it from sleeping (held_back.h), or NULL; borrowed */
};

struct session_info session_info_of(const struct session *session);

/* How it is written. All zero: as the socket does (docs/PROTOCOL.md). */
struct session_info_form {
        const char *name_key; /* NULL: "name" */
        bool is_brief;        /* one of many */
        bool hides_host;      /* without members for the operator only: paths and process ids on the host */
};

/* A JSON object. */
json_t *session_info_to_json(const struct session_info *info, const struct session_info_form *form);
