#include "engine/instance.h"

#include <string.h>

#include "base/memory.h"
#include "engine/incus.h"
#include "engine/instance_incus.h"

static const struct instance_engine *const instance_engines[] = { &instance_incus_container, &instance_incus_vm };

bool instance_is_needed(const struct engine_settings *settings, const char *engine) {
        if (strcmp(engine, engine_incus_vm.name) == 0)
                return true;
        return strcmp(engine, engine_incus.name) == 0 && incus_is_on_other_host(settings);
}

const struct instance_engine *instance_engine_find(const char *engine) {
        for (size_t i = 0; i < ELEMENTS(instance_engines); i++)
                if (strcmp(instance_engines[i]->name, engine) == 0)
                        return instance_engines[i];
        return NULL;
}

int instance_list(const struct engine_settings *settings, const char *owner,
                  void (*each)(const char *name, void *context), void *context, struct err *err) {
        return instance_incus_list(settings, owner, each, context, err);
}
