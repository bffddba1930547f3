/* Docker and Podman, over the HTTP API that both have on a UNIX socket.
 *
 * A container is hardened as a native box is: no capability, no_new_privs, read-only root, bounded tmpfs, user 1000, no
 * network, its own namespaces, bounds on memory, processes and processors. Inside, the entry (guest/entry) adds our
 * system-call filter and Landlock before the agent runs. */
#include "engine/container.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/memory.h"
#include "box/host/identity.h"
#include "box/spec.h"
#include "engine/container_config.h"
#include "engine/handshake.h"
#include "engine/unix_http.h"

enum {
        SHORT_MS = 5000,   /* for requests that only read */
        CREATE_MS = 30000, /* long, since an engine under load is slow */
        START_MS = 30000,
        REMOVE_MS = 30000,
        YOUNG_S = 120, /* a younger container may still be starting */
};

/* ---- requests ---- */

static struct container_service docker_service(const struct engine_settings *settings) {
        return (struct container_service) { "docker", settings->docker_socket, "systemctl start docker", "",
                                            engine_is_rootless(&engine_docker, settings) };
}

static struct container_service podman_service(const struct engine_settings *settings) {
        bool is_rootless = engine_is_rootless(&engine_podman, settings);
        return (struct container_service) { "podman", settings->podman_socket,
                                            is_rootless ? "systemctl --user start podman.socket"
                                                        : "systemctl start podman.socket",
                                            "/v4.0.0/libpod",
                                            is_rootless }; /* Docker's API of Podman does not report the runtime */
}

/* The engine's own error message. */
static const char *engine_message(const struct unix_http_answer *answer, json_t **ret_json) {
        *ret_json = json_loadb(answer->body, answer->size, 0, NULL);
        const char *text = json_string_value(json_object_get(*ret_json, "message"));
        if (!text)
                text = json_string_value(json_object_get(*ret_json, "cause"));
        return text ? text : answer->body;
}

static int container_explain(const struct container_service *service, const char *what,
                             const struct unix_http_answer *answer, enum err_code code, struct err *err) {
        json_t *json = NULL;
        const char *text = engine_message(answer, &json);
        if (strstr(text, "no space left on device"))
                (void) err_set(err, ERR_NO_SPACE, "%s: %s: its disk is full; make room (%s system prune): %.400s",
                               service->name, what, service->name, text);
        else
                (void) err_set(err, code, "%s: %s: %.500s", service->name, what, text);
        json_decref(json);
        return -1;
}

static int container_request(const struct container_service *service, const char *method, const char *path,
                             json_t *body, uint64_t within_ms, struct unix_http_answer *ret_answer, struct err *err) {
        _cleanup_free_ char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
        json_decref(body);
        if (unix_http(service->socket, method, path, text, loop_now_ms() + within_ms, ret_answer, err) == 0)
                return 0;
        if (err->code == ERR_GONE)
                return err_set(err, ERR_UNSUPPORTED,
                               "%s is not running: no answer at %.200s; start it (%s), or "
                               "give another socket (--%s-socket)",
                               service->name, service->socket, service->start_command, service->name);
        return err_prefix(err, "%s", service->name);
}

static int container_probe(const struct container_service *service, char *ret_version, size_t room, struct err *err) {
        struct unix_http_answer answer;
        if (container_request(service, "GET", "/version", NULL, SHORT_MS, &answer, err) < 0)
                return -1;
        json_t *json = json_loadb(answer.body, answer.size, 0, NULL);
        const char *version = json_string_value(json_object_get(json, "Version"));
        int code = answer.status == 200 && version
                           ? 0
                           : container_explain(service, "its version", &answer, ERR_PROTOCOL, err);
        if (code == 0)
                (void) snprintf(ret_version, room, "%s", version);
        json_decref(json);
        unix_http_release(&answer);
        return code;
}

/* ---- images ---- */

static void copy_image_env(json_t *env, struct image *ret_image) {
        size_t i, used = 0;
        json_t *value;
        json_array_foreach (env, i, value) {
                const char *text = json_string_value(value);
                size_t size = text ? strlen(text) + 1 : 0;
                if (size == 0 || !strchr(text, '=') || *text == '=' || used + size >= sizeof(ret_image->env))
                        continue;
                memcpy(ret_image->env + used, text, size);
                used += size;
        }
        ret_image->env[used] = '\0';
}

