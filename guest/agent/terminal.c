#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/fd.h"

static int open_other_side(int terminal_fd) {
        int unlocked = 0, number = 0;
        if (ioctl(terminal_fd, TIOCSPTLCK, &unlocked) < 0)
                return -errno;
        int fd = ioctl(terminal_fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (fd >= 0)
                return fd;
        char path[32]; /* a kernel without this request, or no real terminal */
        if (ioctl(terminal_fd, TIOCGPTN, &number) < 0)
                return -errno;
        (void) snprintf(path, sizeof(path), "/dev/pts/%d", number);
        fd = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

int terminal_open(struct streams *ret_streams, uint32_t rows, uint32_t columns, int ret_theirs[static 3]) {
        _cleanup_fd_ int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        int code = terminal_resize(fd, rows, columns);
        if (code < 0)
                return code;
        _cleanup_fd_ int theirs = open_other_side(fd);
        if (theirs < 0)
                return theirs;
        /* Input and output end separately, so each holds the terminal by a descriptor of its own. */
        _cleanup_fd_ int input_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        _cleanup_fd_ int second = fcntl(theirs, F_DUPFD_CLOEXEC, 0);
        _cleanup_fd_ int third = fcntl(theirs, F_DUPFD_CLOEXEC, 0);
        if (input_fd < 0 || second < 0 || third < 0)
                return -EMFILE;
        struct streams streams = streams_none();
        streams.terminal = true;
        streams.input.fd = take_fd(&input_fd);
        streams.outputs[0] = (struct stream_output) { .fd = take_fd(&fd), .left = UINT64_MAX };
        ret_theirs[0] = take_fd(&theirs);
        ret_theirs[1] = take_fd(&second);
        ret_theirs[2] = take_fd(&third);
        *ret_streams = streams;
        return 0;
}

int terminal_resize(int terminal_fd, uint32_t rows, uint32_t columns) {
        if (rows > UINT16_MAX || columns > UINT16_MAX)
                return -EINVAL;
        struct winsize size = { .ws_row = (unsigned short) rows, .ws_col = (unsigned short) columns };
        return ioctl(terminal_fd, TIOCSWINSZ, &size) < 0 ? -errno : 0;
}

char terminal_end_key(int terminal_fd) {
        struct termios settings;
        return tcgetattr(terminal_fd, &settings) < 0 ? (char) 4 : (char) settings.c_cc[VEOF];
}
