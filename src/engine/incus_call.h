/* Requests to an Incus server through its client program. So a server on another host (INCUS_REMOTE) is reached with
 * the certificates of the client. Each request is a process with a deadline. Names are ours or checked, so none is read
 * as an option. For helper processes, which may block. */
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
        INCUS_SHORT_MS = 10000, /* for queries */
        INCUS_CREATE_MS = 120000, /* a storage pool without snapshots copies the image */
        INCUS_START_MS = 60000,
        INCUS_REMOVE_MS = 60000,
        INCUS_NAME_ROOM = 200,
};

/* The server of this host, unless the operator named another; never the client's current default. */
const char *incus_remote(const struct engine_settings *settings);

/* Runs the client; `what` names the request in messages. ERR_NOT_FOUND: the server has no such object. ERR_GONE: a
 * server on another host cannot be reached. */
int incus_call(const struct engine_settings *settings, const char *what, const char *const *argv, const char *input,
               uint64_t within_ms, struct program_answer *ret_answer, struct err *err);

/* A request to the server's API. `body` may be NULL; its reference is taken. */
int incus_query(const struct engine_settings *settings, const char *what, const char *method, const char *path,
                json_t *body, uint64_t within_ms, json_t **ret_json, struct err *err);
int incus_query_instance(const struct engine_settings *settings, const char *what, const char *method, const char *name,
                         const char *rest, json_t *body, json_t **ret_json, struct err *err);

/* All instances of the server, with their configuration: an array. */
int incus_list_instances(const struct engine_settings *settings, json_t **ret_json, struct err *err);

/* json[group][key], or "". */
const char *incus_text(json_t *json, const char *group, const char *key);

/* The description of the server. Fails if the server does not answer or cannot make such instances. */
int incus_server_info(const struct engine_settings *settings, bool is_vm, json_t **ret_json, struct err *err);
int incus_probe(const struct engine_settings *settings, bool is_vm, char *ret_version, size_t room, struct err *err);

/* The storage pool of instances. */
int incus_find_pool(const struct engine_settings *settings, char *ret_pool, size_t room, struct err *err);

/* Makes an instance without starting it. `described` has "config" and "devices"; its reference is taken. ERR_EXISTS:
 * the name is in use. */
int incus_init(const struct engine_settings *settings, const char *name, const char *image, bool is_vm,
               json_t *described, struct err *err);
int incus_start(const struct engine_settings *settings, const char *name, struct err *err);

/* Returns 0 if there is no such instance. */
int incus_remove(const struct engine_settings *settings, const char *name, struct err *err);
