#include "store/packages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/json_bounds.h"
#include "base/memory.h"
#include "base/remove_tree.h"
#include "base/units.h"
#include "store/requirement.h"
#include "store/tenant_file.h"

enum {
        DEPTH_MAX = 64,
        REPORT_MAX_BYTES = 256 << 10,
        LISTED_MAX = 1000,
        VERSION_MAX = 100,
};

static void packages_path(const char *state_dir, const char *name, char ret_path[static 1100]) {
        (void) snprintf(ret_path, 1100, "%.1000s/%s", state_dir, name);
}

/* The box's user must be able to read it, whatever the daemon's umask: one in the background has 077. */
static int open_to_readers(const char *path) {
        return chmod(path, 0755) < 0 ? -errno : 0;
}

int packages_make_directory(const char *state_dir) {
        char path[1100];
        packages_path(state_dir, "packages", path);
        return mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : open_to_readers(path);
}

void packages_drop_staging(const char *state_dir) {
        char path[1100];
        packages_path(state_dir, "install", path);
        remove_tree(path);
}

int packages_make_staging(const char *state_dir) {
        char path[1100];
        packages_path(state_dir, "install", path);
        if (mkdir(path, 0755) == 0)
                return open_to_readers(path);
        remove_tree(path);
        return mkdir(path, 0755) < 0 ? -errno : open_to_readers(path);
}

bool packages_cover_image(const char *state_dir) {
        char path[1100];
        packages_path(state_dir, "packages/covers", path);
        return access(path, F_OK) == 0;
}

/* ---- what the helper left ---- */

struct count {
        const struct limits *limits;
        uint64_t bytes, files;
};

static int count_entry(struct count *count, const struct stat *status, struct err *err) {
        char text[32];
        if (!S_ISREG(status->st_mode) && !S_ISDIR(status->st_mode) && !S_ISLNK(status->st_mode))
                return err_set(err, ERR_REFUSED, "the packages hold something that is no file, directory or link");
        if (!S_ISLNK(status->st_mode) && status->st_mode & (S_ISUID | S_ISGID))
                return err_set(err, ERR_REFUSED, "the packages hold something with a set-user-id bit");
        uint64_t on_disk = (uint64_t) status->st_blocks * 512, size = (uint64_t) status->st_size;
        count->bytes += on_disk > size ? on_disk : size;
        count->files++;
        if (count->bytes > count->limits->disk_bytes)
                return err_set(err, ERR_LIMIT,
                               "the packages take more than the session's disk limit %s; raise it, or install less",
                               units_format_bytes(count->limits->disk_bytes, text));
        if (count->files > count->limits->disk_files)
                return err_set(err, ERR_LIMIT, "the packages have more than %llu files; install less",
                               (unsigned long long) count->limits->disk_files);
        return 0;
}

