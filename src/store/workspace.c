#include "store/workspace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/remove_tree.h"
#include "base/sha256.h"
#include "base/syscalls.h"
#include "store/reaper.h"

enum { BENEATH = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV };
enum { LIST_SHORT = 200, LIST_BYTES_MAX = 1 << 20, MADE_DEPTH_MAX = 128, TAG_SETTLED_NS = 50 * 1000000 };

/* The rest of a path of the box behind the workspace's name; NULL: it is not below the workspace. */
static const char *skip_root(const char *path) {
        static const char *const roots[] = { "/workspace", "/session", "/sandbox", "/work" };
        if (*path != '/')
                return path;
        for (size_t i = 0; i < ELEMENTS(roots); i++) {
                size_t size = strlen(roots[i]);
                if (strncmp(path, roots[i], size) == 0 && (path[size] == '/' || !path[size]))
                        return path + size;
        }
        return NULL;
}

int workspace_check_path(const char *path, char ret_relative[static 4096], struct err *err) {
        const char *rest = skip_root(path);
        if (!rest)
                return err_set(err, ERR_REFUSED, "%.200s is not below /workspace: only the workspace can be reached",
                               path);
        size_t length = 0;
        while (*rest) {
                size_t size = strcspn(rest, "/");
                if (size == 2 && strncmp(rest, "..", 2) == 0)
                        return err_set(err, ERR_REFUSED, "%.200s: \"..\" is not allowed in a path", path);
                if (size > 255 || length + size + 2 > 4096)
                        return err_set(err, ERR_USAGE, "the path or one of its names is too long");
                if (size && !(size == 1 && *rest == '.')) {
                        if (length)
                                ret_relative[length++] = '/';
                        memcpy(ret_relative + length, rest, size);
                        length += size;
                }
                rest += size + (rest[size] == '/');
        }
        ret_relative[length] = '\0';
        if (!length)
                (void) strcpy(ret_relative, ".");
        return 0;
}

static int workspace_fail(struct err *err, int code, const char *relative) {
        switch (code) {
        case EXDEV:
        case ELOOP:
                return err_set(err, ERR_REFUSED, "%.200s leads through a link out of the workspace", relative);
        case ENXIO:
                return err_set(err, ERR_REFUSED, "%.200s is not a regular file", relative);
        case EAGAIN: /* renamed while it was looked up, or under a lease */
                return err_set(err, ERR_BUSY, "%.200s is being changed by code in the sandbox; try again", relative);
        case ENAMETOOLONG:
                return err_set(err, ERR_USAGE, "%.200s is too long", relative);
        case EISDIR:
        case ENOTEMPTY:
                return err_set(err, ERR_EXISTS, "%.200s: a directory is in the way", relative);
        case EINVAL:
                return err_set(err, ERR_USAGE, "%.200s: that is not possible with this name", relative);
        default:
                return err_sys(err, code, "%.200s", relative);
        }
}

/* ---- reading ---- */

int workspace_open(int workspace_fd, const char *relative, enum workspace_links links, struct stat *ret_status,
                   struct err *err) {
        uint64_t resolve = links == WORKSPACE_FOLLOW ? BENEATH : BENEATH | RESOLVE_NO_SYMLINKS;
        _cleanup_fd_ int found = sys_openat2(workspace_fd, relative, O_PATH, 0, resolve);
        struct stat status;
        char path[64];
        if (found < 0 || fstat(found, &status) < 0)
                return workspace_fail(err, errno, relative);
        if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
                return err_set(err, ERR_REFUSED, "%.200s is not a regular file", relative);
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", found); /* this very one, whatever its name means now */
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
                return workspace_fail(err, errno, relative);
        if (S_ISREG(status.st_mode)) /* what is read ahead is then up to us: workspace_read */
                (void) posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
        *ret_status = status;
        return fd;
}

/* Linux would read ahead as much as the disk has as its setting, up to 8 MiB: for one read of a file with a hole it
 * fills 18 ms worth of pages. */