static int container_inspect_image(const struct container_service *service, const char *image, struct image *ret_image,
                                   struct err *err) {
        char path[ENGINE_IMAGE_MAX + 32];
        struct unix_http_answer answer;
        if (engine_check_image(image, err) < 0)
                return -1;
        (void) snprintf(path, sizeof(path), "/images/%s/json", image);
        if (container_request(service, "GET", path, NULL, SHORT_MS, &answer, err) < 0)
                return -1;
        int code = 0;
        if (answer.status == 404)
                code = err_set(err, ERR_NOT_FOUND, "%s has no image \"%s\": get it with \"%s pull %s\"", service->name,
                               image, service->name, image);
        else if (answer.status != 200)
                code = container_explain(service, "inspecting the image", &answer, ERR_SYSTEM, err);
        json_t *json = code == 0 ? json_loadb(answer.body, answer.size, 0, NULL) : NULL;
        if (json) {
                (void) snprintf(ret_image->name, sizeof(ret_image->name), "%s", image);
                (void) snprintf(ret_image->python, sizeof(ret_image->python), "python3");
                copy_image_env(json_object_get(json_object_get(json, "Config"), "Env"), ret_image);
        } else if (code == 0)
                code = err_set(err, ERR_PROTOCOL, "%s: its description of image %s is no JSON", service->name, image);
        json_decref(json);
        unix_http_release(&answer);
        return code;
}

/* ---- making ---- */

static int container_create(const struct container_service *service, const struct engine_order *order,
                            char ret_id[static 80], struct err *err) {
        char path[160];
        struct unix_http_answer answer;
        (void) snprintf(path, sizeof(path), "/containers/create?name=%s", order->name);
        if (container_request(service, "POST", path, container_config(service, order), CREATE_MS, &answer, err) < 0)
                return -1;
        int code = 0;
        json_t *json = json_loadb(answer.body, answer.size, 0, NULL);
        const char *id = json_string_value(json_object_get(json, "Id"));
        if (answer.status == 404)
                code = err_set(err, ERR_NOT_FOUND, "%s has no image \"%s\": get it with \"%s pull %s\"", service->name,
                               order->image, service->name, order->image);
        else if (answer.status != 201 || !id || strlen(id) >= 80 || strspn(id, "0123456789abcdef") != strlen(id))
                code = container_explain(service, "creating a container", &answer, ERR_SYSTEM, err);
        else
                (void) snprintf(ret_id, 80, "%s", id);
        json_decref(json);
        unix_http_release(&answer);
        return code;
}

static int container_start(const struct container_service *service, const struct engine_order *order, const char *id,
                           struct err *err) {
        char path[160];
        struct unix_http_answer answer;
        (void) snprintf(path, sizeof(path), "/containers/%s/start", id);
        if (container_request(service, "POST", path, NULL, START_MS, &answer, err) < 0)
                return -1;
        int code = answer.status == 204 || answer.status == 304
                           ? 0
                           : container_explain(service,
                                               *order->runtime ? "starting a container with the requested runtime"
                                                               : "starting a container",
                                               &answer, ERR_SYSTEM, err);
        unix_http_release(&answer);
        return code;
}

/* Podman's API ignores the runtime of a container, so the runtime in use is checked. */
static int check_runtime(const struct container_service *service, const char *wanted, json_t *inspected,
                         struct err *err) {
        const char *used = json_string_value(json_object_get(inspected, "OCIRuntime"));
        if (!used)
                used = json_string_value(json_object_get(json_object_get(inspected, "HostConfig"), "Runtime"));
        const char *slash = used ? strrchr(used, '/') : NULL;
        if (!*wanted || (used && (strcmp(used, wanted) == 0 || (slash && strcmp(slash + 1, wanted) == 0))))
                return 0;
        return err_set(err, ERR_REFUSED, "%s runs boxes with the runtime \"%.60s\", and \"%.60s\" was requested; %s",
                       service->name, used ? used : "", wanted,
                       strcmp(service->name, "podman") == 0
                               ? "start its service with \"podman --runtime NAME system service\""
                               : "add it to the runtimes of dockerd (daemon.json)");
}

/* The container's first process on the host; fails if it has ended. */
static int container_find_pid(const struct container_service *service, const char *id, const char *runtime,
                              pid_t *ret_pid, struct err *err) {
        char path[160];
        struct unix_http_answer answer;
        (void) snprintf(path, sizeof(path), "%s/containers/%s/json", service->inspect_prefix, id);
        if (container_request(service, "GET", path, NULL, SHORT_MS, &answer, err) < 0)
                return -1;
        json_t *json = json_loadb(answer.body, answer.size, 0, NULL), *state = json_object_get(json, "State");
        int code = 0;
        if (answer.status != 200 || !state)
                code = container_explain(service, "inspecting a container", &answer, ERR_SYSTEM, err);
        else if (!json_is_true(json_object_get(state, "Running")))
                code = err_set(err, ERR_SYSTEM,
                               "%s: the box ended at once, with status %d%s%.300s; \"%s logs %.12s\" may "
                               "show more until it is removed",
                               service->name, (int) json_integer_value(json_object_get(state, "ExitCode")),
                               json_string_length(json_object_get(state, "Error")) ? ": " : "",
                               json_string_length(json_object_get(state, "Error"))
                                       ? json_string_value(json_object_get(state, "Error"))
                                       : "",
                               service->name, id);
        else if (check_runtime(service, runtime, json, err) < 0)
                code = -1;
        else
                *ret_pid = (pid_t) json_integer_value(json_object_get(state, "Pid"));
        json_decref(json);
        unix_http_release(&answer);
        return code;
}

