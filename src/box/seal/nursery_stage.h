/* The nursery's stage: from the supervisor's clone to the exec of Python. spawn/supervisor.h describes the
 * processes. */
#pragma once

#include "box/seal/stage.h"

struct nursery_stage {
        const struct box_spec *spec; /* image and limits; no workspace, no mounts */
        const struct stage_fds *fds; /* trees and devices; sync_fd takes a struct err if something fails */
        int socket_fd;               /* orders; becomes descriptor 3 */
        int answer_fd;               /* a pipe; becomes descriptor 4 */
        int library_fd;              /* sealed memfd with spawn.so; becomes descriptor 5 */
        bool light;                  /* its kernels live for one run */
        const char *preload;         /* separated by commas: modules to import, and NAME=VALUE for its kernels */
};

/* Never returns: becomes Python, or reports through fds->sync_fd and exits. For a process that was cloned by the
 * supervisor into a mount namespace of its own. */
void nursery_stage_run(struct nursery_stage *nursery) __attribute__((noreturn));
