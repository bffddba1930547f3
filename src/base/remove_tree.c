#include "base/remove_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/syscalls.h"

/* Each level costs a descriptor: deeper directories are moved up to the top and removed later. */
enum { DEPTH_MAX = 64, TURNS_MAX = 100000 };

/* Lets the owner into a directory whose mode keeps the owner out. By descriptor: the name may be a link by now. */
static bool make_accessible(int parent_fd, const char *name) {
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

struct removal {
        int top_fd; /* of the directory that is to be removed, while it is open */
        unsigned left; /* entries that may still be looked at */
        unsigned removed; /* or moved up */
        bool has_moved;
        bool keeps_mode; /* of the directory at the top */
        int code; /* 0, or -errno of the first entry that cannot be removed */
};

static void note_failure(struct removal *removal, int code) {
        if (removal->code == 0)
                removal->code = code;
}

static void remove_entry(struct removal *removal, int parent_fd, const char *name, int depth);

static void empty_directory(struct removal *removal, int parent_fd, const char *name, int depth) {
        int fd = sys_openat2(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
                             RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
        if (fd < 0 && errno == EACCES && make_accessible(parent_fd, name))
                fd = sys_openat2(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
                                 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
        if (fd < 0) {
                note_failure(removal, -errno);
                return;
        }
        if (depth > 0 || !removal->keeps_mode)
                (void) fchmod(fd, 0700);
        DIR *directory = fdopendir(fd);
        if (!directory) {
                note_failure(removal, -errno);
                (void) close(fd);
                return;
        }
        if (depth == 0)
                removal->top_fd = dirfd(directory);
        struct dirent *entry;
        while (removal->left > 0 && (entry = dir_next(directory)))
                remove_entry(removal, dirfd(directory), entry->d_name, depth);
        (void) closedir(directory);
}

static void remove_entry(struct removal *removal, int parent_fd, const char *name, int depth) {
        static unsigned n_moved; /* never the same name again, also where a tree is removed in several calls */
        removal->left--;
        if (unlinkat(parent_fd, name, 0) == 0) {
                removal->removed++;
                return;
        }
        if (errno != EISDIR && errno != EPERM) {
                if (errno != ENOENT)
                        note_failure(removal, -errno);
                return;
        }
        if (depth < DEPTH_MAX)
                empty_directory(removal, parent_fd, name, depth + 1);
        else {
                char moved[32];
                (void) snprintf(moved, sizeof(moved), ".deep-%u", n_moved++);
                removal->has_moved = true;
                removal->removed += renameat(parent_fd, name, removal->top_fd, moved) == 0;
        }
        if (unlinkat(parent_fd, name, AT_REMOVEDIR) == 0)
                removal->removed++;
        else if (errno != ENOENT) /* moved up */
                note_failure(removal, -errno);
}

bool remove_tree_some(int parent_fd, const char *name, unsigned budget) {
        struct removal removal = { .left = budget };
        for (int turn = 0; turn < TURNS_MAX; turn++) {
                removal.has_moved = false;
                empty_directory(&removal, parent_fd, name, 0);
                if (unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 || errno != ENOTEMPTY)
                        return true;
                if (removal.left == 0)
                        return removal.removed == 0;
                if (!removal.has_moved)
                        return true;
        }
        return true;
}

/* Repeats until no directory had to be moved up. Returns the result of the last pass. */
static int empty_wholly(int parent_fd, const char *name, bool keeps_mode) {
        struct removal removal;
        int turn = 0;
        do {
                removal = (struct removal) { .left = UINT_MAX, .keeps_mode = keeps_mode };
                empty_directory(&removal, parent_fd, name, 0);
        } while (removal.has_moved && ++turn < TURNS_MAX);
        return removal.code;
}

int remove_tree_at(int parent_fd, const char *name) {
        if (unlinkat(parent_fd, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -errno;
        int code = empty_wholly(parent_fd, name, false);
        if (unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
                return 0;
        return code < 0 ? code : -errno;
}

int remove_tree_contents(int dir_fd) {
        return empty_wholly(dir_fd, ".", true);
}

static void empty_tree_at(int parent_fd, const char *name) {
        (void) empty_wholly(parent_fd, name, false);
}

static void remove_directory_at(int parent_fd, const char *name) {
        while (!remove_tree_some(parent_fd, name, UINT_MAX))
                ;
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
        at_parent(path, remove_directory_at);
}

void empty_tree(const char *path) {
        at_parent(path, empty_tree_at);
}
