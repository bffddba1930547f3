/* Killing a box.
 *
 * With a v2 tree one write to cgroup.kill kills all, atomically against forks, and cgroup.events reports the end of the
 * last one. A v1 hierarchy has neither: pids.max is set to 0, so that a fork bomb cannot outrun the killing, and the
 * listed processes are killed until the list stays empty. On a hybrid host both are done, so a process that entered the
 * v1 groups without the v2 one dies too. */
#include "box/cgroup/cgroup_kill.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"
#include "box/cgroup/cgroup.h"
#include "box/cgroup/cgroup_file.h"
#include "box/cgroup/cgroup_text.h"

enum { KILL_WAIT_MS = 5000, BATCH = 64 };

/* A list that does not fit is cut behind its last whole line. */
static int read_procs(int dir_fd, char *ret_text, size_t size) {
        int n = cgroup_file_read(dir_fd, "cgroup.procs", ret_text, size);
        char *last = n > 0 ? strrchr(ret_text, '\n') : NULL;
        if (last)
                last[1] = '\0';
        return n;
}

static bool pid_is_listed(const char *text, int pid) {
        for (int other; cgroup_text_next_pid(&text, &other);)
                if (other == pid)
                        return true;
        return false;
}

int cgroup_kill_listed(int dir_fd) {
        char text[8192];
        int n = read_procs(dir_fd, text, sizeof(text));
        if (n < 0)
                return n;
        int pids[BATCH], pid_fds[BATCH], found = 0;
        const char *at = text;
        for (int pid; found < BATCH && cgroup_text_next_pid(&at, &pid);) {
                if (pid == getpid())
                        return -EDEADLK;
                pids[found] = pid;
                pid_fds[found++] = (int) syscall(SYS_pidfd_open, pid, 0);
        }
        if (found == 0)
                return n > 0 ? -EXDEV : 0; /* a process of another pid namespace is listed as 0 */
        /* If the pid is still on the list after its pidfd was opened, the pidfd refers to that process. */
        n = read_procs(dir_fd, text, sizeof(text));
        for (int i = 0; i < found; i++) {
                if (n > 0 && pid_fds[i] >= 0 && pid_is_listed(text, pids[i]))
                        (void) syscall(SYS_pidfd_send_signal, pid_fds[i], SIGKILL, NULL, 0);
                fd_close(&pid_fds[i]);
        }
        return n < 0 ? n : found;
}

/* A directory that was removed meanwhile (ENODEV), or never existed, counts as empty. */
static bool is_gone(int code) {
        return code == -ENOENT || code == -ENODEV || code == -EBADF;
}

static int kill_by_list(int dir_fd, int64_t deadline_ms) {
        for (long sleep_us = 50;;) {
                int found = cgroup_kill_listed(dir_fd);
                if (found == 0 || is_gone(found))
                        return 0;
                if (found < 0)
                        return found;
                if ((int64_t) clock_now_ms() >= deadline_ms)
                        return -ETIMEDOUT;
                (void) nanosleep(&(struct timespec) { .tv_nsec = sleep_us * 1000 }, NULL);
                if (sleep_us < 10000)
                        sleep_us *= 2;
        }
}

