/* Incus, by its client program: so a server elsewhere (INCUS_REMOTE) is reached with the certificates that the client
 * has. Each call is a process with a deadline.
 *
 * A container is unprivileged, with a range of user ids that no other instance has, no profile, no network device, no
 * nesting, no guest API, and bounds on memory (without swap), processes and processors. Incus has no settings for the
 * rest: the entry (guest/entry) is started as root of that user namespace, covers what tells about the host, makes the
 * root read-only, and gives up every capability before the agent runs. */
#include "engine/incus.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/memory.h"
#include "box/spec.h"
#include "engine/entry_arguments.h"
#include "engine/handshake.h"
#include "engine/program_call.h"
#include "engine/programs.h"
#include "engine/seat.h"

#define OWNER_KEY "user.glovebox.owner"
#define REMOTE_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

enum {
        SHORT_MS = 10000,   /* for questions */
        CREATE_MS = 120000, /* a storage pool without snapshots copies the image */
        START_MS = 60000,
        REMOVE_MS = 60000,
        YOUNG_S = 180, /* an instance that is younger may be one that is just being made */
        NAME_ROOM = 200,
};

/* ---- asking ---- */

/* Of this host, unless the operator named another: never whatever the client has been switched to. */
static const char *remote_of(const struct engine_settings *settings) {
        return *settings->incus_remote ? settings->incus_remote : "local";
}

const char *incus_socket(const struct engine_settings *settings) {
        static char path[300];
        const char *directory = getenv("INCUS_DIR");
        if (strcmp(remote_of(settings), "local") != 0)
                return "";
        if (*settings->incus_socket)
                return settings->incus_socket;
        (void) snprintf(path, sizeof(path), "%s/unix.socket", directory && *directory ? directory : "/var/lib/incus");
        return path;
}

static int check_remote(const struct engine_settings *settings, struct err *err) {
        const char *name = remote_of(settings);
        size_t size = strlen(name);
        if (size < 64 && strspn(name, REMOTE_LETTERS) == size && *name != '-' && *name != '.')
                return 0;
        return err_set(err, ERR_USAGE,
                       "INCUS_REMOTE is \"%.60s\", which is no name of a remote: \"incus remote list\" has them", name);
}

/* What the client says, without its own word before it. */
static const char *words_of(const struct program_answer *answer) {
        const char *at = strstr(answer->words, "Error: ");
        return at ? at + strlen("Error: ") : *answer->words ? answer->words : "it failed and did not say why";
}

static int explain(const char *what, const struct program_answer *answer, struct err *err) {
        const char *words = words_of(answer);
        if (strstr(words, "connection refused") || strstr(words, "no such file or directory"))
                return err_set(err, ERR_UNSUPPORTED,
                               "incus is not running: %.300s; start it (systemctl start incus), or name "
                               "another server (INCUS_REMOTE)",
                               words);
        if (strstr(words, "permission denied"))
                return err_set(err, ERR_PERMISSION,
                               "incus: %s: %.300s; add the user to the group incus-admin, or run as root", what, words);
        return err_set(err, ERR_SYSTEM, "incus: %s: %.500s", what, words);
}

/* 0 with the answer of a call that succeeded. ERR_NOT_FOUND where the server has no such thing. */
static int call(const struct engine_settings *settings, const char *what, const char *const *argv, const char *input,
                uint64_t within_ms, struct program_answer *ret_answer, struct err *err) {
        struct program_answer answer;
        if (check_remote(settings, err) < 0)
                return -1;
        if (*incus_socket(settings)) /* this is a helper process: its environment is its own */
                (void) setenv("INCUS_SOCKET", incus_socket(settings), 1);
        if (program_call(argv, input, loop_now_ms() + within_ms, &answer, err) < 0)
                return err_prefix(err, "incus");
        if (answer.status == 0) {
                *ret_answer = answer;
                return 0;
        }
        int code = explain(what, &answer, err);
        if (strstr(answer.words, "not found") && err->code == ERR_SYSTEM)
                err->code = ERR_NOT_FOUND;
        program_answer_release(&answer);
        return code;
}

