#include "base/data_id.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fd.h"

enum { TEXT_SIZE = 256 };

/* "ID DEVICE:INODE CHECKSUM", twice: if one line is damaged, the other one counts. Of a copy of the directory, the second
 * word is not that of the directory it is in. */
static void write_lines(const char *id, const char *place, char ret_text[static TEXT_SIZE]) {
        char words[96];
        int n = snprintf(words, sizeof(words), "%s %s", id, place);
        uint32_t crc = crc32c(0, words, (size_t) n);
        (void) snprintf(ret_text, TEXT_SIZE, "%s %08" PRIx32 "\n%s %08" PRIx32 "\n", words, crc, words, crc);
}

static bool is_good_line(const char *line, const char *place, char ret_id[static DATA_ID_SIZE + 1]) {
        char lines[TEXT_SIZE];
        if (strspn(line, "0123456789abcdef") != DATA_ID_SIZE || line[DATA_ID_SIZE] != ' ')
                return false;
        memcpy(ret_id, line, DATA_ID_SIZE);
        ret_id[DATA_ID_SIZE] = '\0';
        write_lines(ret_id, place, lines);
        return strncmp(line, lines, strcspn(lines, "\n") + 1) == 0;
}

/* One line without a checksum, as older versions wrote it. */
static bool is_old(const char *text, const char *place, char ret_id[static DATA_ID_SIZE + 1]) {
        size_t n = strlen(place);
        if (strspn(text, "0123456789abcdef") != DATA_ID_SIZE || text[DATA_ID_SIZE] != ' ' ||
            strncmp(text + DATA_ID_SIZE + 1, place, n) != 0 || strcmp(text + DATA_ID_SIZE + 1 + n, "\n") != 0)
                return false;
        memcpy(ret_id, text, DATA_ID_SIZE);
        ret_id[DATA_ID_SIZE] = '\0';
        return true;
}

/* *ret_is_whole: it need not be written again. */
static bool read_id(int dir_fd, const char *place, char ret_id[static DATA_ID_SIZE + 1], bool *ret_is_whole) {
        char text[TEXT_SIZE] = "", whole[TEXT_SIZE];
        _cleanup_fd_ int fd = openat(dir_fd, "id", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        *ret_is_whole = false;
        if (n <= 0)
                return false;
        /* Both lines have one length: the second one is found though the end of the first is damaged. */
        if (!is_good_line(text, place, ret_id) && !is_good_line(text + n / 2, place, ret_id))
                return is_old(text, place, ret_id);
        write_lines(ret_id, place, whole);
        *ret_is_whole = strcmp(text, whole) == 0;
        return true;
}

static int write_id(int dir_fd, const char *place, const char *id) {
        char text[TEXT_SIZE];
        write_lines(id, place, text);
        const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC; /* a FIFO: ENXIO */
        _cleanup_fd_ int fd = openat(dir_fd, "id.new", flags, 0600);
        int code = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
        return code < 0 || renameat(dir_fd, "id.new", dir_fd, "id") == 0 ? code : -errno;
}

static int make_id(int dir_fd, const char *place, char ret_id[static DATA_ID_SIZE + 1]) {
        uint64_t random;
        if (getrandom(&random, sizeof(random), 0) != sizeof(random))
                return -EIO;
        (void) snprintf(ret_id, DATA_ID_SIZE + 1, "%012" PRIx64, random >> 16);
        return write_id(dir_fd, place, ret_id);
}

int data_id_get(const char *data_dir, char ret_id[static DATA_ID_SIZE + 1], struct err *err) {
        _cleanup_fd_ int dir_fd = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct stat status;
        char place[64];
        if (dir_fd < 0 || fstat(dir_fd, &status) < 0)
                return err_sys(err, errno, "opening %s", data_dir);
        (void) snprintf(place, sizeof(place), "%" PRIuMAX ":%" PRIuMAX, (uintmax_t) status.st_dev,
                        (uintmax_t) status.st_ino);
        bool is_whole;
        if (read_id(dir_fd, place, ret_id, &is_whole)) {
                if (!is_whole) /* without room for it, the next start does it */
                        (void) write_id(dir_fd, place, ret_id);
                return 0;
        }
        int code = make_id(dir_fd, place, ret_id);
        return code < 0 ? err_sys(err, -code, "cannot give %s an id", data_dir) : 0;
}
