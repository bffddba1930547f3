/* The contract of engines: makers of boxes. An engine makes a box that has our agent in it, says how its processes
 * reach the host, finds its boxes again and removes them. Everything above (kernels, runs, files, packages,
 * hibernation, take-over after a crash) uses what engine_make returns and does not ask which engine it was.
 *
 * A box of another engine looks like a native one: a control socket to the agent, over which the host passes the pipes
 * of a kernel. So the engine is not in the way of a run: a warm run on docker takes as long as a native one, and a
 * dockerd that hangs or dies does not stop what runs.
 *
 * All functions may block up to their deadlines: they are called by helper processes, never by the daemon's loop. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "box/box.h"
#include "box/limits.h"
#include "image/image.h"

enum { ENGINE_NAME_MAX = 16, ENGINE_IMAGE_MAX = 255, ENGINE_RUNTIME_MAX = 64 };

/* Where they listen unless the operator says otherwise. */
#define ENGINE_DOCKER_SOCKET "/var/run/docker.sock"
#define ENGINE_PODMAN_SOCKET "/run/podman/podman.sock"

/* How strong the wall is: what a caller can demand as a minimum. */
enum engine_isolation {
        ENGINE_CONTAINER, /* namespaces, seccomp: the host's kernel serves the box */
        ENGINE_GVISOR,    /* a kernel of its own in user space */
        ENGINE_VM,
};

/* Limits of sessions on one engine that ask for none; 0: those of the daemon. */
struct engine_standard {
        uint64_t memory_bytes, cpu_thousandths, timeout_ms;
};

/* The operator's settings. Texts are never NULL. */
struct engine_settings {
        const char *docker_socket, *podman_socket;
        const char *image;   /* for sessions that name none */
        const char *runtime; /* of containers: "" for the engine's own */
        const char *gvisor;  /* the runtime that stands for gVisor, "runsc" */
        struct engine_standard docker; /* podman's too */

        const char *incus_socket; /* of the server on this host; "": where the client looks for it */
        const char *incus_image;  /* for sessions that name none */
        const char *incus_type;   /* "container" or "vm": what `incus` makes; "": container */
        const char *incus_remote; /* as `incus remote list` names it; "": the client's own default */
        struct engine_standard incus;

        const char *remote_url; /* of another Glovebox; "": there is none */
        const char *remote_key;
        const char *remote_ca; /* a file of certificates to trust; "": the system's */
        uint64_t remote_timeout_ms; /* how long it may be away before requests to it fail */
};

/* Before options and variables are read. */
#define ENGINE_SETTINGS_DEFAULT                                                                                        \
        { .docker_socket = ENGINE_DOCKER_SOCKET,                                                                       \
          .podman_socket = ENGINE_PODMAN_SOCKET,                                                                       \
          .image = "",                                                                                                 \
          .runtime = "",                                                                                               \
          .gvisor = "runsc",                                                                                           \
          .incus_socket = "",                                                                                          \
          .incus_image = "",                                                                                           \
          .incus_type = "",                                                                                            \
          .incus_remote = "",                                                                                          \
          .remote_url = "",                                                                                            \
          .remote_key = "",                                                                                            \
          .remote_ca = "",                                                                                             \
          .remote_timeout_ms = 30000 }

struct engine_mount {
        const char *source; /* on the host; NULL: a tmpfs of so many bytes */
        uint64_t bytes;
        const char *destination;
        bool writable;
};

struct engine_order {
        const char *name;  /* of the box; unique on the host */
        const char *owner; /* of all boxes of one data directory: they are found again by it */
        const char *image;
        const char *runtime; /* "": the engine's own */
        const char *seat;    /* host directory of the box's socket and programs (engine/seat.h) */
        int listen_fd;       /* the socket in it */
        struct limits limits;
        uid_t uid;
        gid_t gid;
        bool network; /* make the socket that the proxy accepts on */
        bool relays;  /* the box relays to one in the seat: its own cannot be handed out */
        bool is_users; /* the daemon is not root: sources are plain paths, and the box is of the user of the daemon */
        int *ret_workspace_fd; /* unless NULL: the box has it by itself, and hands it out */
        bool has_bounds; /* the engine bounds memory and processes; else resource limits do what they can */
        const struct engine_mount *mounts;
        size_t n_mounts;
};

