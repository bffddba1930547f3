/* Incus instances with a Glovebox of their own: virtual machines, and containers on other hosts. */
#pragma once

#include "engine/instance.h"

extern const struct instance_engine instance_incus_container, instance_incus_vm;

/* Label of an instance: "session" or "run". The boxes of incus.c do not have this key. */
#define INSTANCE_INCUS_KEY "user.glovebox.instance"

int instance_incus_list(const struct engine_settings *settings, const char *owner,
                        void (*each)(const char *name, void *context), void *context, struct err *err);
