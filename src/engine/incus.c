/* Boxes of an Incus server on this host, by its client program (incus_call.h).
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
#include <poll.h>
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
#include "engine/incus_call.h"
#include "engine/instance_incus.h"
#include "engine/program_call.h"
#include "engine/programs.h"
#include "engine/seat.h"

enum {
        YOUNG_S = 180,    /* an instance that is younger may be one that is just being made */
        STARTING_S = 60,  /* one that was started since then may still be starting */
        LOOK_AGAIN_MS = 200,
        LOOKS = 4,
        LOOKS_STARTING = 25,
};

/* ---- the image ---- */

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

static json_t *config_of(const struct engine_order *order) {
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
                /* Our own program in place of the image's: an image needs no init, and none of it runs before. What
                 * varies from box to box is not told here but in a file (entry_arguments.h). */
                { "raw.lxc", "lxc.init.cmd = " ENGINE_PROGRAMS "/entry --arguments\n" },
        };
        for (size_t i = 0; i < ELEMENTS(rows); i++)
                json_object_set_new(config, rows[i].key, json_string(rows[i].value));
        return config;
}

static int create(const struct engine_settings *settings, const struct engine_order *order, struct err *err) {
        char pool[128];
        if (incus_find_pool(settings, pool, sizeof(pool), err) < 0)
                return -1;
        json_t *described = json_pack("{s:o, s:{s:{s:s, s:s, s:s}}}", "config", config_of(order), "devices", "root",
                                      "type", "disk", "path", "/", "pool", pool);
        return incus_init(settings, order->name, order->image, false, described, err);
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
        if (incus_query_instance(settings, "looking at an instance", "GET", name, "", NULL, &json, err) < 0)
                return -1;
        json_t *map = json_loads(incus_text(json, "config", "volatile.idmap.next"), 0, NULL);
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
        if (incus_query_instance(settings, "showing files to an instance", "PATCH", order->name, "", body, &json, err) <
            0)
                return -1;
        json_decref(json);
        return 0;
}

/* Does the server say that it has stopped, each time? It says so for a moment of a container that runs, and for a second
 * and more of one that is being started. */
static int look_repeatedly(const struct engine_settings *settings, const char *name, int looks, bool *ret_has_stopped,
                           struct err *err) {
        *ret_has_stopped = true;
        for (int i = 0; i < looks && *ret_has_stopped; i++) {
                json_t *json;
                if (i > 0)
                        (void) poll(NULL, 0, LOOK_AGAIN_MS);
                if (incus_query_instance(settings, "looking at an instance", "GET", name, "/state", NULL, &json, err) <
                    0)
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

static int is_alive(void *context, struct err *err) {
        const struct alive *alive = context;
        bool has_stopped;
        if (look_repeatedly(alive->settings, alive->name, LOOKS, &has_stopped, err) < 0)
                return -1;
        return !has_stopped
                       ? 0
                       : err_set(err, ERR_SYSTEM,
                                 "incus: the box ended at once; \"incus info --show-log %s\" may say more while it "
                                 "is there",
                                 alive->name);
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
            incus_start(settings, order->name, err) < 0 ||
            handshake_accept(order->listen_fd, loop_now_ms() + INCUS_START_MS, is_alive, &alive, &control,
                             order->network ? &listener : NULL, NULL, err) < 0)
                return -1;
        if (getsockopt(control, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid <= 0)
                return err_set(err, ERR_UNSUPPORTED,
                               "the processes of the server %s are not to be seen from here: it must be on this host",
                               incus_remote(settings));
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
static bool is_since(const char *moment, int seconds) {
        struct tm time_parts = { 0 };
        if (!moment || !strptime(moment, "%Y-%m-%dT%H:%M:%S", &time_parts))
                return true;
        return timegm(&time_parts) > time(NULL) - seconds;
}

/* It has stopped if the server recorded that. If it recorded the start last, the server was away when it stopped, or
 * the container has not stopped at all. */
static bool has_ended(const struct engine_settings *settings, json_t *item, const char *name, const char *status) {
        bool has_stopped = false;
        struct err ignored;
        if (!status || (strcmp(status, "Stopped") != 0 && strcmp(status, "Error") != 0))
                return false;
        if (strcmp(incus_text(item, "config", "volatile.last_state.power"), "RUNNING") != 0)
                return true;
        bool may_be_starting = is_since(json_string_value(json_object_get(item, "last_used_at")), STARTING_S);
        return look_repeatedly(settings, name, may_be_starting ? LOOKS_STARTING : LOOKS, &has_stopped, &ignored) == 0 &&
               has_stopped;
}

static int sweep_kind(const struct engine_settings *settings, const char *owner, const char *kind,
                      void (*left)(const char *name, void *context), void *context, struct err *err) {
        json_t *json, *item;
        size_t i;
        if (incus_query(settings, "listing instances", "GET", "/1.0/instances?recursion=1", NULL, INCUS_SHORT_MS, &json,
                        err) < 0)
                return -1;
        json_array_foreach (json, i, item) {
                const char *name = json_string_value(json_object_get(item, "name"));
                const char *status = json_string_value(json_object_get(item, "status"));
                const char *type = json_string_value(json_object_get(item, "type"));
                struct err ignored;
                if (*incus_text(item, "config", INSTANCE_INCUS_KEY)) /* swept by whoever knows the sessions */
                        continue;
                if (!name || strlen(name) > 64 || !type || strcmp(type, kind) != 0 ||
                    strcmp(incus_text(item, "config", INCUS_OWNER_KEY), owner) != 0)
                        continue;
                /* One that never ran may be one that is being made; one that did has ended. */
                bool was_begun = strcmp(incus_text(item, "config", "volatile.last_state.power"), "") == 0;
                if (has_ended(settings, item, name, status) &&
                    !(was_begun && is_since(json_string_value(json_object_get(item, "created_at")), YOUNG_S)))
                        (void) incus_remove(settings, name, &ignored);
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
        return incus_probe(settings, false, ret_version, room, err);
}

static int vm_probe(const struct engine_settings *settings, char *ret_version, size_t room, struct err *err) {
        return incus_probe(settings, true, ret_version, room, err);
}

/* ---- virtual machines ---- */

/* The daemon passes descriptors to the agent, and none goes into a virtual machine: sessions in one have a Glovebox of
 * their own there (instance_incus.c), and no box of theirs is made from here. */
static int vm_refuse(const struct engine_settings *settings, const struct engine_order *order, uid_t *ret_uid,
                     gid_t *ret_gid, struct err *err) {
        (void) settings;
        (void) order;
        (void) ret_uid;
        (void) ret_gid;
        return err_set(err, ERR_UNSUPPORTED, "a box in a virtual machine of Incus is made by the Glovebox in it");
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
                                     .remove = incus_remove,
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
                                        .remove = incus_remove,
                                        .sweep = vm_sweep };
