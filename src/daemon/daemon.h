/* The daemon: everything that lives as long as `glovebox serve` does. One thread, one loop; it decides, and waits for
 * nobody. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/helper.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/share.h"
#include "box/cgroup/cgroup.h"
#include "egress/egress.h"
#include "session/counters.h"
#include "session/disk.h"
#include "spawn/maker.h"
#include "store/audit.h"
#include "store/janitor.h"
#include "store/meter.h"
#include "store/registry.h"
#include "vault/vault.h"

struct client;
struct order;
struct session;
struct serve_options;

#define DAEMON_PRELOAD "numpy,pandas,sklearn,pyarrow,rdkit,matplotlib,scipy"

enum {
        DAEMON_CLIENTS_MAX = 1024,
        DAEMON_SESSIONS_MAX = 4096,
        DAEMON_SESSION_ROWS = 1024, /* of the tables in which sessions are found */
        DAEMON_SWEEP_MS = 10000,      /* how often idle sessions are looked for */
        DAEMON_POOL_MAX = 64,
        DAEMON_NURSERIES_MAX = 8,
        DAEMON_INTERRUPT_GRACE_MS = 2000,
        DAEMON_DISK_GRACE_MS = 500,
        DAEMON_ORDERS_MAX = 1000, /* boxes that wait to be made */
        DAEMON_ORDERS_AT_ONCE = 4, /* given to the maker before it answers */
};

enum daemon_helper { HELPER_VAULT, HELPER_MAKER, HELPER_REAPER, HELPER_JANITOR, HELPER_EGRESS, HELPER_METER,
                     HELPER_AUDIT, HELPERS };
/* What keys share. The rows are in daemon.c. */
enum daemon_share {
        SHARE_SANDBOXES, /* the service's; counted by their rows */
        SHARE_RUNS,
        SHARE_REQUESTS,
        SHARE_FILES,  /* being sent */
        SHARE_ORDERS, /* boxes that wait to be made */
        SHARE_SPILL,  /* bytes put aside for slow readers */
        SHARE_CODE,   /* bytes of the text of runs that are not over */
        SHARE_HELPER_JOBS, /* processes that remove, list, copy or ask on somebody's behalf */
        DAEMON_SHARES
};

struct daemon {
        struct loop *loop;
        const struct serve_options *options;
        char group_prefix[16];     /* of the control groups of our kernels: "b-<id of the data directory>-" */
        char old_group_prefix[16]; /* as older versions called them: by the path */
        char data_dir[4096], runtime_dir[512], socket_path[512];
        uint64_t started_ms;
        int64_t started_wall_ms;   /* the time of day then */
        uint64_t outputs_swept_ms; /* 0: never */
        struct cgroup_host host;
        struct registry *registry;
        struct helper helpers[HELPERS];
        struct vault vault;
        struct loop_watch *vault_watch;
        size_t n_orphans; /* control groups of programs that go on without the daemon that made their boxes */
        bool knows_takeover; /* before that, whatever lives is not ours to end */
        bool vault_is_new; /* we started it: no daemon before us has left anything in it */
        struct maker maker;
        const struct maker_settings *maker_settings;
        struct janitor janitor;
        struct meter meter;
        struct disk_watch disk;
        struct audit audit;
        struct order *orders; /* kernels to be made, each key in its turn */
        uint64_t turn;        /* of the last one that was given to the maker */
        size_t n_orders, n_ordered; /* waiting; with the maker */
        struct loop_watch *maker_watch;
        struct egress egress; /* the proxy; down until a box needs it */
        struct loop_watch *egress_watch;
        struct loop_timer *egress_timer; /* until it is tried again */
        uint64_t egress_started_ms;
        int listen_fd, spare_fd; /* the spare one is for saying no when there are no others */
        uint64_t hung_up_ms;     /* when that was last logged */
        struct loop_watch *listen_watch, *signal_watch;
        int signal_fd;
        struct loop_timer *sweep_timer;
        struct client *clients;
        size_t n_clients;
        struct share_table shares;
        struct counters counters;
        struct session *sessions; /* named and ephemeral ones */
        size_t n_sessions;
        struct session *by_id[DAEMON_SESSION_ROWS], *by_name[DAEMON_SESSION_ROWS]; /* the same, to find one */
        struct kernel *pool[2 * DAEMON_POOL_MAX]; /* made or being made, for ephemeral runs: full and light ones */
        size_t n_pool;
        bool took_light; /* the last time that somebody took one */
        struct loop_timer *pool_timer; /* until what was taken is replaced */
        struct maker_nursery nurseries[DAEMON_NURSERIES_MAX]; /* as the maker told last */
        size_t n_nurseries;
        bool rootless, draining, end_sessions;
        void *front; /* of options->front */
        char front_address[128]; /* where it answers over TCP, "http://…", or "" */
        struct loop_timer *drain_timer;
};

/* Gives it an id, and its control groups a name that tells them from those of other daemons on this host. */
int daemon_name_kernel(const struct daemon *daemon, struct maker_request *request, struct err *err);

/* Members of a job's order that charge it to this key. */
#define daemon_job_of(daemon, owner) .shares = &(daemon)->shares, .share = SHARE_HELPER_JOBS, .key = (owner)

/* The kernel with this id, in the pool or of a session; NULL when there is none. */
struct kernel *daemon_find_kernel(struct daemon *daemon, const char *id);

/* Asks the maker for a kernel, now or as soon as it has time. Those that wait are served key by key in turn, so that
 * whoever orders many waits behind nobody's first but its own. */
int daemon_order_kernel(struct daemon *daemon, const struct maker_request *request, const char *owner,
                        struct err *err);

/* Modules that nurseries import, as text; "": none, and then there are no light kernels: all of them are. */
const char *daemon_preload(const struct daemon *daemon);

/* What a row says about its kernels. */
void daemon_fill_request(const struct registry_session *row, struct maker_request *ret_request);

/* Pool: kernels that wait, sealed and ready, for an ephemeral run with default limits. */
void kernel_pool_refill(struct daemon *daemon);
void kernel_pool_refill_soon(struct daemon *daemon); /* one was taken: when its run had a moment for itself */
struct kernel *kernel_pool_take(struct daemon *daemon, const struct registry_session *row, bool light);
size_t kernel_pool_ready(const struct daemon *daemon, bool light);
size_t kernel_pool_wanted(const struct daemon *daemon, bool light);
void kernel_pool_empty(struct daemon *daemon);
