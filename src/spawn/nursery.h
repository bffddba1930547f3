/* The maker's side of a nursery: a process of an image from which kernels are forked. It is only an optimisation: if
 * anything fails here, the maker starts the kernel cold instead.
 *
 * An image has one supervisor and up to two nurseries in it: the full one has imported the preloaded modules, the light
 * one only the kernel, so that a fork of it copies little. Both fork into the same boxes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "box/seal/nursery_message.h"
#include "spawn/maker.h"
#include "spawn/supervisor.h"

struct nursery {
        char image[65];
        bool light;
        uint64_t fingerprint; /* of the image as it was when the nursery was started */
        enum nursery_state state;
        struct supervisor *supervisor; /* shared with the other one of the image */
        int socket_fd, answer_fd, pidfd;
        pid_t pid; /* on the host */
        uint64_t started_ms, retry_ms;
        unsigned failures; /* in a row */
        uint64_t forks;
        uint32_t n_preloaded;
        char failed[NURSERY_NAMES_MAX]; /* modules that could not be imported */
        char trouble[200];              /* why it exited last; "" if it never did */
};

/* Starts it, and its supervisor if there is none; nursery_read_answer notices when it is ready. `spec` has the image
 * and limits. `preload` is what its kernels have from it: modules, and variables as NAME=VALUE, separated by commas. On
 * failure it is down, and the next try is put off. */
int nursery_start(struct nursery *nursery, const struct box_spec *spec, const char *preload, struct err *err);

/* Reads its pipe: it is ready, or has ended. True if the state has changed. */
bool nursery_read_answer(struct nursery *nursery);

/* Ends the process; kernels that were forked from it stay. */
void nursery_stop(struct nursery *nursery);

/* True if it may be started (again) now. */
bool nursery_is_due(const struct nursery *nursery, uint64_t now_ms);
uint64_t nursery_due_in_ms(const struct nursery *nursery, uint64_t now_ms); /* UINT64_MAX: it is there */

/* The arguments of a fork. Everything is borrowed. */
struct nursery_birth {
        const struct box *box; /* made by the nursery's supervisor */
        const struct box_spec *spec;
        bool has_memory_cgroup, has_pids_cgroup, is_awaited;
        bool mounts_follow; /* as in box/seal/nursery_message.h */
        char *const *environment;
        const int *fds; /* 0, 1, 2, requests and replies */
};

/* A kernel that was forked, and seals itself. */
struct nursery_child {
        int pidfd;
        int status_fd;  /* its wait status will come here */
        int verdict_fd; /* readable when it is sealed, or has failed */
        int go_fd;
        uint64_t until_ms; /* it should be sealed by then */
};

/* Forks a kernel into the box. On failure nothing is left of it. */
int nursery_fork(struct nursery *nursery, const struct nursery_birth *birth, struct nursery_child *ret_child,
                 struct err *err);

/* Lets the kernel start when it is sealed, and waits for that until until_ms. Afterwards pidfd and status_fd are the
 * caller's. On failure nothing is left of it. */
int nursery_release(struct nursery *nursery, struct nursery_child *child, struct err *err);

/* Ends a kernel that was not released. */
void nursery_drop(struct nursery_child *child);

/* A number that changes when the image's files change. */
uint64_t nursery_fingerprint(const struct image *image);
