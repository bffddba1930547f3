/* The meter: a helper process that measures the disk space of sessions. A workspace may have a hundred thousand files,
 * or change while it is read, so the daemon does not walk it.
 *
 * Theory of operation. The daemon sends one order for each session that is to be measured; the meter answers each with
 * a report. It keeps no state. If it dies, its orders are lost, and the daemon repeats them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/helper.h"
#include "base/loop.h"

enum { METER_PATH_ROOM = 1100 };

struct meter_order {
        char id[32];                      /* of the session */
        char workspace[METER_PATH_ROOM];  /* "": not measured */
        char state[METER_PATH_ROOM];      /* the directory shown as /run/session, or "" */
        char processes[METER_PATH_ROOM];  /* the list of processes of the box's control group, or "" */
        uint64_t max_files;
};

struct meter_report {
        char id[32];
        uint64_t bytes, state_bytes; /* of the workspace, and of the state, on the disk */
        uint64_t files;              /* of both */
        bool is_cut;                 /* there are more files than may be, or it cannot be measured */
        uint64_t written;            /* bytes that the present processes have written since their start */
        uint64_t took_us;
};

struct meter {
        struct helper *helper;
        const char *data_dir;
        pid_t pid;
        int fd;
        struct loop_watch *watch;
        void (*report)(void *context, const struct meter_report *report); /* NULL: it has died */
        void *context;
};

int meter_start(struct meter *meter, struct helper *helper, const char *data_dir, struct err *err);
void meter_stop(struct meter *meter); /* safe on { .fd = -1 } */

/* False: it is not running, or busy. */
bool meter_measure(struct meter *meter, const struct meter_order *order);
