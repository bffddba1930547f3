#include "engine/engine.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/host/identity.h"
#include "engine/container.h"
#include "engine/incus.h"
#include "engine/program_call.h"

const struct engine *const engine_table[] = { &engine_docker, &engine_podman, &engine_incus, &engine_incus_vm, NULL };

static const char *const isolation_names[] = {
        [ENGINE_CONTAINER] = "container", [ENGINE_GVISOR] = "gvisor", [ENGINE_VM] = "vm"
};

bool engine_is_native(const char *name) {
        return !*name || strcmp(name, "native") == 0;
}

const struct engine *engine_find(const char *name, struct err *err) {
        for (const struct engine *const *at = engine_table; *at; at++)
                if (strcmp((*at)->name, name) == 0)
                        return *at;
        if (!engine_is_native(name))
                (void) err_set(err, ERR_USAGE,
                               "there is no engine \"%.40s\"; there are auto, native, docker, podman, incus, incus-vm "
                               "and remote",
                               name);
        return NULL;
}

int engine_parse_isolation(const char *text, enum engine_isolation *ret_isolation, struct err *err) {
        for (size_t i = 0; i < ELEMENTS(isolation_names); i++)
                if (strcmp(isolation_names[i], text) == 0) {
                        *ret_isolation = (enum engine_isolation) i;
                        return 0;
                }
        return err_set(err, ERR_USAGE, "isolation is \"container\", \"gvisor\" or \"vm\", not \"%.40s\"", text);
}

const char *engine_isolation_name(enum engine_isolation isolation) {
        return isolation_names[isolation];
}

int engine_check_image(const char *image, struct err *err) {
        static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@";
        size_t size = strlen(image);
        if (size > 0 && size <= ENGINE_IMAGE_MAX && strspn(image, letters) == size && !strchr("._-/:@", image[0]) &&
            !strstr(image, "..") && !strstr(image, "//") && image[size - 1] != '/')
                return 0;
        return err_set(err, ERR_USAGE, "\"%.60s\" is no name of an image, such as python:3.12-slim", image);
}

const char *engine_image_of(const struct engine_settings *settings, const char *engine) {
        return strncmp(engine, "incus", 5) == 0 ? settings->incus_image : settings->image;
}

static const char *engine_socket(const struct engine *engine, const struct engine_settings *settings) {
        if (engine == &engine_incus || engine == &engine_incus_vm)
                return incus_socket(settings);
        return engine == &engine_docker ? settings->docker_socket : settings->podman_socket;
}

