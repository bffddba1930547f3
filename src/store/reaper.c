#include "store/reaper.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/priority.h"
#include "base/process_title.h"
#include "base/remove_tree.h"
#include "engine/engine.h"
#include "engine/mount_dir.h"

enum {
        WAITING_MAX = 1000,
        PATIENCE_MS = 5000, /* for the processes of one box */
        GATHER_MS = 20, /* boxes that end within this time are buried together */
        STOP_MS = 20000,
        MESSAGE_FDS = 3,
        REMOVE_PAUSE_MAX_MS = 60000,
        TASKS_MAX = 4096, /* past it the daemon does them itself */
};

enum message_kind {
        MESSAGE_BURY,   /* pidfd and lease of a box, and the name of its control group */
        MESSAGE_REMOVE, /* a path */
        MESSAGE_BOX,    /* "engine/name" of another engine's box; "" for all that ended; not waited for */
        MESSAGE_CLOSE,  /* files that no other process has open, or none: see files_to_close; not answered */
};

struct message {
        enum message_kind kind;
        uint64_t number; /* it answers with this when the thing is done */
        char name[1024];
};

/* ---- the process ---- */

/* Boxes that are still dying. */
static struct grave {
        char group[64];
        uint64_t number;
        int pidfd, lease_fd; /* no other box gets its user id before it has ended */
        uint64_t until_ms;
} graves[WAITING_MAX];
static size_t n_graves;

/* Of the last MESSAGE_CLOSE. The last close of a file does the work, and the daemon has its own descriptor until it has
 * sent that message. When the next one comes, the daemon has closed its own. */
static int files_to_close[MESSAGE_FDS] = { -1, -1, -1 };

static void close_files(void) {
        for (size_t i = 0; i < MESSAGE_FDS; i++)
                fd_close(&files_to_close[i]);
}

/* The daemon may have ended: then no answer is needed. */
static void report_done(int fd, uint64_t number) {
        (void) send(fd, &number, sizeof(number), MSG_NOSIGNAL);
}

static void close_grave(const struct cgroup_host *host, int fd, size_t i) {
        (void) cgroup_destroy_by_name(host, graves[i].group, NULL); /* kills and waits, should anything be left */
        report_done(fd, graves[i].number);
        fd_close(&graves[i].pidfd);
        fd_close(&graves[i].lease_fd);
        graves[i] = graves[--n_graves];
}

/* ---- boxes of other engines ---- */

static const struct engine_settings *reaper_engines;
static const char *reaper_owner = "", *reaper_dir = ""; /* the data directory */

static void remove_box(const char *engine_name, const char *name) {
        struct err err;
        const struct engine *engine = engine_find(engine_name, &err);
        for (unsigned pause_ms = 250; engine && pause_ms < REMOVE_PAUSE_MAX_MS; pause_ms *= 2) {
                if (engine->remove(reaper_engines, name, &err) == 0) {
                        mount_dir_remove(name);
                        return;
                }
                (void) poll(NULL, 0, (int) pause_ms);
        }
        if (engine)
                daemon_log("%s: a box could not be removed, and is swept up later: %s", engine_name, err.message);
}

static bool has_engine(void) {
        for (const struct engine *const *at = engine_table; *at; at++)
                if (engine_is_there(*at, reaper_engines))
                        return true;
        return false;
}

static void note_left(const char *name, void *context) {
        json_array_append_new(context, json_string(name));
}

static bool is_left(const char *name, void *context) {
        size_t i;
        json_t *left;
        json_array_foreach ((json_t *) context, i, left)
                if (strcmp(json_string_value(left), name) == 0)
                        return true;
        return false;
}

/* Directories of boxes are removed when all engines have answered, and none of them has the box. */
static void sweep_boxes(void) {
        struct err ignored;
        json_t *left = json_array();
        bool is_known = true;
        char prefix[64];
        for (const struct engine *const *at = engine_table; *at; at++)
                if (engine_is_there(*at, reaper_engines) &&
                    (*at)->sweep(reaper_engines, reaper_owner, note_left, left, &ignored) < 0)
                        is_known = false;
        (void) snprintf(prefix, sizeof(prefix), "b-%s-", reaper_owner);
        if (is_known)
                mount_dir_sweep(prefix, is_left, left);
        json_decref(left);
}

