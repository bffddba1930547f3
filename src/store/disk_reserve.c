#include "store/disk_reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

static const uint64_t bytes_min = 1 << 20, bytes_max = 32 << 20;
enum { SHARE = 50, LOW_BYTES = 256 << 10 }; /* a 50th of the file system; less than this is full */

static char directory[4096]; /* "": there is no daemon in this process */
static bool is_in_use;

static void reserve_path(char ret_path[static 4200]) {
        (void) snprintf(ret_path, 4200, "%s/reserve", directory);
}

static uint64_t free_bytes(uint64_t *ret_total) {
        struct statvfs status;
        if (statvfs(directory, &status) < 0)
                return 0;
        if (ret_total)
                *ret_total = (uint64_t) status.f_blocks * status.f_frsize;
        return (uint64_t) status.f_bavail * status.f_frsize;
}

static uint64_t wanted_bytes(void) {
        uint64_t total = 0;
        (void) free_bytes(&total);
        uint64_t wanted = total / SHARE;
        return wanted < bytes_min ? bytes_min : wanted > bytes_max ? bytes_max : wanted;
}

/* If the file system cannot allocate space without writing, there is no reserve. 0 or -errno. */
static int disk_reserve_make_file(void) {
        char path[4200];
        reserve_path(path);
        _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        uint64_t wanted = wanted_bytes();
        struct stat status;
        if (fd < 0 || fstat(fd, &status) < 0)
                return -errno;
        if (!S_ISREG(status.st_mode))
                return -ELOOP;
        if (fallocate(fd, 0, 0, (off_t) wanted) == 0)
                return (uint64_t) status.st_size > wanted && ftruncate(fd, (off_t) wanted) < 0 ? -errno : 0;
        int code = -errno;
        if (ftruncate(fd, 0) < 0) /* all or nothing: without the whole reserve, the free space is for the others */
                return -errno;
        return code;
}

/* True when it gave something back. */
static bool empty_file(void) {
        char path[4200];
        struct stat status;
        reserve_path(path);
        _cleanup_fd_ int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_blocks == 0)
                return false;
        return ftruncate(fd, 0) == 0;
}

static void disk_reserve_enter(bool gave) {
        if (!is_in_use)
                daemon_log("the disk with %s is full%s: new runs and sessions are refused until there is space again",
                           directory, gave ? "; the daemon's reserve is in use" : ", and there is no reserve");
        is_in_use = true;
}

void disk_reserve_open(const char *data_dir) {
        (void) snprintf(directory, sizeof(directory), "%s", data_dir);
        is_in_use = false;
        if (free_bytes(NULL) < LOW_BYTES) {
                char path[4200];
                struct stat status;
                reserve_path(path);
                /* If the reserve exists in full size and the disk has no other space, it is needed now. */
                if (stat(path, &status) == 0)
                        disk_reserve_enter(empty_file());
                return;
        }
        int code = disk_reserve_make_file();
        if (code == -ENOSPC || code == -EDQUOT)
                disk_reserve_enter(false);
        else if (code < 0 && code != -EOPNOTSUPP)
                daemon_log("there is no reserve for a full disk: %s/reserve cannot be made (error %d)", directory,
                           -code);
}

bool disk_reserve_use(void) {
        if (!*directory)
                return false;
        bool gave = empty_file();
        disk_reserve_enter(gave);
        return gave;
}

void disk_reserve_restore(void) {
        if (!is_in_use || free_bytes(NULL) < 2 * wanted_bytes() || disk_reserve_make_file() < 0)
                return;
        is_in_use = false;
        daemon_log("there is space on the disk with %s again: the reserve is made anew, runs are taken", directory);
}

int disk_reserve_check(struct err *err) {
        if (!is_in_use)
                return 0;
        disk_reserve_restore();
        if (!is_in_use)
                return 0;
        return err_set(err, ERR_NO_SPACE,
                       "the disk of the data directory is full, and the daemon's reserve is in use: no new runs or "
                       "sessions until there is space; remove sessions, outputs or other files there");
}

void disk_reserve_look(struct disk_reserve_state *ret_state) {
        char path[4200];
        struct stat status;
        reserve_path(path);
        *ret_state = (struct disk_reserve_state) { .is_in_use = is_in_use, .free_bytes = free_bytes(NULL) };
        if (stat(path, &status) == 0)
                ret_state->reserve_bytes = (uint64_t) status.st_blocks * 512;
}
