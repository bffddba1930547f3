/* The supervisor: a small C process, the parent of the boxes into which a nursery may fork kernels.
 *
 * Theory of operation. A kernel can be forked into a box only by a process with CAP_SYS_ADMIN in the user namespace
 * that the box's namespaces belong to; and code of an image (which a nursery imports) must never hold a capability
 * outside of a user namespace of its own. So the maker clones a supervisor into a user namespace N: PID 1 of a pid
 * namespace, with a root that holds nothing but /proc, with no network. The supervisor clones boxes and nurseries into
 * N on requests of the maker, which opens all files of the host and passes descriptors. Nothing else can connect to it.
 *
 *   maker ──socket──▶ supervisor (PID 1 of N) ──clone──▶ agent (PID 1 of a box)
 *     │                 ▲  └────────────clone──▶ nursery: Python, CAP_SYS_ADMIN in N, a filter that leaves only setns
 *     └─socket and pipe─┼──────────────────────▶    └──clone(CLONE_PARENT)──▶ kernel (in the box's namespaces)
 *                       └── parent of all of them: reaps them, and writes how a kernel ended into its status pipe
 *
 * If a nursery dies, no box is affected. If a supervisor dies, its boxes die too, so it does as little as possible.
 * When the maker exits (the daemon was killed, or ended), the supervisor ends its nurseries, and exits after its last
 * box. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "box/box.h"

enum { SUPERVISOR_MOUNTS_MAX = 32, SUPERVISOR_DESTINATION_MAX = 1024, SUPERVISOR_PRELOAD_MAX = 640 };

struct supervisor {
        pid_t pid; /* on the host; our child */
        int fd;
        const char *owner; /* the data directory, shown by ps */
        uint64_t template; /* identifies its root template (supervisor_template_of); 0: none */
};

/* Clones a supervisor and waits until it listens. supervisor->owner is set, the rest is { 0, -1 }. */
int supervisor_start(struct supervisor *supervisor, struct err *err);

/* In place of box_clone: the supervisor makes the namespaces. birth->spec holds host ids. `template` names the one that
 * the box can be made from, and is made first when the supervisor has another; 0: none. A box whose spec is
 * from_template relies on the supervisor having it. */
int supervisor_clone_box(struct supervisor *supervisor, struct box_birth *birth, uint64_t template, struct err *err);

/* The template for boxes of this image, by its fingerprint, that are like the spec; 0 when they share too little. */
uint64_t supervisor_template_of(uint64_t fingerprint, const struct box_spec *spec);

/* Starts a nursery with this image; of each kind, light or not, there is one: an older one ends. *ret_socket_fd takes
 * orders (box/seal/nursery_message.h), *ret_answer_fd is the pipe of its answers, *ret_pidfd the process. It is not
 * ready before it says so. */
int supervisor_start_nursery(struct supervisor *supervisor, const struct box_spec *spec, bool light,
                             const char *preload, int library_fd, int *ret_socket_fd, int *ret_answer_fd,
                             int *ret_pidfd, struct err *err);

/* The supervisor will write the wait status of a child to status_fd (borrowed) as an int. `pid` is the child's pid in N;
 * a child can be watched once. *ret_pidfd is the process. If the child had ended before, nothing is written. */
int supervisor_watch(struct supervisor *supervisor, pid_t pid, int status_fd, int *ret_pidfd, struct err *err);

/* The pid of a pidfd as this process sees it, or -1. */
pid_t supervisor_pid_of(int pidfd);
