/* The target of a relay in a box that the daemon handed over (src/session/program.h). It has everything to continue
 * without the daemon. */
#pragma once

#include "box/cgroup/cgroup.h"
#include "cli/relay_target.h"
#include "client/daemon_client.h"

/* In the order in which they come. */
enum program_fd {
        PROGRAM_REQUESTS,  /* to the Python in the box; the bytes after the frame PROGRAM are standard input */
        PROGRAM_REPLIES,   /* from there */
        PROGRAM_OUT,       /* what it prints */
        PROGRAM_ERR,
        PROGRAM_AGENT,     /* pidfd of the agent: its end is the end of the box */
        PROGRAM_CONTROL,   /* the agent's socket: the box exists while it is open */
        PROGRAM_PROCESS,   /* pidfd of the program, unless it is the agent's child */
        PROGRAM_STATUS,    /* its wait status comes here */
        PROGRAM_WORKSPACE, /* the tree shown as /workspace */
        PROGRAM_LISTENER,  /* for a proxy, if one was requested */
        PROGRAM_LEASE,     /* keeps its user id from being given to another box */
        PROGRAM_FDS
};

struct program_target {
        struct relay_target base;
        struct daemon_client *client; /* borrowed; its fd is closed when the daemon is gone */
        uint16_t request;             /* that was answered with the box */
        int fds[PROGRAM_FDS];         /* owned */
        int claim_fd;                 /* owned: shows the next daemon that the box is in use */
        json_t *box;                  /* owned: the event that came with them */
        struct cgroup_usage usage;
        bool has_usage;
        bool is_started; /* it has read the frame PROGRAM: standard input may follow */
        void (*orphaned)(void *context); /* the daemon has exited: the caller must list the program itself; or NULL */
        void *context;
};

#define PROGRAM_TARGET_NONE                                                                                            \
        ((struct program_target) { .claim_fd = -1, .fds = { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 } })

/* Asks the daemon for a box. -1 with err: the daemon's own refusal, or ERR_GONE. */
int program_target_ask(struct program_target *ret_target, struct daemon_client *client, json_t *body, struct err *err);
void program_target_release(struct program_target *target);

/* Starts it: `payload` is that of PROGRAM (guest/kernel/glovebox_kernel/program.py). */
int program_target_start(struct program_target *target, const char *payload, size_t size, struct err *err);

/* The usage of an ended program. All zero if the daemon has exited. */
void program_target_ask_usage(struct program_target *target);