ssize_t workspace_read(int fd, void *bytes, size_t size, uint64_t at) {
        enum { AHEAD = 256 << 10 };
        (void) posix_fadvise(fd, (off_t) (at + size), AHEAD, POSIX_FADV_WILLNEED);
        ssize_t n = pread(fd, bytes, size, (off_t) at);
        return n < 0 ? -errno : n;
}

/* ---- writing ---- */

/* Directories that are missing, one below the other. Errors show when the last is opened. */
static int workspace_make_parents(int workspace_fd, char *path, struct err *err) {
        unsigned depth = 0;
        for (const char *at = path; *at; at++)
                depth += *at == '/';
        if (depth > MADE_DEPTH_MAX)
                return err_set(err, ERR_USAGE, "directories are made at most %d deep", MADE_DEPTH_MAX);
        for (char *at = path; (at = strchr(at, '/')); *at++ = '/') {
                *at = '\0';
                (void) workspace_make_directory(workspace_fd, path, NULL);
        }
        (void) workspace_make_directory(workspace_fd, path, NULL);
        return 0;
}

/* Opens the parent directory of the path, creating missing directories as the owner of the workspace. */
static int workspace_open_parent(int workspace_fd, const char *relative, bool make, char ret_name[static 256],
                                 struct err *err) {
        char copy[4096];
        (void) snprintf(copy, sizeof(copy), "%s", relative);
        char *slash = strrchr(copy, '/');
        const char *name = slash ? slash + 1 : copy;
        if (strcmp(name, ".") == 0)
                return err_set(err, ERR_USAGE, "the workspace itself cannot be written, moved or removed");
        (void) snprintf(ret_name, 256, "%.255s", name);
        if (slash)
                *slash = '\0';
        const char *parent = slash ? copy : ".";
        int fd = sys_openat2(workspace_fd, parent, O_RDONLY | O_DIRECTORY, 0, BENEATH);
        if (fd < 0 && errno == ENOENT && make && slash) {
                if (workspace_make_parents(workspace_fd, copy, err) < 0)
                        return -1;
                fd = sys_openat2(workspace_fd, parent, O_RDONLY | O_DIRECTORY, 0, BENEATH);
        }
        return fd < 0 ? workspace_fail(err, errno, relative) : fd;
}

/* An unused name. Code in the box may see the file for a moment, which gives it no further access. */
static int make_name(char ret_name[static 64]) {
        uint64_t random;
        if (getrandom(&random, sizeof(random), 0) != sizeof(random))
                return -1;
        (void) snprintf(ret_name, 64, ".glovebox-%016llx", (unsigned long long) random);
        return 0;
}

/* Checks, before a client sends a gigabyte, that the file can be created. */
static int check_place(int workspace_fd, const char *relative, struct err *err) {
        char name[256];
        struct stat status;
        struct err why = { 0 };
        _cleanup_fd_ int parent = workspace_open_parent(workspace_fd, relative, false, name, &why);
        if (parent >= 0 && fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode))
                return workspace_fail(err, EISDIR, relative);
        if (parent >= 0 || why.sys_errno == ENOENT)
                return 0;
        if (err)
                *err = why;
        return -1;
}

int workspace_create_file(int workspace_fd, const char *relative, struct workspace_file *ret_file, struct err *err) {
        struct workspace_file file = { .fd = -1, .workspace_fd = -1 };
        struct stat owner;
        if (check_place(workspace_fd, relative, err) < 0)
                return -1;
        file.relative = strdup(relative);
        file.workspace_fd = fcntl(workspace_fd, F_DUPFD_CLOEXEC, 0);
        if (file.relative && file.workspace_fd >= 0)
                file.fd = sys_openat2(workspace_fd, ".", O_WRONLY | O_TMPFILE, 0644, BENEATH);
        if (file.fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT) &&
            make_name(file.temporary) == 0)
                file.fd = sys_openat2(workspace_fd, file.temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644,
                                      BENEATH);
        if (file.fd < 0 || fstat(workspace_fd, &owner) < 0 ||
            (fchown(file.fd, owner.st_uid, owner.st_gid) < 0 && errno != EPERM)) {
                int code = errno;
                workspace_drop_file(&file);
                return workspace_fail(err, code, relative);
        }
        *ret_file = file;
        return 0;
}

