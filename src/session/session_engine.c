#include "session/session_engine.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "image/image.h"
#include "session/manager.h"
#include "session/serve_options.h"

struct session_engine session_engine_of(const struct registry_session *row) {
        struct session_engine engine = { 0 };
        if (!strstr(row->options, "\"engine\""))
                return engine;
        json_t *options = json_loads(row->options, 0, NULL);
        const char *name = json_string_value(json_object_get(options, "engine"));
        const char *runtime = json_string_value(json_object_get(options, "runtime"));
        if (name && !engine_is_native(name)) {
                (void) snprintf(engine.name, sizeof(engine.name), "%s", name);
                (void) snprintf(engine.runtime, sizeof(engine.runtime), "%s", runtime ? runtime : "");
        }
        json_decref(options);
        return engine;
}

bool session_engine_is_native(const struct registry_session *row) {
        struct session_engine engine = session_engine_of(row);
        return !*engine.name;
}

static void keep(json_t *kept, const char *name, const char *runtime) {
        if (engine_is_native(name))
                return;
        json_object_set_new(kept, "engine", json_string(name));
        if (*runtime)
                json_object_set_new(kept, "runtime", json_string(runtime));
}

void session_engine_keep(const struct registry_session *row, json_t *options) {
        struct session_engine engine = session_engine_of(row);
        keep(options, engine.name, engine.runtime);
}

void session_engine_plain_options(const struct session_manager *manager, char *ret_text, size_t room) {
        json_t *kept = json_object();
        keep(kept, manager->engine.name, manager->engine.runtime);
        _cleanup_free_ char *text = json_object_size(kept) ? json_dumps(kept, JSON_COMPACT) : NULL;
        (void) snprintf(ret_text, room, "%s", text ? text : "");
        json_decref(kept);
}

static int read_choice(json_t *json, const char *key, const char **ret_text, struct err *err) {
        json_t *value = json_object_get(json, key);
        *ret_text = json_string_value(value);
        if (value && !json_is_null(value) && !*ret_text)
                return err_set(err, ERR_USAGE, "\"%s\" must be a text", key);
        return 0;
}

int session_engine_choose(const struct session_manager *manager, json_t *json, struct registry_session *row,
                          json_t *kept, struct err *err) {
        struct session_engine chosen = manager->engine;
        const struct engine_settings *settings = &manager->options->engines;
        const char *engine, *minimum;
        if (read_choice(json, "engine", &engine, err) < 0 || read_choice(json, "isolation", &minimum, err) < 0)
                return -1;
        if (!engine || strcmp(engine, "auto") == 0)
                engine = minimum && strcmp(minimum, "container") != 0 && engine_is_native(manager->engine.name)
                                 ? "auto"
                                 : manager->engine.name;
        if (*engine || minimum)
                if (engine_choose(settings, *engine ? engine : "native", minimum ? minimum : "", chosen.name,
                                  chosen.runtime, err) < 0)
                        return -1;
        keep(kept, chosen.name, chosen.runtime);
        if (engine_is_native(chosen.name))
                return image_check_name(row->image, err);
        const char *standard = engine_image_of(settings, chosen.name);
        if (!json_string_value(json_object_get(json, "image")) && !*standard)
                return err_set(err, ERR_USAGE,
                               "engine %s needs an image: name one (\"image\"), or have the operator set "
                               "one for all (%s)",
                               chosen.name,
                               standard == settings->incus_image ? "INCUS_SANDBOX_IMAGE"
                                                                 : "--engine-image, DOCKER_SANDBOX_IMAGE");
        if (!json_string_value(json_object_get(json, "image")))
                (void) snprintf(row->image, sizeof(row->image), "%s", standard);
        return engine_check_image(row->image, err);
}
