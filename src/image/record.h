/* Small JSON documents on disk, written atomically. */
#pragma once

#include <jansson.h>

#include "base/err.h"

static inline void json_release(json_t **json) {
        json_decref(*json);
        *json = NULL;
}
#define _cleanup_json_ _cleanup_(json_release)

/* Parses untrusted bytes: bounded, duplicate keys refused. `what` is for the message. */
int record_parse(const char *bytes, size_t size, const char *what, json_t **ret_json, struct err *err);

/* Reads <dir_fd>/<name>, no link followed. -ENOENT is ERR_NOT_FOUND. */
int record_read(int dir_fd, const char *name, json_t **ret_json, struct err *err);

/* Writes <dir_fd>/<name> through a temporary file: readers see the old document or the new one. */
int record_write(int dir_fd, const char *name, const json_t *json, struct err *err);

/* The string `key` of an object, or "" when it is absent or something else. Borrowed from the object. */
const char *record_string(const json_t *json, const char *key);
