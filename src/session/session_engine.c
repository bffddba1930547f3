#include "session/session_engine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "engine/incus.h"
#include "engine/instance.h"
#include "engine/remote_tunnel.h"
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
                engine.is_instance = json_is_true(json_object_get(options, "instance"));
        }
        json_decref(options);
        return engine;
}

bool session_engine_is_native(const struct registry_session *row) {
        struct session_engine engine = session_engine_of(row);
        return !*engine.name;
}

bool session_engine_is_remote(const struct registry_session *row) {
        struct session_engine engine = session_engine_of(row);
        return engine.is_instance || strcmp(engine.name, ENGINE_REMOTE) == 0;
}

/* ---- the daemon's own ---- */

/* Why this host cannot make boxes, or NULL. A child tries the namespaces of one. */
static const char *find_native_trouble(void) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
                _exit(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) <
                                      0
                              ? EXIT_FAILURE
                              : EXIT_SUCCESS);
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status == 0)
                return NULL;
        return "Linux refuses new namespaces here";
}

/* A forced engine whose server cannot make its instances is an error at once. */
static int probe_instances(const char *name, const struct engine_settings *settings, struct err *err) {
        char version[128];
        const struct engine *engine = engine_find(name, err);
        if (engine && engine->probe(settings, version, sizeof(version), err) == 0)
                return 0;
        char why[sizeof(err->message)];
        (void) snprintf(why, sizeof(why), "%s", err->message);
        return err_set(err, ERR_UNSUPPORTED, "engine %s is not there: %.900s", name, why);
}

/* --engine, or the first one that works here. */
static int choose_standard(struct session_manager *manager, const char *engine, struct err *err) {
        const struct engine_settings *settings = &manager->options->engines;
        char *why = manager->engine_why, chosen[ENGINE_NAME_MAX];
        if (strcmp(engine, "auto") == 0) {
                if (engine_choose_standard(settings, find_native_trouble(), chosen, why, sizeof(manager->engine_why),
                                           err) < 0)
                        return -1;
                engine = chosen;
        } else
                (void) snprintf(why, sizeof(manager->engine_why), "--engine, SANDBOX_MODE");
        return engine_choose(settings, engine, "", manager->engine.name, manager->engine.runtime, err);
}

int session_engine_settle(struct session_manager *manager, struct err *err) {
        const struct engine_settings *settings = &manager->options->engines;
        const char *engine = manager->options->engine ? manager->options->engine : "auto";
        if (choose_standard(manager, engine, err) < 0)
                return -1;
        bool is_remote = strcmp(manager->engine.name, ENGINE_REMOTE) == 0;
        (void) incus_is_on_other_host(settings); /* now, because it blocks for a moment and the loop must not */
        manager->engine.is_instance = instance_is_needed(settings, manager->engine.name);
        if (manager->engine.is_instance && probe_instances(manager->engine.name, settings, err) < 0)
                return -1;
        if (engine_has_remote(settings) && remote_tunnel_check_url(settings->remote_url, err) < 0)
                return -1;
        if (is_remote && !*settings->remote_key)
                return err_set(err, ERR_USAGE,
                               "engine remote needs a key of %.200s: set SANDBOX_API_KEY; `glovebox serve --new-key "
                               "NAME` makes one there",
                               settings->remote_url);
        if (is_remote && strcmp(engine, ENGINE_REMOTE) == 0 && remote_link_probe(manager, err) < 0)
                return -1; /* with auto it may come later: its sessions wait for it */
        if (manager->options->engine_chosen)
                manager->options->engine_chosen(manager->options, manager->engine.name, manager->engine_why);
        return 0;
}

void session_engine_set_limits(const struct session_manager *manager, json_t *asked, struct registry_session *row) {
        struct session_engine engine = session_engine_of(row);
        const struct engine_standard *standard = engine_standard_of(&manager->options->engines, engine.name);
        if (!standard)
                return;
        const struct {
                const char *name, *plain_name;
                uint64_t standard, *limit;
        } fields[] = { { "memory_bytes", "memory", standard->memory_bytes, &row->limits.memory_bytes },
                       { "cpus", "cpus", standard->cpu_thousandths, &row->limits.cpu_thousandths },
                       { "timeout_ms", "timeout", standard->timeout_ms, &row->limits.timeout_ms } };
        for (size_t i = 0; i < ELEMENTS(fields); i++)
                if (fields[i].standard && !json_object_get(asked, fields[i].name) &&
                    !json_object_get(asked, fields[i].plain_name))
                        *fields[i].limit = fields[i].standard;
}

static void engine_keep_option(json_t *kept, const struct session_engine *engine) {
        if (engine_is_native(engine->name))
                return;
        json_object_set_new(kept, "engine", json_string(engine->name));
        if (*engine->runtime)
                json_object_set_new(kept, "runtime", json_string(engine->runtime));
        if (engine->is_instance)
                json_object_set_new(kept, "instance", json_true());
}

void session_engine_keep_asked(json_t *json, json_t *kept) {
        static const char *const keys[] = { "image", "mode", "limits", "isolation" };
        json_t *asked = json_object();
        for (size_t i = 0; i < ELEMENTS(keys); i++)
                if (json_object_get(json, keys[i]))
                        json_object_set(asked, keys[i], json_object_get(json, keys[i]));
        json_object_set_new(kept, "asked", asked);
        (void) json_object_del(kept, "operator");
}

void session_engine_keep(const struct registry_session *row, json_t *options) {
        struct session_engine engine = session_engine_of(row);
        engine_keep_option(options, &engine);
}

void session_engine_plain_options(const struct session_manager *manager, char *ret_text, size_t room) {
        json_t *kept = json_object();
        engine_keep_option(kept, &manager->engine);
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

/* A container's image: the caller's, else the operator's. */
static int choose_image(const struct engine_settings *settings, const char *engine, json_t *json,
                        struct registry_session *row, struct err *err) {
        const char *standard = engine_image_of(settings, engine);
        bool is_named = json_is_string(json_object_get(json, "image"));
        if (!is_named && !*standard)
                return err_set(
                        err, ERR_USAGE,
                        "engine %s needs an image: name one (\"image\"), or have the operator set one for all (%s)",
                        engine,
                        standard == settings->incus_image ? "INCUS_SANDBOX_IMAGE"
                                                          : "--engine-image, DOCKER_SANDBOX_IMAGE");
        if (!is_named)
                (void) snprintf(row->image, sizeof(row->image), "%s", standard);
        return engine_check_image(row->image, err);
}

int session_engine_read(const struct session_manager *manager, json_t *json, struct session_engine *ret_engine,
                        struct err *err) {
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
        chosen.is_instance = instance_is_needed(settings, chosen.name);
        *ret_engine = chosen;
        return 0;
}

int session_engine_choose(const struct session_manager *manager, json_t *json, struct registry_session *row,
                          json_t *kept, struct err *err) {
        struct session_engine chosen;
        if (session_engine_read(manager, json, &chosen, err) < 0)
                return -1;
        engine_keep_option(kept, &chosen);
        if (strcmp(chosen.name, ENGINE_REMOTE) == 0)
                return 0; /* images are the remote's */
        if (engine_is_native(chosen.name))
                return image_check_name(row->image, err);
        return choose_image(&manager->options->engines, chosen.name, json, row, err);
}
