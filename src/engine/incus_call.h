/* Requests to an Incus server, by its client program: so a server elsewhere (INCUS_REMOTE) is reached with the
 * certificates that the client has. Each is a process with a deadline; names are ours or checked, never options. For
 * helper processes, which may wait. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"
#include "engine/program_call.h"

#define INCUS_OWNER_KEY "user.glovebox.owner"

enum {
        INCUS_SHORT_MS = 10000,   /* for questions */
        INCUS_CREATE_MS = 120000, /* a storage pool without snapshots copies the image */
        INCUS_START_MS = 60000,
        INCUS_REMOVE_MS = 60000,
        INCUS_NAME_ROOM = 200,
};

/* Of this host, unless the operator named another: never whatever the client has been switched to. */
const char *incus_remote(const struct engine_settings *settings);

/* 0 with the answer of a call that succeeded. ERR_NOT_FOUND where the server has no such thing, ERR_GONE where a server
 * elsewhere cannot be reached. */
int incus_call(const struct engine_settings *settings, const char *what, const char *const *argv, const char *input,
               uint64_t within_ms, struct program_answer *ret_answer, struct err *err);

/* A request to the server's own interface. `body` NULL: GET; its reference is taken. */
int incus_query(const struct engine_settings *settings, const char *what, const char *method, const char *path,
                json_t *body, uint64_t within_ms, json_t **ret_json, struct err *err);
int incus_query_instance(const struct engine_settings *settings, const char *what, const char *method, const char *name,
                         const char *rest, json_t *body, json_t **ret_json, struct err *err);

/* json[group][key], or "". */
const char *incus_text(json_t *json, const char *group, const char *key);

/* Is the server there, and can it make such instances? In its own words if not. What it says of itself; its version. */
int incus_look(const struct engine_settings *settings, bool is_vm, json_t **ret_json, struct err *err);
int incus_probe(const struct engine_settings *settings, bool is_vm, char *ret_version, size_t room, struct err *err);

/* The storage pool of instances. */
int incus_find_pool(const struct engine_settings *settings, char *ret_pool, size_t room, struct err *err);

/* Makes an instance that does not run, of "config" and "devices". ERR_EXISTS: there is one of this name. */
int incus_init(const struct engine_settings *settings, const char *name, const char *image, bool is_vm,
               json_t *described, struct err *err);
int incus_start(const struct engine_settings *settings, const char *name, struct err *err);

/* One that is not there is fine. */
int incus_remove(const struct engine_settings *settings, const char *name, struct err *err);