/* In a child: an engine may hang. */
static void remove_elsewhere(char *text) {
        char *slash = strchr(text, '/');
        if (!reaper_engines || (!slash && !has_engine()) || fork() != 0)
                return;
        (void) syscall(SYS_close_range, 3, ~0u, 0);
        process_title_set("engine", slash ? text : "sweep");
        if (slash) {
                *slash = '\0';
                remove_box(text, slash + 1);
        } else
                sweep_boxes();
        _exit(EXIT_SUCCESS);
}

enum taken { TAKEN_ONE, TAKEN_NONE, TAKEN_LAST };

/* TAKEN_NONE: no message is there. TAKEN_LAST: there will be no more. */
static enum taken reaper_take_message(const struct cgroup_host *host, int fd) {
        struct message message;
        int fds[MESSAGE_FDS];
        ssize_t size = fd_passing_receive(fd, &message, sizeof(message), fds, MESSAGE_FDS, MSG_DONTWAIT);
        if (size == -EAGAIN)
                return TAKEN_NONE;
        if (size == -ECONNRESET) /* the daemon ended with an answer unread; its last messages are still there */
                return TAKEN_ONE;
        if (size <= (ssize_t) offsetof(struct message, name))
                return TAKEN_LAST;
        ((char *) &message)[size - 1] = '\0';
        close_files();
        if (message.kind == MESSAGE_CLOSE) {
                memcpy(files_to_close, fds, sizeof(fds));
                return TAKEN_ONE;
        }
        if (message.kind == MESSAGE_REMOVE) {
                remove_tree(message.name);
                report_done(fd, message.number);
        }
        if (message.kind == MESSAGE_BOX) {
                remove_elsewhere(message.name);
                report_done(fd, message.number);
        }
        if (message.kind != MESSAGE_BURY) {
                for (size_t i = 0; i < MESSAGE_FDS; i++)
                        fd_close(&fds[i]);
                return TAKEN_ONE;
        }
        if (n_graves == WAITING_MAX)
                close_grave(host, fd, 0);
        struct grave *grave = &graves[n_graves++];
        *grave = (struct grave) {
                .number = message.number, .pidfd = fds[0], .lease_fd = fds[1], .until_ms = loop_now_ms() + PATIENCE_MS
        };
        (void) snprintf(grave->group, sizeof(grave->group), "%.63s", message.name);
        return TAKEN_ONE;
}

static void reaper_serve(const struct cgroup_host *host, int fd) __attribute__((noreturn));
static void reaper_serve(const struct cgroup_host *host, int fd) {
        static struct pollfd polled[WAITING_MAX + 1];
        process_title_set("reaper", reaper_dir);
        (void) signal(SIGINT, SIG_IGN); /* what ends the daemon lets us finish */
        (void) signal(SIGTERM, SIG_IGN);
        for (bool asked = true; asked || n_graves > 0;) {
                size_t n = n_graves;
                for (size_t i = 0; i < n; i++)
                        polled[i] = (struct pollfd) { .fd = graves[i].pidfd, .events = POLLIN };
                polled[n] = (struct pollfd) { .fd = asked ? fd : -1, .events = POLLIN };
                (void) poll(polled, (nfds_t) n + 1, n > 0 ? 1000 : -1);
                while (waitpid(-1, NULL, WNOHANG) > 0)
                        ;
                for (size_t i = n; i-- > 0;)
                        if (polled[i].revents || graves[i].pidfd < 0 || loop_now_ms() >= graves[i].until_ms)
                                close_grave(host, fd, i);
                enum taken taken = polled[n].revents ? TAKEN_ONE : TAKEN_NONE;
                while (taken == TAKEN_ONE)
                        taken = reaper_take_message(host, fd);
                asked = asked && taken != TAKEN_LAST;
                if (asked) /* nobody waits for this, and waking up for each of them costs those who do */
                        (void) poll(NULL, 0, GATHER_MS);
        }
        _exit(EXIT_SUCCESS);
}

/* ---- the daemon's side ---- */

/* Unfinished requests: if this reaper dies, the next one gets them. Meanwhile the lease keeps the box's user id from
 * being used for another box. */
struct task {
        struct task *next;
        uint64_t number;
        enum message_kind kind;
        bool is_sent;
        int fds[2]; /* of a box: pidfd, lease */
        char name[];
};

