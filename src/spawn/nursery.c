#include "spawn/nursery.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/oom.h"
#include "base/syscalls.h"
#include "spawn/spawn_image.h"

enum {
        RETRY_MS = 100, /* doubled with each failure in a row */
        RETRY_DOUBLINGS_MAX = 9,
        ANSWER_WAIT_S = 10, /* for a fork, which takes milliseconds; one that takes longer hangs */
};

void nursery_stop(struct nursery *nursery) {
        if (nursery->pidfd >= 0)
                (void) sys_pidfd_send_signal(nursery->pidfd, SIGKILL);
        fd_close(&nursery->pidfd);
        fd_close(&nursery->socket_fd);
        fd_close(&nursery->answer_fd);
        nursery->pid = 0;
        nursery->n_preloaded = 0;
        nursery->state = NURSERY_DOWN;
}

static void nursery_fail(struct nursery *nursery, const struct err *err) {
        (void) snprintf(nursery->trouble, sizeof(nursery->trouble), "%.199s", err->message);
        nursery_stop(nursery);
        unsigned doublings = nursery->failures < RETRY_DOUBLINGS_MAX ? nursery->failures : RETRY_DOUBLINGS_MAX;
        nursery->retry_ms = loop_now_ms() + ((uint64_t) RETRY_MS << doublings);
        nursery->failures++;
}

bool nursery_is_due(const struct nursery *nursery, uint64_t now_ms) {
        return nursery->state == NURSERY_DOWN && now_ms >= nursery->retry_ms;
}

uint64_t nursery_due_in_ms(const struct nursery *nursery, uint64_t now_ms) {
        if (nursery->state != NURSERY_DOWN)
                return UINT64_MAX;
        return now_ms >= nursery->retry_ms ? 0 : nursery->retry_ms - now_ms;
}

static void set_patience(int fd) {
        const struct timeval patience = { .tv_sec = ANSWER_WAIT_S };
        (void) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

/* A message is written to the pipe at once (PIPE_BUF); anything else is a protocol error. */
static bool read_within(int fd, void *bytes, size_t size, int wait_ms) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        int n;
        while ((n = poll(&ready, 1, wait_ms)) < 0 && errno == EINTR)
                ;
        return n > 0 && read(fd, bytes, size) == (ssize_t) size;
}

int nursery_start(struct nursery *nursery, const struct box_spec *spec, const char *preload, struct err *err) {
        _cleanup_fd_ int library_fd = fd_sealed_copy("spawn", spawn_image, spawn_image_size());
        int code = library_fd < 0 ? err_sys(err, -library_fd, "preparing the nursery's library") : 0;
        if (code == 0 && nursery->supervisor->fd < 0)
                code = supervisor_start(nursery->supervisor, err);
        if (code == 0)
                code = supervisor_start_nursery(nursery->supervisor, spec, nursery->light, preload, library_fd,
                                                &nursery->socket_fd, &nursery->answer_fd, &nursery->pidfd, err);
        if (code < 0) {
                nursery_fail(nursery, err);
                return -1;
        }
        set_patience(nursery->socket_fd);
        nursery->pid = supervisor_pid_of(nursery->pidfd);
        if (oom_unspare(nursery->pidfd, nursery->pid, OOM_ORDINARY, err) < 0) {
                nursery_fail(nursery, err);
                return -1;
        }
        nursery->started_ms = loop_now_ms();
        nursery->fingerprint = nursery_fingerprint(spec->image);
        nursery->state = NURSERY_STARTING;
        return 0;
}

/* Names from the image's side are shown to people: plain ones only. */
static void copy_names(char *ret_names, size_t room, const char *names) {
        size_t n = 0;
        for (; n + 1 < room && n < NURSERY_NAMES_MAX && names[n]; n++)
                ret_names[n] = names[n] > ' ' && names[n] < 127 && names[n] != '"' && names[n] != '\\' ? names[n] : '?';
        ret_names[n] = '\0';
}

bool nursery_read_answer(struct nursery *nursery) {
        struct nursery_answer answer;
        ssize_t size = read(nursery->answer_fd, &answer, sizeof(answer)); /* poll: it does not block */
        if (size != sizeof(answer) || !answer.ready || nursery->state != NURSERY_STARTING) {
                struct err err;
                char names[sizeof(answer.failed)] = "";
                if (size == sizeof(answer) && answer.code == -EDEADLK)
                        copy_names(names, sizeof(names), answer.failed);
                if (*names)
                        (void) err_set(&err, ERR_UNSUPPORTED, "its imports started threads: %s", names);
                else
                        (void) err_set(&err, ERR_GONE, size <= 0 ? "it died" : "its answer was malformed");
                nursery_fail(nursery, &err);
                return true;
        }
        nursery->n_preloaded = answer.n_preloaded;
        copy_names(nursery->failed, sizeof(nursery->failed), answer.failed);
        nursery->state = NURSERY_READY;
        return true;
}

