#include "box/policy_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/memory.h"

enum { MOUNTINFO_MAX = 16 << 20 };

struct mount_row {
        char *device, *root, *point;
};

/* Blanks and backslashes are written as three octal digits. */
static void unescape_octal(char *text) {
        char *to = text;
        for (const char *from = text; *from;) {
                if (*from == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] && from[3]) {
                        *to++ = (char) ((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
                        from += 4;
                } else
                        *to++ = *from++;
        }
        *to = '\0';
}

/* "id parent major:minor root mount-point …" */
static bool parse_row(char *line, struct mount_row *ret_row) {
        char *fields[5];
        for (size_t i = 0; i < ELEMENTS(fields); i++)
                if (!(fields[i] = strsep(&line, " ")))
                        return false;
        unescape_octal(fields[3]);
        unescape_octal(fields[4]);
        *ret_row = (struct mount_row) { fields[2], fields[3], fields[4] };
        return true;
}

static char *read_mounts(void) {
        int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
        char *text = NULL;
        if (fd >= 0)
                (void) fd_read_to_end(fd, MOUNTINFO_MAX, &text, NULL);
        fd_close(&fd);
        return text;
}

/* The rest of `path` behind the tree; NULL if it does not lie below it. */
static const char *rest_after(const char *path, const char *tree) {
        size_t length = strlen(tree);
        if (length > 0 && tree[length - 1] == '/')
                length--;
        return strncmp(path, tree, length) == 0 && (path[length] == '/' || !path[length]) ? path + length : NULL;
}

static bool is_same_file(const char *a_path, const char *b_path) {
        struct stat a, b;
        return lstat(a_path, &a) == 0 && lstat(b_path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* The mount that a path is on: the last one with the longest mount point. */
static bool find_mount(char *text, const char *path, struct mount_row *ret_row) {
        char *rest = text, *line;
        size_t longest = 0;
        while ((line = strsep(&rest, "\n"))) {
                struct mount_row row;
                if (parse_row(line, &row) && rest_after(path, row.point) && strlen(row.point) >= longest) {
                        longest = strlen(row.point);
                        *ret_row = row;
                }
        }
        return longest > 0;
}

int policy_mount_origin(const char *path, char ret_origin[static PATH_MAX]) {
        _cleanup_free_ char *text = read_mounts(), *copy = text ? strdup(text) : NULL;
        struct mount_row own = { 0 };
        char whole[PATH_MAX];
        if (!copy || !find_mount(copy, path, &own) || strcmp(own.root, "/") == 0)
                return -ENOENT;
        if (snprintf(whole, sizeof(whole), "%s%s", own.root, rest_after(path, own.point)) >= (int) sizeof(whole))
                return -ENAMETOOLONG;
        char *rest = text, *line;
        while ((line = strsep(&rest, "\n"))) {
                struct mount_row row;
                if (!parse_row(line, &row) || strcmp(row.device, own.device) != 0 ||
                    strlen(row.root) >= strlen(own.root))
                        continue;
                const char *below = rest_after(whole, row.root);
                const char *point = strcmp(row.point, "/") == 0 ? "" : row.point;
                if (below && snprintf(ret_origin, PATH_MAX, "%s%s", point, below) < PATH_MAX &&
                    is_same_file(path, ret_origin))
                        return 0;
        }
        return -ENOENT;
}

bool policy_mount_any(bool (*is_so)(void *context, const char *mount_point), void *context) {
        _cleanup_free_ char *text = read_mounts();
        char *rest = text, *line;
        while (text && (line = strsep(&rest, "\n"))) {
                struct mount_row row;
                if (parse_row(line, &row) && is_so(context, row.point))
                        return true;
        }
        return false;
}
