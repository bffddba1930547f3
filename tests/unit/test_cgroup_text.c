/* What the kernel says about control groups, on every kind of host. */
#include <errno.h>

#include "box/cgroup/cgroup_text.h"
#include "tap.h"

static const char hybrid_mounts[] =
        "23 1 0:21 / /sys rw,nosuid - sysfs sysfs rw\n"
        "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:1 master:2 - cgroup cgroup rw,memory\n"
        "40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";

static const char container_mounts[] =
        "700 600 0:30 /docker/abc /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n"
        "701 600 0:31 /docker/abc /mnt/my\\040groups\\134x rw,nosuid - cgroup cgroup rw,pids\n"
        "702 600 0:30 /docker/abc /mnt/memory rw,nosuid - cgroup cgroup rw,memory\n"
        "703 600 0:30 /docker/abc /mnt/memory2 rw,nosuid - cgroup cgroup rw,memory\n";

static const char own_groups[] = "9:name=systemd:/user.slice\n"
                                 "5:cpuacct,cpu:/\n"
                                 "4:memory:/process:with:colons/6e06\n"
                                 "0::/user.slice/user-1000.slice/session-3.scope\n";

static void test_mounts(void) {
        struct cgroup_mount mount;
        ok(cgroup_text_find_mount(hybrid_mounts, "memory", &mount) == 0, "the memory hierarchy is found");
        is_text(mount.point, "/sys/fs/cgroup/memory", "behind optional fields");
        ok(cgroup_text_find_mount(hybrid_mounts, "cpu", &mount) == 0, "cpu is found among joint controllers");
        is_text(mount.point, "/sys/fs/cgroup/cpu,cpuacct", "where both are mounted");
        ok(cgroup_text_find_mount(hybrid_mounts, NULL, &mount) == 0, "the cgroup2 tree is found");
        is_text(mount.point, "/sys/fs/cgroup/unified", "where it is mounted");
        ok(cgroup_text_find_mount(hybrid_mounts, "pids", &mount) == -ENOENT, "what is not mounted is not found");
        ok(cgroup_text_find_mount(hybrid_mounts, "mem", &mount) == -ENOENT, "half a name is no name");
        ok(cgroup_text_find_mount("", NULL, &mount) == -ENOENT, "no mounts, nothing found");
        ok(cgroup_text_find_mount("1 2 3 / /x rw - cgroup2", NULL, &mount) == -ENOENT, "a cut line is passed over");

        ok(cgroup_text_find_mount(container_mounts, "memory", &mount) == 0 && !mount.read_only,
           "a writable mount is preferred to a read-only one");
        is_text(mount.point, "/mnt/memory", "and the first of those is taken");
        is_text(mount.root, "/docker/abc", "with the part of the hierarchy that it shows");
        ok(cgroup_text_find_mount(container_mounts, "pids", &mount) == 0, "escaped names are read");
        is_text(mount.point, "/mnt/my groups\\x", "and unescaped");

        char long_line[2000];
        int n = snprintf(long_line, sizeof(long_line), "1 2 0:3 / /");
        memset(long_line + n, 'x', 600);
        (void) snprintf(long_line + n + 600, sizeof(long_line) - (size_t) n - 600, " rw - cgroup2 cgroup2 rw\n");
        ok(cgroup_text_find_mount(long_line, NULL, &mount) == -ENAMETOOLONG, "a path that does not fit is not cut");
}

static void test_own_groups(void) {
        char path[CGROUP_PATH_MAX];
        ok(cgroup_text_find_own(own_groups, "memory", path) == 0, "our memory group is found");
        is_text(path, "/process:with:colons/6e06", "colons in its name stay");
        ok(cgroup_text_find_own(own_groups, "cpu", path) == 0, "our cpu group is found");
        is_text(path, "/", "at the root");
        ok(cgroup_text_find_own(own_groups, NULL, path) == 0, "our v2 group is found");
        is_text(path, "/user.slice/user-1000.slice/session-3.scope", "by its empty controller list");
        ok(cgroup_text_find_own(own_groups, "pids", path) == -ENOENT, "no pids hierarchy, no group");
        ok(cgroup_text_find_own("0:", NULL, path) == -ENOENT, "a cut line is passed over");
}

