#include "daemon/project_link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/data_dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/syscalls.h"

static const char *const names[] = { "kernel.sock", "kernel-api.sock" };

/* DIR/.sandbox, made if it is missing. Code in a box may have put anything at its place: no link is followed. */
static int project_link_open_directory(const char *link, bool make) {
        char project[DATA_DIR_PATH_MAX];
        (void) snprintf(project, sizeof(project), "%s", link);
        for (int i = 0; i < 2; i++)
                *strrchr(project, '/') = '\0';
        _cleanup_fd_ int project_fd = open(*project ? project : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (project_fd < 0 || (make && mkdirat(project_fd, ".sandbox", 0700) < 0 && errno != EEXIST))
                return -errno;
        int fd = openat(project_fd, ".sandbox", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

static void target_of(size_t i, const char *socket_path, char ret_target[static DATA_DIR_PATH_MAX]) {
        size_t length = strlen(socket_path);
        if (i == 0)
                (void) snprintf(ret_target, DATA_DIR_PATH_MAX, "%s", socket_path);
        else
                (void) snprintf(ret_target, DATA_DIR_PATH_MAX, "%.*s-api.sock", (int) (length - 5), socket_path);
}

int project_link_make(const char *link, const char *socket_path, struct err *err) {
        _cleanup_fd_ int fd = project_link_open_directory(link, true);
        if (fd < 0)
                return err_sys(err, -fd, "opening the directory of %.300s", link);
        for (size_t i = 0; i < ELEMENTS(names); i++) {
                char target[DATA_DIR_PATH_MAX];
                struct stat status;
                target_of(i, socket_path, target);
                if (fstatat(fd, names[i], &status, AT_SYMLINK_NOFOLLOW) == 0) {
                        if (!S_ISLNK(status.st_mode) && !S_ISSOCK(status.st_mode))
                                return err_set(err, ERR_EXISTS,
                                               "%s beside %.300s is there and is not a socket; remove it", names[i],
                                               link);
                        (void) unlinkat(fd, names[i], 0);
                }
                /* A file system may have no links: clients of the project find the socket without one. */
                if (symlinkat(target, fd, names[i]) < 0 && errno != EPERM && errno != EOPNOTSUPP)
                        return err_sys(err, errno, "linking %.300s to %.200s", link, target);
        }
        return 0;
}

void project_link_remove(const char *link, const char *socket_path) {
        _cleanup_fd_ int fd = project_link_open_directory(link, false);
        for (size_t i = 0; i < ELEMENTS(names) && fd >= 0; i++) {
                char target[DATA_DIR_PATH_MAX], found[DATA_DIR_PATH_MAX] = "";
                target_of(i, socket_path, target);
                if (readlinkat(fd, names[i], found, sizeof(found) - 1) > 0 && strcmp(found, target) == 0)
                        (void) unlinkat(fd, names[i], 0);
        }
}
