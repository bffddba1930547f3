/* Boxes of an Incus server on this host, made through its client program (incus_call.h).
 *
 * A container is unprivileged, with a range of user ids that no other instance has, no profile, no network device, no
 * nesting, no guest API, and bounds on memory (without swap), processes and processors. Incus has no settings for the
 * rest: the entry (guest/entry) starts as root of that user namespace, covers files that show details of the host,
 * makes the root read-only, and drops every capability before the agent runs. */
#include "engine/incus.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
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
#include "engine/incus_call.h"
#include "engine/instance_incus.h"
#include "engine/programs.h"

enum {
        YOUNG_S = 180,   /* a younger instance may be in the making */
        STARTING_S = 60, /* an instance that was started since then may still be starting */
        RETRY_MS = 200,
        TRIES = 4,
        TRIES_WHILE_STARTING = 25,
};

/* ---- the image ---- */

/* Sends no request: the client finds the image when the box is made. An Incus image has no variables of its own. */
static int incus_inspect_image(const struct engine_settings *settings, const char *image, struct image *ret_image,
                               struct err *err) {
        (void) settings;
        if (engine_check_image(image, err) < 0)
                return -1;
        (void) snprintf(ret_image->name, sizeof(ret_image->name), "%.63s", image);
        (void) snprintf(ret_image->python, sizeof(ret_image->python), "python3");
        return 0;
}

/* ---- making ---- */

static json_t *incus_box_config(const struct engine_order *order) {
        char memory[32], processes[32], allowance[48];
        (void) snprintf(memory, sizeof(memory), "%" PRIu64 "B", order->limits.memory_bytes);
        (void) snprintf(processes, sizeof(processes), "%" PRIu64, order->limits.pids);
        (void) snprintf(allowance, sizeof(allowance), "%" PRIu64 "ms/100ms",
                        order->limits.cpu_thousandths < 10 ? 1 : order->limits.cpu_thousandths / 10);
        json_t *config = json_pack("{s:s, s:s, s:s}", INCUS_OWNER_KEY, order->owner, "limits.memory", memory,
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
                /* Our program replaces the init of the image, so an image needs none, and nothing of it runs before.
                 * Arguments that vary from box to box are in a file (entry_arguments.h). */
                { "raw.lxc", "lxc.init.cmd = " ENGINE_PROGRAMS "/entry --arguments\n" },
        };
        for (size_t i = 0; i < ELEMENTS(rows); i++)
                json_object_set_new(config, rows[i].key, json_string(rows[i].value));
        return config;
}

static int incus_box_create(const struct engine_settings *settings, const struct engine_order *order, struct err *err) {
        char pool[128];
        if (incus_find_pool(settings, pool, sizeof(pool), err) < 0)
                return -1;
        json_t *described = json_pack("{s:o, s:{s:{s:s, s:s, s:s}}}", "config", incus_box_config(order), "devices",
                                      "root", "type", "disk", "path", "/", "pool", pool);
        return incus_init(settings, order->name, order->image, false, described, err);
}

