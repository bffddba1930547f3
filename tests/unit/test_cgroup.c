/* Real control groups, on whatever kind of host this is. Needs root or a
 * delegated group; works below a parent named after our pid. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/cgroup/cgroup.h"
#include "tap.h"

static struct cgroup_host host;
static const struct limits small = { .memory_bytes = 64 * MIB, .cpu_thousandths = 500, .pids = 8 };

/* A child that is in the group before this returns: cloned into the v2 tree, and in the others by itself, as a box. */
static pid_t start_in(struct cgroup *cgroup, int (*body)(void)) {
        int entered[2];
        if (pipe2(entered, O_CLOEXEC) < 0)
                return -1;
        struct clone_args args = { .exit_signal = SIGCHLD };
        if (cgroup->v2_fd >= 0) {
                args.flags = CLONE_INTO_CGROUP;
                args.cgroup = (unsigned long long) cgroup->v2_fd;
        }
        pid_t pid = (pid_t) syscall(SYS_clone3, &args, sizeof(args));
        if (pid == 0) {
                struct err err = { 0 };
                if (cgroup_enter(cgroup, &err) < 0 || write(entered[1], "x", 1) != 1)
                        _exit(99);
                (void) close(entered[1]);
                _exit(body());
        }
        char byte;
        (void) close(entered[1]);
        if (pid < 0 || read(entered[0], &byte, 1) != 1)
                printf("# start: %s\n", strerror(errno));
        (void) close(entered[0]);
        return pid;
}

static int wait_for(pid_t pid) {
        int status = -1;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        return status;
}

static void sleep_forever(void) {
        for (;;)
                (void) pause();
}

static int sleep_stubbornly(void) {
        (void) signal(SIGTERM, SIG_IGN);
        for (int i = 0; i < 3; i++)
                if (fork() == 0)
                        (void) setsid();
        sleep_forever();
        return 0;
}

static int use_much_memory(void) {
        size_t size = 256 * MIB;
        char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (bytes == MAP_FAILED)
                return 1;
        for (size_t i = 0; i < size; i += 4096)
                ((volatile char *) bytes)[i] = 1;
        return 0;
}

/* Exit status: how many processes could be had before the limit said no (this one included); 100 for no limit. */
static int fork_until_refused(void) {
        int made = 1;
        while (made < 100) {
                pid_t pid = fork();
                if (pid < 0)
                        break;
                if (pid == 0)
                        sleep_forever();
                made++;
        }
        return made;
}

static bool exists_anywhere(const char *name) {
        for (size_t i = 0; i < CGROUP_PLACES; i++) {
                char path[700];
                (void) snprintf(path, sizeof(path), "%s/%s", host.parent[i], name);
                if (host.parent[i][0] && access(path, F_OK) == 0)
                        return true;
        }
        return false;
}

static void is_file_text(const char *path, const char *expected, const char *what) {
        char text[64] = "";
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (read(fd, text, sizeof(text) - 1) < 0)
                printf("# %s: %s\n", path, strerror(errno));
        is_text(text, expected, "%s holds the limit", what);
}

static bool create(struct cgroup *cgroup, const char *name) {
        struct err err = { 0 };
        int code = cgroup_create(&host, name, &small, false, cgroup, &err);
        ok(code == 0, "%s: created with every limit %s", name, err.message);
        return code == 0;
}

static void destroy(struct cgroup *cgroup, const char *name) {
        struct err err = { 0 };
        ok(cgroup_destroy(cgroup, &err) == 0, "%s: removed %s", name, err.message);
        ok(!exists_anywhere(name), "%s: nothing is left", name);
        ok(cgroup_destroy(cgroup, &err) == 0, "%s: removing twice is fine", name);
}

static void test_kill(void) {
        struct cgroup cgroup;
        struct err err = { 0 };
        if (!create(&cgroup, "kill"))
                return;
        struct cgroup other = { 0 };
        ok(cgroup_create(&host, "kill", &small, false, &other, &err) < 0 && err.code == ERR_EXISTS,
           "a name is given once");
        err = (struct err) { 0 };
        ok(exists_anywhere("kill"), "and the refusal leaves the first one alone");
        pid_t pid = start_in(&cgroup, sleep_stubbornly);
        ok(cgroup_kill(&cgroup, &err) == 0, "killed with its children %s", err.message);
        int status = wait_for(pid);
        ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "by SIGKILL");
        ok(cgroup_kill(&cgroup, &err) == 0, "killing an empty group is fine");
        destroy(&cgroup, "kill");
        if (!create(&cgroup, "full"))
                return;
        pid = start_in(&cgroup, sleep_stubbornly);
        destroy(&cgroup, "full");
        ok(WIFSIGNALED(wait_for(pid)), "destroying kills what is inside");
}

