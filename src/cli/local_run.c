#include "cli/local_run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/data_dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "box/cgroup/cgroup.h"
#include "box/host/cleanup_watchdog.h"
#include "cli/run_program.h"

/* The ids of runs that were made without a daemon, and of those whose daemon has exited. */
enum { ID_MAX = 32, ID_MIN = 26, PREFIX_MIN = 6, TEXT_MAX = 2048, WHAT_MAX = 80, TRIES = 10 };

static uint64_t wall_ms(void) {
        struct timespec now;
        (void) clock_gettime(CLOCK_REALTIME, &now);
        return (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
}

/* ---- a run of our own ---- */

void local_run_name(struct local_run *run, const char *data_dir, const char *id) {
        (void) snprintf(run->path, sizeof(run->path), "%.4090s/runs/%.32s", data_dir, id);
}

/* The last run that ends removes the directory, perhaps between the two calls. */
static int create_file(const char *path) {
        char directory[4200];
        (void) snprintf(directory, sizeof(directory), "%.*s", (int) (strrchr(path, '/') - path), path);
        int fd = -1;
        for (unsigned i = 0; i < TRIES && fd < 0; i++) {
                if (mkdir(directory, 0700) < 0 && errno != EEXIST)
                        return -1;
                fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
                if (fd < 0 && errno != ENOENT)
                        return -1;
        }
        return fd;
}

void local_run_announce(struct local_run *run, const struct run_request *request) {
        char what[WHAT_MAX + 1];
        struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        run->fd = create_file(run->path);
        if (run->fd < 0)
                return;
        run_program_describe(request, what, sizeof(what));
        json_t *text = json_pack("{s:s, s:s, s:I}", "image", request->image, "what", what, "started_ms",
                                 (json_int_t) wall_ms());
        _cleanup_free_ char *line = text ? json_dumps(text, JSON_COMPACT) : NULL;
        json_decref(text);
        if (!line || fcntl(run->fd, F_SETLK, &whole) < 0 || fd_write_all(run->fd, line, strlen(line)) < 0)
                local_run_end(run);
}

void local_run_end(struct local_run *run) {
        if (run->fd >= 0)
                cleanup_remove_file(run->path);
        fd_close(&run->fd);
}

/* ---- those of others ---- */

/* The process that holds the lock; 0: it has exited, and the file was removed. */
static pid_t holder_of(int directory_fd, const char *name, int fd) {
        struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        if (fcntl(fd, F_GETLK, &whole) < 0)
                return 0;
        if (whole.l_type != F_UNLCK)
                return whole.l_pid;
        struct stat status;
        if (fstat(fd, &status) == 0 && status.st_size > 0) /* an empty file is about to be locked */
                (void) unlinkat(directory_fd, name, 0);
        return 0;
}

static void add_usage(json_t *item, const char *id) {
        struct cgroup_host host;
        struct cgroup cgroup;
        struct cgroup_usage usage = { 0 };
        struct err ignored;
        char name[64];
        (void) snprintf(name, sizeof(name), "run-%.32s", id);
        cgroup_host_look(&host);
        if (cgroup_adopt(&host, name, &cgroup, &ignored) == 0) {
                cgroup_read_usage(&cgroup, &usage);
                cgroup_release(&cgroup);
        }
        (void) json_object_set_new(item, "memory_bytes", json_integer((json_int_t) usage.memory_now_bytes));
        (void) json_object_set_new(item, "cpu_ms", json_integer((json_int_t) (usage.cpu_us / 1000)));
}

/* As the daemon describes a program. */
static json_t *local_run_describe(const char *id, const json_t *text, pid_t pid) {
        uint64_t now = wall_ms(), started = (uint64_t) json_integer_value(json_object_get(text, "started_ms"));
        const char *image = json_string_value(json_object_get(text, "image"));
        const char *what = json_string_value(json_object_get(text, "what"));
        json_t *item = json_pack("{s:s, s:s, s:s, s:s, s:i, s:b, s:b, s:[{s:s, s:s, s:I, s:s}]}", "id", id, "name", "",
                                 "state", "running", "image", image ? image : "", "pid", (int) pid, "ephemeral", 1,
                                 "local", 1, "runs", "run_id", id, "status", "running", "running_ms",
                                 (json_int_t) (now > started ? now - started : 0), "what", what ? what : "");
        if (item)
                add_usage(item, id);
        return item;
}

/* Calls `take` with each, until it returns false. */
static void each_local_run(bool (*take)(const char *id, const json_t *text, pid_t pid, void *context), void *context) {
        char path[DATA_DIR_PATH_MAX + 8], data_dir[DATA_DIR_PATH_MAX];
        struct err ignored;
        if (data_dir_find(data_dir, &ignored) < 0)
                return;
        (void) snprintf(path, sizeof(path), "%s/runs", data_dir);
        DIR *directory = opendir(path);
        struct dirent *entry;
        bool more = true;
        while (more && directory && (entry = readdir(directory))) {
                char line[TEXT_MAX];
                size_t length = strlen(entry->d_name);
                _cleanup_fd_ int fd = length >= ID_MIN && length <= ID_MAX
                                              ? openat(dirfd(directory), entry->d_name,
                                                       O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                                              : -1;
                pid_t pid = fd < 0 ? 0 : holder_of(dirfd(directory), entry->d_name, fd);
                ssize_t size = pid > 0 ? read(fd, line, sizeof(line)) : 0;
                json_t *text = size > 0 ? json_loadb(line, (size_t) size, 0, NULL) : NULL;
                if (text)
                        more = take(entry->d_name, text, pid, context);
                json_decref(text);
        }
        if (directory)
                (void) closedir(directory);
}

static bool add_one(const char *id, const json_t *text, pid_t pid, void *processes) {
        json_t *item = local_run_describe(id, text, pid);
        if (item)
                (void) json_array_append_new(processes, item);
        return true;
}

void local_run_list(json_t *processes) {
        each_local_run(add_one, processes);
}

struct search {
        const char *prefix;
        size_t n_found;
        pid_t pid;
};

static bool match_one(const char *id, const json_t *text, pid_t pid, void *context) {
        struct search *search = context;
        (void) text;
        if (strncmp(id, search->prefix, strlen(search->prefix)) == 0) {
                search->n_found++;
                search->pid = pid;
        }
        return true;
}

int local_run_kill(const char *id, bool hard, struct err *err) {
        struct search search = { .prefix = id };
        if (strlen(id) >= PREFIX_MIN)
                each_local_run(match_one, &search);
        if (search.n_found > 1)
                return err_set(err, ERR_USAGE, "\"%.100s\" begins more than one id; write more of it", id);
        if (search.n_found == 0)
                return err_set(err, ERR_NOT_FOUND, "nothing of the name or id \"%.100s\" is here; see glovebox ps", id);
        if (kill(search.pid, hard ? SIGKILL : SIGTERM) < 0 && errno != ESRCH)
                return err_sys(err, errno, "ending run %.100s", id);
        return 0;
}