/* Finds the id on the host for an id inside, by the map that the server gave to the instance. */
static bool host_id_of(json_t *map, const char *kind, json_int_t inside, unsigned *ret_outside) {
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

static int incus_box_find_user(const struct engine_settings *settings, const char *name, uid_t *ret_uid, gid_t *ret_gid,
                               struct err *err) {
        json_t *json;
        if (incus_query_instance(settings, "querying an instance", "GET", name, "", NULL, &json, err) < 0)
                return -1;
        json_t *map = json_loads(incus_text(json, "config", "volatile.idmap.next"), 0, NULL);
        json_decref(json);
        bool found = host_id_of(map, "Isuid", BOX_UID, ret_uid) && host_id_of(map, "Isgid", BOX_GID, ret_gid);
        json_decref(map);
        if (found && *ret_uid != BOX_UID)
                return 0;
        return err_set(err, ERR_UNSUPPORTED,
                       "incus gives its containers no range of user ids of their own: add \"root:1000000:1000000000\" "
                       "to /etc/subuid and /etc/subgid, and restart it");
}

/* Leaves out files in /etc, which the entry writes: in the image they may be dangling links. */
static json_t *incus_box_devices(const struct engine_order *order) {
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

static int incus_box_attach_devices(const struct engine_settings *settings, const struct engine_order *order,
                                    struct err *err) {
        json_t *json;
        json_t *body = json_pack("{s:o}", "devices", incus_box_devices(order));
        if (incus_query_instance(settings, "mounting files into an instance", "PATCH", order->name, "", body, &json,
                                 err) < 0)
                return -1;
        json_decref(json);
        return 0;
}

/* Fills true if the server reports the instance as stopped in each of `tries` queries. It reports a running container
 * as stopped for a moment now and then, and a starting one for a second and more. */
static int query_stopped(const struct engine_settings *settings, const char *name, int tries, bool *ret_has_stopped,
                         struct err *err) {
        *ret_has_stopped = true;
        for (int i = 0; i < tries && *ret_has_stopped; i++) {
                json_t *json;
                if (i > 0)
                        (void) poll(NULL, 0, RETRY_MS);
                if (incus_query_instance(settings, "querying an instance", "GET", name, "/state", NULL, &json, err) < 0)
                        return -1;
                const char *status = json_string_value(json_object_get(json, "status"));
                *ret_has_stopped = !status || strcmp(status, "Running") != 0;
                json_decref(json);
        }
        return 0;
}

struct alive {
        const struct engine_settings *settings;
        const char *name;
};

static int incus_box_is_alive(void *context, struct err *err) {
        const struct alive *alive = context;
        bool has_stopped;
        if (query_stopped(alive->settings, alive->name, TRIES, &has_stopped, err) < 0)
                return -1;
        return !has_stopped
                       ? 0
                       : err_set(err, ERR_SYSTEM,
                                 "incus: the box ended at once; \"incus info --show-log %s\" may show more until it "
                                 "is removed",
                                 alive->name);
}

static int incus_box_reserve(const struct engine_settings *settings, const struct engine_order *order, uid_t *ret_uid,
                             gid_t *ret_gid, struct err *err) {
        return incus_box_create(settings, order, err) < 0 ||
                               incus_box_find_user(settings, order->name, ret_uid, ret_gid, err) < 0
                       ? -1
                       : 0;
}

static int incus_box_make(const struct engine_settings *settings, const struct engine_order *order, struct box *ret_box,
                          int *ret_listener_fd, struct err *err) {
        struct alive alive = { settings, order->name };
        struct ucred peer = { 0 };
        socklen_t size = sizeof(peer);
        _cleanup_fd_ int control = -1, listener = -1;
        if (entry_arguments_write(order, err) < 0 || incus_box_attach_devices(settings, order, err) < 0 ||
            incus_start(settings, order->name, err) < 0 ||
            handshake_accept(order->listen_fd, loop_now_ms() + INCUS_START_MS, incus_box_is_alive, &alive, &control,
                             order->network ? &listener : NULL, NULL, err) < 0)
                return -1;
        if (getsockopt(control, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid <= 0)
                return err_set(err, ERR_UNSUPPORTED,
                               "the processes of the server %s are not visible from here: it must be on this host",
                               incus_remote(settings));
        *ret_box = (struct box) { .pid = peer.pid,
                                  .pidfd = (int) syscall(SYS_pidfd_open, peer.pid, 0),
                                  .control_fd = take_fd(&control),
                                  .cgroup = { .v2_fd = -1, .tasks_fd = { -1, -1, -1 }, .entry_fd = -1 } };
        if (order->network)
                *ret_listener_fd = take_fd(&listener);
        return 0;
}

/* ---- sweeping ---- */

/* `moment` is in UTC: "2026-11-18T03:40:12.123Z". An unknown moment counts as recent. */
static bool is_within_last(const char *moment, int seconds) {
        struct tm time_parts = { 0 };
        if (!moment || !strptime(moment, "%Y-%m-%dT%H:%M:%S", &time_parts))
                return true;
        return timegm(&time_parts) > time(NULL) - seconds;
}

/* True if the server recorded that the instance has stopped. If it recorded a start last, the server was away when the
 * instance stopped, or the instance runs. Then its state decides. */
static bool incus_box_has_ended(const struct engine_settings *settings, json_t *item) {
        const char *name = json_string_value(json_object_get(item, "name"));
        const char *status = json_string_value(json_object_get(item, "status"));
        bool has_stopped = false;
        struct err ignored;
        if (!status || (strcmp(status, "Stopped") != 0 && strcmp(status, "Error") != 0))
                return false;
        if (strcmp(incus_text(item, "config", "volatile.last_state.power"), "RUNNING") != 0)
                return true;
        bool may_be_starting = is_within_last(json_string_value(json_object_get(item, "last_used_at")), STARTING_S);
        return query_stopped(settings, name, may_be_starting ? TRIES_WHILE_STARTING : TRIES, &has_stopped, &ignored) ==
                       0 &&
               has_stopped;
}

/* True if the box has ended. A young one that never ran does not count: a maker may be about to start it. */
static bool incus_box_is_left_over(const struct engine_settings *settings, json_t *item) {
        bool never_ran = !*incus_text(item, "config", "volatile.last_state.power");
        return incus_box_has_ended(settings, item) &&
               !(never_ran && is_within_last(json_string_value(json_object_get(item, "created_at")), YOUNG_S));
}

/* Leaves out instances with a Glovebox of their own: the daemon sweeps them, because it knows the sessions. */
static bool is_box_of_owner(json_t *item, const char *owner, const char *kind) {
        const char *name = json_string_value(json_object_get(item, "name"));
        const char *type = json_string_value(json_object_get(item, "type"));
        return name && strlen(name) <= 64 && type && strcmp(type, kind) == 0 &&
               !*incus_text(item, "config", INSTANCE_INCUS_KEY) &&
               strcmp(incus_text(item, "config", INCUS_OWNER_KEY), owner) == 0;
}

static int incus_sweep(const struct engine_settings *settings, const char *owner, const char *kind,
                       void (*remaining)(const char *name, void *context), void *context, struct err *err) {
        json_t *json, *item;
        size_t i;
        if (incus_list_instances(settings, &json, err) < 0)
                return -1;
        json_array_foreach (json, i, item) {
                const char *name = json_string_value(json_object_get(item, "name"));
                struct err ignored;
                if (!is_box_of_owner(item, owner, kind))
                        continue;
                if (incus_box_is_left_over(settings, item))
                        (void) incus_remove(settings, name, &ignored);
                else
                        remaining(name, context);
        }
        json_decref(json);
        return 0;
}

static int incus_box_sweep(const struct engine_settings *settings, const char *owner,
                           void (*remaining)(const char *name, void *context), void *context, struct err *err) {
        return incus_sweep(settings, owner, "container", remaining, context, err);
}

static int incus_vm_sweep(const struct engine_settings *settings, const char *owner,
                          void (*remaining)(const char *name, void *context), void *context, struct err *err) {
        return incus_sweep(settings, owner, "virtual-machine", remaining, context, err);
}

static int incus_box_probe(const struct engine_settings *settings, char *ret_version, size_t room, struct err *err) {
        return incus_probe(settings, false, ret_version, room, err);
}

static int incus_vm_probe(const struct engine_settings *settings, char *ret_version, size_t room, struct err *err) {
        return incus_probe(settings, true, ret_version, room, err);
}

/* ---- virtual machines ---- */

/* The daemon passes descriptors to the agent, and no descriptor can be passed into a virtual machine. So the Glovebox
 * in the virtual machine makes the box (instance_incus.c). */
static int incus_vm_refuse(const struct engine_settings *settings, const struct engine_order *order, uid_t *ret_uid,
                           gid_t *ret_gid, struct err *err) {
        (void) settings;
        (void) order;
        (void) ret_uid;
        (void) ret_gid;
        return err_set(err, ERR_UNSUPPORTED, "a box in a virtual machine of Incus is made by the Glovebox in it");
}

const struct engine engine_incus = { .name = "incus",
                                     .isolation = ENGINE_CONTAINER,
                                     .max_isolation = ENGINE_CONTAINER,
                                     .has_users = true,
                                     .needs = "incus 6.0, its client, and a socket of incusd that this user may use",
                                     .probe = incus_box_probe,
                                     .inspect_image = incus_inspect_image,
                                     .reserve = incus_box_reserve,
                                     .make = incus_box_make,
                                     .remove = incus_remove,
                                     .sweep = incus_box_sweep };

const struct engine engine_incus_vm = { .name = "incus-vm",
                                        .isolation = ENGINE_VM,
                                        .max_isolation = ENGINE_VM,
                                        .has_users = true, /* its users are those of its own kernel */
                                        .needs = "incus 6.0 with KVM, its client, and a socket of incusd that this "
                                                 "user may use",
                                        .probe = incus_vm_probe,
                                        .inspect_image = incus_inspect_image,
                                        .reserve = incus_vm_refuse,
                                        .remove = incus_remove,
                                        .sweep = incus_vm_sweep };