struct alive {
        const struct container_service *service;
        const char *id;
};

static int container_is_alive(void *context, struct err *err) {
        const struct alive *alive = context;
        pid_t pid;
        return container_find_pid(alive->service, alive->id, "", &pid, err);
}

static int container_remove(const struct container_service *service, const char *name, struct err *err) {
        char path[160];
        struct unix_http_answer answer;
        (void) snprintf(path, sizeof(path), "/containers/%s?force=true&v=true", name);
        if (container_request(service, "DELETE", path, NULL, REMOVE_MS, &answer, err) < 0)
                return -1;
        int code = 0;
        if (answer.status == 409) /* another request is removing it */
                code = err_set(err, ERR_BUSY, "%s: the container is being removed", service->name);
        else if (answer.status != 404 && answer.status >= 300)
                code = container_explain(service, "removing a container", &answer, ERR_SYSTEM, err);
        unix_http_release(&answer);
        return code;
}

static int container_make(const struct container_service *service, const struct engine_order *order,
                          struct box *ret_box, int *ret_listener_fd, struct err *err) {
        char id[80];
        struct alive alive = { service, id };
        _cleanup_fd_ int control = -1, listener = -1, workspace = -1;
        pid_t pid = 0;
        if (container_create(service, order, id, err) < 0)
                return -1;
        if (container_start(service, order, id, err) < 0 ||
            handshake_accept(order->listen_fd, loop_now_ms() + START_MS, container_is_alive, &alive, &control,
                             order->network && !order->has_relay ? &listener : NULL,
                             order->ret_workspace_fd ? &workspace : NULL, err) < 0 ||
            container_find_pid(service, id, order->runtime, &pid, err) < 0) {
                struct err ignored;
                (void) container_remove(service, order->name, &ignored);
                return -1;
        }
        *ret_box = (struct box) { .pid = pid,
                                  .pidfd = pid > 0 ? (int) syscall(SYS_pidfd_open, pid, 0) : -1,
                                  .control_fd = take_fd(&control),
                                  .cgroup = { .v2_fd = -1, .tasks_fd = { -1, -1, -1 }, .entry_fd = -1 } };
        if (listener >= 0)
                *ret_listener_fd = take_fd(&listener);
        if (order->ret_workspace_fd)
                *order->ret_workspace_fd = take_fd(&workspace);
        return 0;
}

/* ---- sweeping ---- */

static bool state_is_one_of(const char *state, const char *const *states, size_t n_states) {
        for (size_t i = 0; state && i < n_states; i++)
                if (strcmp(state, states[i]) == 0)
                        return true;
        return false;
}

/* True if the container has ended. One that was created and never started counts too, unless it is young: a maker may
 * be about to start it. */
static bool container_is_left_over(json_t *item) {
        static const char *const ended[] = { "exited", "dead", "stopped" }, *const created[] = { "created",
                                                                                                 "configured" };
        const char *state = json_string_value(json_object_get(item, "State"));
        json_int_t created_s = json_integer_value(json_object_get(item, "Created"));
        if (state_is_one_of(state, ended, ELEMENTS(ended)))
                return true;
        return state_is_one_of(state, created, ELEMENTS(created)) && created_s <= (json_int_t) time(NULL) - YOUNG_S;
}

static int list_containers(const struct container_service *service, const char *owner, json_t **ret_list,
                           struct err *err) {
        char path[300];
        struct unix_http_answer answer;
        (void) snprintf(path, sizeof(path),
                        "/containers/json?all=true&filters=%%7B%%22label%%22%%3A%%5B%%22" CONTAINER_OWNER_LABEL
                        "%%3D%s%%22%%5D%%7D",
                        owner);
        if (container_request(service, "GET", path, NULL, SHORT_MS, &answer, err) < 0)
                return -1;
        int code =
                answer.status == 200 ? 0 : container_explain(service, "listing containers", &answer, ERR_SYSTEM, err);
        *ret_list = code == 0 ? json_loadb(answer.body, answer.size, 0, NULL) : NULL;
        unix_http_release(&answer);
        return code;
}

