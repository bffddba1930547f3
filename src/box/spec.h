/* The description of a box to be made. It holds everything that the sealing child needs, opened beforehand: after the
 * clone no path of the host is looked up any more. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "box/limits.h"
#include "image/image.h"

enum { BOX_UID = 1000, BOX_GID = 1000 };

/* A box with users: ids 0 to BOX_IDS - 1 exist in it. On the host they are the BOX_IDS ids around host_uid. */
enum { BOX_ROOT_UID = 0, BOX_IDS = 65536 };

#define BOX_HOME "/home/sandbox"
#define BOX_WORKSPACE "/workspace"
#define BOX_CODE_DIR "/run/code"
#define BOX_DATA_DIR "/data"

#define PROJECT_LINKS ".sandbox" /* in a directory of the host: no box sees what is in it */

/* The address of the proxy (src/egress), the only way out of a box with a network. */
#define BOX_PROXY_PORT 3128
#define BOX_PROXY_URL "http://127.0.0.1:3128"

/* A tree shown at a place of the caller's choice (--mount, --data). */
struct box_mount {
        int tree_fd; /* detached; owned by the caller of box_start */
        bool is_directory;
        bool writable;
        const char *destination;
};

struct box_spec {
        const char *name; /* of its control groups; unique on this host */
        const struct image *image;
        struct limits limits;
        bool allow_weaker;
        bool without_proc; /* this host refuses a new /proc (host_refuses_proc), and the caller takes less */
        bool from_template; /* copies what all boxes of the image share (seal/rootfs_template.h); needs no `image` */
        bool given_network; /* the cloning process is in its network namespace already, with loopback up */
        bool users; /* it has root and other users, between whom the agent switches (seal/users.h); needs /proc */
        bool kept; /* a watchdog cleans up if we are killed; without one that is the caller's business */
        const char *kept_file; /* that the watchdog removes too, and its directory if it is empty then; or NULL */
        uid_t host_uid; /* what BOX_UID is outside of the box */
        gid_t host_gid;
        int workspace_fd; /* detached tree shown as /workspace */
        const struct box_mount *mounts;
        size_t n_mounts;
        const char *code_name; /* shown as /run/code/<name>; NULL for none */
        const void *code;
        size_t code_size;
        int *ret_listener_fd; /* takes the socket that listens on BOX_PROXY_PORT of the box; NULL: no network at all */
        const char *network; /* for the report; NULL: "none" */
};
