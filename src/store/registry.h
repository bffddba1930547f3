/* The registry: which sessions exist, in SQLite (WAL), opened safely after any crash. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "box/limits.h"

struct registry_session {
        char id[27];    /* 26 characters of [a-z0-9], unguessable */
        char name[129]; /* the caller's name for it, unique per owner */
        char owner[65]; /* "" for the operator; a key's name for the service */
        char image[256]; /* of another engine: a reference, as long as ENGINE_IMAGE_MAX */
        char mode[16]; /* "fast" or "fresh" */
        struct limits limits;
        bool allow_weaker;
        int64_t created_ms, used_ms; /* wall clock */
        char workspace[1024];        /* host directory, or "" for <data>/sessions/<id>/workspace */
        char options[8192];          /* JSON: env, mounts, network; only the session layer reads it */
};

struct registry;

/* Opens <dir>/registry.db, creating it. One daemon at a time holds it (registry.lock, flock): ERR_BUSY names the
 * other's pid. The lock belongs to the open file: a process that is forked off and lives on must close its copy. A
 * damaged file is moved aside to registry.db.damaged-<time> and *ret_quarantined says where ("" when all is well); a
 * file of a newer version or one that cannot be read is an error, never touched. */
int registry_open(const char *dir, struct registry **ret_registry, char ret_quarantined[static 4200], struct err *err);
void registry_close(struct registry *registry);

/* The socket of the daemon that holds the lock: it writes the path beside its pid, and others find it there. "": not
 * known (yet). */
enum { REGISTRY_SOCKET_MAX = 108 };
void registry_name_socket(const struct registry *registry, const char *path);
void registry_find_socket(const char *dir, char ret_path[static REGISTRY_SOCKET_MAX]);

/* ERR_EXISTS for a name that its owner uses already, ERR_NOT_FOUND for an id that is not there. */
int registry_add(struct registry *registry, const struct registry_session *session, struct err *err);
int registry_remove(struct registry *registry, const char *id, struct err *err);
int registry_set_limits(struct registry *registry, const char *id, const struct limits *limits, struct err *err);
/* Another image, and other options. */
int registry_set_engine(struct registry *registry, const char *id, const char *image, const char *options,
                        struct err *err);
int registry_touch(struct registry *registry, const char *id, int64_t used_ms, struct err *err);

/* Calls back for each session, oldest first; a non-zero answer stops and is returned. The callee may add, touch and
 * remove. */
int registry_each(struct registry *registry, int (*each)(const struct registry_session *session, void *context),
                  void *context, struct err *err);

/* Fills id with fresh randomness. */
int registry_make_id(char ret_id[static 27], struct err *err);

/* Session names: 1 to 128 characters of [A-Za-z0-9._-], beginning with a letter or digit. */
int registry_check_name(const char *name, struct err *err);