/* The kernel raises POLLPRI on cgroup.events when `populated` changes. */
static int wait_until_empty(int dir_fd, int64_t deadline_ms) {
        _cleanup_fd_ int fd = openat(dir_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return is_gone(-errno) ? 0 : -errno;
        for (;;) {
                char text[256];
                ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
                if (n < 0)
                        return is_gone(-errno) ? 0 : -errno;
                text[n] = '\0';
                uint64_t populated = 1;
                if (cgroup_text_find_number(text, "populated", &populated) == 0 && populated == 0)
                        return 0;
                int64_t left_ms = deadline_ms - (int64_t) clock_now_ms();
                if (left_ms <= 0)
                        return -ETIMEDOUT;
                (void) poll(&(struct pollfd) { .fd = fd, .events = POLLPRI }, 1, (int) (left_ms < 100 ? left_ms : 100));
        }
}

static int kill_v2(int dir_fd, int64_t deadline_ms) {
        (void) cgroup_file_write(dir_fd, "cgroup.freeze", "0");
        int code = cgroup_file_write(dir_fd, "cgroup.kill", "1");
        if (code == -ENOENT) /* before Linux 5.14 */
                code = kill_by_list(dir_fd, deadline_ms);
        if (code < 0)
                return is_gone(code) ? 0 : code;
        return wait_until_empty(dir_fd, deadline_ms);
}

static int open_v1(const struct cgroup *cgroup, enum cgroup_controller controller) {
        char path[CGROUP_PATH_MAX + 64];
        if (!cgroup->host->usable[controller] || cgroup_host_in_v2(cgroup->host, controller))
                return -ENOENT;
        (void) snprintf(path, sizeof(path), "%s/%s", cgroup->host->parent[controller], cgroup->name);
        return cgroup_file_open_dir(AT_FDCWD, path);
}

static int kill_v1(const struct cgroup *cgroup, int64_t deadline_ms) {
        _cleanup_fd_ int pids_fd = open_v1(cgroup, CGROUP_PIDS);
        char pids_max[32] = "", first[32];
        int result = 0;
        for (enum cgroup_controller c = 0; c < CGROUP_CONTROLLERS; c++) {
                _cleanup_fd_ int dir_fd = open_v1(cgroup, c);
                if (cgroup_file_read(dir_fd, "cgroup.procs", first, sizeof(first)) <= 0)
                        continue;
                if (!pids_max[0] && cgroup_file_read(pids_fd, "pids.max", pids_max, sizeof(pids_max)) > 0)
                        (void) cgroup_file_write(pids_fd, "pids.max", "0");
                int code = kill_by_list(dir_fd, deadline_ms);
                if (code < 0)
                        result = code;
        }
        if (pids_max[0])
                (void) cgroup_file_write(pids_fd, "pids.max", pids_max);
        return result;
}

static int fail_unseen(const struct cgroup *cgroup, struct err *err) {
        return err_set(err, ERR_REFUSED,
                       "the control group %s has processes of another pid namespace, which cannot be ended from here: "
                       "end them there",
                       cgroup->name);
}

int cgroup_kill_now(const struct cgroup *cgroup) {
        int found = 0;
        if (cgroup->v2_fd >= 0) { /* reaches into other pid namespaces */
                (void) cgroup_file_write(cgroup->v2_fd, "cgroup.freeze", "0");
                found = cgroup_file_write(cgroup->v2_fd, "cgroup.kill", "1") == 0;
                if (!found)
                        found = cgroup_kill_listed(cgroup->v2_fd);
        }
        for (enum cgroup_controller c = 0; c < CGROUP_CONTROLLERS; c++) {
                _cleanup_fd_ int dir_fd = open_v1(cgroup, c);
                int listed = dir_fd < 0 ? 0 : cgroup_kill_listed(dir_fd);
                if (listed > found)
                        found = listed;
        }
        return found > 0 ? found : 0;
}

int cgroup_kill(const struct cgroup *cgroup, struct err *err) {
        if (!cgroup->host)
                return 0;
        int64_t deadline_ms = (int64_t) clock_now_ms() + KILL_WAIT_MS;
        int code = cgroup->v2_fd >= 0 ? kill_v2(cgroup->v2_fd, deadline_ms) : 0;
        int v1 = kill_v1(cgroup, deadline_ms);
        if (code == 0)
                code = v1;
        if (code == -ETIMEDOUT)
                return err_set(err, ERR_TIMEOUT,
                               "processes of the control group %s are still there %d seconds after they "
                               "were killed: they hang in the kernel (a device or network file system that does not "
                               "answer)",
                               cgroup->name, KILL_WAIT_MS / 1000);
        if (code == -EXDEV)
                return fail_unseen(cgroup, err);
        return code < 0 ? err_sys(err, -code, "cannot kill the processes of the control group %s", cgroup->name) : 0;
}
