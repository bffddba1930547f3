#include "box/host/report.h"

#include <stdio.h>

#include "base/memory.h"
#include "box/host/identity.h"
#include "box/seal/landlock.h"
#include "box/seal/privilege.h"
#include "box/seal/seccomp.h"

static const char *const namespaces[] = { "user", "mount", "pid", "network", "ipc", "uts", "cgroup" };

static json_t *limits_of(const struct box_spec *spec, const struct cgroup_host *host) {
        const struct limits *limits = &spec->limits;
        json_t *object = json_object();
        json_object_set_new(object, "hierarchy", json_string(cgroup_kind_name(host)));
        json_object_set_new(object, "memory_bytes",
                            host->usable[CGROUP_MEMORY] ? json_integer((json_int_t) limits->memory_bytes)
                                                        : json_null());
        json_object_set_new(object, "pids",
                            host->usable[CGROUP_PIDS] ? json_integer((json_int_t) limits->pids) : json_null());
        json_object_set_new(object, "cpus",
                            host->usable[CGROUP_CPU] ? json_real((double) limits->cpu_thousandths / 1000)
                                                     : json_null());
        return object;
}

/* Features that are missing, and would be an error without --allow-weaker. */
static json_t *weaker_of(const struct box_spec *spec, const struct cgroup_host *host) {
        static const char *const texts[CGROUP_CONTROLLERS] = {
                [CGROUP_MEMORY] = "memory: no control group; only the address space of each process is bounded",
                [CGROUP_PIDS] = "pids: no control group; only the processes of this user are bounded",
                [CGROUP_CPU] = "cpu: no control group; processor time is not bounded",
        };
        json_t *array = json_array();
        for (size_t i = 0; i < CGROUP_CONTROLLERS; i++)
                if (!host->usable[i])
                        json_array_append_new(array, json_string(texts[i]));
        if (spec->without_proc)
                json_array_append_new(array, json_string("proc: none; this host refuses a new one, so programs that "
                                                         "read /proc fail, and only the system-call filter forbids "
                                                         "new namespaces"));
        return array;
}

/* Of its processes; in a box with users only those of its root, and only in the namespace of the box. */
static json_t *capabilities_of(const struct box_spec *spec) {
        json_t *array = json_array();
        for (size_t i = 0; spec->users && privilege_users_names[i]; i++)
                json_array_append_new(array, json_string(privilege_users_names[i]));
        return array;
}

json_t *report_make(const struct box_spec *spec, const struct cgroup_host *host, bool rootless) {
        json_t *report = json_object();
        int abi = landlock_abi();
        json_object_set_new(report, "engine", json_string("native"));
        json_object_set_new(report, "isolation", json_string("container")); /* the kind that a caller can demand */
        json_object_set_new(report, "image", json_string(spec->image->name));
        json_t *names = json_array();
        for (size_t i = 0; i < ELEMENTS(namespaces); i++)
                json_array_append_new(names, json_string(namespaces[i]));
        json_object_set_new(report, "namespaces", names);
        char map[64];
        if (spec->users)
                (void) snprintf(map, sizeof(map), "0 %u %d", identity_outside(spec->host_uid) - BOX_UID, BOX_IDS);
        else
                (void) snprintf(map, sizeof(map), "%d %u 1", BOX_UID, identity_outside(spec->host_uid));
        json_object_set_new(report, "uid_map", json_string(map));
        json_object_set_new(report, "rootless", json_boolean(rootless));
        json_object_set_new(report, "users", json_boolean(spec->users));
        json_object_set_new(report, "capabilities", capabilities_of(spec));
        json_object_set_new(report, "no_new_privs", json_true());
        json_object_set_new(report, "seccomp_sha256", json_string(seccomp_program_sha256));
        json_object_set_new(report, "landlock_abi", json_integer(abi < 0 ? 0 : abi));
        json_object_set_new(report, "cgroup", limits_of(spec, host));
        json_object_set_new(report, "network", json_string(spec->network ? spec->network : "none"));
        json_object_set_new(report, "weaker", weaker_of(spec, host));
        return report;
}
