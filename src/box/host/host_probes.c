/* One function per ability. Each reports a state, what it found, and what to do. */
#include "box/host/host_probes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"
#include "box/cgroup/cgroup_file.h"
#include "box/host/host_trial.h"
#include "box/seal/landlock.h"

#define CONTAINER_FLAGS                                                                                                \
        "docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined (podman " \
        "the same), or run Glovebox on the host and let the container call it"

/* -1 when the file is not there. */
static long read_setting(const char *path) {
        uint64_t number;
        return cgroup_file_read_number(AT_FDCWD, path, &number) == 0 ? (long) number : -1;
}

/* ---- what no box can be made without */

static void probe_kernel(const struct host_report *report, struct host_row *row) {
        unsigned major = 0, minor = 0, patch = 0;
        (void) sscanf(report->kernel, "%u.%u.%u", &major, &minor, &patch);
        unsigned series = major * 1000 + minor;
        if (series < 5012)
                host_row_set(row, HOST_NO,
                             "install Linux 5.12 or newer (mount_setattr and CLONE_INTO_CGROUP are needed)",
                             "Linux %s is too old", report->kernel);
        else if (series > 6018 || (series == 6018 && patch >= 29))
                host_row_set(row, HOST_YES, "", "Linux %s", report->kernel);
        else if (series == 6018)
                host_row_set(
                        row, HOST_WEAKER, "install Linux 6.18.29 or newer and reboot",
                        "Linux %s lacks fixes of 2026 for page-cache writes (Copy Fail, Dirty Frag): code in one box "
                        "could change files that others read",
                        report->kernel);
        else
                host_row_set(row, HOST_WEAKER,
                             "install your distribution's newest kernel update and reboot; its security "
                             "tracker says whether CVE-2026-31431 and CVE-2026-43284 are fixed in it",
                             "Linux %s: whether the page-cache fixes of 2026 (Copy Fail, Dirty Frag; in 6.18.29) were "
                             "ported to it cannot be seen from here",
                             report->kernel);
}

/* The likely reason, by what can be read. */
static const char *userns_fix(const struct host_report *report) {
        if (!report->root && read_setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") > 0)
                return "Ubuntu's AppArmor rule forbids them to ordinary programs: sudo sysctl -w "
                       "kernel.apparmor_restrict_unprivileged_userns=0 (and put the line into /etc/sysctl.d/), or give "
                       "the glovebox program an AppArmor profile with \"userns,\"";
        if (!report->root && read_setting("/proc/sys/kernel/unprivileged_userns_clone") == 0)
                return "sudo sysctl -w kernel.unprivileged_userns_clone=1, or run as root";
        if (read_setting("/proc/sys/user/max_user_namespaces") == 0)
                return "sudo sysctl -w user.max_user_namespaces=15000";
        if (report->container[0])
                return "this container forbids them; start it with " CONTAINER_FLAGS;
        return "use a kernel with CONFIG_USER_NS, and no security module or seccomp filter that forbids them";
}

static void probe_user_namespaces(const struct host_report *report, struct host_row *row) {
        const struct host_trial *trial = &report->trial;
        if (trial->step > TRIAL_ID_MAP)
                host_row_set(row, HOST_YES, "", "made and mapped one in a child");
        else if (trial->step == TRIAL_FORK)
                host_row_set(row, HOST_NO, "free some processes or memory, then try again", "no child could try: %s",
                             strerror(trial->sys_errno));
        else
                host_row_set(row, HOST_NO, userns_fix(report), "%s: %s",
                             trial->step == TRIAL_ID_MAP ? "one was made, but ids could not be mapped" : "refused",
                             strerror(trial->sys_errno));
}

static void probe_namespaces(const struct host_report *report, struct host_row *row) {
        const struct host_trial *trial = &report->trial;
        if (trial->step > TRIAL_NAMESPACES)
                host_row_set(row, HOST_YES, "", "mount, pid, net, ipc, uts and cgroup");
        else if (trial->step == TRIAL_NAMESPACES)
                host_row_set(row, HOST_NO, userns_fix(report), "refused inside the user namespace: %s",
                             strerror(trial->sys_errno));
        else
                host_row_set(row, HOST_NO, "fix the user namespaces first", "not tried: there is no user namespace");
}

static void probe_mounts(const struct host_report *report, struct host_row *row) {
        const struct host_trial *trial = &report->trial;
        if (trial->step > TRIAL_MOUNTS)
                host_row_set(row, HOST_YES, "", "private mounts and tmpfs");
        else if (trial->step == TRIAL_MOUNTS)
                host_row_set(row, HOST_NO, userns_fix(report), "mounting was refused: %s", strerror(trial->sys_errno));
        else
                host_row_set(row, HOST_NO, "fix the namespaces first", "not tried: there is no mount namespace");
}

static void probe_proc(const struct host_report *report, struct host_row *row) {
        const struct host_trial *trial = &report->trial;
        if (trial->step == TRIAL_PASSED)
                host_row_set(row, HOST_YES, "", "of the box's own processes");
        else if (trial->step == TRIAL_PROC)
                host_row_set(row, HOST_NO,
                             "parts of /proc are covered here, as in most containers, so the kernel refuses a "
                             "new one; use " CONTAINER_FLAGS ", or docker run --security-opt systempaths=unconfined; "
                             "--allow-weaker makes boxes without /proc",
                             "a new /proc was refused: %s", strerror(trial->sys_errno));
        else
                host_row_set(row, HOST_NO, "fix the mounts first", "not tried: nothing can be mounted");
}

static void probe_seccomp(const struct host_report *report, struct host_row *row) {
        (void) report;
        unsigned action = SECCOMP_RET_KILL_PROCESS;
        if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0)
                host_row_set(row, HOST_YES, "", "filters that kill or refuse");
        else
                host_row_set(row, HOST_NO, "use a kernel with CONFIG_SECCOMP_FILTER", "no filters: %s",
                             strerror(errno));
}

