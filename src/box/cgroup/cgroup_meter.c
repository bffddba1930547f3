#include "box/cgroup/cgroup_meter.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/cgroup/cgroup_file.h"
#include "box/cgroup/cgroup_text.h"

enum { V2 = CGROUP_V2_TREE };

static int open_file(const struct cgroup *cgroup, size_t where, const char *file) {
        char path[700];
        if (!*cgroup->host->parent[where])
                return -1;
        (void) snprintf(path, sizeof(path), "%s/%s/%s", cgroup->host->parent[where], cgroup->name, file);
        return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

void cgroup_meter_open(const struct cgroup *cgroup, struct cgroup_meter *ret_meter) {
        struct cgroup_meter meter = CGROUP_METER_NONE;
        bool v2 = cgroup_host_in_v2(cgroup->host, CGROUP_MEMORY);
        size_t memory = v2 ? V2 : CGROUP_MEMORY;
        meter.oom_fd = open_file(cgroup, memory, v2 ? "memory.events" : "memory.oom_control");
        meter.peak_fd = open_file(cgroup, memory, v2 ? "memory.peak" : "memory.max_usage_in_bytes");
        /* The v2 tree counts CPU time without any controller; on v1 cpuacct is often mounted with cpu. */
        meter.cpu_fd = open_file(cgroup, V2, "cpu.stat");
        if (meter.cpu_fd < 0) {
                bool apart = cgroup->host->parent[CGROUP_ACCOUNT][0];
                meter.cpu_fd = open_file(cgroup, apart ? CGROUP_ACCOUNT : CGROUP_CPU, "cpuacct.usage");
                meter.cpu_in_ns = true;
        }
        *ret_meter = meter;
}

/* The directory of the group that holds `controller` (NULL: of the cgroup2 tree), "" when it is not visible. */
static void find_group(const char *mountinfo, const char *groups, const char *controller,
                       char ret_path[static CGROUP_PATH_MAX]) {
        struct cgroup_mount mount;
        char own[CGROUP_PATH_MAX];
        if (cgroup_text_find_mount(mountinfo, controller, &mount) < 0 ||
            cgroup_text_find_own(groups, controller, own) < 0 || strcmp(own, "/") == 0 ||
            cgroup_text_locate(&mount, own, ret_path) < 0)
                *ret_path = '\0';
}

static int open_in(const char *directory, const char *file) {
        char path[CGROUP_PATH_MAX + 64];
        if (!*directory)
                return -1;
        (void) snprintf(path, sizeof(path), "%s/%s", directory, file);
        return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

void cgroup_meter_open_of(pid_t pid, struct cgroup_meter *ret_meter) {
        struct cgroup_meter meter = CGROUP_METER_NONE;
        char path[64], memory[CGROUP_PATH_MAX], account[CGROUP_PATH_MAX], tree[CGROUP_PATH_MAX];
        enum { ROOM = 1 << 20 };
        _cleanup_free_ char *mountinfo = malloc(ROOM), *groups = malloc(ROOM);
        *ret_meter = meter;
        (void) snprintf(path, sizeof(path), "/proc/%d/cgroup", (int) pid);
        if (!mountinfo || !groups || cgroup_file_read(AT_FDCWD, "/proc/self/mountinfo", mountinfo, ROOM) < 0 ||
            cgroup_file_read(AT_FDCWD, path, groups, ROOM) < 0)
                return;
        find_group(mountinfo, groups, "memory", memory);
        find_group(mountinfo, groups, "cpuacct", account);
        find_group(mountinfo, groups, NULL, tree);
        bool v2 = !*memory;
        meter.oom_fd = open_in(v2 ? tree : memory, v2 ? "memory.events" : "memory.oom_control");
        meter.peak_fd = open_in(v2 ? tree : memory, v2 ? "memory.peak" : "memory.max_usage_in_bytes");
        meter.cpu_in_ns = *account != '\0';
        meter.cpu_fd = meter.cpu_in_ns ? open_in(account, "cpuacct.usage") : open_in(tree, "cpu.stat");
        *ret_meter = meter;
}

void cgroup_meter_close(struct cgroup_meter *meter) {
        fd_close(&meter->oom_fd);
        fd_close(&meter->peak_fd);
        fd_close(&meter->cpu_fd);
}

/* The number after `key` (which begins a line), or the first number when key is "". */
static uint64_t read_number(int fd, const char *key) {
        char text[1024];
        ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
        if (n <= 0)
                return 0;
        text[n] = '\0';
        size_t size = strlen(key);
        for (const char *line = text; line; line = strchr(line, '\n')) {
                line += *line == '\n';
                if (strncmp(line, key, size) == 0 && (!size || line[size] == ' '))
                        return strtoull(line + size, NULL, 10);
        }
        return 0;
}

uint64_t cgroup_meter_read_cpu(const struct cgroup_meter *meter) {
        uint64_t cpu = read_number(meter->cpu_fd, meter->cpu_in_ns ? "" : "usage_usec");
        return meter->cpu_in_ns ? cpu / 1000 : cpu;
}

void cgroup_meter_read(const struct cgroup_meter *meter, struct cgroup_usage *ret_usage) {
        *ret_usage = (struct cgroup_usage) { .oom_kills = read_number(meter->oom_fd, "oom_kill"),
                                             .memory_peak_bytes = read_number(meter->peak_fd, ""),
                                             .cpu_us = cgroup_meter_read_cpu(meter) };
}
