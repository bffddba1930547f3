#include "session/workspace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/syscalls.h"
#include "session/remove_tree.h"

enum { BENEATH = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV, LIST_MAX = 10000 };

int workspace_check_path(const char *path, char ret_relative[static 4096], struct err *err) {
        static const char *const roots[] = { "/workspace", "/session", "/sandbox", "/work" };
        const char *rest = path;
        if (*path == '/') {
                rest = NULL;
                for (size_t i = 0; i < ELEMENTS(roots) && !rest; i++) {
                        size_t size = strlen(roots[i]);
                        if (strncmp(path, roots[i], size) == 0 && (path[size] == '/' || !path[size]))
                                rest = path + size;
                }
                if (!rest)
                        return err_set(err, ERR_REFUSED,
                                       "%.200s is not below /workspace: only the workspace can be reached", path);
        }
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

static int fail(struct err *err, int code, const char *relative) {
        if (code == EXDEV || code == ELOOP)
                return err_set(err, ERR_REFUSED, "%.200s leads out of the workspace through a link", relative);
        return err_sys(err, code, "%.200s", relative);
}

int workspace_open_file(int workspace_fd, const char *relative, uint64_t *ret_size, struct err *err) {
        _cleanup_fd_ int fd = sys_openat2(workspace_fd, relative, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, BENEATH);
        struct stat status;
        if (fd < 0 || fstat(fd, &status) < 0)
                return fail(err, errno, relative);
        if (S_ISDIR(status.st_mode))
                return err_set(err, ERR_USAGE, "%.200s is a directory", relative);
        if (!S_ISREG(status.st_mode))
                return err_set(err, ERR_REFUSED, "%.200s is not a regular file", relative);
        *ret_size = (uint64_t) status.st_size;
        return take_fd(&fd);
}

/* Opens the directory that holds the last name of the path, making what is missing as whoever owns the workspace. */
static int open_parent(int workspace_fd, const char *relative, bool make, char ret_name[static 256], struct err *err) {
        char copy[4096];
        struct stat owner;
        (void) snprintf(copy, sizeof(copy), "%s", relative);
        char *slash = strrchr(copy, '/');
        const char *name = slash ? slash + 1 : copy;
        if (strcmp(name, ".") == 0)
                return err_set(err, ERR_USAGE, "the workspace itself cannot be written, moved or removed");
        (void) snprintf(ret_name, 256, "%.255s", name);
        if (slash)
                *slash = '\0';
        const char *parent = slash ? copy : ".";
        if (make && fstat(workspace_fd, &owner) == 0) {
                char *at = copy;
                while (slash && (at = strchr(at, '/'))) {
                        *at = '\0';
                        (void) workspace_make_directory(workspace_fd, copy, NULL);
                        *at++ = '/';
                }
                if (slash)
                        (void) workspace_make_directory(workspace_fd, copy, NULL);
        }
        int fd = sys_openat2(workspace_fd, parent, O_RDONLY | O_DIRECTORY, 0, BENEATH);
        return fd < 0 ? fail(err, errno, relative) : fd;
}

int workspace_create_file(int workspace_fd, const char *relative, struct workspace_file *ret_file, struct err *err) {
        struct workspace_file file = { .fd = -1, .parent_fd = -1 };
        struct stat owner;
        uint64_t random;
        file.parent_fd = open_parent(workspace_fd, relative, true, file.name, err);
        if (file.parent_fd < 0)
                return -1;
        if (getrandom(&random, sizeof(random), 0) != sizeof(random) || fstat(workspace_fd, &owner) < 0) {
                fd_close(&file.parent_fd);
                return err_sys(err, errno, "%.200s", relative);
        }
        (void) snprintf(file.temporary, sizeof(file.temporary), ".glovebox-%016llx", (unsigned long long) random);
        file.fd = sys_openat2(file.parent_fd, file.temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644, BENEATH);
        if (file.fd < 0 || (fchown(file.fd, owner.st_uid, owner.st_gid) < 0 && errno != EPERM)) {
                int code = errno;
                workspace_drop_file(&file);
                return fail(err, code, relative);
        }
        *ret_file = file;
        return 0;
}

int workspace_finish_file(struct workspace_file *file, struct err *err) {
        int code = renameat(file->parent_fd, file->temporary, file->parent_fd, file->name) < 0 ? errno : 0;
        if (code) {
                workspace_drop_file(file);
                return err_sys(err, code, "putting %s in place", file->name);
        }
        fd_close(&file->fd);
        fd_close(&file->parent_fd);
        return 0;
}

void workspace_drop_file(struct workspace_file *file) {
        if (file->fd >= 0)
                (void) unlinkat(file->parent_fd, file->temporary, 0);
        fd_close(&file->fd);
        fd_close(&file->parent_fd);
}

static json_t *describe(const char *name, const struct stat *status) {
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
                (void) fail(err, errno, relative);
                return NULL;
        }
        json_t *json = describe(relative, &status);
        if (!json)
                (void) err_set(err, ERR_UNSUPPORTED, "the name is not UTF-8");
        return json;
}