/* A system call that exists returns another error than ENOSYS for invalid arguments. */
static void probe_calls(const struct host_report *report, struct host_row *row) {
        static const struct {
                const char *name;
                long number;
        } calls[] = {
                { "openat2", SYS_openat2 },       { "clone3", SYS_clone3 },
                { "open_tree", SYS_open_tree },   { "mount_setattr", SYS_mount_setattr },
                { "move_mount", SYS_move_mount }, { "pidfd_open", SYS_pidfd_open },
        };
        char missing[160] = "";
        for (size_t i = 0; i < ELEMENTS(calls); i++) {
                if (syscall(calls[i].number, -1L, NULL, -1L, NULL, 0L) >= 0 || errno != ENOSYS)
                        continue;
                size_t used = strlen(missing);
                (void) snprintf(missing + used, sizeof(missing) - used, "%s%s", used ? ", " : "", calls[i].name);
        }
        if (!missing[0])
                host_row_set(row, HOST_YES, "", "openat2, clone3, open_tree, mount_setattr, move_mount, pidfd_open");
        else
                host_row_set(row, HOST_NO,
                             report->container[0] ? "the container's seccomp filter hides them; use " CONTAINER_FLAGS
                                                  : "install Linux 5.12 or newer",
                             "missing: %s", missing);
}

/* ---- what the limits need */

static void probe_cgroups(const struct host_report *report, struct host_row *row) {
        const struct cgroup_host *host = &report->cgroups;
        if (host->kind == CGROUP_NONE)
                host_row_set(row, HOST_NO, host->why_not, "none");
        else
                host_row_set(row, HOST_YES, "", "%s",
                             host->kind == CGROUP_V2   ? "v2"
                             : host->kind == CGROUP_V1 ? "v1"
                                                       : "hybrid: v1 controllers beside a v2 tree");
}

static void probe_controller(const struct host_report *report, struct host_row *row,
                             enum cgroup_controller controller) {
        const struct cgroup_host *host = &report->cgroups;
        if (host->usable[controller])
                host_row_set(row, HOST_YES, "", "%.200s", host->parent[controller]);
        else
                host_row_set(row, HOST_NO, host->why_not, "no group that we may use");
}

