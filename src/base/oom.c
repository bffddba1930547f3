#include "base/oom.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/syscalls.h"

static bool is_spared; /* known to the maker too: it is forked later */

static int put_score(int fd, int score) {
        char text[16];
        int length = snprintf(text, sizeof(text), "%d", score);
        return pwrite(fd, text, (size_t) length, 0) < 0 ? -errno : 0;
}

void oom_spare_self(void) {
        char text[16] = "";
        _cleanup_fd_ int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
        if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
                return;
        is_spared = strtol(text, NULL, 10) <= OOM_SPARED || put_score(fd, OOM_SPARED) == 0;
}

int oom_unspare(int pidfd, pid_t pid, int score, struct err *err) {
        char path[64];
        if (!is_spared)
                return 0;
        (void) snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int) pid);
        _cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        /* It still exists, so the file that was opened belongs to it. */
        if (fd < 0 || sys_pidfd_send_signal(pidfd, 0) < 0)
                return err_set(err, ERR_GONE, "the process died while it was made");
        int code = put_score(fd, score);
        return code < 0 ? err_sys(err, -code, "offering a box to the host when memory runs out") : 0;
}