/* As on a v1 host without a v2 tree: processes that are in the v1 groups alone. */
static void test_kill_without_v2(void) {
        if (host.kind == CGROUP_V2)
                return;
        struct cgroup_host v1 = host;
        v1.kind = CGROUP_V1;
        v1.kill = false;
        v1.parent[CGROUP_CONTROLLERS][0] = '\0';
        struct cgroup cgroup;
        struct err err = { 0 };
        ok(cgroup_create(&v1, "v1", &small, false, &cgroup, &err) == 0 && cgroup.v2_fd < 0, "v1 alone %s", err.message);
        pid_t pid = start_in(&cgroup, sleep_stubbornly);
        ok(cgroup_kill(&cgroup, &err) == 0, "killed by the list %s", err.message);
        ok(WIFSIGNALED(wait_for(pid)), "all gone");
        char path[700];
        (void) snprintf(path, sizeof(path), "%s/v1/pids.max", host.parent[CGROUP_PIDS]);
        is_file_text(path, "10\n", "after a kill pids.max");
        destroy(&cgroup, "v1");
}

/* What a daemon does on a host that has both: the same bounds, and CPU time is still counted. */
static void test_leave_v2(void) {
        struct cgroup_host left = host;
        cgroup_host_leave_v2(&left);
        if (host.kind != CGROUP_HYBRID || left.parent[CGROUP_V2_TREE][0]) {
                ok(memcmp(&left, &host, sizeof(host)) == 0, "elsewhere nothing changes");
                return;
        }
        struct cgroup cgroup;
        struct err err = { 0 };
        ok(cgroup_create(&left, "left", &small, false, &cgroup, &err) == 0 && cgroup.v2_fd < 0, "made in v1 alone %s",
           err.message);
        (void) wait_for(start_in(&cgroup, use_much_memory));
        struct cgroup_usage usage;
        cgroup_read_usage(&cgroup, &usage);
        ok(usage.oom_kills >= 1 && usage.cpu_us > 0, "memory is bounded, CPU time is counted (%llu us)",
           (unsigned long long) usage.cpu_us);
        ok(cgroup_destroy(&cgroup, &err) == 0, "destroyed %s", err.message);
        char path[700];
        (void) snprintf(path, sizeof(path), "%s/left", left.parent[CGROUP_ACCOUNT]);
        ok(!exists_anywhere("left") && (!left.parent[CGROUP_ACCOUNT][0] || access(path, F_OK) < 0), "nothing is left");
        if (left.parent[CGROUP_ACCOUNT][0])
                (void) rmdir(left.parent[CGROUP_ACCOUNT]);
}

static void test_memory(void) {
        struct cgroup cgroup;
        if (!create(&cgroup, "memory"))
                return;
        int status = wait_for(start_in(&cgroup, use_much_memory));
        ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "256 MiB do not fit into 64");
        struct cgroup_usage usage;
        cgroup_read_usage(&cgroup, &usage);
        ok(usage.oom_kills >= 1, "the kill is counted (%llu)", (unsigned long long) usage.oom_kills);
        /* The kernel may overdraw a little for what cannot fail; kernels before 5.19 do not tell the peak on v2. */
        ok(usage.memory_peak_bytes <= small.memory_bytes * 5 / 4, "the peak (%llu) is about the limit",
           (unsigned long long) usage.memory_peak_bytes);
        ok(cgroup.v2_fd < 0 || usage.cpu_us > 0, "CPU time is counted (%llu us)", (unsigned long long) usage.cpu_us);
        destroy(&cgroup, "memory");
}

static void test_pids(void) {
        struct cgroup cgroup;
        if (!create(&cgroup, "pids"))
                return;
        int status = wait_for(start_in(&cgroup, fork_until_refused));
        ok(WIFEXITED(status) && WEXITSTATUS(status) == (int) small.pids + 2,
           "a fork bomb stops at the limit and the two of our own");
        struct err err = { 0 };
        ok(cgroup_destroy_by_name(&host, "pids", &err) == 0, "cleaned up by name alone %s", err.message);
        ok(!exists_anywhere("pids"), "with what was inside");
        ok(cgroup_destroy_by_name(&host, "pids", &err) == 0, "what is gone already is fine");
        ok(cgroup_destroy(&cgroup, &err) == 0, "as it is for whoever still held it %s", err.message);
}

