#include "box/cgroup/cgroup_prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/cgroup/cgroup_file.h"
#include "box/cgroup/cgroup_text.h"

/* True if the group is delegated to us. The real root of the tree, which alone has no cgroup.type, never is: the
 * processes in it are the machine's. */
static bool is_delegated(int dir_fd) {
        struct stat st;
        return fstat(dir_fd, &st) == 0 && st.st_uid == geteuid() && faccessat(dir_fd, "cgroup.type", F_OK, 0) == 0;
}

/* Moves every process of the group into its leaf. Several rounds, since processes may fork meanwhile. */
static int move_into_leaf(int dir_fd) {
        if (mkdirat(dir_fd, CGROUP_SELF_LEAF, 0755) < 0 && errno != EEXIST)
                return -errno;
        for (int round = 0; round < 20; round++) {
                char text[16384], number[16];
                int n = cgroup_file_read(dir_fd, "cgroup.procs", text, sizeof(text));
                if (n < 0)
                        return n;
                if (n == 0)
                        return 0;
                char *last = strrchr(text, '\n'); /* a list that was cut must not end in half a number */
                if (last)
                        last[1] = '\0';
                const char *at = text;
                for (int pid; cgroup_text_next_pid(&at, &pid);) {
                        (void) snprintf(number, sizeof(number), "%d", pid);
                        int code = cgroup_file_write(dir_fd, CGROUP_SELF_LEAF "/cgroup.procs", number);
                        if (code < 0 && code != -ESRCH)
                                return code;
                }
        }
        return -EBUSY;
}

static int enable_one(int dir_fd, const char *name) {
        char text[32];
        (void) snprintf(text, sizeof(text), "+%s", name);
        int code = cgroup_file_write(dir_fd, "cgroup.subtree_control", text);
        if (code != -EBUSY || !is_delegated(dir_fd))
                return code;
        code = move_into_leaf(dir_fd);
        return code < 0 ? -EBUSY : cgroup_file_write(dir_fd, "cgroup.subtree_control", text);
}

static int enable_controllers(const struct cgroup_host *host, int dir_fd, const char *dir, struct err *err) {
        char enabled[512];
        int code = cgroup_file_read(dir_fd, "cgroup.subtree_control", enabled, sizeof(enabled));
        if (code < 0)
                return err_sys(err, -code, "cannot read cgroup.subtree_control of %s", dir);
        for (enum cgroup_controller c = 0; c < CGROUP_CONTROLLERS; c++) {
                const char *name = cgroup_controller_name(c);
                if (!host->usable[c] || !cgroup_host_in_v2(host, c) || cgroup_text_has_word(enabled, name))
                        continue;
                code = enable_one(dir_fd, name);
                if (code == -EBUSY)
                        return err_set(
                                err, ERR_BUSY,
                                "cannot hand the %s controller down from %s: there are processes in that "
                                "group, and only leaves may hold any; start glovebox in a group of its own "
                                "(systemd-run --scope -p Delegate=yes glovebox ...), or first move them: "
                                "mkdir %s/init; for p in $(cat %s/cgroup.procs); do echo $p > %s/init/cgroup.procs; "
                                "done",
                                name, dir, dir, dir, dir);
                if (code < 0)
                        return err_sys(err, -code, "cannot hand the %s controller down from %s; see glovebox doctor",
                                       name, dir);
        }
        return 0;
}

int cgroup_prepare_parent(const struct cgroup_host *host, size_t index, struct err *err) {
        bool v2 = index == CGROUP_V2_TREE ||
                  (index < CGROUP_CONTROLLERS && cgroup_host_in_v2(host, (enum cgroup_controller) index));
        char path[CGROUP_PATH_MAX];
        memcpy(path, host->parent[index], sizeof(path));
        size_t size = strlen(path), tail = strlen(host->relative) + 1;
        if (size <= tail)
                return err_set(err, ERR_UNSUPPORTED, "no control group to create boxes in; see glovebox doctor");

        /* From the base downwards, one component at a time: path is cut at each '/' in turn. */
        char *at = path + size - tail;
        *at = '\0';
        _cleanup_fd_ int dir_fd = cgroup_file_open_dir(AT_FDCWD, path);
        if (dir_fd < 0)
                return err_sys(err, -dir_fd, "cannot open the control group %s", path);
        for (;;) {
                if (v2 && enable_controllers(host, dir_fd, path, err) < 0)
                        return -1;
                if (at == path + size)
                        return 0;
                char *name = at + 1;
                *at = '/';
                at = name + strcspn(name, "/");
                *at = '\0';
                if (mkdirat(dir_fd, name, 0755) < 0 && errno != EEXIST)
                        return err_sys(err, errno, "cannot create the control group %s", path);
                int next_fd = cgroup_file_open_dir(dir_fd, name);
                if (next_fd < 0)
                        return err_sys(err, -next_fd, "cannot open the control group %s", path);
                fd_close(&dir_fd);
                dir_fd = next_fd;
        }
}