/* A request to the server's own interface. `body` NULL: GET. */
static int query(const struct engine_settings *settings, const char *what, const char *method, const char *path,
                 json_t *body, uint64_t within_ms, json_t **ret_json, struct err *err) {
        char place[NAME_ROOM + 64];
        _cleanup_free_ char *data = body ? json_dumps(body, JSON_COMPACT) : NULL;
        json_decref(body);
        (void) snprintf(place, sizeof(place), "%s:%s", remote_of(settings), path);
        const char *argv[] = { "incus", "query", "--wait", "--request", method, place, data ? "--data" : NULL,
                               data,    NULL };
        struct program_answer answer;
        if (call(settings, what, argv, NULL, within_ms, &answer, err) < 0)
                return -1;
        *ret_json = answer.size ? json_loadb(answer.output, answer.size, 0, NULL) : json_object();
        program_answer_release(&answer);
        return *ret_json ? 0 : err_set(err, ERR_PROTOCOL, "incus: %s: its answer is no JSON", what);
}

static int instance_query(const struct engine_settings *settings, const char *what, const char *method,
                          const char *name, const char *rest, json_t *body, json_t **ret_json, struct err *err) {
        char path[NAME_ROOM];
        (void) snprintf(path, sizeof(path), "/1.0/instances/%s%s", name, rest);
        return query(settings, what, method, path, body, SHORT_MS, ret_json, err);
}

static const char *text_of(json_t *json, const char *group, const char *key) {
        const char *text = json_string_value(json_object_get(json_object_get(json, group), key));
        return text ? text : "";
}

/* In the server's own words. */
static int refuse_vm(const struct engine_settings *settings, struct err *err) {
        json_t *warnings, *warning;
        size_t i;
        char why[200] = "its server does not say why (incus warning list)";
        if (query(settings, "its warnings", "GET", "/1.0/warnings?recursion=1", NULL, SHORT_MS, &warnings, err) < 0)
                return -1;
        json_array_foreach (warnings, i, warning) {
                const char *type = json_string_value(json_object_get(warning, "type"));
                const char *message = json_string_value(json_object_get(warning, "last_message"));
                if (type && message && strcmp(type, "Instance type not operational") == 0)
                        (void) snprintf(why, sizeof(why), "%s", message);
        }
        json_decref(warnings);
        return err_set(err, ERR_UNSUPPORTED,
                       "incus has no virtual machines here: %s; it needs KVM (/dev/kvm), vhost_vsock (modprobe "
                       "vhost_vsock) and qemu-system on the server; without them use the engine incus, or native",
                       why);
}

static int probe_kind(const struct engine_settings *settings, bool is_vm, char *ret_version, size_t room,
                      struct err *err) {
        json_t *json;
        if (!engine_is_there(&engine_incus, settings)) /* the client would leave its settings in the user's directory */
                return err_set(err, ERR_UNSUPPORTED,
                               "incus is not running: no answer at %.200s; start it (systemctl start incus), or give "
                               "another socket (--incus-socket)",
                               incus_socket(settings));
        if (query(settings, "its version", "GET", "/1.0", NULL, SHORT_MS, &json, err) < 0)
                return -1;
        const char *drivers = text_of(json, "environment", "driver");
        const char *versions = text_of(json, "environment", "driver_version");
        int code = 0;
        const char *trust = json_string_value(json_object_get(json, "auth"));
        if (trust && strcmp(trust, "trusted") != 0)
                code = err_set(err, ERR_PERMISSION,
                               "incus: the server %s does not trust this client: add its certificate "
                               "(incus remote add)",
                               remote_of(settings));
        else if (is_vm && !strstr(drivers, "qemu"))
                code = refuse_vm(settings, err);
        else
                (void) snprintf(ret_version, room, "%s (%s %s)", text_of(json, "environment", "server_version"),
                                drivers, versions);
        json_decref(json);
        return code;
}

/* The image is looked at by the client when the box is made. An Incus image has no variables of its own. */
static int look_at_image(const struct engine_settings *settings, const char *image, struct image *ret_image,
                         struct err *err) {
        (void) settings;
        if (engine_check_image(image, err) < 0)
                return -1;
        (void) snprintf(ret_image->name, sizeof(ret_image->name), "%.63s", image);
        (void) snprintf(ret_image->python, sizeof(ret_image->python), "python3");
        return 0;
}

/* ---- making ---- */

/* No profile is used: whatever is in it would come along. Only where the root lies is the same as in the default one. */
static int find_pool(const struct engine_settings *settings, char *ret_pool, size_t room, struct err *err) {
        json_t *json, *device;
        const char *name, *pool = "";
        if (query(settings, "its default profile", "GET", "/1.0/profiles/default", NULL, SHORT_MS, &json, err) < 0)
                return -1;
        json_object_foreach (json_object_get(json, "devices"), name, device)
                if (strcmp(text_of(json_object_get(json, "devices"), name, "path"), "/") == 0)
                        pool = text_of(json_object_get(json, "devices"), name, "pool");
        (void) snprintf(ret_pool, room, "%s", pool);
        json_decref(json);
        if (*ret_pool)
                return 0;
        return err_set(err, ERR_UNSUPPORTED,
                       "incus: its default profile has no root disk: run \"incus admin init\" on the server, which "
                       "makes a storage pool");
}

