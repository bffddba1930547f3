#include "engine/stdio_channel.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "engine/stream_join.h"

enum { CONNECT_MS = 30000, RETRY_MS = 20 };

static int connect_to_daemon(const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || strlen(path) >= sizeof(address.sun_path)) {
                fd_close(&fd);
                return -1;
        }
        (void) strcpy(address.sun_path, path);
        if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0)
                fd_close(&fd);
        return fd;
}

/* If two channels start a daemon at the same time, one daemon exits, and the other serves both. */
static void start_daemon(const char *path) {
        pid_t pid = fork();
        if (pid == 0) {
                if (dup2(STDERR_FILENO, STDOUT_FILENO) >= 0)
                        (void) execl("/proc/self/exe", "glovebox", "serve", "--background", "--engine", "native",
                                     "--pool", "0", "--box-pool", "0", "--socket", path, (char *) NULL);
                _exit(EXIT_FAILURE);
        }
        while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
}

void stdio_channel_serve_if_asked(int argc, char **argv) {
        bool starts = argc == 4 && strcmp(argv[3], "start") == 0;
        if ((argc != 3 && !starts) || strcmp(argv[1], STDIO_CHANNEL_ARGUMENT) != 0)
                return;
        uint64_t deadline_ms = loop_now_ms() + CONNECT_MS;
        int fd = connect_to_daemon(argv[2]);
        (void) signal(SIGPIPE, SIG_IGN);
        if (fd < 0 && starts)
                start_daemon(argv[2]);
        while (fd < 0 && (fd = connect_to_daemon(argv[2])) < 0 && loop_now_ms() < deadline_ms)
                (void) poll(NULL, 0, RETRY_MS);
        if (fd < 0) {
                (void) fprintf(stderr, "the Glovebox in the instance does not answer at %s: %s\n", argv[2],
                               strerror(errno));
                _exit(EXIT_FAILURE);
        }
        if (fd_write_all(STDOUT_FILENO, STDIO_CHANNEL_GREETING, strlen(STDIO_CHANNEL_GREETING)) == 0)
                stream_join((struct stream_end) { STDIN_FILENO, STDOUT_FILENO }, (struct stream_end) { fd, fd });
        _exit(EXIT_SUCCESS);
}
