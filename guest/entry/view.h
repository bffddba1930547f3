/* The steps of a native box's sealing (src/box/seal/stage.c) that Incus does not do, done from the inside as root of
 * the box's user namespace. */
#pragma once

#include "base/err.h"
#include "box/limits.h"

/* Hides details of the host, makes the box's own /dev, sets its host name, and makes its root read-only. */
int view_seal(const struct limits *limits, struct err *err);

/* Becomes the user of the box, without any capability in any set. */
int view_drop_privileges(struct err *err);
