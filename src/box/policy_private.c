#include "box/policy_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/private_dir.h"
#include "box/policy_mount.h"

enum { LEVELS_MAX = PATH_MAX / 2, ENTRIES_MAX = 20000, SOCKETS_TEXT_MAX = 4 << 20 };

static bool name_descriptor(int fd, char ret_path[static PATH_MAX]) {
        char link[64];
        (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, ret_path, PATH_MAX - 1);
        ret_path[length < 0 ? 0 : length] = '\0';
        return length > 0;
}

static bool is_same(int a_fd, int b_fd) {
        struct stat a, b;
        return fstat(a_fd, &a) == 0 && fstat(b_fd, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Is the directory, or one above it, marked? */
static bool is_within_private(int dir_fd, char ret_path[static PATH_MAX]) {
        _cleanup_fd_ int at_fd = -1;
        for (int level = 0; level < LEVELS_MAX; level++) {
                if (private_dir_is_marked(dir_fd))
                        return name_descriptor(dir_fd, ret_path);
                int up_fd = openat(dir_fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (up_fd < 0)
                        return false;
                bool top = is_same(up_fd, dir_fd);
                fd_close(&at_fd);
                dir_fd = at_fd = up_fd;
                if (top)
                        return false;
        }
        return false;
}

/* The directory that a path names, or the one that the file is in. */
static int open_directory_of(const char *path) {
        int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 || errno != ENOTDIR)
                return fd;
        char parent[PATH_MAX];
        (void) snprintf(parent, sizeof(parent), "%.*s/", (int) (strrchr(path, '/') - path), path);
        return open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static bool path_is_within_private(const char *path, char ret_path[static PATH_MAX]) {
        _cleanup_fd_ int fd = open_directory_of(path);
        if (fd >= 0 && is_within_private(fd, ret_path))
                return true;
        char origin[PATH_MAX];
        if (policy_mount_origin(path, origin) < 0)
                return false;
        _cleanup_fd_ int origin_fd = open_directory_of(origin);
        return origin_fd >= 0 && is_within_private(origin_fd, ret_path);
}

/* ---- below ---- */

struct search {
        int left;    /* entries that may still be looked at */
        bool is_cut; /* there are directories that were too deep to be read */
        char *ret_path;
};

static bool search_level(struct search *search, int dir_fd, bool is_source, int depth);

static bool search_directory(struct search *search, int parent_fd, const char *name, int depth) {
        _cleanup_fd_ int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        return fd >= 0 && search_level(search, fd, false, depth);
}

static bool search_level(struct search *search, int dir_fd, bool is_source, int depth) {
        if (private_dir_is_marked(dir_fd))
                return name_descriptor(dir_fd, search->ret_path);
        if (depth == 0) {
                search->is_cut = true;
                return false;
        }
        int own_fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_dir_ DIR *directory = own_fd < 0 ? NULL : fdopendir(own_fd);
        if (!directory) {
                fd_close(&own_fd);
                return false;
        }
        const struct dirent *entry;
        while (search->left > 0 && (entry = dir_next(directory))) {
                search->left--;
                if (is_source && strcmp(entry->d_name, ".sandbox") == 0) /* no box sees it */
                        continue;
                if ((entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN) &&
                    search_directory(search, dir_fd, entry->d_name, depth - 1))
                        return true;
        }
        return false;
}

/* What is near the top first: a large tree somewhere in between must not use up the search. */
static bool search_below(int source_fd, char ret_path[static PATH_MAX]) {
        static const int depths[] = { 2, 4, 8 };
        _cleanup_fd_ int fd = openat(source_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (size_t i = 0; i < ELEMENTS(depths) && fd >= 0; i++) {
                struct search search = { .left = ENTRIES_MAX, .ret_path = ret_path };
                if (search_level(&search, fd, true, depths[i]))
                        return true;
                if (!search.is_cut && search.left > 0)
                        break; /* that was all of it */
        }
        return false;
}

struct mount_search {
        const char *source_path;
        char *ret_path;
};

static bool mount_is_private(void *context, const char *mount_point) {
        const struct mount_search *search = context;
        size_t length = strlen(search->source_path);
        return strncmp(mount_point, search->source_path, length) == 0 && mount_point[length] == '/' &&
               path_is_within_private(mount_point, search->ret_path);
}

enum policy_private policy_find_private(int source_fd, const char *source_path, char ret_path[static PATH_MAX]) {
        if (path_is_within_private(source_path, ret_path))
                return POLICY_PRIVATE_AROUND;
        struct stat status;
        if (fstat(source_fd, &status) < 0 || !S_ISDIR(status.st_mode))
                return POLICY_PRIVATE_NONE;
        struct mount_search search = { source_path, ret_path };
        return policy_mount_any(mount_is_private, &search) || search_below(source_fd, ret_path) ? POLICY_PRIVATE_BELOW
                                                                                                : POLICY_PRIVATE_NONE;
}

/* ---- sockets ---- */

int policy_each_socket(int (*visit)(void *context, const char *path), void *context) {
        _cleanup_fd_ int fd = open("/proc/net/unix", O_RDONLY | O_CLOEXEC);
        _cleanup_free_ char *text = NULL;
        if (fd < 0 || fd_read_to_end(fd, SOCKETS_TEXT_MAX, &text, NULL) < 0)
                return 0; /* more of them than that: the search below and the daemons' own refusal must do */
        char *rest = text, *line;
        int code = 0;
        while (code == 0 && (line = strsep(&rest, "\n"))) {
                const char *path = strchr(line, '/'), *name = path ? strrchr(path, '/') + 1 : "";
                if (path && private_dir_is_socket_name(name))
                        code = visit(context, path);
        }
        return code;
}
