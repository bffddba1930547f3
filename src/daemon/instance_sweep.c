#include "daemon/instance_sweep.h"

#include <jansson.h>
#include <stdlib.h>
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

/* In a child: their names, as a list. */
static int do_sweep(const int *fds, int out_fd, void *context) {
        const struct session_manager *manager = context;
        struct err ignored;
        json_t *names = json_array();
        (void) fds;
        if (instance_list(&manager->options->engines, manager->data_id, note_name, names, &ignored) < 0)
                return -1;
        _cleanup_free_ char *text = json_dumps(names, JSON_COMPACT);
        return text ? fd_write_all(out_fd, text, strlen(text)) : -1;
}

/* A session is known here before its instance is made: what is unknown now has nobody. */
static void on_swept(void *context, const char *bytes, size_t size) {
        struct session_manager *manager = context;
        json_t *names = bytes ? json_loadb(bytes, size, 0, NULL) : NULL, *item;
        size_t i;
        json_array_foreach (names, i, item) {
                const char *name = json_string_value(item);
                if (name && !remote_place_is_known(manager, name))
                        reaper_remove_box(engine_incus.name, name);
        }
        json_decref(names);
}

void instance_sweep(struct session_manager *manager) {
        struct err ignored;
        const struct helper_job_order order = {
                .timeout_ms = SWEEP_MS, .work = do_sweep, .done = on_swept, .context = manager
        };
        if (engine_is_there(&engine_incus, &manager->options->engines))
                (void) helper_job_start(manager->loop, &order, &ignored); /* the next one may find more room */
}
