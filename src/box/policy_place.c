#include "box/policy_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"

bool policy_place_is_same(const struct policy_place *a, const struct policy_place *b) {
        return a->inode == b->inode && a->dev_major == b->dev_major && a->dev_minor == b->dev_minor;
}

static int place_at(int dir_fd, const char *path, int flags, struct policy_place *ret_place) {
        struct statx st;
        if (statx(dir_fd, path, flags | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO | STATX_MNT_ID, &st) < 0)
                return -errno;
        *ret_place = (struct policy_place) { st.stx_dev_major, st.stx_dev_minor, st.stx_ino,
                                             st.stx_mask & STATX_MNT_ID ? st.stx_mnt_id : 0, st.stx_mode };
        return 0;
}

int policy_place_find(const char *path, struct policy_place *ret_place) {
        return place_at(AT_FDCWD, path, 0, ret_place);
}

/* ---- upwards ---- */

int policy_climb_begin(struct policy_climb *climb, int dir_fd, const char *path) {
        climb->dir_fd = dir_fd;
        if (snprintf(climb->path, sizeof(climb->path), "%s", path) >= (int) sizeof(climb->path))
                return -ENAMETOOLONG;
        return place_at(dir_fd, path, 0, &climb->at);
}

int policy_climb_up(struct policy_climb *climb) {
        size_t length = strlen(climb->path);
        struct policy_place up;
        if (length + sizeof("/..") > sizeof(climb->path))
                return -ENAMETOOLONG;
        (void) strcpy(climb->path + length, "/..");
        int code = place_at(climb->dir_fd, climb->path, 0, &up);
        if (code < 0)
                return code;
        bool is_root = policy_place_is_same(&up, &climb->at) && up.mount == climb->at.mount; /* ".." of / is / */
        climb->at = up;
        return is_root ? 0 : 1;
}

/* The directory that a file is in, by the file's own name without links. */
static int directory_of(const char *path, char ret_directory[static PATH_MAX]) {
        if (!realpath(path, ret_directory))
                return -errno;
        char *slash = strrchr(ret_directory, '/');
        slash[slash == ret_directory] = '\0';
        return 0;
}

bool policy_place_is_within(const char *path, const struct policy_place *upper) {
        struct policy_climb climb;
        char directory[PATH_MAX];
        if (policy_climb_begin(&climb, AT_FDCWD, path) < 0)
                return false;
        if (policy_place_is_same(&climb.at, upper))
                return true;
        if (!S_ISDIR(climb.at.mode) &&
            (directory_of(path, directory) < 0 || policy_climb_begin(&climb, AT_FDCWD, directory) < 0))
                return false;
        do {
                if (policy_place_is_same(&climb.at, upper))
                        return true;
        } while (policy_climb_up(&climb) > 0);
        return false;
}

/* ---- an open file or directory ---- */

static int add_climb(struct policy_where *where, int dir_fd, const char *path) {
        struct policy_climb climb;
        int code = policy_climb_begin(&climb, dir_fd, path);
        if (code < 0)
                return code;
        do {
                if (where->n_chain == POLICY_CHAIN_MAX)
                        return -ENAMETOOLONG;
                where->chain[where->n_chain++] = climb.at;
        } while ((code = policy_climb_up(&climb)) > 0);
        return code;
}

int policy_where_find(int fd, struct policy_where *ret_where) {
        char directory[PATH_MAX];
        int code = fd_path(fd, ret_where->path, sizeof(ret_where->path));
        if (code < 0)
                return code;
        if (ret_where->path[0] != '/')
                return -ESTALE;

        struct policy_place open_place, named_place;
        code = place_at(fd, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, &open_place);
        if (code < 0)
                return code;
        if (place_at(AT_FDCWD, ret_where->path, AT_SYMLINK_NOFOLLOW, &named_place) < 0 ||
            !policy_place_is_same(&open_place, &named_place))
                return -ESTALE;
        ret_where->n_chain = 0;
        if (S_ISDIR(open_place.mode))
                return add_climb(ret_where, fd, ".");
        ret_where->chain[ret_where->n_chain++] = open_place;
        (void) snprintf(directory, sizeof(directory), "%s", ret_where->path);
        *(strrchr(directory, '/') + 1) = '\0';
        return add_climb(ret_where, AT_FDCWD, directory);
}

bool policy_where_has(const struct policy_where *where, const struct policy_place *place) {
        for (size_t i = 0; i < where->n_chain; i++)
                if (policy_place_is_same(&where->chain[i], place))
                        return true;
        return false;
}
