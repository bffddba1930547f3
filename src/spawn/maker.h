/* The maker: a process of the daemon's that makes boxes with kernels in them, so that the daemon itself never waits.
 *
 * Theory of operation. The daemon forks it at its start and sends it requests over a SEQPACKET socket; each gets a
 * reply with descriptors. It is the parent of every agent it makes and reaps them. It decides nothing: limits, mounts
 * and images were checked by the session layer; paths that a caller named go through the mount policy here, in the
 * process that opens them. A kernel is forked from a nursery (spawn/supervisor.h) if that is possible and wanted; a
 * request that arrives while the nursery is still importing waits for it. The maker exits with the daemon; the boxes
 * stay, while the vault holds their descriptors. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "box/limits.h"
#include "box/policy.h"

enum nursery_state {
        NURSERY_DOWN,     /* none; it is tried again after a while */
        NURSERY_STARTING, /* importing */
        NURSERY_READY,
};

struct engine_settings;

enum { MAKER_OPTIONS_MAX = 8192 };

struct maker_request {
        char kernel_id[27];
        char group[48]; /* name of its control groups, unless the reply says another */
        char state_dir[1024]; /* the kernel's own files, made by the daemon; shown as /run/session */
        char workspace[1024]; /* shown as /workspace, unless ephemeral */
        bool workspace_is_ours; /* made by the daemon; a directory that a caller named goes through the mount policy */
        char engine[16], runtime[64]; /* "": native; spawn/spawn_elsewhere.h */
        char image[256];
        char preload[512]; /* modules to import in a cold start; "": none, so that it starts sooner */
        struct limits limits;
        bool allow_weaker;
        bool ephemeral; /* the workspace is a bounded tmpfs */
        bool is_program; /* of one run or program: it never sleeps, and has no state directory */
        bool pooled; /* for the pool: no caller waits */
        bool fresh; /* a new Python process, not forked from a nursery */
        bool light; /* forked from the light nursery: it needs none of the modules */
        bool network; /* make the socket that the proxy accepts on (MAKER_LISTENER); rules are not the maker's */
        char packages[1024]; /* state directory of the session whose packages are shown (store/packages.h), or "" */
        bool of_key; /* of an API key, not of the operator */
        bool by_owner; /* a program, whose caller has the daemon's own user id */
        bool installs; /* a helper box: writes packages, and may see the files that pip's settings name */
        bool attach; /* no new box: adds workspace, data and script to the ready box of `kernel_id` */
        bool box_is_leased; /* of that box: it has a user of its own, `box_uid` */
        uid_t box_uid;
        char options[MAKER_OPTIONS_MAX]; /* JSON: {"env": {…}, "mounts": […], "data": "…"}; last, as it is short */
};

/* Slots without a descriptor are -1: the lease where box ids are not leased; the kernel and its status where Python
 * is the agent's child. */
enum maker_fd {
        MAKER_PIDFD,
        MAKER_CONTROL,
        MAKER_REQUESTS, /* a pipe: frames to the kernel */
        MAKER_REPLIES, /* a pipe: frames from the kernel */
        MAKER_OUT,
        MAKER_ERR,
        MAKER_WORKSPACE,
        MAKER_LEASE,
        MAKER_KERNEL, /* pidfd of a forked Python */
        MAKER_STATUS, /* its wait status (an int) comes here; nothing before the end if its supervisor died */
        MAKER_LISTENER, /* of a box with a network: for the proxy */
        MAKER_FDS
};

/* The state of a nursery, for `glovebox status`. */
struct maker_nursery {
        char image[65];
        bool light;
        enum nursery_state state;
        pid_t pid, supervisor_pid;
        uint64_t forks;
        uint32_t n_preloaded;
        uint32_t n_boxes_ready; /* boxes that wait without a kernel */
        char failed_imports[400];
        char trouble[200]; /* why it went down last */
};

struct maker_reply {
        char kernel_id[27]; /* "": only the news about a nursery */
        struct maker_nursery nursery; /* of the image that was asked for; image "" when there is none */
        bool good;
        struct err err; /* when not good */
        pid_t pid;
        uid_t host_uid;
        char engine[16]; /* that made it */
        bool attached; /* to the box that is ready; the only descriptor is that of a workspace, if there is one */
        char group[48]; /* of its control groups; not the request's when the box had been made before */
        int fds[MAKER_FDS]; /* owned by the receiver */
};

struct maker_settings { /* lives as long as the maker */
        const char *data_dir;
        const char *owner; /* id of the data directory, which labels boxes of other engines */
        const struct engine_settings *engines;
        const char *socket_path; /* of the daemon */
        const char *group_prefix; /* of the names of control groups */
        const char *kernel_dir; /* holds the package glovebox_kernel */
        const char *preload; /* what full nurseries import */
        uint64_t box_pool; /* the size of the pool of boxes */
        const char *const *read_paths, *const *write_paths; /* what callers may mount, NULL-terminated */
        const char *const *key_write_paths; /* those of write_paths that sessions of keys may mount, too */
        uint64_t df_bytes, np_bytes; /* what is large enough to be trimmed */
};

struct maker {
        pid_t pid;
        int fd;
};

/* The mount policy: `is_operator` for the operator, `of_key` for an API key. */
struct policy maker_policy(const struct maker_settings *settings, bool is_operator, bool of_key);

/* Forks the maker. */
int maker_start(const struct maker_settings *settings, struct maker *ret_maker, struct err *err);
void maker_stop(struct maker *maker);

/* `box_pidfd` is the box of a request to attach, else -1. */
int maker_send(struct maker *maker, const struct maker_request *request, int box_pidfd, struct err *err);

/* One reply that has arrived; ERR_GONE when the maker is dead. */
int maker_receive(struct maker *maker, struct maker_reply *ret_reply, struct err *err);