struct engine {
        const char *name;
        enum engine_isolation isolation; /* with its own runtime */
        enum engine_isolation most;      /* with any that it can be told to use */
        bool has_users; /* each box has a user namespace, with ids of its own */
        const char *needs;               /* one line for people: what must be there */

        /* Is it there? Its version as text. */
        int (*probe)(const struct engine_settings *settings, char *ret_version, size_t room, struct err *err);

        /* The image's variables; ERR_NOT_FOUND says how to get the image. */
        int (*look_at_image)(const struct engine_settings *settings, const char *image, struct image *ret_image,
                             struct err *err);

        /* Optional, before `make` and before the box's files are opened: the box is there but does not run, and the
         * user of the box is this one of the host. What fails later is removed by the caller. */
        int (*reserve)(const struct engine_settings *settings, const struct engine_order *order, uid_t *ret_uid,
                       gid_t *ret_gid, struct err *err);

        /* On return the agent is running and nothing else; on failure nothing is left, but for what was reserved. */
        int (*make)(const struct engine_settings *settings, const struct engine_order *order, struct box *ret_box,
                    int *ret_listener_fd, struct err *err);

        /* Optional: can it serve a daemon that is not root? The user of the box, inside. NULL: it cannot. */
        int (*choose_user)(const struct engine_settings *settings, uid_t *ret_uid, gid_t *ret_gid, struct err *err);

        /* A box that is not there is fine. */
        int (*remove)(const struct engine_settings *settings, const char *name, struct err *err);

        /* Removes boxes of this owner that have ended and that nobody removed, and tells of those that are left. */
        int (*sweep)(const struct engine_settings *settings, const char *owner,
                     void (*left)(const char *name, void *context), void *context, struct err *err);
};

/* By name; NULL with err when there is none. "native" and "" are NULL without an error: see engine_is_native. */
const struct engine *engine_find(const char *name, struct err *err);
bool engine_is_native(const char *name);

/* Is the engine a service of the user of this daemon (rootless podman) and not root's? Whose is its socket? */
bool engine_is_users(const struct engine *engine, const struct engine_settings *settings);

/* Can it bound memory and processes of a box? A user's service cannot with control groups of version 1. */
bool engine_has_bounds(const struct engine *engine, const struct engine_settings *settings);

/* All engines but native, in the order in which `auto` tries them; NULL ends them. */
extern const struct engine *const engine_table[];

/* "container", "gvisor", "vm". */
int engine_parse_isolation(const char *text, enum engine_isolation *ret_isolation, struct err *err);
const char *engine_isolation_name(enum engine_isolation isolation);

/* Limits that sessions on this engine get unless they ask for others; NULL: the daemon's. */
const struct engine_standard *engine_standard_of(const struct engine_settings *settings, const char *engine);

/* Does the engine's socket take connections now? Never waits. */
bool engine_is_there(const struct engine *engine, const struct engine_settings *settings);

/* Another Glovebox: it makes no boxes for this daemon, which passes whole operations on to it (daemon/remote.h). */
#define ENGINE_REMOTE "remote"

static inline bool engine_has_remote(const struct engine_settings *settings) {
        return *settings->remote_url != '\0';
}

/* What `auto` means for a daemon: remote if configured, else native if this host can have it (`native_trouble` NULL),
 * else the first other engine that is there. Says why in `ret_why`. */
int engine_choose_standard(const struct engine_settings *settings, const char *native_trouble,
                           char ret_engine[static ENGINE_NAME_MAX], char *ret_why, size_t room, struct err *err);

/* Chooses for a request: `engine` ("" or "auto": any; else its name) and `minimum` ("": any). Fills the name of the
 * engine and the runtime. Refuses with a reason rather than choosing something weaker. Never waits. */
int engine_choose(const struct engine_settings *settings, const char *engine, const char *minimum,
                  char ret_engine[static ENGINE_NAME_MAX], char ret_runtime[static ENGINE_RUNTIME_MAX],
                  struct err *err);

/* The image of sessions on this engine that name none; "": each has to. */
const char *engine_image_of(const struct engine_settings *settings, const char *engine);

/* References of images are data: letters, digits, "._-/:@", no blank, no option. */
int engine_check_image(const char *image, struct err *err);