static void probe_memory(const struct host_report *report, struct host_row *row) {
        probe_controller(report, row, CGROUP_MEMORY);
}

static void probe_pids(const struct host_report *report, struct host_row *row) {
        probe_controller(report, row, CGROUP_PIDS);
}

static void probe_cpu(const struct host_report *report, struct host_row *row) {
        probe_controller(report, row, CGROUP_CPU);
}

/* ---- second walls, and the host's own hardening */

static void probe_kill(const struct host_report *report, struct host_row *row) {
        if (report->cgroups.kill)
                host_row_set(row, HOST_YES, "", "a whole box at once, with cgroup.kill");
        else
                host_row_set(row, HOST_WEAKER,
                             "boot with systemd.unified_cgroup_hierarchy=1 on Linux 5.14 or newer, and "
                             "have a control group delegated to this user",
                             "process by process: no v2 tree that we may use");
}

static void probe_landlock(const struct host_report *report, struct host_row *row) {
        (void) report;
        int abi = landlock_abi();
        if (abi >= 6)
                host_row_set(row, HOST_YES, "", "ABI %d", abi);
        else if (abi > 0)
                host_row_set(row, HOST_WEAKER, "install Linux 6.12 or newer",
                             "ABI %d: files, but not signals and abstract sockets", abi);
        else
                host_row_set(row, HOST_WEAKER,
                             "use Linux 5.13 or newer with CONFIG_SECURITY_LANDLOCK, and boot with landlock "
                             "in the lsm= list",
                             "none: %s", strerror(errno));
}

static void probe_idmapped(const struct host_report *report, struct host_row *row) {
        if (!report->root) {
                host_row_set(row, HOST_YES, "", "not needed: what an ordinary user's box writes is the user's own");
                return;
        }
        int code = host_try_idmapped_mount("/tmp");
        if (code == 0)
                host_row_set(row, HOST_YES, "", "tried on /tmp");
        else
                host_row_set(row, HOST_WEAKER,
                             "keep workspaces on ext4, xfs, btrfs or tmpfs under Linux 5.12 (tmpfs: 6.3) or "
                             "newer, so that files written in a box belong to the caller",
                             "refused on /tmp: %s", strerror(-code));
}

static void probe_container(const struct host_report *report, struct host_row *row) {
        bool complete = report->trial.step == TRIAL_PASSED;
        for (size_t c = 0; c < CGROUP_CONTROLLERS; c++)
                complete = complete && report->cgroups.usable[c];
        if (!report->container[0])
                host_row_set(row, HOST_YES, "", "not in one");
        else if (complete)
                host_row_set(row, HOST_YES, "", "inside one (%s), and nothing is missing", report->container);
        else
                host_row_set(row, HOST_WEAKER, "start it with " CONTAINER_FLAGS, "inside one (%s)", report->container);
}

/* The settings that keep an ordinary user from making user namespaces. */
static void probe_userns_settings(const struct host_report *report, struct host_row *row) {
        long apparmor = read_setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
        long clone = read_setting("/proc/sys/kernel/unprivileged_userns_clone");
        long max = read_setting("/proc/sys/user/max_user_namespaces");
        bool open = apparmor <= 0 && clone != 0 && max != 0;
        if (open || report->trial.step > TRIAL_ID_MAP)
                host_row_set(row, HOST_YES, "", "%s",
                             open           ? "open to ordinary users"
                             : report->root ? "closed to ordinary users, open to root"
                                            : "closed, but not to this program");
        else
                host_row_set(row, HOST_WEAKER, userns_fix(report),
                             "apparmor_restrict_unprivileged_userns=%ld unprivileged_userns_clone=%ld "
                             "max_user_namespaces=%ld",
                             apparmor, clone, max);
}