/* ---- forking ---- */

static bool add_text(struct nursery_order *order, const char *text) {
        size_t size = strlen(text) + 1;
        if (size > sizeof(order->texts) - order->texts_size)
                return false;
        memcpy(order->texts + order->texts_size, text, size);
        order->texts_size += (uint32_t) size;
        return true;
}

static int fill_order(const struct nursery_birth *birth, struct nursery_order *order, struct err *err) {
        static const char *const always[] = { BOX_WORKSPACE, "/tmp", BOX_HOME, "/dev/shm" };
        bool fits = true;
        order->limits = birth->spec->limits;
        order->has_memory_cgroup = birth->has_memory_cgroup;
        order->has_pids_cgroup = birth->has_pids_cgroup;
        order->is_awaited = birth->is_awaited;
        order->mounts_follow = birth->mounts_follow;
        for (size_t i = 0; fits && i < ELEMENTS(always); i++, order->n_writable++)
                fits = add_text(order, always[i]);
        for (size_t i = 0; fits && i < birth->spec->n_mounts; i++) {
                if (!birth->spec->mounts[i].writable)
                        continue;
                fits = add_text(order, birth->spec->mounts[i].destination);
                order->n_writable++;
        }
        for (size_t i = 0; fits && birth->environment[i]; i++, order->n_environment++)
                fits = add_text(order, birth->environment[i]);
        return fits ? 0 : err_set(err, ERR_LIMIT, "the kernel's environment is too large to be forked with");
}

static int send_order(struct nursery *nursery, const struct nursery_birth *birth, int verdict_fd, int go_fd,
                      struct err *err) {
        _cleanup_free_ struct nursery_order *order = malloc(sizeof(*order));
        const struct cgroup *cgroup = &birth->box->cgroup;
        int fds[NURSERY_FDS];
        if (!order)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        memset(order, 0, offsetof(struct nursery_order, texts));
        if (fill_order(birth, order, err) < 0)
                return -1;
        fds[NURSERY_AGENT] = birth->box->pidfd;
        memcpy(&fds[NURSERY_STDIN], birth->fds, (NURSERY_REPLIES - NURSERY_STDIN + 1) * sizeof(int));
        fds[NURSERY_VERDICT] = verdict_fd;
        fds[NURSERY_GO] = go_fd;
        memcpy(&fds[NURSERY_GROUPS], cgroup->tasks_fd, sizeof(cgroup->tasks_fd));
        fds[NURSERY_GROUPS + CGROUP_CONTROLLERS] = cgroup->entry_fd;
        size_t size = offsetof(struct nursery_order, texts) + order->texts_size;
        int code = fd_passing_send(nursery->socket_fd, order, size, fds, NURSERY_FDS, 0);
        return code < 0 ? err_sys(err, -code, "asking the nursery for a kernel") : 0;
}

/* True if this process is in the pid namespace of the box. A compromised nursery must not make us adopt another one. */
static bool is_in_box(int pidfd, const struct box *box) {
        char path[64];
        struct stat its, ours;
        _cleanup_fd_ int its_fd = sys_pidfd_get_pid_namespace(pidfd);
        _cleanup_fd_ int ours_fd = its_fd < 0 ? -1 : sys_pidfd_get_pid_namespace(box->pidfd);
        if (ours_fd >= 0)
                return fstat(its_fd, &its) == 0 && fstat(ours_fd, &ours) == 0 && its.st_ino == ours.st_ino &&
                       its.st_dev == ours.st_dev;
        pid_t pid = supervisor_pid_of(pidfd);
        (void) snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int) pid);
        if (pid <= 0 || stat(path, &its) < 0)
                return false;
        (void) snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int) box->pid);
        return stat(path, &ours) == 0 && its.st_ino == ours.st_ino && its.st_dev == ours.st_dev;
}