static int by_name(const void *a, const void *b) {
        return strcmp(*(char *const *) a, *(char *const *) b);
}

json_t *workspace_list(int workspace_fd, const char *relative, struct err *err) {
        int fd = sys_openat2(workspace_fd, relative, O_RDONLY | O_DIRECTORY, 0, BENEATH);
        DIR *directory = fd < 0 ? NULL : fdopendir(fd);
        if (!directory) {
                (void) fail(err, errno, relative);
                fd_close(&fd);
                return NULL;
        }
        char **names = calloc(LIST_MAX, sizeof(*names));
        size_t n = 0;
        struct dirent *entry;
        while (names && n < LIST_MAX && (entry = readdir(directory)))
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                    (names[n] = strdup(entry->d_name)))
                        n++;
        if (n)
                qsort(names, n, sizeof(*names), by_name);
        json_t *array = json_array();
        for (size_t i = 0; i < n; i++) {
                struct stat status;
                json_t *item = fstatat(dirfd(directory), names[i], &status, AT_SYMLINK_NOFOLLOW) == 0
                                       ? describe(names[i], &status)
                                       : NULL;
                if (item) /* a name that is not UTF-8 cannot be told in JSON */
                        json_array_append_new(array, item);
                free(names[i]);
        }
        free(names);
        (void) closedir(directory);
        return array;
}

int workspace_make_directory(int workspace_fd, const char *relative, struct err *err) {
        char name[256];
        struct stat owner;
        _cleanup_fd_ int parent = open_parent(workspace_fd, relative, false, name, err);
        if (parent < 0)
                return -1;
        if (mkdirat(parent, name, 0755) < 0)
                return errno == EEXIST ? 0 : fail(err, errno, relative);
        if (fstat(workspace_fd, &owner) < 0 ||
            (fchownat(parent, name, owner.st_uid, owner.st_gid, AT_SYMLINK_NOFOLLOW) < 0 && errno != EPERM))
                return fail(err, errno, relative);
        return 0;
}

int workspace_move(int workspace_fd, const char *from, const char *to, struct err *err) {
        char from_name[256], to_name[256];
        _cleanup_fd_ int from_parent = open_parent(workspace_fd, from, false, from_name, err);
        _cleanup_fd_ int to_parent = from_parent < 0 ? -1 : open_parent(workspace_fd, to, true, to_name, err);
        if (to_parent < 0)
                return -1;
        return renameat(from_parent, from_name, to_parent, to_name) < 0 ? fail(err, errno, from) : 0;
}

int workspace_remove(int workspace_fd, const char *relative, bool recursive, struct err *err) {
        char name[256];
        _cleanup_fd_ int parent = open_parent(workspace_fd, relative, false, name, err);
        if (parent < 0)
                return -1;
        if (unlinkat(parent, name, 0) == 0)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return fail(err, errno, relative);
        if (recursive)
                remove_tree_at(parent, name);
        else if (unlinkat(parent, name, AT_REMOVEDIR) < 0)
                return errno == ENOTEMPTY
                               ? err_set(err, ERR_USAGE, "%.200s is not empty; say \"recursive\": true", relative)
                               : fail(err, errno, relative);
        return 0;
}
