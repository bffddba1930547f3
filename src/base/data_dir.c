#include "base/data_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/private_dir.h"

/* A variable that is set but empty counts as not set, as for XDG. */
static const char *data_dir_variable(const char *name) {
        const char *value = getenv(name);
        return value && *value ? value : NULL;
}

static const char *home_directory(void) {
        const char *home = data_dir_variable("HOME");
        if (home && *home == '/')
                return home;
        const struct passwd *user = getpwuid(geteuid());
        return user && user->pw_dir && *user->pw_dir == '/' ? user->pw_dir : NULL;
}

static int too_long(struct err *err) {
        return err_set(err, ERR_USAGE, "the path of the data directory is too long; set GLOVEBOX_DATA_DIR");
}

/* Where it is when no variable names one. */
static int choose_usual(char ret[static DATA_DIR_PATH_MAX], struct err *err) {
        const char *xdg = data_dir_variable("XDG_DATA_HOME"), *home = home_directory();
        int length;
        if (geteuid() == 0)
                length = snprintf(ret, DATA_DIR_PATH_MAX, "/var/lib/glovebox");
        else if (xdg && *xdg == '/') /* the specification: relative values are ignored */
                length = snprintf(ret, DATA_DIR_PATH_MAX, "%s/glovebox", xdg);
        else if (home)
                length = snprintf(ret, DATA_DIR_PATH_MAX, "%s/.local/share/glovebox", home);
        else
                return err_set(err, ERR_NOT_FOUND,
                               "no home directory is known for user %u; set GLOVEBOX_DATA_DIR to a directory of yours",
                               (unsigned) geteuid());
        return length >= DATA_DIR_PATH_MAX ? too_long(err) : 0;
}

static int data_dir_choose(char ret[static DATA_DIR_PATH_MAX], struct err *err) {
        static const char *const named[] = { "GLOVEBOX_DATA_DIR", "SANDBOX_DATA_DIR" };
        int length = -1;
        for (size_t i = 0; i < ELEMENTS(named) && length < 0; i++) {
                const char *value = data_dir_variable(named[i]);
                if (!value)
                        continue;
                if (*value != '/')
                        return err_set(err, ERR_USAGE, "$%s is \"%.200s\": give an absolute path", named[i], value);
                length = snprintf(ret, DATA_DIR_PATH_MAX, "%s", value);
        }
        if (length < 0)
                return choose_usual(ret, err);
        return length >= DATA_DIR_PATH_MAX ? too_long(err) : 0;
}

/* mkdir -p, everything 0700: the XDG specification asks for it, and the directory itself holds users' files. */
static int data_dir_make_directories(char *path) {
        for (char *slash = path + 1;; slash++) {
                slash = strchrnul(slash, '/');
                char saved = *slash;
                *slash = '\0';
                bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
                int code = errno;
                *slash = saved;
                if (!made && !(saved && (code == EACCES || code == EROFS)))
                        return -code; /* a parent that exists may be unwritable to us: the last one decides */
                if (!saved)
                        return 0;
        }
}

/* True if only this user can write to the directory. */
static int data_dir_resolve(const char *path, char ret_path[static DATA_DIR_PATH_MAX], struct err *err) {
        _cleanup_fd_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
                return err_sys(err, errno, "cannot open the data directory %.600s", path);
        if (st.st_uid != geteuid())
                return err_set(err, ERR_REFUSED,
                               "the data directory %.600s belongs to user %u, not to you (%u); set GLOVEBOX_DATA_DIR "
                               "to a directory of yours",
                               path, (unsigned) st.st_uid, (unsigned) geteuid());
        if (st.st_mode & 022)
                return err_set(err, ERR_REFUSED,
                               "others may write to the data directory %.600s (mode %04o); run: chmod go-w %.200s",
                               path, (unsigned) (st.st_mode & 07777), path);
        _cleanup_free_ char *resolved = realpath(path, NULL);
        if (!resolved || strlen(resolved) >= DATA_DIR_PATH_MAX)
                return err_sys(err, resolved ? ENAMETOOLONG : errno, "cannot resolve the data directory %.600s", path);
        strcpy(ret_path, resolved);
        return 0;
}