static int receive_kernel(struct nursery *nursery, pid_t *ret_pid, struct err *err) {
        struct nursery_answer answer;
        if (!read_within(nursery->answer_fd, &answer, sizeof(answer), ANSWER_WAIT_S * 1000))
                return err_set(err, ERR_GONE, "the nursery does not answer");
        if (answer.code < 0)
                return err_sys(err, -answer.code, "forking a kernel");
        *ret_pid = answer.pid;
        return 0;
}

/* The kernel's own report that it is sealed. */
static int wait_until_sealed(const struct nursery_child *child, struct err *err) {
        struct err verdict;
        uint64_t now_ms = loop_now_ms();
        int wait_ms = now_ms < child->until_ms ? (int) (child->until_ms - now_ms) : 0;
        if (!read_within(child->verdict_fd, &verdict, sizeof(verdict), wait_ms))
                return err_set(err, ERR_GONE, "the kernel died while it was sealed");
        if (verdict.code != ERR_NONE) {
                verdict.message[sizeof(verdict.message) - 1] = '\0';
                *err = verdict;
                return -1;
        }
        return 0;
}

int nursery_fork(struct nursery *nursery, const struct nursery_birth *birth, struct nursery_child *ret_child,
                 struct err *err) {
        int verdict[2] = { -1, -1 }, go[2] = { -1, -1 }, status[2] = { -1, -1 };
        bool good = pipe2(verdict, O_CLOEXEC) == 0 && pipe2(go, O_CLOEXEC) == 0 && pipe2(status, O_CLOEXEC) == 0;
        int problem = errno;
        _cleanup_fd_ int verdict_read = verdict[0];
        _cleanup_fd_ int verdict_write = verdict[1];
        _cleanup_fd_ int go_read = go[0];
        _cleanup_fd_ int go_write = go[1];
        _cleanup_fd_ int status_read = status[0];
        _cleanup_fd_ int status_write = status[1];
        _cleanup_fd_ int pidfd = -1;
        pid_t pid = 0;
        if (!good)
                return err_sys(err, problem, "making a pipe");
        if (send_order(nursery, birth, verdict_write, go_read, err) < 0)
                return -1; /* perhaps too large for one message; the nursery itself is intact */
        fd_close(&verdict_write);
        fd_close(&go_read);
        if (receive_kernel(nursery, &pid, err) < 0) {
                nursery_fail(nursery, err);
                return -1;
        }
        if (supervisor_watch(nursery->supervisor, pid, status_write, &pidfd, err) < 0)
                return -1; /* without its permission the kernel ends */
        if (!is_in_box(pidfd, birth->box)) {
                (void) err_set(err, ERR_PROTOCOL, "the nursery answered with a process that is not in the box");
                nursery_fail(nursery, err);
                return -1; /* not ours to kill */
        }
        *ret_child = (struct nursery_child) { .pidfd = take_fd(&pidfd),
                                              .status_fd = take_fd(&status_read),
                                              .verdict_fd = take_fd(&verdict_read),
                                              .go_fd = take_fd(&go_write),
                                              .until_ms = loop_now_ms() + ANSWER_WAIT_S * 1000 };
        return 0;
}

int nursery_release(struct nursery *nursery, struct nursery_child *child, struct err *err) {
        int code = wait_until_sealed(child, err);
        if (code == 0 && fd_write_all(child->go_fd, "g", 1) < 0)
                code = err_sys(err, errno, "letting the kernel go");
        if (code < 0) {
                nursery_drop(child);
                return -1;
        }
        fd_close(&child->verdict_fd);
        fd_close(&child->go_fd);
        nursery->forks++;
        nursery->failures = 0;
        return 0;
}

void nursery_drop(struct nursery_child *child) {
        (void) sys_pidfd_send_signal(child->pidfd, SIGKILL);
        fd_close(&child->pidfd);
        fd_close(&child->status_fd);
        fd_close(&child->verdict_fd);
        fd_close(&child->go_fd);
}

uint64_t nursery_fingerprint(const struct image *image) {
        uint64_t hash = 14695981039346656037ull; /* FNV-1a */
        for (size_t i = 0; i < image->n_trees; i++) {
                struct stat status = { 0 };
                (void) fstat(image->trees[i].fd, &status);
                const uint64_t numbers[] = { status.st_dev, status.st_ino, (uint64_t) status.st_mtim.tv_sec,
                                             (uint64_t) status.st_mtim.tv_nsec };
                for (size_t n = 0; n < sizeof(numbers); n++)
                        hash = (hash ^ ((const unsigned char *) numbers)[n]) * 1099511628211ull;
        }
        return hash;
}
