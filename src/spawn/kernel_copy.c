#include "spawn/kernel_copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/memory.h"
#include "engine/program_call.h"

#define PACKAGE "glovebox_kernel"
#define COMPILED "compiled" /* there once every file is */

enum { FILE_BYTES_MAX = 1 << 20, COMPILE_MS = 10000 };

static bool is_same(const struct stat *a, const struct stat *b) {
        return S_ISREG(b->st_mode) && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
               a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* By rename, so that a kernel that imports just then gets one or the other; with the time of the original, by which the
 * next box sees that it is the same. */
static int kernel_copy_file(int from_fd, int to_fd, const char *name, const struct stat *status) {
        char part[280];
        _cleanup_free_ char *bytes = NULL;
        size_t size = 0;
        _cleanup_fd_ int source = openat(from_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        int code = source < 0 ? -errno : fd_read_to_end(source, FILE_BYTES_MAX, &bytes, &size);
        if (code < 0)
                return code;
        (void) snprintf(part, sizeof(part), ".%.200s.%d", name, (int) getpid());
        _cleanup_fd_ int fd = openat(to_fd, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0)
                return -errno;
        const struct timespec times[] = { status->st_mtim, status->st_mtim };
        code = fchmod(fd, 0644) < 0 ? -errno : fd_write_all(fd, bytes, size);
        if (code == 0 && (futimens(fd, times) < 0 || renameat(to_fd, part, to_fd, name) < 0))
                code = -errno;
        if (code < 0)
                (void) unlinkat(to_fd, part, 0);
        return code;
}

/* Whether anything was copied, or -errno. */
static int copy_package(int from_fd, int to_fd) {
        bool has_changed = false;
        int code = 0, listed = openat(from_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *directory = listed < 0 ? NULL : fdopendir(listed);
        if (!directory)
                return -errno;
        for (struct dirent *entry; code == 0 && (entry = readdir(directory));) {
                struct stat status, copied;
                if (*entry->d_name == '.' || strlen(entry->d_name) > 200 ||
                    fstatat(from_fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(status.st_mode) ||
                    (fstatat(to_fd, entry->d_name, &copied, AT_SYMLINK_NOFOLLOW) == 0 && is_same(&status, &copied)))
                        continue;
                has_changed = true;
                code = kernel_copy_file(from_fd, to_fd, entry->d_name, &status);
        }
        (void) closedir(directory);
        return code < 0 ? code : has_changed;
}

/* Below `at_fd`; all boxes may read it. */
static int open_directory(int at_fd, const char *name) {
        if (mkdirat(at_fd, name, 0755) < 0 && errno != EEXIST)
                return -errno;
        int fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && fchmod(fd, 0755) == 0)
                return fd;
        int code = -errno;
        fd_close(&fd);
        return code;
}

/* The host's Python: an image with another version compiles for itself, as before. A host without one is asked once. */
static void compile(int copy_fd, const char *path) __attribute__((noreturn));
static void compile(int copy_fd, const char *path) {
        struct program_answer answer;
        struct err err;
        /* By content: times have seconds there, and two versions may be of one second. */
        const char *const argv[] = { "python3",      "-I", "-S", "-m", "compileall", "-q", "--invalidation-mode",
                                     "checked-hash", path, NULL };
        (void) umask(022);
        if (program_call(argv, NULL, loop_now_ms() + COMPILE_MS, &answer, &err) == 0 || err.code == ERR_UNSUPPORTED)
                (void) close(openat(copy_fd, COMPILED, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
        _exit(EXIT_SUCCESS);
}

/* A directory, or -errno. */
static int open_copy(const char *kernel_dir, const char *data_dir, pid_t *ret_compiler) {
        char path[4400];
        _cleanup_fd_ int data = open(data_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        (void) snprintf(path, sizeof(path), "%.4200s/" PACKAGE, kernel_dir);
        _cleanup_fd_ int from = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (data < 0 || from < 0)
                return -errno;
        _cleanup_fd_ int engine = open_directory(data, "engine");
        _cleanup_fd_ int copy = engine < 0 ? engine : open_directory(engine, "kernel");
        _cleanup_fd_ int to = copy < 0 ? copy : open_directory(copy, PACKAGE);
        int code = to < 0 ? to : copy_package(from, to);
        if (code < 0)
                return code;
        if (code > 0)
                (void) unlinkat(copy, COMPILED, 0);
        if (faccessat(copy, COMPILED, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
                (void) snprintf(path, sizeof(path), "%.4200s/engine/kernel/" PACKAGE, data_dir);
                pid_t pid = fork();
                if (pid == 0)
                        compile(copy, path);
                *ret_compiler = pid > 0 ? pid : 0;
        }
        return take_fd(&copy);
}

int kernel_copy_open(const char *kernel_dir, const char *data_dir, struct kernel_copy *ret_copy) {
        ret_copy->compiler = 0;
        ret_copy->fd = open_copy(kernel_dir, data_dir, &ret_copy->compiler);
        if (ret_copy->fd < 0)
                ret_copy->fd = open(kernel_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        return ret_copy->fd < 0 ? -errno : 0;
}

void kernel_copy_close(struct kernel_copy *copy) {
        fd_close(&copy->fd);
        if (copy->compiler > 0)
                (void) waitpid(copy->compiler, NULL, 0);
        copy->compiler = 0;
}
