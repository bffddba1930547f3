/* What a box that is started as root of its own user namespace still lacks: the last steps of a native box's sealing
 * (src/box/seal/stage.c), from the inside. */
#pragma once

#include "base/err.h"
#include "box/limits.h"

/* Covers what tells about the host, gives the box its own /dev, names it, and makes its root read-only. */
int view_seal(const struct limits *limits, struct err *err);

/* Becomes the user of the box, without any capability in any set. */
int view_drop_privileges(struct err *err);