static void test_limits_written(void) {
        static const struct {
                enum cgroup_controller controller;
                bool v2;
                const char *file, *expected;
        } rows[] = {
                { CGROUP_MEMORY, true, "memory.max", "67108864\n" },
                { CGROUP_PIDS, true, "pids.max", "10\n" },
                { CGROUP_CPU, true, "cpu.max", "50000 100000\n" },
                { CGROUP_MEMORY, false, "memory.limit_in_bytes", "67108864\n" },
                { CGROUP_MEMORY, false, "memory.swappiness", "0\n" },
                { CGROUP_PIDS, false, "pids.max", "10\n" },
                { CGROUP_CPU, false, "cpu.cfs_quota_us", "50000\n" },
        };
        struct cgroup cgroup;
        if (!create(&cgroup, "written"))
                return;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                if (rows[i].v2 != cgroup_host_in_v2(&host, rows[i].controller))
                        continue;
                char path[700];
                (void) snprintf(path, sizeof(path), "%s/written/%s", host.parent[rows[i].controller], rows[i].file);
                is_file_text(path, rows[i].expected, rows[i].file);
        }
        destroy(&cgroup, "written");
}

static void test_missing(void) {
        struct cgroup_host poor = host;
        struct cgroup cgroup = { 0 };
        struct err err = { 0 };
        poor.usable[CGROUP_MEMORY] = false;
        (void) snprintf(poor.why_not, sizeof(poor.why_not), "memory: do this");
        ok(cgroup_create(&poor, "poor", &small, false, &cgroup, &err) < 0 && strstr(err.message, "do this"),
           "a missing controller is refused with the fix");
        ok(!exists_anywhere("poor"), "and nothing was made");
        ok(cgroup_destroy(&cgroup, &err) == 0, "a zeroed group can be destroyed");
        ok(cgroup_create(&poor, "poor", &small, true, &cgroup, &err) == 0 && cgroup.tasks_fd[CGROUP_MEMORY] < 0,
           "or left out when the caller accepts less");
        destroy(&cgroup, "poor");
        ok(cgroup_create(&host, "../x", &small, false, &cgroup, &err) < 0 && err.code == ERR_USAGE,
           "a name that leaves the parent is refused");
}

/* Failing half way undoes the first half: a name that is taken in the last hierarchy only. */
static void test_half(void) {
        char path[700];
        (void) snprintf(path, sizeof(path), "%s/half", host.parent[CGROUP_CPU]);
        ok(mkdir(path, 0755) == 0, "a foreign group of the same name");
        struct cgroup cgroup;
        struct err err = { 0 };
        ok(cgroup_create(&host, "half", &small, false, &cgroup, &err) < 0, "is in the way");
        ok(access(path, F_OK) == 0, "and stays");
        (void) rmdir(path);
        ok(!exists_anywhere("half"), "what was made before it is gone");
}

static void remove_parents(void) {
        for (size_t i = 0; i < CGROUP_PLACES; i++)
                if (host.parent[i][0])
                        (void) rmdir(host.parent[i]);
}

/* They are still open, but nothing can be made in them any more. */
static void test_parent_removed(void) {
        struct err err = { 0 };
        struct cgroup group;
        const struct limits limits = LIMITS_DEFAULT;
        ok(!exists_anywhere(""), "the parents are gone");
        ok(cgroup_create(&host, "again", &limits, false, &group, &err) == 0, "they are made again: %s", err.message);
        ok(cgroup_destroy(&group, &err) == 0, "and the group goes");
}

static int count_fds(void) {
        int n = 0;
        DIR *dir = opendir("/proc/self/fd");
        while (dir && readdir(dir))
                n++;
        if (dir)
                (void) closedir(dir);
        return n;
}

int main(void) {
        (void) signal(SIGPIPE, SIG_IGN);
        char parent[64];
        (void) snprintf(parent, sizeof(parent), "glovebox-test-%d", (int) getpid());
        (void) setenv("GLOVEBOX_CGROUP_PARENT", parent, 1);
        cgroup_host_look(&host);
        printf("# %s: %s\n", cgroup_kind_name(&host), host.why_not);
        bool usable = host.usable[CGROUP_MEMORY] && host.usable[CGROUP_PIDS] && host.usable[CGROUP_CPU];
        if (!usable && geteuid() != 0) {
                printf("1..0 # SKIP needs root or a delegated control group\n");
                return 0;
        }
        if (!usable) {
                ok(0, "this host offers all controllers");
                return done_testing();
        }
        ok(!exists_anywhere(""), "looking makes nothing");
        test_limits_written();
        test_leave_v2();
        int fds = count_fds(); /* from here on: the parents stay open */
        test_limits_written();
        test_kill();
        test_kill_without_v2();
        test_leave_v2();
        test_memory();
        test_pids();
        test_missing();
        test_half();
        ok(count_fds() == fds, "no descriptor is left open");
        remove_parents();
        test_parent_removed();
        remove_parents();
        ok(!exists_anywhere(""), "nothing is left");
        return done_testing();
}