static int container_sweep(const struct container_service *service, const char *owner,
                           void (*remaining)(const char *name, void *context), void *context, struct err *err) {
        json_t *list, *item;
        size_t i;
        if (list_containers(service, owner, &list, err) < 0)
                return -1;
        json_array_foreach (list, i, item) {
                const char *id = json_string_value(json_object_get(item, "Id"));
                const char *name = json_string_value(json_array_get(json_object_get(item, "Names"), 0));
                struct err ignored;
                if (id && strlen(id) < 80 && container_is_left_over(item))
                        (void) container_remove(service, id, &ignored);
                else if (name)
                        remaining(*name == '/' ? name + 1 : name, context);
        }
        json_decref(list);
        return 0;
}

/* ---- a daemon that is not root ---- */

/* Rootless podman maps the daemon's user to the box's user. Root's dockerd (group docker) maps no ids, so there the box
 * runs as the daemon's user, who then owns the files that it writes. */
static int container_choose_user(const struct container_service *service, uid_t *ret_uid, gid_t *ret_gid,
                                 struct err *err) {
        if (service->is_rootless && strcmp(service->name, "docker") == 0)
                return err_set(err, ERR_UNSUPPORTED,
                               "a rootless dockerd (%.200s) gives a box's files to other users than you: use rootless "
                               "podman (systemctl --user start podman.socket), or root's dockerd",
                               service->socket);
        *ret_uid = service->is_rootless ? BOX_UID : identity_outside(geteuid());
        *ret_gid = service->is_rootless ? BOX_GID : identity_outside(getegid());
        return 0;
}

/* ---- the two engines ---- */

#define ENGINE_OF(engine)                                                                                              \
        static int engine##_probe(const struct engine_settings *settings, char *ret_version, size_t room,              \
                                  struct err *err) {                                                                   \
                const struct container_service service = engine##_service(settings);                                   \
                return container_probe(&service, ret_version, room, err);                                              \
        }                                                                                                              \
        static int engine##_inspect_image(const struct engine_settings *settings, const char *image,                   \
                                          struct image *ret_image, struct err *err) {                                  \
                const struct container_service service = engine##_service(settings);                                   \
                return container_inspect_image(&service, image, ret_image, err);                                       \
        }                                                                                                              \
        static int engine##_make(const struct engine_settings *settings, const struct engine_order *order,             \
                                 struct box *ret_box, int *ret_listener_fd, struct err *err) {                         \
                const struct container_service service = engine##_service(settings);                                   \
                return container_make(&service, order, ret_box, ret_listener_fd, err);                                 \
        }                                                                                                              \
        static int engine##_choose_user(const struct engine_settings *settings, uid_t *ret_uid, gid_t *ret_gid,        \
                                        struct err *err) {                                                             \
                const struct container_service service = engine##_service(settings);                                   \
                return container_choose_user(&service, ret_uid, ret_gid, err);                                         \
        }                                                                                                              \
        static int engine##_remove(const struct engine_settings *settings, const char *name, struct err *err) {        \
                const struct container_service service = engine##_service(settings);                                   \
                return container_remove(&service, name, err);                                                          \
        }                                                                                                              \
        static int engine##_sweep(const struct engine_settings *settings, const char *owner,                           \
                                  void (*remaining)(const char *name, void *context), void *context,                   \
                                  struct err *err) {                                                                   \
                const struct container_service service = engine##_service(settings);                                   \
                return container_sweep(&service, owner, remaining, context, err);                                      \
        }

ENGINE_OF(docker)
ENGINE_OF(podman)

const struct engine engine_docker = { .name = "docker",
                                      .isolation = ENGINE_CONTAINER,
                                      .max_isolation = ENGINE_GVISOR,
                                      .needs = "dockerd (systemctl start docker)",
                                      .probe = docker_probe,
                                      .inspect_image = docker_inspect_image,
                                      .make = docker_make,
                                      .choose_user = docker_choose_user,
                                      .remove = docker_remove,
                                      .sweep = docker_sweep };
const struct engine engine_podman = { .name = "podman",
                                      .isolation = ENGINE_CONTAINER,
                                      .max_isolation = ENGINE_GVISOR,
                                      .needs = "podman system service (systemctl start podman.socket)",
                                      .probe = podman_probe,
                                      .inspect_image = podman_inspect_image,
                                      .make = podman_make,
                                      .choose_user = podman_choose_user,
                                      .remove = podman_remove,
                                      .sweep = podman_sweep };
