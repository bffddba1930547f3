#include "box/cgroup/cgroup_text.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

/* A borrowed part of a text. */
struct piece {
        const char *at;
        size_t size;
};

static bool piece_is(struct piece piece, const char *text) {
        return piece.size == strlen(text) && memcmp(piece.at, text, piece.size) == 0;
}

/* Cuts the next line off *text. */
static bool next_line(const char **text, struct piece *ret_line) {
        if (**text == '\0')
                return false;
        size_t size = strcspn(*text, "\n");
        *ret_line = (struct piece) { *text, size };
        *text += size + ((*text)[size] == '\n');
        return true;
}

/* Cuts the next field off *rest: what stands before `separator` or the end. */
static bool next_field(struct piece *rest, char separator, struct piece *ret_field) {
        if (!rest->at)
                return false;
        const char *end = memchr(rest->at, separator, rest->size);
        size_t size = end ? (size_t) (end - rest->at) : rest->size;
        *ret_field = (struct piece) { rest->at, size };
        *rest = end ? (struct piece) { end + 1, rest->size - size - 1 } : (struct piece) { NULL, 0 };
        return true;
}

static bool has_field(struct piece list, char separator, const char *word) {
        struct piece field;
        while (next_field(&list, separator, &field))
                if (piece_is(field, word))
                        return true;
        return false;
}

static int copy_piece(struct piece piece, char ret_text[static CGROUP_PATH_MAX]) {
        if (piece.size >= CGROUP_PATH_MAX)
                return -ENAMETOOLONG;
        memcpy(ret_text, piece.at, piece.size);
        ret_text[piece.size] = '\0';
        return 0;
}

static bool is_octal(char c) {
        return c >= '0' && c <= '7';
}

/* mountinfo writes blank, tab, newline and backslash as \040, \011, \012 and \134. */
static int copy_unescaped(struct piece piece, char ret_text[static CGROUP_PATH_MAX]) {
        size_t n = 0;
        for (size_t i = 0; i < piece.size; i++) {
                char c = piece.at[i];
                if (c == '\\' && i + 3 < piece.size && is_octal(piece.at[i + 1]) && is_octal(piece.at[i + 2]) &&
                    is_octal(piece.at[i + 3])) {
                        int code = (piece.at[i + 1] - '0') * 64 + (piece.at[i + 2] - '0') * 8 + piece.at[i + 3] - '0';
                        if (code == 0 || code > 255)
                                return -EINVAL;
                        c = (char) code;
                        i += 3;
                }
                if (n + 1 >= CGROUP_PATH_MAX)
                        return -ENAMETOOLONG;
                ret_text[n++] = c;
        }
        ret_text[n] = '\0';
        return 0;
}

static bool next_fields(struct piece *line, struct piece *ret_fields, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (!next_field(line, ' ', &ret_fields[i]))
                        return false;
        return true;
}

/* 36 35 98:0 /root /mount/point rw,noatime [optional fields…] - type source super,options */
static int parse_mount(struct piece line, const char *controller, struct cgroup_mount *ret_mount) {
        enum { ROOT = 3, POINT, OPTIONS, FIRST_FIELDS };
        enum { TYPE, SOURCE, SUPER_OPTIONS, LAST_FIELDS };
        struct piece first[FIRST_FIELDS], last[LAST_FIELDS], optional;
        if (!next_fields(&line, first, FIRST_FIELDS))
                return -ENOENT;
        do
                if (!next_field(&line, ' ', &optional))
                        return -ENOENT;
        while (!piece_is(optional, "-"));
        if (!next_fields(&line, last, LAST_FIELDS) || !piece_is(last[TYPE], controller ? "cgroup" : "cgroup2") ||
            (controller && !has_field(last[SUPER_OPTIONS], ',', controller)))
                return -ENOENT;
        struct cgroup_mount mount = { .read_only = has_field(first[OPTIONS], ',', "ro") ||
                                                   has_field(last[SUPER_OPTIONS], ',', "ro") };
        int code = copy_unescaped(first[ROOT], mount.root);
        if (code == 0)
                code = copy_unescaped(first[POINT], mount.point);
        if (code == 0 && (mount.root[0] != '/' || mount.point[0] != '/'))
                code = -ENOENT;
        if (code == 0)
                *ret_mount = mount;
        return code;
}

int cgroup_text_find_mount(const char *mountinfo, const char *controller, struct cgroup_mount *ret_mount) {
        int found = -ENOENT;
        struct piece line;
        while (next_line(&mountinfo, &line)) {
                struct cgroup_mount mount;
                int code = parse_mount(line, controller, &mount);
                if (code == 0 && (found < 0 || (ret_mount->read_only && !mount.read_only)))
                        *ret_mount = mount;
                if (code == 0)
                        found = 0;
                else if (found < 0 && code == -ENAMETOOLONG)
                        found = code;
        }
        return found;
}

