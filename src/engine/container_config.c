#include "engine/container_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "engine/entry_arguments.h"

enum {
        OOM_SCORE = 500,
        RUNTIME_THREADS = 256,     /* of gVisor's own kernel; they count in the box's group */
        PROCESSES_OF_USER = 32768, /* of all boxes together, since they run as one user; each box has its own limit */
};

static json_t *mounts_config(const struct engine_order *order) {
        json_t *mounts = json_array();
        for (size_t i = 0; i < order->n_mounts; i++)
                if (order->mounts[i].source)
                        json_array_append_new(mounts,
                                              json_pack("{s:s, s:s, s:s, s:b, s:{s:s}}", "Type", "bind", "Source",
                                                        order->mounts[i].source, "Target", order->mounts[i].destination,
                                                        "ReadOnly", (int) !order->mounts[i].writable, "BindOptions",
                                                        "Propagation", "rprivate"));
        return mounts;
}

static json_t *tmpfs_config(const struct engine_order *order) {
        json_t *list = json_object();
        for (size_t i = 0; i < order->n_mounts; i++)
                if (!order->mounts[i].source)
                        json_object_set_new(
                                list, order->mounts[i].destination,
                                json_sprintf("rw,nosuid,nodev,exec,mode=1777,size=%" PRIu64, order->mounts[i].bytes));
        return list;
}

/* Podman's defaults are higher than some hosts allow, and then no container starts. So the limits are explicit. */
static json_t *ulimits_config(void) {
        struct rlimit processes;
        json_t *list = json_pack("[{s:s, s:i, s:i}]", "Name", "nofile", "Soft", 1024, "Hard", 4096);
        json_int_t most = PROCESSES_OF_USER;
        if (getrlimit(RLIMIT_NPROC, &processes) == 0 && processes.rlim_max < PROCESSES_OF_USER)
                most = (json_int_t) processes.rlim_max;
        json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "Name", "nproc", "Soft", most, "Hard", most));
        return list;
}

/* Files that show details of the host and that no box needs. Includes the engines' own list. */
static const char *const hidden[] = { "/proc/acpi",
                                      "/proc/asound",
                                      "/proc/bus",
                                      "/proc/fs",
                                      "/proc/interrupts",
                                      "/proc/irq",
                                      "/proc/kcore",
                                      "/proc/keys",
                                      "/proc/latency_stats",
                                      "/proc/sched_debug",
                                      "/proc/scsi",
                                      "/proc/softirqs",
                                      "/proc/sysrq-trigger",
                                      "/proc/timer_list",
                                      "/proc/timer_stats",
                                      "/proc/sys/kernel/random/boot_id",
                                      "/sys" };

static json_t *masked_paths_config(void) {
        json_t *list = json_array();
        for (size_t i = 0; i < ELEMENTS(hidden); i++)
                json_array_append_new(list, json_string(hidden[i]));
        return list;
}

static json_t *podman_mask_option(void) {
        char text[1024] = "mask=";
        for (size_t i = 0; i < ELEMENTS(hidden); i++) {
                size_t used = strlen(text);
                (void) snprintf(text + used, sizeof(text) - used, "%s%s", i ? ":" : "", hidden[i]);
        }
        return json_string(text);
}

static json_t *host_config(const struct container_service *service, const struct engine_order *order) {
        json_t *config = json_pack("{s:s, s:b, s:[s], s:[], s:s, s:s, s:b, s:b, s:{s:s}}", "NetworkMode", "none",
                                   "ReadonlyRootfs", 1, "CapDrop", "ALL", "SecurityOpt", "CgroupnsMode", "private",
                                   "IpcMode", "private", "Privileged", 0, "Init", 0, "RestartPolicy", "Name", "no");
        const struct {
                const char *name;
                uint64_t value;
        } numbers[] = { { "PidsLimit", order->limits.pids + (*order->runtime ? RUNTIME_THREADS : 0) },
                        { "NanoCpus", order->limits.cpu_thousandths * 1000000 },
                        { "Memory", order->limits.memory_bytes },
                        { "MemorySwap", order->limits.memory_bytes },
                        { "ShmSize", LIMITS_SHM_MIB * MIB },
                        { "OomScoreAdj", OOM_SCORE } };
        for (size_t i = 0; i < ELEMENTS(numbers); i++)
                json_object_set_new(config, numbers[i].name, json_integer((json_int_t) numbers[i].value));
        json_object_set_new(config, "Mounts", mounts_config(order));
        json_object_set_new(config, "Tmpfs", tmpfs_config(order));
        json_object_set_new(config, "Ulimits", ulimits_config());
        json_object_set_new(config, "MaskedPaths", masked_paths_config());
        json_array_append_new(json_object_get(config, "SecurityOpt"), json_string("no-new-privileges"));
        if (strcmp(service->name, "podman") == 0) /* Podman ignores MaskedPaths */
                json_array_append_new(json_object_get(config, "SecurityOpt"), podman_mask_option());
        if (order->daemon_is_user && service->is_rootless) /* files that the box writes belong to the user */
                json_object_set_new(config, "UsernsMode",
                                    json_sprintf("keep-id:uid=%u,gid=%u", order->uid, order->gid));
        if (*order->runtime)
                json_object_set_new(config, "Runtime", json_string(order->runtime));
        return config;
}

json_t *container_config(const struct container_service *service, const struct engine_order *order) {
        char user[32];
        (void) snprintf(user, sizeof(user), "%u:%u", order->uid, order->gid);
        json_t *config = json_pack("{s:s, s:o, s:[], s:s, s:s, s:s, s:s, s:{s:s}, s:o}", "Image", order->image,
                                   "Entrypoint", entry_arguments(order), "Cmd", "User", user, "WorkingDir", "/",
                                   "Hostname", "sandbox", "StopSignal", "SIGKILL", "Labels", CONTAINER_OWNER_LABEL,
                                   order->owner, "HostConfig", host_config(service, order));
        /* Switches off a health check of the image: it would be a process beside the agent, without our filter. */
        json_object_set_new(config, "Healthcheck", json_pack("{s:[s]}", "Test", "NONE"));
        return config;
}
