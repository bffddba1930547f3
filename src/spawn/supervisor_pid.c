/* For the maker and the supervisor both. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "spawn/supervisor.h"

pid_t supervisor_pid_of(int pidfd) {
        pid_t known = sys_pidfd_get_pid(pidfd);
        if (known > 0)
                return known;
        char path[64], *text = NULL;
        (void) snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        pid_t pid = -1;
        if (fd >= 0 && fd_read_to_end(fd, 4096, &text, NULL) == 0) {
                const char *line = strstr(text, "\nPid:");
                if (line)
                        pid = (pid_t) strtol(line + 5, NULL, 10);
        }
        free(text);
        return pid;
}
