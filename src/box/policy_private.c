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

#include "base/fd.h"
#include "base/memory.h"
#include "base/private_dir.h"
#include "base/syscalls.h"
#include "box/policy_mount.h"
#include "box/policy_place.h"

enum { DEPTH_MAX = 8, ENTRIES_MAX = 20000, SOCKETS_TEXT_MAX = 4 << 20 };

/* True if the directory, or one above it, is marked. */
static bool is_within_private(int dir_fd, char ret_path[static PATH_MAX]) {
        struct policy_climb climb;
        if (policy_climb_begin(&climb, dir_fd, ".") < 0)
                return false;
        do {
                char marker[PATH_MAX + sizeof(PRIVATE_DIR_MARKER)];
                (void) snprintf(marker, sizeof(marker), "%s/" PRIVATE_DIR_MARKER, climb.path);
                if (faccessat(dir_fd, marker, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
                        continue;
                _cleanup_fd_ int fd = openat(dir_fd, climb.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (fd < 0 || fd_path(fd, ret_path, PATH_MAX) < 0)
                        (void) strcpy(ret_path, climb.path);
                return true;
        } while (policy_climb_up(&climb) > 0);
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

/* Level by level: a large tree somewhere must not use up the search for what is near the top. */
struct search {
        int top_fd;
        int left;        /* entries that may still be looked at */
        char **queue;    /* paths below the top, in the order in which they are looked at; ENTRIES_MAX + 1 */
        size_t at, size; /* the next one, and how many there are */
        char *ret_path;
};

static void search_release(struct search *search) {
        for (size_t i = 0; i < search->size; i++)
                free(search->queue[i]);
        free(search->queue);
}

static void search_later(struct search *search, const char *directory, const char *name) {
        char *path;
        if (asprintf(&path, "%s%s%s", directory, *directory ? "/" : "", name) < 0)
                return;
        search->queue[search->size++] = path;
}

static size_t depth_of(const char *path) {
        size_t depth = *path ? 1 : 0;
        for (; *path; path++)
                depth += *path == '/';
        return depth;
}

static void search_list(struct search *search, int fd, const char *path) {
        char bytes[32 << 10] __attribute__((aligned(8)));
        ssize_t n;
        while (search->left > 0 && (n = getdents64(fd, bytes, sizeof(bytes))) > 0) {
                for (ssize_t at = 0; at < n && search->left > 0;) {
                        const struct dirent64 *entry = (const struct dirent64 *) (const void *) (bytes + at);
                        at += entry->d_reclen;
                        search->left--;
                        if ((entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN) ||
                            strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                            (!*path && strcmp(entry->d_name, ".sandbox") == 0)) /* which no box sees */
                                continue;
                        search_later(search, path, entry->d_name);
                }
        }
}

/* True if this directory is marked. Its subdirectories are checked later. */
static bool search_directory(struct search *search, const char *path) {
        _cleanup_fd_ int fd = sys_openat2(search->top_fd, *path ? path : ".",
                                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0,
                                          RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
        if (fd < 0)
                return false;
        if (private_dir_is_marked(fd)) {
                if (fd_path(fd, search->ret_path, PATH_MAX) < 0)
                        (void) snprintf(search->ret_path, PATH_MAX, "%s", path);
                return true;
        }
        if (depth_of(path) < DEPTH_MAX)
                search_list(search, fd, path);
        return false;
}

static bool search_below(int source_fd, char ret_path[static PATH_MAX]) {
        _cleanup_(search_release) struct search search = { .top_fd = source_fd,
                                                           .left = ENTRIES_MAX,
                                                           .queue = malloc((ENTRIES_MAX + 1) * sizeof(char *)),
                                                           .ret_path = ret_path };
        bool is_found = false;
        if (search.queue)
                search_later(&search, "", "");
        while (!is_found && search.at < search.size)
                is_found = search_directory(&search, search.queue[search.at++]);
        return is_found;
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

enum policy_private policy_find_private(int source_fd, const char *source_path, bool search,
                                        char ret_path[static PATH_MAX]) {
        if (path_is_within_private(source_path, ret_path))
                return POLICY_PRIVATE_AROUND;
        struct stat status;
        if (fstat(source_fd, &status) < 0 || !S_ISDIR(status.st_mode))
                return POLICY_PRIVATE_NONE;
        struct mount_search mounts = { source_path, ret_path };
        if (policy_mount_any(mount_is_private, &mounts) || (search && search_below(source_fd, ret_path)))
                return POLICY_PRIVATE_BELOW;
        return POLICY_PRIVATE_NONE;
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
                bool listens = strstr(line, " 00010000 "); /* the flags; its connections are listed beside it */
                if (path && listens && private_dir_is_socket_name(name))
                        code = visit(context, path);
        }
        return code;
}