static struct {
        struct helper *helper;
        const struct cgroup_host *host;
        pid_t pid; /* 0: none */
        int fd;
        struct loop_watch *watch;
        struct task *tasks, **end; /* oldest first */
        size_t n_tasks;
        uint64_t last_number;
} reaper = { .fd = -1, .end = &reaper.tasks };

static void forget_task(uint64_t number) {
        for (struct task **at = &reaper.tasks; *at; at = &(*at)->next) {
                struct task *task = *at;
                if (task->number != number)
                        continue;
                *at = task->next;
                if (!task->next)
                        reaper.end = at;
                fd_close(&task->fds[0]);
                fd_close(&task->fds[1]);
                free(task);
                reaper.n_tasks--;
                return;
        }
}

static int send_message(enum message_kind kind, uint64_t number, const char *name, const int *fds, size_t n_fds) {
        struct message message = { .kind = kind, .number = number };
        size_t size = strlen(name) + 1;
        memcpy(message.name, name, size);
        return fd_passing_send(reaper.fd, &message, offsetof(struct message, name) + size, fds, n_fds, MSG_DONTWAIT);
}

/* False when some must wait until it has read what there is. */
static bool send_tasks(void) {
        for (struct task *task = reaper.tasks; task; task = task->next) {
                if (task->is_sent)
                        continue;
                if (send_message(task->kind, task->number, task->name, task->fds, ELEMENTS(task->fds)) < 0)
                        return false;
                task->is_sent = true;
        }
        return true;
}

