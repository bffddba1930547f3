/* The contract of engines. An engine makes a box with our agent in it, returns a connection to the agent, finds its
 * boxes again after a crash, and removes them. Upper layers (kernels, runs, files, packages, hibernation, take-over)
 * use the connection and do not depend on the engine.
 *
 * A box of another engine looks like a native one: a control socket to the agent, over which the host passes the pipes
 * of a kernel. No run passes through the engine: a warm run on docker takes as long as a native one, and runs go on
 * while dockerd hangs or is restarted.
 *
 * The functions of `struct engine` may block up to their deadlines: only helper processes call them, never the daemon's
 * loop. */
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

/* The default sockets. */
#define ENGINE_DOCKER_SOCKET "/var/run/docker.sock"
#define ENGINE_PODMAN_SOCKET "/run/podman/podman.sock"

/* The isolation of a box, weakest first; a caller can demand a minimum. */
enum engine_isolation {
        ENGINE_CONTAINER, /* namespaces, seccomp: the host's kernel serves the box */
        ENGINE_GVISOR,    /* a kernel of its own in user space */
        ENGINE_VM,
};

/* Default limits of sessions on one engine. 0: the daemon's default. */
struct engine_standard {
        uint64_t memory_bytes, cpu_thousandths, timeout_ms;
};

/* The operator's settings. Texts are never NULL. */
struct engine_settings {
        const char *docker_socket, *podman_socket;
        const char *image;   /* the default image */
        const char *runtime; /* of containers: "" for the engine's own */
        const char *gvisor;  /* the name of the gVisor runtime, "runsc" */
        struct engine_standard docker; /* also for podman */

        const char *incus_socket; /* of the server on this host; "": where the client looks for it */
        const char *incus_image;  /* for sessions that name none */
        const char *incus_type;   /* "container" or "vm", made by the engine `incus`; "": container */
        const char *incus_remote; /* as `incus remote list` names it; "": the server of this host */
        struct engine_standard incus;

        const char *remote_url; /* of another Glovebox; "": there is none */
        const char *remote_key;
        const char *remote_ca; /* a file of certificates to trust; "": the system's */
        uint64_t remote_timeout_ms; /* how long requests wait for a remote that cannot be reached */
};

/* The settings before options and variables are read. */
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
        const char *source; /* on the host; NULL: a tmpfs of `bytes` */
        uint64_t bytes;
        const char *destination;
        bool writable;
};

struct engine_order {
        const char *name; /* of the box; unique on the host */
        const char *owner; /* the id of the data directory, by which its boxes are found again */
        const char *image;
        const char *runtime; /* "": the engine's own */
        const char *mount_dir; /* host directory of the box's socket and programs (engine/mount_dir.h) */
        int listen_fd; /* the socket in it */
        struct limits limits;
        uid_t uid;
        gid_t gid;
        bool network; /* make the socket that the proxy accepts on */
        bool has_relay; /* the box connects to the proxy's socket in mount_dir: it cannot pass its own to the host */
        bool daemon_is_user; /* the daemon is not root: sources are plain paths, and the box has its user */
        int *ret_workspace_fd; /* unless NULL: the workspace is a tmpfs in the box; the entry passes it to the host */
        bool has_bounds; /* the engine limits memory and processes; otherwise only resource limits apply */
        const struct engine_mount *mounts;
        size_t n_mounts;
};

struct engine {
        const char *name;
        enum engine_isolation isolation; /* with its default runtime */
        enum engine_isolation max_isolation; /* with any runtime that it supports */
        bool has_users; /* each box has a user namespace, with ids of its own */
        const char *needs; /* one line for people: what must be installed and running */

        /* Fails if the engine does not answer. Returns its version as text. */
        int (*probe)(const struct engine_settings *settings, char *ret_version, size_t room, struct err *err);