static char shared[DATA_DIR_PATH_MAX];

/* Early: later this process may be in a user namespace, where every user is root. */
static void find_shared(const char *data_dir) {
        const char *named = data_dir_variable("GLOVEBOX_SHARED_DATA_DIR");
        char path[DATA_DIR_PATH_MAX];
        shared[0] = '\0';
        if (named && strcmp(named, "none") == 0)
                return;
        if (named && (size_t) snprintf(path, sizeof(path), "%s", named) >= sizeof(path))
                return;
        if ((!named && choose_usual(path, NULL) < 0) || *path != '/' || data_dir_resolve(path, shared, NULL) < 0 ||
            strcmp(shared, data_dir) == 0)
                shared[0] = '\0';
}

const char *data_dir_shared(void) {
        return shared;
}

int data_dir_find(char ret_path[static DATA_DIR_PATH_MAX], struct err *err) {
        char path[DATA_DIR_PATH_MAX];
        if (data_dir_choose(path, err) < 0)
                return -1;
        int code = data_dir_resolve(path, ret_path, err);
        find_shared(code < 0 ? "" : ret_path);
        return code;
}

int data_dir_open(char ret_path[static DATA_DIR_PATH_MAX], struct err *err) {
        char path[DATA_DIR_PATH_MAX];
        if (data_dir_choose(path, err) < 0)
                return -1;
        int code = data_dir_make_directories(path);
        if (code < 0)
                return err_sys(err, -code, "cannot make the data directory %.600s (set GLOVEBOX_DATA_DIR to another)",
                               path);
        if (data_dir_resolve(path, ret_path, err) < 0)
                return -1;
        find_shared(ret_path);
        return 0;
}

int data_dir_mark(const char *path, struct err *err) {
        _cleanup_fd_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        int code = fd < 0 ? -errno : private_dir_mark(fd);
        return code < 0 ? err_sys(err, -code, "marking the data directory %.600s", path) : 0;
}

size_t runtime_dirs(char ret_paths[static RUNTIME_DIRS][RUNTIME_MAX]) {
        unsigned uid = (unsigned) geteuid();
        size_t n = 0;
        const char *runtime = data_dir_variable("XDG_RUNTIME_DIR");
        if (uid == 0)
                (void) snprintf(ret_paths[n++], RUNTIME_MAX, "/run/glovebox");
        else {
                if (runtime && *runtime == '/' &&
                    snprintf(ret_paths[n], RUNTIME_MAX, "%s/glovebox", runtime) < RUNTIME_MAX)
                        n++;
                (void) snprintf(ret_paths[n++], RUNTIME_MAX, "/run/user/%u/glovebox", uid);
        }
        (void) snprintf(ret_paths[n++], RUNTIME_MAX, "/tmp/glovebox-%u", uid);
        return n;
}

/* `su` keeps the variable of another user, and not every container has the directory. */
static int fail_to_make_runtime_dir(const char *path, int reason, struct err *err) {
        const char *runtime = data_dir_variable("XDG_RUNTIME_DIR");
        bool is_theirs = runtime && strncmp(path, runtime, strlen(runtime)) == 0 &&
                         (reason == ENOENT || reason == EACCES || reason == EROFS);
        if (!is_theirs)
                return err_sys(err, reason, "making %s", path);
        return err_sys(err, reason,
                       "$XDG_RUNTIME_DIR is no directory of this user (unset it, or choose another with "
                       "--socket-dir): making %s",
                       path);
}

int runtime_dir_make(const char *path, struct err *err) {
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                return fail_to_make_runtime_dir(path, errno, err);
        _cleanup_fd_ int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat status;
        if (fd < 0 || fstat(fd, &status) < 0)
                return err_sys(err, errno, "opening %s", path);
        if (status.st_uid != geteuid() || (status.st_mode & 022))
                return err_set(err, ERR_REFUSED,
                               "%s is for your sockets, but belongs to user %u or may be written to by others (mode "
                               "%04o); remove it, or choose another directory with --socket-dir",
                               path, (unsigned) status.st_uid, (unsigned) (status.st_mode & 07777));
        int code = private_dir_mark(fd);
        return code < 0 ? err_sys(err, -code, "marking %s", path) : 0;
}
