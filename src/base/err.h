/* What went wrong, in a fixed-size value: no heap, so that it can cross a pipe from a cloned child.
 *
 * Leaf helpers return -errno. Everything above returns 0 or -1 and fills its last argument. A function logs or returns,
 * never both: the edge (a verb, the daemon) prints `message`, which says what happened, why, and what to do next. */
#pragma once

#include <stdbool.h>

enum err_code {
        ERR_NONE,
        ERR_USAGE,       /* the caller asked for something malformed */
        ERR_NOT_FOUND,   /* what the caller named does not exist */
        ERR_EXISTS,      /* what the caller wants to create exists already */
        ERR_REFUSED,     /* a policy forbids it */
        ERR_UNSUPPORTED, /* this host cannot do it */
        ERR_LIMIT,       /* a limit was reached */
        ERR_BUSY,        /* it is in use */
        ERR_NO_SPACE,    /* the disk is full */
        ERR_PERMISSION,  /* the operating system does not allow it to this user */
        ERR_PROTOCOL,    /* the other side broke the protocol */
        ERR_GONE,        /* it existed and has ended */
        ERR_TIMEOUT,
        ERR_DAMAGED,     /* data on the disk is not what was written */
        ERR_SYSTEM,      /* any other failure of a system call */
        ERR_CODES
};

/* For the daemon's own memory, as opposed to the memory limit of a box. */
#define ERR_DAEMON_MEMORY "the daemon is out of memory: try again in a moment, or give it more"

struct err {
        enum err_code code;
        int sys_errno;
        char message[1000];
};

/* Fills err (NULL is allowed) and returns -1, so that `return err_set(err, ...)` reads well. */
int err_set(struct err *err, enum err_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same for a failed system call: appends ": <what errno means>" and derives the code from it. */
int err_sys(struct err *err, int sys_errno, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* True for a failure for lack of descriptors or memory: the same may succeed later, or with another limit, and says
 * nothing about what was to be opened or read. */
bool err_is_shortage(const struct err *err);

/* Puts "what: " before the message that is already there. Returns -1. */
int err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The name of a code on every wire ("not_found"), the HTTP status it maps to, and the exit status of a command that
 * ended with it (2 for wrong usage, 125 for "could not start"). */
const char *err_code_name(enum err_code code);
int err_code_http_status(enum err_code code);
int err_code_exit_status(enum err_code code);
