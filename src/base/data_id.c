#include "base/data_id.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

/* "ID DEVICE:INODE": of a copy, the second half is not that of the directory it is in. */
static bool read_id(int dir_fd, const char *place, char ret_id[static DATA_ID_SIZE + 1]) {
        char text[128] = "";
        _cleanup_fd_ int fd = openat(dir_fd, "id", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (n <= DATA_ID_SIZE + 1 || strspn(text, "0123456789abcdef") != DATA_ID_SIZE || text[DATA_ID_SIZE] != ' ')
                return false;
        text[strcspn(text, "\n")] = '\0';
        if (strcmp(text + DATA_ID_SIZE + 1, place) != 0)
                return false;
        memcpy(ret_id, text, DATA_ID_SIZE);
        ret_id[DATA_ID_SIZE] = '\0';
        return true;
}

static int make_id(int dir_fd, const char *place, char ret_id[static DATA_ID_SIZE + 1]) {
        uint64_t random;
        char text[128];
        if (getrandom(&random, sizeof(random), 0) != sizeof(random))
                return -EIO;
        (void) snprintf(ret_id, DATA_ID_SIZE + 1, "%012" PRIx64, random >> 16);
        (void) snprintf(text, sizeof(text), "%s %s\n", ret_id, place);
        _cleanup_fd_ int fd = openat(dir_fd, "id.new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        int code = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
        return code < 0 || renameat(dir_fd, "id.new", dir_fd, "id") == 0 ? code : -errno;
}

int data_id_get(const char *data_dir, char ret_id[static DATA_ID_SIZE + 1], struct err *err) {
        _cleanup_fd_ int dir_fd = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct stat status;
        char place[64];
        if (dir_fd < 0 || fstat(dir_fd, &status) < 0)
                return err_sys(err, errno, "opening %s", data_dir);
        (void) snprintf(place, sizeof(place), "%" PRIuMAX ":%" PRIuMAX, (uintmax_t) status.st_dev,
                        (uintmax_t) status.st_ino);
        if (read_id(dir_fd, place, ret_id))
                return 0;
        int code = make_id(dir_fd, place, ret_id);
        return code < 0 ? err_sys(err, -code, "cannot give %s an id", data_dir) : 0;
}
