/* The mount policy. All front ends use the same one. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* The paths that a caller may mount. `operator` is the person at the command line, who may name any path. Any other
 * caller needs the path below an allowed one, after full resolution; empty lists deny everything. */
struct policy {
        bool is_operator;
        bool is_first_look; /* the tree below the source is not searched: the process that mounts it checks again */
        const char *const *read_paths; /* NULL-terminated, absolute */
        const char *const *write_paths;
        const char *socket_path; /* of the daemon, or NULL; other daemons' are found (box/policy_private.h) */
        const char *state_dir; /* Glovebox's own data directory: never mountable */
};

/* Opens `source` (O_PATH) once and decides about the opened file. On success the caller owns *ret_fd (a directory or a
 * plain file) and must mount by it alone, so that replacing a link in between has no effect. The message of a refusal
 * names the rule. */
int policy_open_source(const struct policy *policy, const char *source, bool writable, int *ret_fd, struct err *err);

/* Checks that a mount may cover this path of a box: absolute, without "..", not /, and nothing that the box itself
 * provides. ERR_USAGE: not a plain path; ERR_REFUSED: a reserved place. */
int policy_check_destination(const char *destination, struct err *err);

/* Makes a path printable in messages: control bytes and ill-formed UTF-8 become "?", a long path is cut. Returns the
 * buffer. */
enum { POLICY_SHOWN_MAX = 256 };
const char *policy_show_path(const char *path, char buffer[static POLICY_SHOWN_MAX]);
