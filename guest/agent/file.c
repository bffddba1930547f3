#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/memory.h"
#include "bounds.h"
#include "path.h"

/* <linux/magic.h> has it, which musl does not come with. */
enum { PROC_MAGIC = 0x9fa0 };

static void put_status(struct frame_writer *answer, const struct stat *status) {
        frame_put_u32(answer, (uint32_t) status->st_mode);
        frame_put_u64(answer, (uint64_t) status->st_size);
        frame_put_u64(answer, (uint64_t) status->st_mtim.tv_sec * 1000000000u + (uint64_t) status->st_mtim.tv_nsec);
}

int file_stat(struct request *request) {
        _cleanup_free_ char *path = NULL;
        uint32_t follow;
        int code = path_get(&request->fields, &path);
        if (code < 0)
                return code;
        if (!frame_get_u32(&request->fields, &follow))
                return -EPROTO;
        request->step = "looking at the file";
        struct stat status;
        if (fstatat(AT_FDCWD, path, &status, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        char target[PATH_MAX] = "";
        if (S_ISLNK(status.st_mode)) {
                ssize_t size = readlink(path, target, sizeof(target) - 1);
                target[size < 0 ? 0 : size] = '\0';
        }
        put_status(&request->answer, &status);
        frame_put_u32(&request->answer, (uint32_t) status.st_uid);
        frame_put_u32(&request->answer, (uint32_t) status.st_gid);
        frame_put_text(&request->answer, target);
        return 0;
}

/* Never waits (a FIFO would), and never shows what the agent may see of itself in /proc and the box may not: a link to
 * /proc/self would lead there. */
static int open_for_reading(const char *path, int flags, struct stat *ret_status) {
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags);
        struct statfs system;
        if (fd < 0 || fstat(fd, ret_status) < 0 || fstatfs(fd, &system) < 0)
                return -errno;
        if (system.f_type == PROC_MAGIC)
                return -EACCES;
        return take_fd(&fd);
}

int file_read(struct request *request) {
        _cleanup_free_ char *path = NULL;
        uint64_t offset;
        uint32_t size;
        int code = path_get(&request->fields, &path);
        if (code < 0)
                return code;
        if (!frame_get_u64(&request->fields, &offset) || !frame_get_u32(&request->fields, &size))
                return -EPROTO;
        request->step = "opening the file";
        struct stat status;
        _cleanup_fd_ int fd = open_for_reading(path, 0, &status);
        if (fd < 0)
                return fd;
        if (S_ISDIR(status.st_mode))
                return -EISDIR;
        if (!S_ISREG(status.st_mode) || offset > INT64_MAX)
                return -EINVAL;
        request->step = "reading the file";
        size_t max = size < FILE_READ_MAX ? size : FILE_READ_MAX;
        if (offset >= (uint64_t) status.st_size)
                max = 0;
        else if ((uint64_t) status.st_size - offset < max)
                max = (size_t) ((uint64_t) status.st_size - offset);
        frame_put_u64(&request->answer, (uint64_t) status.st_size);
        char *bytes = frame_begin_bytes(&request->answer, max);
        if (!bytes)
                return -ENOMEM;
        ssize_t have = fd_read_at(fd, bytes, max, offset);
        if (have < 0)
                return (int) have;
        frame_end_bytes(&request->answer, max, (size_t) have);
        return 0;
}

static int put_entries(DIR *directory, struct frame_writer *entries, uint32_t *count) {
        while (*count < FILE_LIST_MAX) {
                struct stat status;
                const struct dirent *entry = dir_next(directory);
                if (!entry)
                        return -errno; /* 0 at the end */
                if (fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0) /* gone meanwhile */
                        continue;
                frame_put_text(entries, entry->d_name);
                put_status(entries, &status);
                ++*count;
        }
        return 0;
}

/* `from` is where an earlier answer stopped, as the file system counts: the directory is not kept open in between. */
int file_list(struct request *request) {
        _cleanup_free_ char *path = NULL;
        uint64_t from;
        int code = path_get(&request->fields, &path);
        if (code < 0)
                return code;
        if (!frame_get_u64(&request->fields, &from) || from > INT64_MAX)
                return -EPROTO;
        request->step = "opening the directory";
        struct stat status;
        _cleanup_fd_ int fd = open_for_reading(path, O_DIRECTORY, &status);
        if (fd < 0)
                return fd;
        _cleanup_dir_ DIR *directory = fdopendir(fd);
        if (!directory)
                return -errno;
        (void) take_fd(&fd);
        if (from > 0)
                seekdir(directory, (long) from);
        request->step = "reading the directory";
        struct frame_writer entries = { 0 };
        uint32_t count = 0;
        code = put_entries(directory, &entries, &count);
        if (code == 0) {
                frame_put_u64(&request->answer, count == FILE_LIST_MAX ? (uint64_t) telldir(directory) : 0);
                frame_put_u32(&request->answer, count);
                frame_put_fields(&request->answer, &entries);
        }
        frame_writer_release(&entries);
        return code;
}

int file_move(struct request *request) {
        _cleanup_free_ char *from = NULL, *to = NULL;
        int code = path_get(&request->fields, &from);
        if (code == 0)
                code = path_get(&request->fields, &to);
        if (code < 0)
                return code;
        request->step = "moving the file";
        return rename(from, to) < 0 ? -errno : 0;
}

static int make_directory(const char *path, mode_t mode, bool may_be_there) {
        struct stat status;
        if (mkdir(path, mode) == 0)
                return 0;
        int code = -errno;
        if (code == -EEXIST && may_be_there && stat(path, &status) == 0)
                return S_ISDIR(status.st_mode) ? 0 : -ENOTDIR;
        return code;
}

int file_mkdir(struct request *request) {
        _cleanup_free_ char *path = NULL;
        uint32_t mode, parents;
        int code = path_get(&request->fields, &path);
        if (code < 0)
                return code;
        if (!frame_get_u32(&request->fields, &mode) || !frame_get_u32(&request->fields, &parents))
                return -EPROTO;
        request->step = "making the directory";
        for (char *slash = strchr(path + 1, '/'); slash && parents && code == 0; slash = strchr(slash + 1, '/')) {
                *slash = '\0';
                code = make_directory(path, 0755, true);
                *slash = '/';
        }
        return code < 0 ? code : make_directory(path, mode & 0777, parents);
}