/* Gives a nameless file one in its directory. */
static int name_file(struct workspace_file *file, int parent_fd) {
        char path[64];
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
        if (make_name(file->temporary) < 0)
                return -1;
        if (linkat(AT_FDCWD, path, parent_fd, file->temporary, AT_SYMLINK_FOLLOW) == 0)
                return 0;
        file->temporary[0] = '\0';
        return -1;
}

int workspace_finish_file(struct workspace_file *file, struct err *err) {
        char name[256];
        struct stat status;
        int code = 0;
        _cleanup_fd_ int parent = workspace_open_parent(file->workspace_fd, file->relative, true, name, err);
        if (parent < 0) {
                workspace_drop_file(file);
                return -1;
        }
        bool is_nameless = !file->temporary[0];
        file->replaced = fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
        bool is_freed = file->replaced && S_ISREG(status.st_mode) && status.st_nlink == 1;
        file->replaced_bytes = is_freed ? (uint64_t) status.st_blocks * 512 : 0;
        if (is_nameless && name_file(file, parent) < 0)
                code = errno;
        else if ((code = -reaper_rename(is_nameless ? parent : file->workspace_fd, file->temporary, parent, name)) &&
                 is_nameless)
                (void) unlinkat(parent, file->temporary, 0);
        if (is_nameless || !code)
                file->temporary[0] = '\0';
        if (code)
                (void) workspace_fail(err, code, file->relative);
        workspace_drop_file(file);
        return code ? -1 : 0;
}

/* Every directory on the way to the file: some may have been made for it. */
static int sync_parents(int workspace_fd, const char *relative, struct err *err) {
        char path[4096];
        (void) snprintf(path, sizeof(path), "%s", relative);
        for (char *slash = strrchr(path, '/');; slash = strrchr(path, '/')) {
                if (slash)
                        *slash = '\0';
                _cleanup_fd_ int fd = sys_openat2(workspace_fd, slash ? path : ".", O_RDONLY | O_DIRECTORY, 0, BENEATH);
                if (fd < 0 || fsync(fd) < 0)
                        return workspace_fail(err, errno, relative);
                if (!slash)
                        return 0;
        }
}

int workspace_finish_file_durably(struct workspace_file *file, struct err *err) {
        _cleanup_free_ char *relative = strdup(file->relative);
        _cleanup_fd_ int workspace_fd = fcntl(file->workspace_fd, F_DUPFD_CLOEXEC, 3);
        if (!relative || workspace_fd < 0 || fsync(file->fd) < 0) {
                (void) workspace_fail(err, relative ? errno : ENOMEM, file->relative);
                workspace_drop_file(file);
                return -1;
        }
        return workspace_finish_file(file, err) < 0 ? -1 : sync_parents(workspace_fd, relative, err);
}

void workspace_drop_file(struct workspace_file *file) {
        if (file->temporary[0])
                (void) unlinkat(file->workspace_fd, file->temporary, 0);
        file->temporary[0] = '\0';
        fd_close(&file->fd);
        fd_close(&file->workspace_fd);
        free(take_ptr(file->relative));
}

/* ---- looking ---- */

static json_t *workspace_describe(const char *name, const struct stat *status) {
        const char *type = S_ISREG(status->st_mode)   ? "file"
                           : S_ISDIR(status->st_mode) ? "directory"
                           : S_ISLNK(status->st_mode) ? "link"
                                                      : "other";
        return json_pack("{s:s, s:s, s:I, s:I}", "path", name, "type", type, "size", (json_int_t) status->st_size,
                         "modified", (json_int_t) (status->st_mtim.tv_sec * 1000 + status->st_mtim.tv_nsec / 1000000));
}