static json_t *config_of(const struct engine_order *order) {
        char memory[32], processes[32], allowance[48];
        (void) snprintf(memory, sizeof(memory), "%" PRIu64 "B", order->limits.memory_bytes);
        (void) snprintf(processes, sizeof(processes), "%" PRIu64, order->limits.pids);
        (void) snprintf(allowance, sizeof(allowance), "%" PRIu64 "ms/100ms",
                        order->limits.cpu_thousandths < 10 ? 1 : order->limits.cpu_thousandths / 10);
        json_t *config = json_pack("{s:s, s:s, s:s}", OWNER_KEY, order->owner, "limits.memory", memory,
                                   "boot.autostart", "false");
        const struct {
                const char *key, *value;
        } rows[] = {
                { "security.guestapi", "false" },
                { "limits.cpu.allowance", allowance },
                { "limits.memory.swap", "false" },
                { "limits.processes", processes },
                { "security.privileged", "false" },
                { "security.nesting", "false" },
                { "security.idmap.isolated", "true" },
                /* Our own program in place of the image's: an image needs no init, and none of it runs before. What
                 * varies from box to box is not told here but in a file (entry_arguments.h). */
                { "raw.lxc", "lxc.init.cmd = " ENGINE_PROGRAMS "/entry --arguments\n" },
        };
        for (size_t i = 0; i < ELEMENTS(rows); i++)
                json_object_set_new(config, rows[i].key, json_string(rows[i].value));
        return config;
}

static int create(const struct engine_settings *settings, const struct engine_order *order, struct err *err) {
        char pool[128], place[NAME_ROOM], image[ENGINE_IMAGE_MAX + 80];
        struct program_answer answer;
        if (find_pool(settings, pool, sizeof(pool), err) < 0)
                return -1;
        json_t *described = json_pack("{s:o, s:{s:{s:s, s:s, s:s}}}", "config", config_of(order), "devices", "root",
                                      "type", "disk", "path", "/", "pool", pool);
        _cleanup_free_ char *input = json_dumps(described, JSON_COMPACT); /* which is YAML, too */
        json_decref(described);
        if (!input)
                return err_set(err, ERR_SYSTEM, "out of memory");
        (void) snprintf(place, sizeof(place), "%s:%s", remote_of(settings), order->name);
        /* Without a remote of its own the image is the server's. */
        (void) snprintf(image, sizeof(image), "%s%s%s", strchr(order->image, ':') ? "" : remote_of(settings),
                        strchr(order->image, ':') ? "" : ":", order->image);
        const char *argv[] = { "incus", "init", "--no-profiles", "--quiet", "--", image, place, NULL };
        if (call(settings, "creating an instance", argv, input, CREATE_MS, &answer, err) == 0) {
                program_answer_release(&answer);
                return 0;
        }
        if (err->code == ERR_NOT_FOUND)
                return err_set(err, ERR_NOT_FOUND,
                               "incus has no image \"%s\": get it with \"incus image copy images:%s %s: --alias %s\", "
                               "or name one of another server (images:debian/12)",
                               order->image, order->image, remote_of(settings), order->image);
        return -1;
}

/* The id on the host of one inside, by the map that the server has given to the instance. */
static bool map_id(json_t *map, const char *kind, json_int_t inside, unsigned *ret_outside) {
        size_t i;
        json_t *row;
        json_array_foreach (map, i, row) {
                json_int_t first = json_integer_value(json_object_get(row, "Nsid"));
                json_int_t size = json_integer_value(json_object_get(row, "Maprange"));
                if (json_is_true(json_object_get(row, kind)) && inside >= first && inside < first + size) {
                        *ret_outside = (unsigned) (json_integer_value(json_object_get(row, "Hostid")) + inside - first);
                        return true;
                }
        }
        return false;
}