/* Connects to the socket and disconnects. 0 or -errno. */
static int probe_socket(const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        if (strlen(path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        (void) strcpy(address.sun_path, path);
        return connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 ? -errno : 0;
}

bool engine_is_there(const struct engine *engine, const struct engine_settings *settings) {
        const char *path = engine_socket(engine, settings);
        if (!*path) /* a server on another host: a request to it would take time */
                return program_is_there("incus");
        return probe_socket(path) == 0;
}

static int refuse_absent_engine(const struct engine *engine, const char *path, struct err *err) {
        int code = *path ? probe_socket(path) : -ENOENT;
        if (code == -EACCES || code == -EPERM)
                return err_set(err, ERR_PERMISSION,
                               "engine %s may not be used by this user: the socket %.200s belongs to others; run the "
                               "daemon as root, or add its user to the group of the socket (usermod -aG %s USER) and "
                               "log in again",
                               engine->name, path, strcmp(engine->name, "incus") == 0 ? "incus-admin" : engine->name);
        return err_set(err, ERR_UNSUPPORTED, "engine %s is not there: no answer at %.200s (%s); it needs %s",
                       engine->name, path, code < 0 ? strerror(-code) : "it answers now", engine->needs);
}

bool engine_is_rootless(const struct engine *engine, const struct engine_settings *settings) {
        struct stat status;
        return !identity_has_range() && stat(engine_socket(engine, settings), &status) == 0 &&
               status.st_uid == geteuid();
}

bool engine_has_bounds(const struct engine *engine, const struct engine_settings *settings) {
        return !engine_is_rootless(engine, settings) || access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
}

const struct engine_standard *engine_standard_of(const struct engine_settings *settings, const char *engine) {
        static const struct {
                const char *engine;
                size_t offset;
        } rows[] = { { "docker", offsetof(struct engine_settings, docker) },
                     { "podman", offsetof(struct engine_settings, docker) },
                     { "incus", offsetof(struct engine_settings, incus) },
                     { "incus-vm", offsetof(struct engine_settings, incus) } };
        for (size_t i = 0; i < ELEMENTS(rows); i++)
                if (strcmp(rows[i].engine, engine) == 0)
                        return (const struct engine_standard *) ((const char *) settings + rows[i].offset);
        return NULL;
}

int engine_choose_standard(const struct engine_settings *settings, const char *native_trouble,
                           char ret_engine[static ENGINE_NAME_MAX], char *ret_why, size_t room, struct err *err) {
        const struct engine *const *found = engine_table;
        if (engine_has_remote(settings)) {
                (void) snprintf(ret_engine, ENGINE_NAME_MAX, "%s", ENGINE_REMOTE);
                (void) snprintf(ret_why, room, "auto: a remote is configured (SANDBOX_API_URL)");
                return 0;
        }
        if (!native_trouble) {
                (void) snprintf(ret_engine, ENGINE_NAME_MAX, "native");
                (void) snprintf(ret_why, room, "auto: no remote is configured, and this host can make boxes");
                return 0;
        }
        while (*found && !engine_is_there(*found, settings))
                found++;
        if (!*found)
                return err_set(err, ERR_UNSUPPORTED,
                               "this host cannot make boxes (%s), and no other engine is there; `glovebox doctor` says "
                               "what is missing",
                               native_trouble);
        (void) snprintf(ret_engine, ENGINE_NAME_MAX, "%s", (*found)->name);
        (void) snprintf(ret_why, room, "auto: this host cannot make boxes (%s), and %s is there", native_trouble,
                        (*found)->name);
        return 0;
}

static int refuse_isolation(const char *engine, enum engine_isolation minimum, struct err *err) {
        return err_set(err, ERR_REFUSED, "the isolation \"%s\" was requested, and engine %s gives \"container\"; %s",
                       engine_isolation_name(minimum), engine,
                       minimum == ENGINE_VM ? "no engine of this daemon has virtual machines (incus-vm would)"
                                            : "choose docker or podman, with gVisor (runsc) as a runtime");
}

/* The remote checks the minimum of isolation itself. */
static int choose_remote(const struct engine_settings *settings, char ret_engine[static ENGINE_NAME_MAX],
                         char ret_runtime[static ENGINE_RUNTIME_MAX], struct err *err) {
        if (!engine_has_remote(settings))
                return err_set(err, ERR_UNSUPPORTED,
                               "engine remote is not there: no remote is configured; it needs "
                               "--remote-url (SANDBOX_API_URL) and a key (SANDBOX_API_KEY)");
        (void) snprintf(ret_engine, ENGINE_NAME_MAX, "%s", ENGINE_REMOTE);
        *ret_runtime = '\0';
        return 0;
}

/* *ret_engine is NULL for native. */
static int find_named_engine(const struct engine_settings *settings, const char *name, const struct engine **ret_engine,
                             struct err *err) {
        err->code = ERR_NONE;
        *ret_engine = engine_find(name, err);
        if (*ret_engine == &engine_incus && strcmp(settings->incus_type, "vm") == 0)
                *ret_engine = &engine_incus_vm;
        return err->code == ERR_NONE ? 0 : -1;
}

/* The engine for a request that names none. NULL: native, or no engine gives this isolation. */
static const struct engine *find_isolating_engine(const struct engine_settings *settings,
                                                  enum engine_isolation wanted) {
        if (wanted == ENGINE_CONTAINER)
                return NULL;
        for (const struct engine *const *at = engine_table; *at; at++)
                if ((*at)->max_isolation >= wanted && engine_is_there(*at, settings))
                        return *at;
        return NULL;
}

static const char *engine_runtime(const struct engine *engine, const struct engine_settings *settings,
                                  enum engine_isolation wanted) {
        if (!engine || engine->max_isolation != ENGINE_GVISOR)
                return "";
        return wanted == ENGINE_GVISOR ? settings->gvisor : settings->runtime;
}

int engine_choose(const struct engine_settings *settings, const char *engine, const char *minimum,
                  char ret_engine[static ENGINE_NAME_MAX], char ret_runtime[static ENGINE_RUNTIME_MAX],
                  struct err *err) {
        enum engine_isolation wanted = ENGINE_CONTAINER;
        const struct engine *found = NULL;
        if (*minimum && engine_parse_isolation(minimum, &wanted, err) < 0)
                return -1;
        if (strcmp(engine, ENGINE_REMOTE) == 0)
                return choose_remote(settings, ret_engine, ret_runtime, err);
        if (!*engine || strcmp(engine, "auto") == 0)
                found = find_isolating_engine(settings, wanted);
        else if (find_named_engine(settings, engine, &found, err) < 0)
                return -1;
        if (wanted > ENGINE_CONTAINER && (!found || found->max_isolation < wanted))
                return refuse_isolation(found ? found->name : "native", wanted, err);
        if (found && !engine_is_there(found, settings))
                return refuse_absent_engine(found, engine_socket(found, settings), err);
        (void) snprintf(ret_engine, ENGINE_NAME_MAX, "%s", found ? found->name : "native");
        (void) snprintf(ret_runtime, ENGINE_RUNTIME_MAX, "%s", engine_runtime(found, settings, wanted));
        return 0;
}