/* 4:memory,hugetlb:/some/group, and for the cgroup2 tree 0::/some/group. The path may hold colons. */
int cgroup_text_find_own(const char *proc_cgroup, const char *controller, char ret_path[static CGROUP_PATH_MAX]) {
        struct piece line;
        while (next_line(&proc_cgroup, &line)) {
                struct piece number, controllers;
                if (!next_field(&line, ':', &number) || !next_field(&line, ':', &controllers) || !line.at)
                        continue;
                bool right = controller ? has_field(controllers, ',', controller)
                                        : piece_is(number, "0") && controllers.size == 0;
                if (right && line.size > 0 && line.at[0] == '/')
                        return copy_piece(line, ret_path);
        }
        return -ENOENT;
}

/* The rest of `path` behind the directory `prefix`: empty, or beginning with "/"; NULL when it is not below it. */
static const char *path_behind(const char *path, const char *prefix) {
        size_t size = strlen(prefix);
        while (size > 0 && prefix[size - 1] == '/')
                size--;
        if (strncmp(path, prefix, size) != 0 || (path[size] != '/' && path[size] != '\0'))
                return NULL;
        return path + size;
}

static bool has_dots(const char *path) {
        for (const char *at = path; *at;) {
                size_t size = strcspn(at, "/");
                if ((size == 1 && at[0] == '.') || (size == 2 && at[0] == '.' && at[1] == '.'))
                        return true;
                at += size + (at[size] == '/');
        }
        return false;
}

int cgroup_text_locate(const struct cgroup_mount *mount, const char *path, char ret_dir[static CGROUP_PATH_MAX]) {
        /* A group outside of our cgroup namespace shows as /../…: no visible directory leads there. */
        if (has_dots(path) || has_dots(mount->root))
                return -ENOENT;
        const char *below = path_behind(path, mount->root);
        if (!below)
                return -ENOENT;
        if (strcmp(below, "/") == 0)
                below = "";
        size_t point = strlen(mount->point), rest = strlen(below);
        if (point + rest >= CGROUP_PATH_MAX)
                return -ENAMETOOLONG;
        memcpy(ret_dir, mount->point, point);
        memcpy(ret_dir + point, below, rest + 1);
        return 0;
}

void cgroup_text_common(const char *a, const char *b, char ret_dir[static CGROUP_PATH_MAX]) {
        size_t same = 0;
        for (size_t i = 0; i < CGROUP_PATH_MAX - 1; i++) {
                bool a_ends = a[i] == '\0' || a[i] == '/', b_ends = b[i] == '\0' || b[i] == '/';
                if (a_ends && b_ends)
                        same = i;
                if (a[i] != b[i] || a[i] == '\0')
                        break;
        }
        memcpy(ret_dir, a, same);
        if (same == 0)
                ret_dir[same++] = '/';
        ret_dir[same] = '\0';
}

bool cgroup_text_has_word(const char *text, const char *word) {
        size_t size = strlen(word);
        while (*text) {
                size_t length = strcspn(text, " ,\n\t");
                if (length == size && memcmp(text, word, size) == 0)
                        return size > 0;
                text += length + (text[length] != '\0');
        }
        return false;
}

static bool parse_number(struct piece digits, uint64_t *ret_number) {
        uint64_t number = 0;
        for (size_t i = 0; i < digits.size; i++)
                if (!isdigit((unsigned char) digits.at[i]) || __builtin_mul_overflow(number, 10u, &number) ||
                    __builtin_add_overflow(number, (uint64_t) (digits.at[i] - '0'), &number))
                        return false;
        *ret_number = number;
        return digits.size > 0;
}

int cgroup_text_find_number(const char *text, const char *key, uint64_t *ret_number) {
        struct piece line, name;
        while (next_line(&text, &line))
                if (next_field(&line, ' ', &name) && piece_is(name, key) && line.at)
                        return parse_number(line, ret_number) ? 0 : -EINVAL;
        return -ENOENT;
}

bool cgroup_text_next_pid(const char **text, int *ret_pid) {
        struct piece line;
        while (next_line(text, &line)) {
                uint64_t number;
                if (parse_number(line, &number) && number > 0 && number <= INT_MAX) {
                        *ret_pid = (int) number;
                        return true;
                }
        }
        return false;
}

bool cgroup_text_is_relative(const char *path) {
        size_t size = strlen(path);
        if (size == 0 || size > 127 || path[0] == '/' || path[size - 1] == '/' || strstr(path, "//") || has_dots(path))
                return false;
        for (; *path; path++)
                if ((unsigned char) *path <= ' ' || *path == 0x7f)
                        return false;
        return true;
}