static int find_user(const struct engine_settings *settings, const char *name, uid_t *ret_uid, gid_t *ret_gid,
                     struct err *err) {
        json_t *json;
        if (instance_query(settings, "looking at an instance", "GET", name, "", NULL, &json, err) < 0)
                return -1;
        json_t *map = json_loads(text_of(json, "config", "volatile.idmap.next"), 0, NULL);
        json_decref(json);
        bool found = map_id(map, "Isuid", BOX_UID, ret_uid) && map_id(map, "Isgid", BOX_GID, ret_gid);
        json_decref(map);
        if (found && *ret_uid != BOX_UID)
                return 0;
        return err_set(err, ERR_UNSUPPORTED,
                       "incus gives its containers no range of user ids of their own: add \"root:1000000:1000000000\" "
                       "to /etc/subuid and /etc/subgid, and restart it");
}

/* Files in /etc are the entry's to write: what the image has there may be a link to what is not there. */
static json_t *devices_of(const struct engine_order *order) {
        json_t *devices = json_object();
        for (size_t i = 0; i < order->n_mounts; i++) {
                char name[32];
                if (strncmp(order->mounts[i].destination, "/etc/", 5) == 0)
                        continue;
                (void) snprintf(name, sizeof(name), "glovebox-%02zu", i);
                json_object_set_new(devices, name,
                                    json_pack("{s:s, s:s, s:s, s:s}", "type", "disk", "source", order->mounts[i].source,
                                              "path", order->mounts[i].destination, "readonly",
                                              order->mounts[i].writable ? "false" : "true"));
        }
        return devices;
}

static int attach_devices(const struct engine_settings *settings, const struct engine_order *order, struct err *err) {
        json_t *json;
        json_t *body = json_pack("{s:o}", "devices", devices_of(order));
        if (instance_query(settings, "showing files to an instance", "PATCH", order->name, "", body, &json, err) < 0)
                return -1;
        json_decref(json);
        return 0;
}

static int start(const struct engine_settings *settings, const char *name, struct err *err) {
        char place[NAME_ROOM];
        struct program_answer answer;
        (void) snprintf(place, sizeof(place), "%s:%s", remote_of(settings), name);
        const char *argv[] = { "incus", "start", "--quiet", "--", place, NULL };
        if (call(settings, "starting an instance", argv, NULL, START_MS, &answer, err) < 0)
                return -1;
        program_answer_release(&answer);
        return 0;
}

struct alive {
        const struct engine_settings *settings;
        const char *name;
};

static int is_alive(void *context, struct err *err) {
        const struct alive *alive = context;
        json_t *json;
        if (instance_query(alive->settings, "looking at an instance", "GET", alive->name, "/state", NULL, &json, err) <
            0)
                return -1;
        const char *status = json_string_value(json_object_get(json, "status"));
        bool runs = status && strcmp(status, "Running") == 0;
        json_decref(json);
        return runs ? 0
                    : err_set(err, ERR_SYSTEM,
                              "incus: the box ended at once; \"incus info --show-log %s\" may say more while it is there",
                              alive->name);
}

static int remove_box(const struct engine_settings *settings, const char *name, struct err *err) {
        char place[NAME_ROOM];
        struct program_answer answer;
        (void) snprintf(place, sizeof(place), "%s:%s", remote_of(settings), name);
        const char *argv[] = { "incus", "delete", "--force", "--quiet", "--", place, NULL };
        if (call(settings, "removing an instance", argv, NULL, REMOVE_MS, &answer, err) == 0) {
                program_answer_release(&answer);
                return 0;
        }
        return err->code == ERR_NOT_FOUND ? 0 : -1;
}

static int container_reserve(const struct engine_settings *settings, const struct engine_order *order, uid_t *ret_uid,
                             gid_t *ret_gid, struct err *err) {
        return create(settings, order, err) < 0 || find_user(settings, order->name, ret_uid, ret_gid, err) < 0 ? -1 : 0;
}

