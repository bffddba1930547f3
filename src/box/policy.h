/* The mount policy: one, used by every front door. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* What a caller may show to a box. `operator` is the person at the command line: naming a path is permission. Any other
 * caller needs the path below an allowed one, after full resolution; empty lists deny everything. */
struct policy {
        bool is_operator;
        bool is_first_look; /* what lies below the source is not searched: whoever mounts it asks again */
        const char *const *read_paths; /* NULL-terminated, absolute */
        const char *const *write_paths;
        const char *socket_path; /* of the daemon, or NULL; other daemons' are found (box/policy_private.h) */
        const char *state_dir; /* Glovebox's own data directory: never mountable */
};

/* The refusal of a source that cannot be opened, with the errno of open. Returns -1. */
int policy_fail_missing(const char *source, int reason, struct err *err);

/* Opens `source` (O_PATH) once, resolves what was opened, and decides about exactly that. On success the caller owns
 * *ret_fd (a directory or a plain file), mounts by it and by nothing else, so that swapping a link in between wins
 * nothing. A refusal names the rule. */
int policy_open_source(const struct policy *policy, const char *source, bool writable, int *ret_fd, struct err *err);

/* Is this a place inside a box that a mount may cover? Absolute, no "..", not /, not what the box itself provides.
 * ERR_USAGE for what is no plain path, ERR_REFUSED for a reserved place. */
int policy_check_destination(const char *destination, struct err *err);

/* A path as a message may hold it: control bytes and broken UTF-8 become "?", a long one is cut. Returns the buffer. */
enum { POLICY_SHOWN_MAX = 256 };
const char *policy_show_path(const char *path, char buffer[static POLICY_SHOWN_MAX]);
