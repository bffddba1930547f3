#include "session/remove_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "box/syscalls.h"

/* Each level costs a descriptor: what lies deeper is moved up to the top and has its turn later. */
enum { DEPTH_MAX = 64, TURNS_MAX = 100000 };

/* Gives us our rights on a directory whose owner took them away: on what was opened, never on a name that may be a link
 * by now. */
static bool open_up(int parent_fd, const char *name) {
        char link[64];
        int fd = sys_openat2(parent_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0,
                             RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
        if (fd < 0)
                return false;
        (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        bool good = chmod(link, 0700) == 0;
        (void) close(fd);
        return good;
}

static void empty_directory(int top_fd, int parent_fd, const char *name, int depth, unsigned *n_moved) {
        int fd = sys_openat2(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
                             RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
        if (fd < 0 && errno == EACCES && open_up(parent_fd, name))
                fd = sys_openat2(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
                                 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
        if (fd < 0)
                return;
        (void) fchmod(fd, 0700);
        DIR *directory = fdopendir(fd);
        if (!directory) {
                (void) close(fd);
                return;
        }
        struct dirent *entry;
        while ((entry = readdir(directory))) {
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                        continue;
                if (unlinkat(dirfd(directory), entry->d_name, 0) == 0 || (errno != EISDIR && errno != EPERM))
                        continue;
                if (depth < DEPTH_MAX)
                        empty_directory(top_fd < 0 ? dirfd(directory) : top_fd, dirfd(directory), entry->d_name,
                                        depth + 1, n_moved);
                else {
                        char moved[32];
                        (void) snprintf(moved, sizeof(moved), ".deep-%u", (*n_moved)++);
                        (void) renameat(dirfd(directory), entry->d_name, top_fd, moved);
                }
                (void) unlinkat(dirfd(directory), entry->d_name, AT_REMOVEDIR);
        }
        (void) closedir(directory);
}

static void empty_tree_at(int parent_fd, const char *name) {
        unsigned n_moved = 0;
        for (int turn = 0; turn < TURNS_MAX; turn++) {
                unsigned before = n_moved;
                empty_directory(-1, parent_fd, name, 0, &n_moved);
                if (n_moved == before)
                        break;
        }
}

void remove_tree_at(int parent_fd, const char *name) {
        empty_tree_at(parent_fd, name);
        (void) unlinkat(parent_fd, name, AT_REMOVEDIR);
}

static void at_parent(const char *path, void (*call)(int parent_fd, const char *name)) {
        char parent[4096];
        const char *name = strrchr(path, '/');
        if (!name || !name[1] || (size_t) (name - path) >= sizeof(parent))
                return;
        (void) snprintf(parent, sizeof(parent), "%.*s", (int) (name - path), path);
        int parent_fd = open(*parent ? parent : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (parent_fd < 0)
                return;
        call(parent_fd, name + 1);
        (void) close(parent_fd);
}

void remove_tree(const char *path) {
        at_parent(path, remove_tree_at);
}

void empty_tree(const char *path) {
        at_parent(path, empty_tree_at);
}
