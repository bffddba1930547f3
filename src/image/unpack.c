#include "image/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/open_beneath.h"
#include "base/remove_tree.h"
#include "base/units.h"
#include "image/interrupt.h"
#include "image/path.h"
#include "image/tar.h"

#define WHITEOUT ".wh."
#define WHITEOUT_META ".wh..wh."
#define WHITEOUT_OPAQUE ".wh..wh..opq"

void unpack_init(struct unpack *unpack, int root_fd, uint64_t max_bytes, uint64_t max_entries) {
        *unpack = (struct unpack) {
                .root_fd = root_fd, .max_bytes = max_bytes, .max_entries = max_entries, .parent_fd = -1
        };
}

void unpack_close(struct unpack *unpack) {
        fd_close(&unpack->parent_fd);
}

static int unpack_refuse(int code, const char *path, const char *what, struct err *err) {
        char shown[204];
        path_for_message(path, shown);
        if (code == -ELOOP)
                return err_set(err, ERR_REFUSED,
                               "the archive's entry \"%s\" leads through a symbolic link; nothing was imported", shown);
        if (code == -ENOTDIR)
                return err_set(err, ERR_REFUSED,
                               "the archive's entry \"%s\" lies below something that is not a directory; nothing was "
                               "imported",
                               shown);
        return err_sys(err, -code, "cannot %s \"%s\" of the archive", what, shown);
}

/* Leaves unpack->parent_fd open at `parent`, made when missing. */
static int unpack_enter(struct unpack *unpack, const char *parent, const char *path, struct err *err) {
        if (unpack->parent_fd >= 0 && strcmp(unpack->parent, parent) == 0)
                return 0;
        fd_close(&unpack->parent_fd);
        int fd = make_directories_beneath(unpack->root_fd, parent);
        if (fd < 0)
                return unpack_refuse(fd, path, "make the parent of", err);
        unpack->parent_fd = fd;
        strcpy(unpack->parent, parent);
        return 0;
}