        /* Fills the name, the Python and the environment of the image. ERR_NOT_FOUND: the message has the command that
         * gets the image. */
        int (*inspect_image)(const struct engine_settings *settings, const char *image, struct image *ret_image,
                             struct err *err);

        /* Optional, called before `make` and before the box's files are opened: creates the box without starting it,
         * and returns the host's user id of the box's user. If a later step fails, the caller removes the box. */
        int (*reserve)(const struct engine_settings *settings, const struct engine_order *order, uid_t *ret_uid,
                       gid_t *ret_gid, struct err *err);

        /* On success the agent runs, and no other process. On failure nothing is left except what `reserve` created. */
        int (*make)(const struct engine_settings *settings, const struct engine_order *order, struct box *ret_box,
                    int *ret_listener_fd, struct err *err);

        /* Chooses the user inside the box, for a daemon that is not root. NULL: the engine needs a daemon of root. */
        int (*choose_user)(const struct engine_settings *settings, uid_t *ret_uid, gid_t *ret_gid, struct err *err);

        /* Returns 0 if there is no such box. */
        int (*remove)(const struct engine_settings *settings, const char *name, struct err *err);

        /* Removes this owner's boxes that have ended, and calls `remaining` for each of the others. */
        int (*sweep)(const struct engine_settings *settings, const char *owner,
                     void (*remaining)(const char *name, void *context), void *context, struct err *err);
};

/* Returns NULL with err if no engine has this name. "native" and "" are NULL without an error: see engine_is_native. */
const struct engine *engine_find(const char *name, struct err *err);
bool engine_is_native(const char *name);

/* True if the engine's service runs as the daemon's user, not as root (rootless podman), by the owner of the socket. */
bool engine_is_rootless(const struct engine *engine, const struct engine_settings *settings);

/* True if it can limit a box's memory and processes. A rootless engine cannot on control groups of version 1. */
bool engine_has_bounds(const struct engine *engine, const struct engine_settings *settings);

/* All engines but native, in the order in which `auto` tries them, then NULL. */
extern const struct engine *const engine_table[];

/* "container", "gvisor", "vm". */
int engine_parse_isolation(const char *text, enum engine_isolation *ret_isolation, struct err *err);
const char *engine_isolation_name(enum engine_isolation isolation);

/* The default limits of sessions on this engine. NULL: the daemon's. */
const struct engine_standard *engine_standard_of(const struct engine_settings *settings, const char *engine);

/* True if the engine's socket accepts connections now. Never blocks. */
bool engine_is_there(const struct engine *engine, const struct engine_settings *settings);

/* Another Glovebox. It is not in the table, because the daemon passes whole operations on to it (daemon/remote.h). */
#define ENGINE_REMOTE "remote"

static inline bool engine_has_remote(const struct engine_settings *settings) {
        return *settings->remote_url != '\0';
}

/* Chooses the engine of a daemon for `auto`: remote if configured, else native if this host can make boxes
 * (`native_trouble` NULL; else it says why not), else the first other engine that answers. Fills the reason. */
int engine_choose_standard(const struct engine_settings *settings, const char *native_trouble,
                           char ret_engine[static ENGINE_NAME_MAX], char *ret_why, size_t room, struct err *err);

/* Chooses the engine of a request with the name `engine` ("" or "auto": any) and the isolation `minimum` ("": any).
 * Fills the name of the engine and the runtime. Refuses rather than choosing something weaker. Never blocks. */
int engine_choose(const struct engine_settings *settings, const char *engine, const char *minimum,
                  char ret_engine[static ENGINE_NAME_MAX], char ret_runtime[static ENGINE_RUNTIME_MAX],
                  struct err *err);

/* The default image of sessions on this engine. "": each session has to name one. */
const char *engine_image_of(const struct engine_settings *settings, const char *engine);

/* Allows letters, digits and "._-/:@" only, and no "-" in front, because an image name becomes part of an API path or
 * an argument. */
int engine_check_image(const char *image, struct err *err);
