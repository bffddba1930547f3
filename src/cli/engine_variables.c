#include "cli/engine_variables.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/units.h"
#include "box/limits.h"
#include "engine/engine.h"

#define AT(field) offsetof(struct engine_settings, field)

enum variable_kind { VARIABLE_TEXT, VARIABLE_BYTES, VARIABLE_CPUS, VARIABLE_TIME, VARIABLE_ELSEWHERE };

/* ELSEWHERE: a row of the options reads it (serve_verb.c); this table only has its engine. */
static const struct {
        const char *name, *engine;
        enum variable_kind kind;
        size_t offset;
} variables[] = {
        { "DOCKER_SANDBOX_IMAGE", "docker", VARIABLE_ELSEWHERE, 0 },
        { "DOCKER_SANDBOX_MEMORY", "docker", VARIABLE_BYTES, AT(docker.memory_bytes) },
        { "DOCKER_SANDBOX_CPU", "docker", VARIABLE_CPUS, AT(docker.cpu_thousandths) },
        { "DOCKER_SANDBOX_TIMEOUT", "docker", VARIABLE_TIME, AT(docker.timeout_ms) },
        { "INCUS_SANDBOX_IMAGE", "incus", VARIABLE_ELSEWHERE, 0 },
        { "INCUS_SANDBOX_TYPE", "incus", VARIABLE_TEXT, AT(incus_type) },
        { "INCUS_SANDBOX_MEMORY", "incus", VARIABLE_BYTES, AT(incus.memory_bytes) },
        { "INCUS_SANDBOX_CPU", "incus", VARIABLE_CPUS, AT(incus.cpu_thousandths) },
        { "INCUS_SANDBOX_TIMEOUT", "incus", VARIABLE_TIME, AT(incus.timeout_ms) },
        { "INCUS_REMOTE", "incus", VARIABLE_TEXT, AT(incus_remote) },
        { "SANDBOX_API_URL", ENGINE_REMOTE, VARIABLE_ELSEWHERE, 0 },
        { "SANDBOX_API_TIMEOUT", ENGINE_REMOTE, VARIABLE_ELSEWHERE, 0 },
};

static const char *value_of(const char *name) {
        const char *text = getenv(name);
        return text && *text ? text : NULL;
}

static int read_variable(size_t i, const char *text, struct engine_settings *settings, struct err *err) {
        static const uint64_t week_ms = 7ull * 86400 * 1000;
        char what[100];
        uint64_t *number = (uint64_t *) ((char *) settings + variables[i].offset);
        (void) snprintf(what, sizeof(what), "the environment variable %s", variables[i].name);
        switch (variables[i].kind) {
        case VARIABLE_TEXT:
                *(const char **) ((char *) settings + variables[i].offset) = text;
                return 0;
        case VARIABLE_BYTES:
                return units_parse_bytes(what, text, LIMITS_MEMORY_MIN, LIMITS_MEMORY_MAX, number, err);
        case VARIABLE_CPUS:
                return units_parse_thousandths(what, text, 10, 1024 * 1000, number, err);
        case VARIABLE_TIME:
                return units_parse_duration_ms(what, text, 1, week_ms, number, err);
        default:
                return 0;
        }
}

void engine_variables_find_sockets(struct engine_settings *settings) {
        static const char scheme[] = "unix://";
        static char of_user[300];
        const struct {
                const char *variable, *standard, **socket;
        } rows[] = { { "DOCKER_HOST", ENGINE_DOCKER_SOCKET, &settings->docker_socket },
                     { "CONTAINER_HOST", ENGINE_PODMAN_SOCKET, &settings->podman_socket } };
        for (size_t i = 0; i < ELEMENTS(rows); i++) {
                const char *text = value_of(rows[i].variable);
                if (text && strncmp(text, scheme, strlen(scheme)) == 0 &&
                    strcmp(*rows[i].socket, rows[i].standard) == 0)
                        *rows[i].socket = text + strlen(scheme);
        }
        const char *runtime_dir = value_of("XDG_RUNTIME_DIR");
        if (geteuid() != 0 && runtime_dir && strcmp(settings->podman_socket, ENGINE_PODMAN_SOCKET) == 0 &&
            access(ENGINE_PODMAN_SOCKET, W_OK) < 0) {
                (void) snprintf(of_user, sizeof(of_user), "%.250s/podman/podman.sock", runtime_dir);
                settings->podman_socket = of_user;
        }
}

int engine_variables_read(struct engine_settings *settings, struct err *err) {
        engine_variables_find_sockets(settings);
        for (size_t i = 0; i < ELEMENTS(variables); i++) {
                const char *text = value_of(variables[i].name);
                if (text && read_variable(i, text, settings, err) < 0)
                        return -1;
        }
        if (*settings->incus_type && strcmp(settings->incus_type, "container") != 0 &&
            strcmp(settings->incus_type, "vm") != 0)
                return err_set(err, ERR_USAGE,
                               "the environment variable INCUS_SANDBOX_TYPE is \"container\" or \"vm\", not \"%.40s\"",
                               settings->incus_type);
        return 0;
}

/* One daemon serves several engines: a setting counts wherever a session could ask for its engine. */
static bool is_in_use(const struct engine_settings *settings, const char *chosen, const char *engine) {
        static const char *const docker[] = { "docker", "podman" }, *const incus[] = { "incus", "incus-vm" };
        const char *const *names = strcmp(engine, "incus") == 0 ? incus : docker;
        if (strcmp(engine, ENGINE_REMOTE) == 0)
                return engine_has_remote(settings);
        for (size_t i = 0; i < 2; i++) {
                struct err ignored;
                const struct engine *found = engine_find(names[i], &ignored);
                if (strcmp(chosen, names[i]) == 0 || (found && engine_is_there(found, settings)))
                        return true;
        }
        return false;
}

void engine_variables_warn(const struct engine_settings *settings, const char *chosen) {
        for (size_t i = 0; i < ELEMENTS(variables); i++)
                if (value_of(variables[i].name) && !is_in_use(settings, chosen, variables[i].engine))
                        daemon_log("%s is set and has no effect: the engine here is %s, and %s is not there",
                                   variables[i].name, chosen, variables[i].engine);
}
