/* The audit log: who did what, when, and how it ended; one JSON object to a line, in audit.log of the data directory.
 *
 * Theory of operation. Lines are collected in memory and sent, several times a second, to a helper process, which
 * appends them to the file and rotates it by size. The daemon never waits for the disk: if the helper cannot keep up,
 * lines are dropped and counted, and the log reports their number. If the daemon is killed, the helper writes what it
 * has received before it exits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/helper.h"
#include "base/loop.h"

enum { AUDIT_OLD_FILES = 4 }; /* audit.log.1 is the youngest of them */

struct audit {
        struct helper *helper;
        const char *data_dir;
        uint64_t max_bytes; /* of the file, before it is rotated; 0: there is no log */
        pid_t pid;
        int fd;
        struct loop_watch *watch;
        struct loop_timer *timer;
        char *lines; /* to be handed over */
        size_t size;
        uint64_t n_dropped;
};

struct audit_entry {
        const char *key;     /* of the service; "": the operator */
        const char *via;     /* "socket", "http" or "daemon" */
        const char *from;    /* the address of a client over HTTP, or NULL */
        const char *what;    /* an operation, "run", "key.new", … */
        const char *session; /* its name, or NULL; "key/name" if the operator uses a session of a key */
        const char *run_id;  /* or NULL */
        const char *status;  /* "ok", a run's status, or the code of an error */
        uint64_t duration_ms;
        bool is_urgent;      /* handed over at once */
};

int audit_start(struct audit *audit, struct helper *helper, const char *data_dir, uint64_t max_bytes, struct err *err);

/* Sends the rest and waits briefly for the process. Safe on { .fd = -1 }. */
void audit_stop(struct audit *audit);

void audit_write(struct audit *audit, const struct audit_entry *entry);

/* The same for a program that is no daemon: writes the line itself, and ignores failures. */
void audit_append(const char *data_dir, const struct audit_entry *entry);
