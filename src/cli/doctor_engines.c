#include "cli/doctor_engines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/engine_variables.h"
#include "cli/ui/terminal.h"
#include "engine/engine.h"

/* The settings that `glovebox serve` would have. */
static struct engine_settings settings_of_environment(void) {
        struct engine_settings settings = ENGINE_SETTINGS_DEFAULT;
        const struct {
                const char *name, **value;
        } rows[] = { { "GLOVEBOX_DOCKER_SOCKET", &settings.docker_socket },
                     { "GLOVEBOX_PODMAN_SOCKET", &settings.podman_socket },
                     { "INCUS_SOCKET", &settings.incus_socket },
                     { "INCUS_REMOTE", &settings.incus_remote },
                     { "INCUS_SANDBOX_TYPE", &settings.incus_type },
                     { "SANDBOX_API_URL", &settings.remote_url },
                     { "SANDBOX_API_KEY", &settings.remote_key } };
        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                const char *text = getenv(rows[i].name);
                if (text && *text)
                        *rows[i].value = text;
        }
        engine_variables_find_sockets(&settings);
        return settings;
}

static json_t *describe(const char *name, bool is_there, const char *detail, const char *fix) {
        return json_pack("{s:s, s:s, s:s, s:s, s:b}", "name", name, "state", is_there ? "yes" : "no", "detail", detail,
                         "fix", is_there ? "" : fix, "chosen_by_auto", 0);
}

/* The message of a missing engine has both the reason and the fix. */
static json_t *look_at(const struct engine *engine, const struct engine_settings *settings) {
        char version[100], detail[300];
        struct err err = { 0 };
        if (engine->probe(settings, version, sizeof(version), &err) < 0)
                return describe(engine->name, false, err.message, engine->needs);
        (void) snprintf(detail, sizeof(detail), "version %s; glovebox serve --engine %s", version, engine->name);
        return describe(engine->name, true, detail, "");
}

static void mark_choice(json_t *engines, const struct engine_settings *settings) {
        char name[ENGINE_NAME_MAX], runtime[ENGINE_RUNTIME_MAX];
        struct err err = { 0 };
        size_t i;
        json_t *engine;
        if (engine_choose(settings, "auto", "", name, runtime, &err) < 0)
                return;
        json_array_foreach (engines, i, engine)
                if (strcmp(json_string_value(json_object_get(engine, "name")), name) == 0)
                        (void) json_object_set_new(engine, "chosen_by_auto", json_true());
}

json_t *doctor_engines_look(bool native_can) {
        const struct engine_settings settings = settings_of_environment();
        json_t *engines = json_array();
        (void) json_array_append_new(
                engines, describe("native", native_can,
                                  native_can ? "Glovebox's own boxes" : "this host cannot make boxes of its own",
                                  "see above, or use another engine (--engine)"));
        for (size_t i = 0; engine_table[i]; i++)
                (void) json_array_append_new(engines, look_at(engine_table[i], &settings));
        mark_choice(engines, &settings);
        return engines;
}

void doctor_engines_print(const json_t *engines) {
        size_t i;
        json_t *engine;
        (void) printf("\n%sEngines%s\n", terminal_style(STDOUT_FILENO, TERMINAL_BOLD),
                      terminal_style(STDOUT_FILENO, TERMINAL_PLAIN));
        json_array_foreach ((json_t *) engines, i, engine) {
                bool is_there = strcmp(json_string_value(json_object_get(engine, "state")), "yes") == 0;
                bool is_chosen = json_is_true(json_object_get(engine, "chosen_by_auto"));
                (void) printf("  %s%s%s %-8s %s%s\n",
                              terminal_style(STDOUT_FILENO, is_there ? TERMINAL_GREEN : TERMINAL_PLAIN),
                              is_there ? "✓" : "–", terminal_style(STDOUT_FILENO, TERMINAL_PLAIN),
                              json_string_value(json_object_get(engine, "name")),
                              json_string_value(json_object_get(engine, "detail")),
                              is_chosen ? "; auto chooses it" : "");
        }
}