/* Clears the way for an entry. The removed entry lies below the remembered parent, which therefore stays valid. */
static int remove_existing_entry(struct unpack *unpack, const char *name, const char *path, struct err *err) {
        struct stat st;
        if (fstatat(unpack->parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : unpack_refuse(-errno, path, "look at", err);
        int code = remove_tree_at(unpack->parent_fd, name);
        return code < 0 ? unpack_refuse(code, path, "replace", err) : 0;
}

/* What the tenant may do is decided by mount flags and its uid; these bits only have to let it read and execute what
 * the image's owner could. */
static mode_t mode_for(mode_t mode) {
        mode_t owner = (mode & 0700) | 0400;
        mode_t others = (owner >> 6) & 05;
        return owner | (mode_t) (others << 3) | others;
}

static int copy_contents(struct unpack *unpack, struct tar *tar, int fd, const char *path, struct err *err) {
        char buffer[1 << 16], most[32];
        for (;;) {
                ssize_t n = tar_read(tar, buffer, sizeof(buffer), err);
                if (n <= 0)
                        return (int) n;
                unpack->bytes += (uint64_t) n;
                if (unpack->bytes > unpack->max_bytes)
                        return err_set(err, ERR_LIMIT,
                                       "the image is larger than %s; raise --max-size if you trust where it comes from",
                                       units_format_bytes(unpack->max_bytes, most));
                if (interrupt_pending())
                        return interrupt_error(err);
                int code = fd_write_all(fd, buffer, (size_t) n);
                if (code < 0)
                        return unpack_refuse(code, path, "write", err);
        }
}

static int put_file(struct unpack *unpack, struct tar *tar, const struct tar_entry *entry, const char *path,
                    const char *name, struct err *err) {
        if (remove_existing_entry(unpack, name, path, err) < 0)
                return -1;
        _cleanup_fd_ int fd =
                openat(unpack->parent_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return unpack_refuse(-errno, path, "create", err);
        if (copy_contents(unpack, tar, fd, path, err) < 0)
                return -1;
        if (fchmod(fd, mode_for(entry->mode)) < 0)
                return unpack_refuse(-errno, path, "set the mode of", err);
        /* Python compares a source file's time with what its .pyc remembers: times must survive. */
        const struct timespec times[2] = { { .tv_nsec = UTIME_NOW }, { .tv_sec = (time_t) entry->mtime } };
        (void) futimens(fd, times); /* a time that the file system cannot hold is no reason to fail */
        return 0;
}

static int put_directory(struct unpack *unpack, const char *path, const char *name, struct err *err) {
        struct stat st;
        bool there = fstatat(unpack->parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (there && S_ISDIR(st.st_mode))
                return 0;
        if (remove_existing_entry(unpack, name, path, err) < 0)
                return -1;
        return mkdirat(unpack->parent_fd, name, 0755) < 0 ? unpack_refuse(-errno, path, "create", err) : 0;
}

static int put_symlink(struct unpack *unpack, const struct tar_entry *entry, const char *path, const char *name,
                       struct err *err) {
        if (remove_existing_entry(unpack, name, path, err) < 0)
                return -1;
        return symlinkat(entry->link, unpack->parent_fd, name) < 0 ? unpack_refuse(-errno, path, "create", err) : 0;
}

static int put_hardlink(struct unpack *unpack, const struct tar_entry *entry, const char *path, const char *name,
                        struct err *err) {
        char target[BOUND_PATH + 1], parent[BOUND_PATH + 1];
        if (path_clean(entry->link, target, err) < 0)
                return -1;
        if (strcmp(target, path) == 0)
                return 0;
        const char *last = path_split(target, parent);
        _cleanup_fd_ int fd = open_beneath(unpack->root_fd, parent, O_PATH | O_DIRECTORY);
        struct stat st;
        if (fd < 0)
                return unpack_refuse(fd, path, "find the target of the hard link", err);
        if (fstatat(fd, last, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return unpack_refuse(-errno, path, "find the target of the hard link", err);
        if (!S_ISREG(st.st_mode)) {
                char shown[204];
                return err_set(err, ERR_REFUSED,
                               "the archive's entry \"%s\" is a hard link to something that is not a regular file; "
                               "nothing was imported",
                               path_for_message(path, shown));
        }
        if (remove_existing_entry(unpack, name, path, err) < 0)
                return -1;
        return linkat(fd, last, unpack->parent_fd, name, 0) < 0 ? unpack_refuse(-errno, path, "link", err) : 0;
}

static int put_entry(struct unpack *unpack, struct tar *tar, const struct tar_entry *entry, const char *path,
                     struct err *err) {
        char parent[BOUND_PATH + 1];
        const char *name = path_split(path, parent);
        if (entry->type == TAR_SPECIAL) {
                unpack->skipped++;
                return 0;
        }
        if (unpack_enter(unpack, parent, path, err) < 0)
                return -1;
        switch (entry->type) {
        case TAR_FILE:
                return put_file(unpack, tar, entry, path, name, err);
        case TAR_DIRECTORY:
                return put_directory(unpack, path, name, err);
        case TAR_SYMLINK:
                return put_symlink(unpack, entry, path, name, err);
        case TAR_HARDLINK:
        case TAR_SPECIAL:
        default:
                return put_hardlink(unpack, entry, path, name, err);
        }
}

static bool is_whiteout(const char *path) {
        const char *slash = strrchr(path, '/');
        return strncmp(slash ? slash + 1 : path, WHITEOUT, strlen(WHITEOUT)) == 0;
}

int unpack_entries(struct unpack *unpack, struct stream *stream, bool layered, struct err *err) {
        struct tar tar;
        struct tar_entry entry;
        char path[BOUND_PATH + 1];
        int more;
        tar_init(&tar, stream);
        while ((more = tar_next(&tar, &entry, err)) > 0) {
                if (interrupt_pending())
                        return interrupt_error(err);
                if (path_clean(entry.path, path, err) < 0)
                        return -1;
                if (++unpack->entries > unpack->max_entries)
                        return err_set(err, ERR_LIMIT, "the image has more than %llu entries",
                                       (unsigned long long) unpack->max_entries);
                if (*path == '\0') {
                        if (entry.type != TAR_DIRECTORY)
                                return err_set(err, ERR_REFUSED,
                                               "the archive replaces its own root; nothing was imported");
                        continue;
                }
                if (layered && is_whiteout(path))
                        continue;
                if (put_entry(unpack, &tar, &entry, path, err) < 0)
                        return -1;
        }
        return more;
}

static int apply_whiteout(struct unpack *unpack, const char *path, struct err *err) {
        char parent[BOUND_PATH + 1];
        const char *name = path_split(path, parent);
        bool opaque = strcmp(name, WHITEOUT_OPAQUE) == 0;
        if (!opaque && strncmp(name, WHITEOUT_META, strlen(WHITEOUT_META)) == 0)
                return 0; /* bookkeeping of aufs */
        const char *hidden = name + strlen(WHITEOUT);
        if (!opaque && (*hidden == '\0' || strcmp(hidden, ".") == 0 || strcmp(hidden, "..") == 0))
                return unpack_refuse(-EINVAL, path, "apply the whiteout", err);
        _cleanup_fd_ int fd = open_beneath(unpack->root_fd, parent, O_RDONLY | O_DIRECTORY);
        if (fd == -ENOENT)
                return 0;
        if (fd < 0)
                return unpack_refuse(fd, path, "apply the whiteout", err);
        int code = opaque ? remove_tree_contents(fd) : remove_tree_at(fd, hidden);
        return code < 0 ? unpack_refuse(code, path, "apply the whiteout", err) : 0;
}

int unpack_whiteouts(struct unpack *unpack, struct stream *stream, struct err *err) {
        struct tar tar;
        struct tar_entry entry;
        char path[BOUND_PATH + 1];
        int more;
        tar_init(&tar, stream);
        fd_close(&unpack->parent_fd);
        while ((more = tar_next(&tar, &entry, err)) > 0) {
                if (interrupt_pending())
                        return interrupt_error(err);
                if (path_clean(entry.path, path, err) < 0 ||
                    (is_whiteout(path) && apply_whiteout(unpack, path, err) < 0))
                        return -1;
        }
        return more;
}