static void test_directories(void) {
        static const struct {
                const char *root, *point, *path, *expected; /* NULL: not visible */
        } rows[] = {
                { "/", "/sys/fs/cgroup", "/", "/sys/fs/cgroup" },
                { "/", "/sys/fs/cgroup", "/a/b", "/sys/fs/cgroup/a/b" },
                { "/docker/abc", "/mnt", "/docker/abc", "/mnt" },
                { "/docker/abc", "/mnt", "/docker/abc/d", "/mnt/d" },
                { "/docker/abc", "/mnt", "/docker/abcd", NULL },
                { "/docker/abc", "/mnt", "/docker", NULL },
                { "/", "/mnt", "/../../other", NULL },
                { "/..", "/mnt", "/..", NULL },
        };
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                struct cgroup_mount mount = { .read_only = false };
                char dir[CGROUP_PATH_MAX] = "";
                (void) snprintf(mount.root, sizeof(mount.root), "%s", rows[i].root);
                (void) snprintf(mount.point, sizeof(mount.point), "%s", rows[i].point);
                int code = cgroup_text_locate(&mount, rows[i].path, dir);
                if (rows[i].expected)
                        is_text(code == 0 ? dir : "(error)", rows[i].expected, "%s of %s", rows[i].path, rows[i].root);
                else
                        ok(code == -ENOENT, "%s is not visible below %s", rows[i].path, rows[i].root);
        }
        static const char *const pairs[][3] = {
                { "/a/b", "/a/b/c", "/a/b" }, { "/a/b", "/a/bc", "/a" }, { "/a", "/b", "/" },
                { "/a/b", "/a/b", "/a/b" },   { "/", "/a", "/" },
        };
        for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
                char dir[CGROUP_PATH_MAX];
                cgroup_text_common(pairs[i][0], pairs[i][1], dir);
                is_text(dir, pairs[i][2], "what holds %s and %s", pairs[i][0], pairs[i][1]);
        }
}

static void test_values(void) {
        uint64_t number = 7;
        ok(cgroup_text_has_word("cpuset cpu io memory\n", "cpu"), "a controller of a list");
        ok(cgroup_text_has_word("memory\n", "memory") && !cgroup_text_has_word("memory\n", ""), "the only one");
        ok(!cgroup_text_has_word("cpuset io", "cpu"), "not a part of another");
        ok(cgroup_text_find_number("low 0\noom 3\noom_kill 2\n", "oom_kill", &number) == 0 && number == 2,
           "oom_kill is not oom");
        ok(cgroup_text_find_number("oom_kill_disable 0\nunder_oom 0\noom_kill 1", "oom_kill", &number) == 0 &&
                   number == 1,
           "v1 writes it among others");
        ok(cgroup_text_find_number("oom_kill 99999999999999999999", "oom_kill", &number) == -EINVAL && number == 1,
           "a number that does not fit is refused");
        ok(cgroup_text_find_number("oom_kill", "oom_kill", &number) == -ENOENT, "a key alone is nothing");

        const char *procs = "0\n12\n-5\n2147483647\n99999999999\nx\n13";
        int pid, found[4] = { 0 }, n = 0;
        while (n < 4 && cgroup_text_next_pid(&procs, &pid))
                found[n++] = pid;
        ok(n == 3 && found[0] == 12 && found[1] == 2147483647 && found[2] == 13,
           "0 (another pid namespace), negative and oversized ids are never returned");

        ok(cgroup_text_is_relative("glovebox") && cgroup_text_is_relative("a.slice/glovebox-7"), "plain names");
        static const char *const bad[] = { "", "/a", "a/", "a//b", "..", "a/../b", ".", "a b", "a\nb" };
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                ok(!cgroup_text_is_relative(bad[i]), "odd name %zu is refused", i);
}

int main(void) {
        test_mounts();
        test_own_groups();
        test_directories();
        test_values();
        return done_testing();
}
