/* The stage: what the cloned child does from its first instruction to the exec of the agent. */
#pragma once

#include "base/err.h"
#include "box/cgroup/cgroup.h"
#include "box/spec.h"

enum { STAGE_DEVICES = 6 };

#define STAGE_EMPTY "/dev/empty" /* a directory of the box's own that stays empty */

/* Descriptors that the parent opened for the child. */
struct stage_fds {
        int sync_fd;    /* one byte from the parent lets the child go on; the child writes a struct err if it fails */
        int control_fd; /* becomes the agent's descriptor 3 */
        int agent_fd;   /* sealed memfd with the agent */
        int listener_fd; /* takes the socket that listens for the proxy, made inside; -1: no network */
        int template_fd;    /* a copy of the template, for a box that is made from one */
        int tree_fds[IMAGE_TREES_MAX];
        int device_fds[STAGE_DEVICES];
};

/* Opens the image's trees and the devices; all other descriptors are -1. The caller closes them in any case. */
int stage_fds_open_view(const struct box_spec *spec, struct stage_fds *ret_fds, struct err *err);
void stage_fds_close(struct stage_fds *fds);

struct stage {
        const struct box_spec *spec;
        const struct stage_fds *fds;
        const struct cgroup *cgroup; /* made by the parent, entered by the child */
        bool drop_groups;       /* a privileged parent mapped us: supplementary groups can be given up */
        bool has_memory_cgroup; /* else resource limits must do */
        bool has_pids_cgroup;
        int root_fd; /* the new root while it is being built */
        int mount_bound_fd; /* the limit of mount namespaces, until it is set finally */
        int self_fd; /* of a box without /proc: /proc/self as the host has it, until descriptors are closed; else -1 */
};

/* A file of /proc/self; the box's own /proc, or the host's where the box has none. */
int stage_open_self(const struct stage *stage, const char *name, int flags);

/* A device of the host shown in every box. */
struct stage_device {
        const char *path;
        unsigned major_number, minor_number;
};
extern const struct stage_device stage_devices[STAGE_DEVICES];

/* Never returns: becomes the agent, or reports through sync_fd and exits. */
void stage_run(struct stage *stage) __attribute__((noreturn));

/* Steps that build the file system, in rootfs.c. All return 0 or -1 with err. What a template has is left out. */
int rootfs_root(struct stage *stage, struct err *err);
int rootfs_image(struct stage *stage, struct err *err);
int rootfs_etc(struct stage *stage, struct err *err);
int rootfs_device_nodes(struct stage *stage, struct err *err);
int rootfs_devices(struct stage *stage, struct err *err);
int rootfs_proc(struct stage *stage, struct err *err);
int rootfs_masks(struct stage *stage, struct err *err);
int rootfs_writable(struct stage *stage, struct err *err);
int rootfs_mounts(struct stage *stage, struct err *err);
int rootfs_processors(struct stage *stage, struct err *err);
int rootfs_code(struct stage *stage, struct err *err);
int rootfs_close(struct stage *stage, struct err *err);
int rootfs_inodes(struct stage *stage, struct err *err);

/* The first and the last step of a template: a root at `place`, and the places that the steps of a box mount on. */
int rootfs_root_at(struct stage *stage, const char *place, struct err *err);
int rootfs_places(struct stage *stage, struct err *err);