static void probe_tiocsti(const struct host_report *report, struct host_row *row) {
        (void) report;
        long value = read_setting("/proc/sys/dev/tty/legacy_tiocsti");
        if (value == 0)
                host_row_set(row, HOST_YES, "", "terminal input cannot be faked");
        else
                host_row_set(row, HOST_WEAKER,
                             value > 0 ? "sudo sysctl -w dev.tty.legacy_tiocsti=0"
                                       : "use Linux 6.2 or newer, which can switch it off",
                             "TIOCSTI is on; boxes refuse it by themselves");
}

static void probe_io_uring(const struct host_report *report, struct host_row *row) {
        (void) report;
        long value = read_setting("/proc/sys/kernel/io_uring_disabled");
        if (value >= 1)
                host_row_set(row, HOST_YES, "", "off for ordinary users");
        else
                host_row_set(row, HOST_WEAKER,
                             value == 0 ? "sudo sysctl -w kernel.io_uring_disabled=2, if nothing needs it"
                                        : "use Linux 6.6 or newer, which can switch it off",
                             "open on the host; boxes refuse it by themselves");
}

static void probe_ksm(const struct host_report *report, struct host_row *row) {
        (void) report;
        if (read_setting("/sys/kernel/mm/ksm/run") != 1)
                host_row_set(row, HOST_YES, "", "off");
        else
                host_row_set(row, HOST_WEAKER, "echo 2 | sudo tee /sys/kernel/mm/ksm/run",
                             "on: boxes could find out about each other's memory by its timing");
}

static void probe_swap(const struct host_report *report, struct host_row *row) {
        char text[1024];
        int n = cgroup_file_read(AT_FDCWD, "/proc/swaps", text, sizeof(text));
        const char *line = n > 0 ? strchr(text, '\n') : NULL;
        if (!line || !line[1])
                host_row_set(row, HOST_YES, "", "none");
        else if (report->cgroups.usable[CGROUP_MEMORY])
                host_row_set(row, HOST_YES, "", "there is some; boxes do not use it");
        else
                host_row_set(row, HOST_WEAKER, "fix the memory limit (above), or sudo swapoff -a",
                             "without a memory limit a box may fill it");
}

const struct host_probe host_probes[] = {
        { "kernel", "kernel", HOST_NEED_BOX, probe_kernel },
        { "user_namespaces", "user namespaces", HOST_NEED_BOX, probe_user_namespaces },
        { "namespaces", "other namespaces", HOST_NEED_BOX, probe_namespaces },
        { "mounts", "mounts", HOST_NEED_BOX, probe_mounts },
        { "proc", "a /proc of its own", HOST_NEED_LIMITS, probe_proc },
        { "seccomp", "seccomp", HOST_NEED_BOX, probe_seccomp },
        { "system_calls", "system calls", HOST_NEED_BOX, probe_calls },
        { "cgroups", "control groups", HOST_NEED_LIMITS, probe_cgroups },
        { "memory_limit", "memory limit", HOST_NEED_LIMITS, probe_memory },
        { "pids_limit", "process limit", HOST_NEED_LIMITS, probe_pids },
        { "cpu_limit", "CPU limit", HOST_NEED_LIMITS, probe_cpu },
        { "kill", "killing", HOST_NEED_ADVICE, probe_kill },
        { "landlock", "Landlock", HOST_NEED_ADVICE, probe_landlock },
        { "idmapped_mounts", "idmapped mounts", HOST_NEED_ADVICE, probe_idmapped },
        { "container", "container", HOST_NEED_ADVICE, probe_container },
        { "userns_settings", "user ns settings", HOST_NEED_ADVICE, probe_userns_settings },
        { "tiocsti", "TIOCSTI", HOST_NEED_ADVICE, probe_tiocsti },
        { "io_uring", "io_uring", HOST_NEED_ADVICE, probe_io_uring },
        { "ksm", "memory merging", HOST_NEED_ADVICE, probe_ksm },
        { "swap", "swap", HOST_NEED_ADVICE, probe_swap },
};
const size_t host_probes_count = ELEMENTS(host_probes);
