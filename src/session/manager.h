/* The session manager: everything that sessions share. The event loop, the registry, the vault, the helpers that make
 * and remove boxes, and the table of sessions. Sockets and signals are in struct daemon (daemon/daemon.h), which
 * contains one manager. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/helper.h"
#include "base/helper_program.h"
#include "base/loop.h"
#include "base/share.h"
#include "box/cgroup/cgroup.h"
#include "session/counters.h"
#include "session/disk.h"
#include "session/remote_link.h"
#include "session/session_engine.h"
#include "spawn/maker.h"
#include "store/audit.h"
#include "store/janitor.h"
#include "store/meter.h"
#include "store/registry.h"
#include "vault/vault.h"

struct kernel_order;
struct serve_options;
struct session;

#define MANAGER_PRELOAD "numpy,pandas,sklearn,pyarrow,rdkit,matplotlib,scipy"

enum {
        MANAGER_SESSIONS_MAX = 4096,
        MANAGER_SESSION_ROWS = 1024, /* of the tables in which sessions are found */
        MANAGER_POOL_MAX = 64,
        MANAGER_BOXES_SWEEP_MS = 60000, /* how often boxes of other engines that ended are looked for */
        MANAGER_NURSERIES_MAX = 8,
        MANAGER_INTERRUPT_GRACE_MS = 2000,
        MANAGER_DISK_GRACE_MS = 500,
};

enum manager_helper {
        HELPER_VAULT,
        HELPER_MAKER,
        HELPER_REAPER,
        HELPER_JANITOR,
        HELPER_EGRESS,
        HELPER_METER,
        HELPER_AUDIT,
        HELPER_REMOTE,
        HELPER_INSTANCES,
        HELPERS
};

/* The resources that keys share. The rows are in manager.c. */
enum manager_share {
        SHARE_SANDBOXES, /* of the HTTP service; counted by their rows */
        SHARE_RUNS,
        SHARE_REQUESTS,
        SHARE_FILES,  /* being sent */
        SHARE_ORDERS, /* boxes that wait to be made */
        SHARE_SPILL,  /* bytes put aside for slow readers */
        SHARE_BODIES, /* bytes of requests that are being read */
        SHARE_CODE,   /* bytes of the text of runs that are not over */
        SHARE_ANSWERS,     /* bytes of large answers that clients have not read; the server that holds them counts */
        SHARE_HELPER_JOBS, /* child processes that remove, list, copy or install */
        MANAGER_SHARES
};

struct session_manager {
        struct loop *loop;
        const struct serve_options *options;
        char group_prefix[16];     /* of the control groups of our kernels: "b-<id of the data directory>-" */
        char old_group_prefix[16]; /* as older versions named them: by the path */
        struct session_engine engine; /* of sessions that ask for none */
        char engine_why[160];
        struct remote_link remote; /* to another Glovebox */
        char data_id[16];
        char data_dir[4096];
        uint64_t started_ms;
        int64_t started_wall_ms;   /* the time of day then */
        uint64_t outputs_swept_ms; /* 0: never */
        uint64_t boxes_swept_ms;   /* of other engines */
        struct cgroup_host host;
        struct registry *registry;
        struct helper helpers[HELPERS];
        struct vault vault;
        struct loop_watch *vault_watch;
        bool vault_is_new; /* this daemon started it: it holds no descriptors of an earlier daemon */
        struct maker maker;
        const struct maker_settings *maker_settings;
        struct loop_watch *maker_watch;
        struct kernel_order *orders; /* orders for kernels; keys take turns */
        uint64_t turn;               /* of the last order that was sent to the maker */
        size_t n_orders, n_ordered;  /* waiting; with the maker */
        struct janitor janitor;
        struct meter meter;
        struct disk_watch disk;
        struct audit audit;
        struct helper_program egress; /* the proxy; down until a box needs it */
        struct loop_watch *egress_watch;
        struct loop_timer *egress_timer; /* until it is tried again */
        uint64_t egress_started_ms;
        struct share_table shares;
        struct counters counters;
        struct session *sessions; /* named and ephemeral ones */
        size_t n_sessions;
        struct session *by_id[MANAGER_SESSION_ROWS], *by_name[MANAGER_SESSION_ROWS]; /* the same, to find one */
        size_t n_orphans;    /* control groups of programs that continue without the daemon that made their boxes */
        bool knows_takeover; /* the takeover is complete; before that, no live group may be ended */
        struct kernel *pool[2 * MANAGER_POOL_MAX]; /* made or being made, for ephemeral runs: full and light ones */
        size_t n_pool;
        bool took_light;               /* the last time that one was taken */
        struct loop_timer *pool_timer; /* until what was taken is replaced */
        struct maker_nursery nurseries[MANAGER_NURSERIES_MAX]; /* as last reported by the maker */
        size_t n_nurseries;
        bool rootless, draining;
};

/* Initialises everything that needs no event loop. `options` live as long as the manager. */
void manager_init(struct session_manager *manager, const struct serve_options *options);

/* Opens the data directory and the registry, and finds the vault or starts one. After an error here or below, call
 * manager_stop all the same. */
int manager_open(struct session_manager *manager, struct err *err);

/* Starts the helpers: reaper, maker, janitor, meter, audit log. */
int manager_start_helpers(struct session_manager *manager, struct err *err);

/* Ends the maker, the proxy and the pool: no box is made from here on. */
void manager_stop_making(struct session_manager *manager);

/* Ends everything else. With `end_sessions` kernels die, otherwise the vault keeps those of named sessions. */
void manager_stop(struct session_manager *manager, bool end_sessions);

/* Periodic work, every few seconds: hibernates idle sessions, removes leftovers. */
void manager_sweep(struct session_manager *manager);

/* Members of a job's order that charge it to this key. */
#define manager_job_of(manager, owner) .shares = &(manager)->shares, .share = SHARE_HELPER_JOBS, .key = (owner)

/* The kernel with this id, in the pool or of a session; NULL when there is none. */
struct kernel *manager_find_kernel(struct session_manager *manager, const char *id);

/* Modules that nurseries import, as text. "": none; then there is no separate pool of light kernels, because all
 * kernels are light. */
const char *manager_preload(const struct session_manager *manager);