static void watch_for_room(bool wait) {
        if (reaper.watch)
                (void) loop_watch_change(reaper.watch, wait ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void clean_up(void) {
        loop_unwatch(&reaper.watch);
        fd_close(&reaper.fd);
        if (reaper.pid > 0) {
                (void) kill(reaper.pid, SIGKILL);
                (void) waitpid(reaper.pid, NULL, 0);
        }
        reaper.pid = 0;
        for (struct task *task = reaper.tasks; task; task = task->next)
                task->is_sent = false;
}

/* Takes the answers that are there. False when it is gone. */
static bool take_answers(void) {
        for (;;) {
                uint64_t number;
                ssize_t n = recv(reaper.fd, &number, sizeof(number), MSG_DONTWAIT);
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return true;
                if (n != sizeof(number))
                        return false;
                forget_task(number);
        }
}

static void on_reaper(void *context, uint32_t events) {
        (void) context;
        (void) events;
        if (take_answers()) {
                watch_for_room(!send_tasks());
                return;
        }
        clean_up();
        helper_died(reaper.helper);
}

static int reaper_start_process(void) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return -errno;
        pid_t pid = fork();
        int code = pid < 0 ? -errno : 0;
        if (pid == 0) {
                /* Closes the daemon's descriptors: a listening socket kept here would outlive the daemon. */
                (void) dup2(ends[1], 3);
                (void) syscall(SYS_close_range, 4, ~0u, 0);
                (void) fcntl(3, F_SETFD, FD_CLOEXEC);
                struct cgroup_host copy = *reaper.host;
                priority_stand_apart();
                reaper_serve(&copy, 3);
        }
        fd_close(&ends[1]);
        if (code < 0)
                fd_close(&ends[0]);
        reaper.pid = code < 0 ? 0 : pid;
        reaper.fd = ends[0];
        return code;
}

static int start_reaper(void *context, struct err *err) {
        (void) context;
        int code = reaper_start_process();
        if (code < 0)
                return err_sys(err, -code, "starting the reaper");
        reaper.watch = loop_watch(reaper.helper->loop, reaper.fd, EPOLLIN, on_reaper, NULL);
        if (!reaper.watch) {
                clean_up();
                return err_set(err, ERR_SYSTEM, "out of descriptors or memory for the reaper");
        }
        helper_started(reaper.helper, reaper.pid);
        watch_for_room(!send_tasks());
        return 0;
}

int reaper_start(struct helper *helper, const struct cgroup_host *host, const char *data_dir, struct err *err) {
        reaper_dir = data_dir;
        reaper.helper = helper;
        reaper.host = host;
        helper->start = start_reaper;
        return start_reaper(NULL, err);
}

/* The rest of what it is to do, within this time. */
static void send_last_tasks(uint64_t until_ms) {
        if (reaper.tasks && reaper.pid <= 0 && reaper_start_process() < 0)
                return; /* the next daemon finds what is left */
        while (!send_tasks() && loop_now_ms() < until_ms) {
                struct pollfd polled = { .fd = reaper.fd, .events = POLLIN | POLLOUT };
                if (poll(&polled, 1, 100) > 0 && !take_answers())
                        return;
        }
}

void reaper_stop(void) {
        uint64_t until_ms = loop_now_ms() + STOP_MS;
        if (!reaper.helper)
                return;
        helper_retire(reaper.helper);
        loop_unwatch(&reaper.watch);
        send_last_tasks(until_ms);
        while (reaper.tasks)
                forget_task(reaper.tasks->number);
        fd_close(&reaper.fd); /* it ends when it has done its work */
        if (reaper.pid <= 0)
                return;
        int pidfd = (int) syscall(SYS_pidfd_open, reaper.pid, 0);
        struct pollfd polled = { .fd = pidfd, .events = POLLIN };
        uint64_t now_ms = loop_now_ms();
        if (pidfd >= 0 && poll(&polled, 1, until_ms > now_ms ? (int) (until_ms - now_ms) : 0) == 1)
                (void) waitpid(reaper.pid, NULL, 0);
        fd_close(&pidfd);
        reaper.pid = 0;
        reaper.helper = NULL;
}

/* Takes the descriptors over when it returns true. */
static bool add_task(enum message_kind kind, const char *name, int pidfd, int lease_fd) {
        size_t size = strlen(name) + 1;
        if (!reaper.helper || reaper.n_tasks >= TASKS_MAX || size > sizeof(((struct message *) 0)->name))
                return false;
        struct task *task = malloc(sizeof(*task) + size);
        if (!task)
                return false;
        *task = (struct task) { .number = ++reaper.last_number, .kind = kind, .fds = { pidfd, lease_fd } };
        memcpy(task->name, name, size);
        *reaper.end = task;
        reaper.end = &task->next;
        reaper.n_tasks++;
        if (reaper.fd >= 0)
                watch_for_room(!send_tasks());
        return true;
}

void reaper_bury(struct cgroup *cgroup, int pidfd, int lease_fd) {
        if (cgroup->host && add_task(MESSAGE_BURY, cgroup->name, pidfd, lease_fd)) {
                cgroup_release(cgroup);
                return;
        }
        (void) cgroup_destroy(cgroup, NULL);
        fd_close(&pidfd);
        fd_close(&lease_fd);
}

void reaper_know_engines(const struct engine_settings *engines, const char *owner) {
        reaper_engines = engines;
        reaper_owner = owner;
}

void reaper_remove_box(const char *engine, const char *name) {
        char text[128];
        (void) snprintf(text, sizeof(text), "%s/%s", engine, name);
        (void) add_task(MESSAGE_BOX, text, -1, -1);
}

void reaper_sweep_boxes(void) {
        (void) add_task(MESSAGE_BOX, "", -1, -1);
}

void reaper_remove_tree(const char *path) {
        if (!add_task(MESSAGE_REMOVE, path, -1, -1))
                remove_tree(path);
}

void reaper_close(int *fds, size_t n_fds) {
        bool is_sent = reaper.fd >= 0 && n_fds <= MESSAGE_FDS && send_message(MESSAGE_CLOSE, 0, "", fds, n_fds) == 0;
        for (size_t i = 0; i < n_fds; i++)
                fd_close(&fds[i]);
        if (is_sent) /* now they are its alone; where this cannot be sent, the next message says so */
                (void) send_message(MESSAGE_CLOSE, 0, "", NULL, 0);
}

/* A descriptor (O_PATH) that keeps a large file when its name is removed. -1: the file is small, or missing. */
static int hold_large(int dir_fd, const char *name) {
        enum { LARGE_BLOCKS = (256 << 10) / 512 };
        struct stat status;
        if (fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(status.st_mode) ||
            status.st_blocks < LARGE_BLOCKS)
                return -1;
        return openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

int reaper_unlink(int dir_fd, const char *name) {
        int held_fd = hold_large(dir_fd, name), code = unlinkat(dir_fd, name, 0) < 0 ? -errno : 0;
        if (held_fd >= 0)
                reaper_close(&held_fd, 1);
        return code;
}

int reaper_rename(int from_fd, const char *from, int to_fd, const char *to) {
        int held_fd = hold_large(to_fd, to), code = renameat(from_fd, from, to_fd, to) < 0 ? -errno : 0;
        if (held_fd >= 0)
                reaper_close(&held_fd, 1);
        return code;
}
