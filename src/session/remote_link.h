/* The daemon's connections to other Gloveboxes: the helpers that make them (engine/remote_tunnel.h for the remote,
 * engine/instance_link.h for those in instances), and those that wait for the next request. Each request has a
 * connection for itself while it lasts, so a slow reader delays no other request. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/helper_program.h"
#include "base/loop.h"
#include "engine/instance.h"

struct remote_place;
struct session_manager;

enum {
        REMOTE_IDLE_MAX = 64,
        REMOTE_IDLE_EACH_MAX = 16,    /* to the remote */
        REMOTE_IDLE_INSTANCE_MAX = 2, /* to one instance: each is a process */
        REMOTE_RUNS_MAX = 64,         /* ephemeral runs in instances, at a time */
};

struct remote_idle {
        struct session_manager *manager;
        int fd; /* -1: none */
        uint64_t since_ms;
        char instance[INSTANCE_NAME_MAX]; /* "": the remote */
        struct loop_watch *watch;
};

struct remote_link {
        struct helper_program tunnel, instances;
        struct loop_watch *watch, *instances_watch;
        char runs[REMOTE_RUNS_MAX][INSTANCE_NAME_MAX]; /* instances of ephemeral runs that are under way */
        struct remote_idle idle[REMOTE_IDLE_MAX];
        char vm_trouble[400]; /* why there are no virtual machines, from the last sweep; "": there may be */
};

void remote_link_init(struct session_manager *manager);

/* At the start of a daemon whose engine is remote: checks that the remote answers and accepts the key. Blocks. */
int remote_link_probe(const struct session_manager *manager, struct err *err);

/* Returns a connection, reused or new (*ret_is_fresh), which the caller owns. */
int remote_link_take(struct session_manager *manager, const struct remote_place *place, int *ret_fd, bool *ret_is_fresh,
                     struct err *err);

/* Takes back a connection without an open request. */
void remote_link_give(struct session_manager *manager, const struct remote_place *place, int fd);

/* Closes the connections to an instance that is removed. */
void remote_link_forget(struct session_manager *manager, const struct remote_place *place);

void remote_link_stop(struct session_manager *manager);