static int look_through(int parent_fd, const char *name, int depth, struct count *count, struct err *err) {
        int fd = tenant_file_open_directory(parent_fd, name, O_RDONLY);
        DIR *directory = fd < 0 ? NULL : fdopendir(fd);
        if (!directory) {
                int code = fd < 0 ? -fd : errno;
                fd_close(&fd);
                return err_sys(err, code, "looking through the new packages");
        }
        int code = depth < DEPTH_MAX ? 0 : err_set(err, ERR_REFUSED, "the packages have directories that are too deep");
        struct dirent *entry;
        while (code == 0 && (entry = dir_next(directory))) {
                struct stat status;
                if (fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
                        code = err_sys(err, errno, "looking through the new packages");
                else if ((code = count_entry(count, &status, err)) == 0 && S_ISDIR(status.st_mode))
                        code = look_through(dirfd(directory), entry->d_name, depth + 1, count, err);
        }
        (void) closedir(directory);
        return code;
}

/* ---- its report ---- */

/* Is it a version such as 1!2.0.post1+local? Anything else is not shown. */
static bool is_version(const char *text) {
        size_t size = text ? strlen(text) : 0;
        return size > 0 && size < VERSION_MAX &&
               strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+!_-") == size;
}

static bool packages_is_name(const char *text) {
        return text && requirement_is_name(text, strlen(text));
}

static json_t *clean_report(json_t *report) {
        json_t *installed = json_array(), *replaced = json_array(), *item;
        size_t i;
        json_array_foreach (json_object_get(report, "installed"), i, item) {
                const char *name = json_string_value(json_object_get(item, "name"));
                const char *version = json_string_value(json_object_get(item, "version"));
                if (i < LISTED_MAX && packages_is_name(name) && is_version(version))
                        json_array_append_new(installed, json_pack("{s:s, s:s}", "name", name, "version", version));
        }
        json_array_foreach (json_object_get(report, "replaced"), i, item)
                if (i < LISTED_MAX && packages_is_name(json_string_value(item)))
                        json_array_append(replaced, item);
        return json_pack("{s:o, s:o, s:b}", "installed", installed, "replaced", replaced, "covers_image",
                         json_is_true(json_object_get(report, "covers_image")));
}

static int read_report(int staging_fd, json_t **ret_report, struct err *err) {
        _cleanup_fd_ int fd = tenant_file_open(staging_fd, "report.json", O_RDONLY, NULL);
        _cleanup_free_ char *bytes = NULL;
        size_t size = 0;
        if (fd < 0 || fd_read_to_end(fd, REPORT_MAX_BYTES, &bytes, &size) < 0 || !json_is_bounded(bytes, size))
                return err_set(err, ERR_PROTOCOL, "the helper box did not report what it installed; try again");
        json_t *report = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, NULL);
        *ret_report = clean_report(report);
        json_decref(report);
        return *ret_report ? 0 : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
}

/* ---- the change ---- */

static int packages_swap(int staging_fd, int packages_fd) {
        if (renameat2(staging_fd, "current", packages_fd, "current", RENAME_NOREPLACE) == 0 ||
            (errno == EEXIST && renameat2(staging_fd, "current", packages_fd, "current", RENAME_EXCHANGE) == 0))
                return futimens(packages_fd, NULL) < 0 ? -errno : 0; /* what kernels look at: never left to chance */
        return -errno;
}

static int activate_packages(int state_fd, const struct limits *limits, json_t **ret_report, struct err *err) {
        struct count count = { .limits = limits };
        _cleanup_fd_ int staging = tenant_file_open_directory(state_fd, "install", O_RDONLY);
        _cleanup_fd_ int packages = tenant_file_open_directory(state_fd, "packages", O_RDONLY);
        if (staging < 0 || packages < 0)
                return err_sys(err, -(staging < 0 ? staging : packages), "opening the new packages");
        json_t *report = NULL;
        if (read_report(staging, &report, err) < 0)
                return -1;
        int code = look_through(staging, "current", 0, &count, err);
        if (code == 0 && json_is_true(json_object_get(report, "covers_image"))) { /* first: too often is harmless */
                _cleanup_fd_ int mark = tenant_file_open(packages, "covers", O_WRONLY | O_CREAT, NULL);
                if (mark < 0)
                        code = err_sys(err, -mark, "noting that the packages cover the image's");
        }
        int swapped = code < 0 ? 0 : packages_swap(staging, packages);
        if (swapped < 0)
                code = err_sys(err, -swapped, "putting the new packages in place");
        if (code == 0)
                *ret_report = json_incref(report);
        json_decref(report);
        return code;
}

int packages_settle(const char *state_dir, const struct limits *limits, json_t **ret_report, struct err *err) {
        _cleanup_fd_ int state_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int code = state_fd < 0 ? err_sys(err, errno, "opening %.200s", state_dir)
                                : activate_packages(state_fd, limits, ret_report, err);
        packages_drop_staging(state_dir);
        return code;
}
