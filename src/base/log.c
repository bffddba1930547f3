#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1200 }; /* less than PIPE_BUF: a pipe takes it whole or not at all */

static int log_fd = STDERR_FILENO;
static bool is_socket;
static uint64_t n_dropped, n_reported; /* of them, how many the log mentions */

/* O_NONBLOCK belongs to the open file, which standard error shares with the shell and others: so it is opened once
 * more, for this process alone. A write to a regular file never waits for a reader. */
void log_open(void) {
        struct stat status;
        if (fstat(STDERR_FILENO, &status) < 0)
                return;
        is_socket = S_ISSOCK(status.st_mode);
        if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode))
                return;
        int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0) /* a pipe without a reader, or one that cannot be opened again: share it */
                (void) fcntl(STDERR_FILENO, F_SETFL, fcntl(STDERR_FILENO, F_GETFL) | O_NONBLOCK);
        else
                log_fd = fd;
}

uint64_t log_dropped(void) {
        return n_dropped;
}

static bool log_put(const char *line, size_t size) {
        ssize_t n;
        do
                n = is_socket ? send(log_fd, line, size, MSG_DONTWAIT | MSG_NOSIGNAL) : write(log_fd, line, size);
        while (n < 0 && errno == EINTR);
        return n == (ssize_t) size;
}

/* The time and a blank. */
static size_t put_time(char *line, size_t room) {
        time_t now = time(NULL);
        struct tm parts;
        return strftime(line, room, "%Y-%m-%dT%H:%M:%SZ ", gmtime_r(&now, &parts));
}

static bool report_dropped(void) {
        char line[120];
        size_t size = put_time(line, sizeof(line));
        size += (size_t) snprintf(line + size, sizeof(line) - size,
                                  "%llu lines of this log were dropped: it was not read in time\n",
                                  (unsigned long long) (n_dropped - n_reported));
        if (!log_put(line, size))
                return false;
        n_reported = n_dropped;
        return true;
}

void daemon_log(const char *format, ...) {
        char line[LINE_MAX_BYTES];
        size_t size = put_time(line, sizeof(line));
        va_list args;
        va_start(args, format);
        int length = vsnprintf(line + size, sizeof(line) - size - 1, format, args);
        va_end(args);
        if (length < 0)
                return;
        size += (size_t) length;
        if (size > sizeof(line) - 2)
                size = sizeof(line) - 2;
        /* Names and messages come from clients and boxes: no control byte of theirs reaches the log. */
        for (size_t i = 0; i < size; i++)
                if ((unsigned char) line[i] < ' ' || line[i] == 127)
                        line[i] = '?';
        line[size++] = '\n';
        if ((n_dropped != n_reported && !report_dropped()) || !log_put(line, size))
                n_dropped++;
}
