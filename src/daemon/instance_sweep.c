#include "daemon/instance_sweep.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/helper_job.h"
#include "base/memory.h"
#include "engine/incus.h"
#include "engine/instance.h"
#include "session/manager.h"
#include "session/remote_place.h"
#include "session/serve_options.h"
#include "store/reaper.h"

enum { SWEEP_MS = 30000 };

static void note_name(const char *name, void *context) {
        (void) json_array_append_new(context, json_string(name));
}

/* In a child: lists instances, and writes why there are no virtual machines. */
static int do_sweep(const int *fds, int out_fd, void *context) {
        const struct session_manager *manager = context;
        const struct engine_settings *settings = &manager->options->engines;
        struct err trouble = { 0 };
        char version[128];
        json_t *names = json_array();
        (void) fds;
        if (engine_incus_vm.probe(settings, version, sizeof(version), &trouble) == 0)
                *trouble.message = '\0';
        struct err ignored;
        bool is_known = instance_list(settings, manager->data_id, note_name, names, &ignored) == 0;
        json_t *answer = json_pack("{s:o, s:s}", "names", is_known ? names : json_array(), "trouble", trouble.message);
        _cleanup_free_ char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
        return text ? fd_write_all(out_fd, text, strlen(text)) : -1;
}

/* A session is registered before its instance is made: an instance without one is left over. */
static void on_swept(void *context, const char *bytes, size_t size) {
        struct session_manager *manager = context;
        json_t *answer = bytes ? json_loadb(bytes, size, 0, NULL) : NULL, *item;
        const char *trouble = json_string_value(json_object_get(answer, "trouble"));
        size_t i;
        if (trouble)
                (void) snprintf(manager->remote.vm_trouble, sizeof(manager->remote.vm_trouble), "%s", trouble);
        json_array_foreach (json_object_get(answer, "names"), i, item) {
                const char *name = json_string_value(item);
                if (name && !remote_place_is_known(manager, name))
                        reaper_remove_box(engine_incus.name, name);
        }
        json_decref(answer);
}

void instance_sweep(struct session_manager *manager) {
        struct err ignored;
        const struct helper_job_order order = {
                .timeout_ms = SWEEP_MS, .work = do_sweep, .done = on_swept, .context = manager
        };
        if (engine_is_there(&engine_incus, &manager->options->engines))
                (void) helper_job_start(manager->loop, &order, &ignored); /* the next one may find more room */
}
