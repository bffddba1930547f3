#include "base/place.h"

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

/* A variable that is set but empty counts as not set, as for XDG. */
static const char *variable(const char *name) {
        const char *value = getenv(name);
        return value && *value ? value : NULL;
}

static const char *home_directory(void) {
        const char *home = variable("HOME");
        if (home && *home == '/')
                return home;
        const struct passwd *user = getpwuid(geteuid());
        return user && user->pw_dir && *user->pw_dir == '/' ? user->pw_dir : NULL;
}

static int choose(char ret[static PLACE_PATH_MAX], struct err *err) {
        static const char *const named[] = { "GLOVEBOX_DATA_DIR", "SANDBOX_DATA_DIR" };
        int length = -1;
        for (size_t i = 0; i < ELEMENTS(named) && length < 0; i++) {
                const char *value = variable(named[i]);
                if (!value)
                        continue;
                if (*value != '/')
                        return err_set(err, ERR_USAGE, "$%s is \"%.200s\": give an absolute path", named[i], value);
                length = snprintf(ret, PLACE_PATH_MAX, "%s", value);
        }
        if (length < 0 && geteuid() == 0)
                length = snprintf(ret, PLACE_PATH_MAX, "/var/lib/glovebox");
        const char *xdg = variable("XDG_DATA_HOME");
        if (length < 0 && xdg && *xdg == '/') /* the specification: relative values are ignored */
                length = snprintf(ret, PLACE_PATH_MAX, "%s/glovebox", xdg);
        if (length < 0) {
                const char *home = home_directory();
                if (!home)
                        return err_set(err, ERR_NOT_FOUND,
                                       "no home directory is known for user %u; set GLOVEBOX_DATA_DIR to a directory "
                                       "of yours",
                                       (unsigned) geteuid());
                length = snprintf(ret, PLACE_PATH_MAX, "%s/.local/share/glovebox", home);
        }
        if (length < 0 || length >= PLACE_PATH_MAX)
                return err_set(err, ERR_USAGE, "the path of the data directory is too long; set GLOVEBOX_DATA_DIR");
        return 0;
}

/* mkdir -p, everything 0700: the XDG specification asks for it, and the directory itself holds users' files. */
static int make_directories(char *path) {
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

/* Is the directory ours alone? */
static int resolve(const char *path, char ret_path[static PLACE_PATH_MAX], struct err *err) {
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
        if (!resolved || strlen(resolved) >= PLACE_PATH_MAX)
                return err_sys(err, resolved ? ENAMETOOLONG : errno, "cannot resolve the data directory %.600s", path);
        strcpy(ret_path, resolved);
        return 0;
}

int place_find_data_dir(char ret_path[static PLACE_PATH_MAX], struct err *err) {
        char path[PLACE_PATH_MAX];
        return choose(path, err) < 0 ? -1 : resolve(path, ret_path, err);
}

int place_data_dir(char ret_path[static PLACE_PATH_MAX], struct err *err) {
        char path[PLACE_PATH_MAX];
        if (choose(path, err) < 0)
                return -1;
        int code = make_directories(path);
        if (code < 0)
                return err_sys(err, -code, "cannot make the data directory %.600s (set GLOVEBOX_DATA_DIR to another)",
                               path);
        return resolve(path, ret_path, err);
}
