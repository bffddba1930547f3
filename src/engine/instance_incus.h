/* Instances of Incus with a Glovebox of their own: virtual machines, and containers on other hosts. */
#pragma once

#include "engine/instance.h"

extern const struct instance_engine instance_incus_container, instance_incus_vm;

/* Its label: the value says for whom, the key that it is no box of incus.c. */
#define INSTANCE_INCUS_KEY "user.glovebox.instance"

int instance_incus_list(const struct engine_settings *settings, const char *owner,
                        void (*each)(const char *name, void *context), void *context, struct err *err);
