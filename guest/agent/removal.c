#include "removal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/memory.h"
#include "bounds.h"
#include "link.h"
#include "path.h"

/* Only two levels are ever open: directories that are found deeper are moved up to the top and wait for their turn. */
struct removal {
        uint32_t id;
        char *path;
        DIR *top, *below;
        char below_name[256];
        bool progress; /* since the top was last read from its beginning */
        int code;      /* the first error since then */
        unsigned n_moved;
};

static struct removal removals[REMOVALS_MAX];
static size_t n_removals;

static int remove_entry(int dir_fd, const char *name) {
        if (unlinkat(dir_fd, name, 0) == 0)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -errno;
        int code = -errno;
        if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
                return 0;
        return errno == ENOTDIR ? code : errno == EEXIST ? -ENOTEMPTY : -errno;
}

static DIR *removal_open_directory(int dir_fd, const char *name, int *ret_code) {
        _cleanup_fd_ int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *directory = fd < 0 ? NULL : fdopendir(fd);
        if (directory)
                (void) take_fd(&fd);
        else
                *ret_code = -errno;
        return directory;
}

static const char *next_name(DIR *directory) {
        const struct dirent *entry = dir_next(directory);
        return entry ? entry->d_name : NULL;
}

static void note_result(struct removal *removal, int code) {
        if (code == 0)
                removal->progress = true;
        else if (removal->code == 0)
                removal->code = code;
}

static int move_up(struct removal *removal, const char *name) {
        char moved[32];
        (void) snprintf(moved, sizeof(moved), ".glovebox-remove-%u", removal->n_moved++);
        return renameat(dirfd(removal->below), name, dirfd(removal->top), moved) < 0 ? -errno : 0;
}

static void step_below(struct removal *removal) {
        const char *name = next_name(removal->below);
        if (name) {
                int code = remove_entry(dirfd(removal->below), name);
                note_result(removal, code == -ENOTEMPTY ? move_up(removal, name) : code);
                return;
        }
        (void) closedir(removal->below);
        removal->below = NULL;
        if (unlinkat(dirfd(removal->top), removal->below_name, AT_REMOVEDIR) == 0)
                note_result(removal, 0);
}

/* False: it has ended, with the result in removal->code. */
static bool removal_step(struct removal *removal) {
        if (removal->below) {
                step_below(removal);
                return true;
        }
        const char *name = next_name(removal->top);
        if (!name && removal->progress) { /* what was moved up, or added, is found from the beginning */
                rewinddir(removal->top);
                removal->progress = false;
                removal->code = 0;
                return true;
        }
        if (!name) {
                if (rmdir(removal->path) == 0)
                        removal->code = 0;
                else if (removal->code == 0)
                        removal->code = -errno;
                return false;
        }
        int code = remove_entry(dirfd(removal->top), name);
        if (code == -ENOTEMPTY) {
                (void) snprintf(removal->below_name, sizeof(removal->below_name), "%s", name);
                code = 0;
                removal->below = removal_open_directory(dirfd(removal->top), removal->below_name, &code);
                if (code == 0)
                        return true;
        }
        note_result(removal, code);
        return true;
}

int removal_start(struct request *request) {
        _cleanup_free_ char *path = NULL;
        uint32_t recursive;
        int code = path_get(&request->fields, &path);
        if (code < 0)
                return code;
        if (!frame_get_u32(&request->fields, &recursive))
                return -EPROTO;
        request->step = "removing the file";
        code = remove_entry(AT_FDCWD, path);
        if (code != -ENOTEMPTY || !recursive)
                return code;
        if (n_removals == REMOVALS_MAX) {
                request->step = "too many directories are being removed";
                return -EAGAIN;
        }
        request->step = "opening the directory";
        DIR *top = removal_open_directory(AT_FDCWD, path, &code);
        if (!top)
                return code;
        removals[n_removals++] = (struct removal) { .id = request->id, .path = take_ptr(path), .top = top };
        return REQUEST_ANSWERED_LATER;
}

static void drop_removal(struct removal *removal) {
        if (removal->below)
                (void) closedir(removal->below);
        (void) closedir(removal->top);
        free(removal->path);
        *removal = removals[--n_removals];
}

bool removals_pending(void) {
        return n_removals > 0;
}

void removals_move(void) {
        for (size_t i = n_removals; i-- > 0;) {
                unsigned done = 0;
                while (done < REMOVAL_TURN && removal_step(&removals[i]))
                        done++;
                if (done == REMOVAL_TURN)
                        continue;
                if (removals[i].code < 0)
                        link_send_failed(removals[i].id, removals[i].code, "removing what is in the directory");
                else
                        link_send(FRAME_DONE, removals[i].id, NULL);
                drop_removal(&removals[i]);
        }
}

void removals_release(void) {
        while (n_removals > 0)
                drop_removal(&removals[n_removals - 1]);
}