json_t *workspace_stat(int workspace_fd, const char *relative, struct err *err) {
        _cleanup_fd_ int fd = sys_openat2(workspace_fd, relative, O_PATH | O_NOFOLLOW, 0, BENEATH);
        struct stat status;
        if (fd < 0 || fstat(fd, &status) < 0) {
                (void) workspace_fail(err, errno, relative);
                return NULL;
        }
        json_t *json = workspace_describe(relative, &status);
        if (!json)
                (void) err_set(err, ERR_UNSUPPORTED, "the name is not UTF-8");
        return json;
}

void workspace_tag(const struct stat *status, char ret_tag[static WORKSPACE_TAG_SIZE]) {
        uint64_t of[] = { status->st_dev, status->st_ino, (uint64_t) status->st_size, (uint64_t) status->st_ctim.tv_sec,
                          (uint64_t) status->st_ctim.tv_nsec };
        char hex[2 * SHA256_SIZE + 1];
        struct timespec now;
        (void) clock_gettime(CLOCK_REALTIME, &now);
        int64_t age_ns =
                (int64_t) (now.tv_sec - status->st_ctim.tv_sec) * 1000000000 + (now.tv_nsec - status->st_ctim.tv_nsec);
        ret_tag[0] = '\0';
        if (age_ns < TAG_SETTLED_NS)
                return;
        (void) snprintf(ret_tag, WORKSPACE_TAG_SIZE, "\"%.32s\"", sha256_hex(of, sizeof(of), hex));
}

json_t *workspace_describe_open(const char *relative, const struct stat *status, struct err *err) {
        char tag[WORKSPACE_TAG_SIZE];
        json_t *json = workspace_describe(relative, status);
        workspace_tag(status, tag);
        if (!json)
                (void) err_set(err, ERR_UNSUPPORTED, "the name is not UTF-8");
        else
                (void) json_object_set_new(json, "tag", json_string(tag));
        return json;
}

static int by_name(const void *a, const void *b) {
        return strcmp(*(char *const *) a, *(char *const *) b);
}

/* Names of a directory, as many as may be listed, each to be freed. */
static char **read_names(DIR *directory, size_t *ret_n, bool *ret_cut) {
        char **names = calloc(WORKSPACE_LIST_MAX, sizeof(*names));
        size_t n = 0, bytes = 0;
        const struct dirent *entry;
        *ret_cut = !names;
        while (names && !*ret_cut && (entry = dir_next(directory))) {
                bytes += strlen(entry->d_name);
                if (n == WORKSPACE_LIST_MAX || bytes > LIST_BYTES_MAX || !(names[n] = strdup(entry->d_name)))
                        *ret_cut = true;
                else
                        n++;
        }
        *ret_n = n;
        return names;
}

bool workspace_lists_short(int workspace_fd, const char *relative) {
        int fd = sys_openat2(workspace_fd, relative, O_RDONLY | O_DIRECTORY, 0, BENEATH);
        DIR *directory = fd < 0 ? NULL : fdopendir(fd);
        size_t n = 0;
        if (!directory) {
                fd_close(&fd);
                return true;
        }
        while (n <= LIST_SHORT && dir_next(directory))
                n++;
        (void) closedir(directory);
        return n <= LIST_SHORT;
}

json_t *workspace_list(int workspace_fd, const char *relative, size_t max, bool *ret_cut, struct err *err) {
        int fd = sys_openat2(workspace_fd, relative, O_RDONLY | O_DIRECTORY, 0, BENEATH);
        DIR *directory = fd < 0 ? NULL : fdopendir(fd);
        if (!directory) {
                (void) workspace_fail(err, errno, relative);
                fd_close(&fd);
                return NULL;
        }
        size_t n;
        bool is_cut;
        _cleanup_free_ char **names = read_names(directory, &n, &is_cut);
        if (n)
                qsort(names, n, sizeof(*names), by_name);
        json_t *array = json_array();
        for (size_t i = 0; i < n; i++) {
                struct stat status;
                json_t *item = i < max && fstatat(dirfd(directory), names[i], &status, AT_SYMLINK_NOFOLLOW) == 0
                                       ? workspace_describe(names[i], &status)
                                       : NULL;
                if (item) /* a name that is not UTF-8 cannot be written as JSON */
                        json_array_append_new(array, item);
                free(names[i]);
        }
        (void) closedir(directory);
        if (ret_cut)
                *ret_cut = is_cut || n > max;
        return array;
}

