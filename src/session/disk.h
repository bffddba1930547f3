/* The disk limit of sessions, and the reserve of the host.
 *
 * Theory of operation. A workspace on a file system with project quotas is bounded by the kernel (project_quota.h). Any
 * other is watched: while code runs, a timer reads the free space of the file system (one system call) and lets the
 * meter (meter.h) measure each session in use; the faster space disappears, the more often. A run that takes its
 * session past the limit is ended with the status "disk". A session that is past its limit stays usable: a run in it
 * may remove files, and is ended only if it adds to them; its result says that the limit is still exceeded.
 *
 * If less than the reserve is free, uploads, new sessions and installs are refused, and runs that write are ended. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernel/kernel_reply.h"

struct session_manager;
struct limits;
struct loop_timer;
struct run;
struct session;

/* Of a session. */
struct disk_use {
        bool is_quota;     /* the kernel bounds it: watched only for the reserve */
        bool is_busy;      /* a run or a write took place since the last measurement */
        bool is_asked;     /* the meter was asked and has not answered */
        bool is_over;      /* as it was last measured */
        bool is_short;     /* less than the reserve was free at the last measurement */
        bool is_fresh;     /* measured since its run ended */
        bool is_ours;      /* the daemon has had its kernel write since the last measurement began */
        bool is_ours_asked; /* or before that: the measurement that was asked for includes it */
        uint64_t bytes, files;   /* as last measured */
        uint64_t pending;        /* bytes that clients have sent since then */
        uint64_t pending_before; /* the part of them that the running measurement may include */
        uint64_t written;        /* by its processes */
        uint64_t measured_ms, took_ms;
        uint64_t free_bytes;     /* of the file system, then */
        struct kernel_reply outcome; /* of a run whose result waits for a measurement; owned */
};

/* Of the daemon. */
struct disk_watch {
        struct loop_timer *timer;
        uint64_t reserve_bytes;
        uint64_t free_bytes;
        bool is_idle;  /* the timer waits longer */
        bool is_short; /* less than the reserve is free */
};

/* Determines the reserve. ERR_USAGE if the file system is smaller. */
int disk_open(struct session_manager *manager, struct err *err);
void disk_close(struct session_manager *manager);

/* True if a quota bounds it. With `is_new` its directories were just made and are empty: then it gets a quota, if the
 * file system has them. */
void disk_bound(struct session *session, bool is_new);

/* Call it when the limits of its row have changed. */
void disk_limit_changed(struct session *session);

/* It is about to be removed. */
void disk_unbound(struct session *session);

/* The daemon has its kernel write: a trim or a sleep. That is not the code's writing. */
void disk_begin_question(struct session *session);

/* A run begins. */
void disk_begin_run(struct session *session, struct run *run);

/* The run has ended with this outcome. True: it is reported later, by report(session, outcome). */
bool disk_hold_result(struct session *session, const struct kernel_reply *outcome,
                      void (*report)(struct session *session, const struct kernel_reply *outcome));

/* Checks that so many more bytes may be written into it from outside, and counts them. The message of ERR_NO_SPACE says
 * why not. session NULL: only the disk itself is checked. */
int disk_admit(struct session_manager *manager, struct session *session, uint64_t size, struct err *err);

/* Takes back bytes that were admitted and not written. */
void disk_give_back(struct session *session, uint64_t size);

/* The problem, for a run's result: "disk limit 1 GiB …"; "" if there is none. */
void disk_describe(const struct session *session, char *ret_text, size_t room);

/* How its size is bounded: "quota", "watched", "tmpfs" or "none". */
const char *disk_bounded_by(const struct session *session);