static int container_make(const struct engine_settings *settings, const struct engine_order *order, struct box *ret_box,
                          int *ret_listener_fd, struct err *err) {
        struct alive alive = { settings, order->name };
        struct ucred peer = { 0 };
        socklen_t size = sizeof(peer);
        _cleanup_fd_ int control = -1, listener = -1;
        if (entry_arguments_write(order, err) < 0 || attach_devices(settings, order, err) < 0 ||
            start(settings, order->name, err) < 0 ||
            handshake_accept(order->listen_fd, loop_now_ms() + START_MS, is_alive, &alive, &control,
                             order->network ? &listener : NULL, NULL, err) < 0)
                return -1;
        if (getsockopt(control, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid <= 0)
                return err_set(err, ERR_UNSUPPORTED,
                               "the processes of the server %s are not to be seen from here: it must be on this host",
                               remote_of(settings));
        *ret_box = (struct box) { .pid = peer.pid,
                                  .pidfd = (int) syscall(SYS_pidfd_open, peer.pid, 0),
                                  .control_fd = take_fd(&control),
                                  .cgroup = { .v2_fd = -1, .tasks_fd = { -1, -1, -1 }, .entry_fd = -1 } };
        if (order->network)
                *ret_listener_fd = take_fd(&listener);
        return 0;
}

/* ---- what was left ---- */

/* "2026-11-18T03:40:12.123Z": in UTC. */
static bool is_young(const char *created) {
        struct tm time_parts = { 0 };
        if (!created || !strptime(created, "%Y-%m-%dT%H:%M:%S", &time_parts))
                return true;
        return timegm(&time_parts) > time(NULL) - YOUNG_S;
}

static int sweep_kind(const struct engine_settings *settings, const char *owner, const char *kind,
                      void (*left)(const char *name, void *context), void *context, struct err *err) {
        json_t *json, *item;
        size_t i;
        if (query(settings, "listing instances", "GET", "/1.0/instances?recursion=1", NULL, SHORT_MS, &json, err) < 0)
                return -1;
        json_array_foreach (json, i, item) {
                const char *name = json_string_value(json_object_get(item, "name"));
                const char *status = json_string_value(json_object_get(item, "status"));
                const char *type = json_string_value(json_object_get(item, "type"));
                bool has_ended = status && (strcmp(status, "Stopped") == 0 || strcmp(status, "Error") == 0);
                struct err ignored;
                if (!name || strlen(name) > 64 || !type || strcmp(type, kind) != 0 ||
                    strcmp(text_of(item, "config", OWNER_KEY), owner) != 0)
                        continue;
                /* One that never ran may be one that is being made; one that did has ended. */
                bool was_begun = strcmp(text_of(item, "config", "volatile.last_state.power"), "") == 0;
                if (has_ended && !(was_begun && is_young(json_string_value(json_object_get(item, "created_at")))))
                        (void) remove_box(settings, name, &ignored);
                else
                        left(name, context);
        }
        json_decref(json);
        return 0;
}

static int container_sweep(const struct engine_settings *settings, const char *owner,
                           void (*left)(const char *name, void *context), void *context, struct err *err) {
        return sweep_kind(settings, owner, "container", left, context, err);
}

static int vm_sweep(const struct engine_settings *settings, const char *owner,
                    void (*left)(const char *name, void *context), void *context, struct err *err) {
        return sweep_kind(settings, owner, "virtual-machine", left, context, err);
}

static int container_probe(const struct engine_settings *settings, char *ret_version, size_t room, struct err *err) {
        return probe_kind(settings, false, ret_version, room, err);
}

static int vm_probe(const struct engine_settings *settings, char *ret_version, size_t room, struct err *err) {
        return probe_kind(settings, true, ret_version, room, err);
}

/* ---- virtual machines ---- */

/* The daemon passes descriptors to the agent, and none goes into a virtual machine: there has to be a relay first. A
 * server that has no virtual machines is asked before, since its reason is the one that comes first on that host. */
static int vm_refuse(const struct engine_settings *settings, const struct engine_order *order, uid_t *ret_uid,
                     gid_t *ret_gid, struct err *err) {
        char version[128];
        (void) order;
        (void) ret_uid;
        (void) ret_gid;
        if (vm_probe(settings, version, sizeof(version), err) < 0)
                return -1;
        return err_set(err, ERR_UNSUPPORTED,
                       "this Glovebox cannot use virtual machines of Incus yet: use the engine incus, or gVisor on "
                       "docker or podman for more than a container");
}

const struct engine engine_incus = { .name = "incus",
                                     .isolation = ENGINE_CONTAINER,
                                     .most = ENGINE_CONTAINER,
                                     .has_users = true,
                                     .needs = "incus 6.0, its client, and a socket of incusd that this user may use",
                                     .probe = container_probe,
                                     .look_at_image = look_at_image,
                                     .reserve = container_reserve,
                                     .make = container_make,
                                     .remove = remove_box,
                                     .sweep = container_sweep };

const struct engine engine_incus_vm = { .name = "incus-vm",
                                        .isolation = ENGINE_VM,
                                        .most = ENGINE_VM,
                                        .has_users = true, /* and more: a kernel of its own */
                                        .needs = "incus 6.0 with KVM, its client, and a socket of incusd that this "
                                                 "user may use",
                                        .probe = vm_probe,
                                        .look_at_image = look_at_image,
                                        .reserve = vm_refuse,
                                        .remove = remove_box,
                                        .sweep = vm_sweep };