/* ---- changing ---- */

int workspace_make_directory(int workspace_fd, const char *relative, struct err *err) {
        char name[256];
        struct stat owner;
        _cleanup_fd_ int parent = workspace_open_parent(workspace_fd, relative, false, name, err);
        if (parent < 0)
                return -1;
        if (mkdirat(parent, name, 0755) < 0)
                return errno == EEXIST ? 0 : workspace_fail(err, errno, relative);
        if (fstat(workspace_fd, &owner) < 0 ||
            (fchownat(parent, name, owner.st_uid, owner.st_gid, AT_SYMLINK_NOFOLLOW) < 0 && errno != EPERM))
                return workspace_fail(err, errno, relative);
        return 0;
}

int workspace_make_directories(int workspace_fd, const char *relative, struct err *err) {
        char name[256];
        struct stat status;
        _cleanup_fd_ int parent = workspace_open_parent(workspace_fd, relative, true, name, err);
        if (parent < 0 || workspace_make_directory(workspace_fd, relative, err) < 0)
                return -1;
        _cleanup_fd_ int fd = workspace_open(workspace_fd, relative, WORKSPACE_FOLLOW, &status, err);
        if (fd >= 0 && S_ISDIR(status.st_mode))
                return 0;
        return err_set(err, ERR_EXISTS,
                       "%.200s exists already and is not a directory; choose another name, or remove it first",
                       relative);
}

int workspace_move(int workspace_fd, const char *from, const char *to, struct err *err) {
        char from_name[256], to_name[256];
        _cleanup_fd_ int from_parent = workspace_open_parent(workspace_fd, from, false, from_name, err);
        _cleanup_fd_ int to_parent = from_parent < 0 ? -1 : workspace_open_parent(workspace_fd, to, true, to_name, err);
        if (to_parent < 0)
                return -1;
        int code = reaper_rename(from_parent, from_name, to_parent, to_name);
        return code < 0 ? workspace_fail(err, -code, from) : 0;
}

/* 0: gone. 1: a directory that is not empty, named `name` in *ret_parent. -1: err says why. */
static int remove_one(int workspace_fd, const char *relative, int *ret_parent, char ret_name[static 256],
                      struct err *err) {
        _cleanup_fd_ int parent = workspace_open_parent(workspace_fd, relative, false, ret_name, err);
        if (parent < 0)
                return -1;
        int code = reaper_unlink(parent, ret_name);
        if (code == 0)
                return 0;
        if (code != -EISDIR && code != -EPERM)
                return workspace_fail(err, -code, relative);
        if (unlinkat(parent, ret_name, AT_REMOVEDIR) == 0)
                return 0;
        if (errno != ENOTEMPTY)
                return workspace_fail(err, errno, relative);
        *ret_parent = take_fd(&parent);
        return 1;
}

int workspace_remove(int workspace_fd, const char *relative, bool recursive, struct err *err) {
        enum { SOME = 1000, TURNS_MAX = 5000 };
        char name[256];
        _cleanup_fd_ int parent = -1;
        int code = remove_one(workspace_fd, relative, &parent, name, err);
        if (code == 1 && !recursive)
                return err_set(err, ERR_USAGE, "%.200s is not empty; set \"recursive\": true", relative);
        for (int turn = 0; code == 1 && !remove_tree_some(parent, name, SOME); turn++)
                if (turn == TURNS_MAX)
                        return err_set(err, ERR_BUSY, "%.200s is being filled while it is removed", relative);
        if (code == 1 && faccessat(parent, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return err_set(err, ERR_PERMISSION, "%.200s: something in it cannot be removed", relative);
        return code < 0 ? -1 : 0;
}
