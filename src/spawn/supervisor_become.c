/* The steps by which a clone of the maker becomes a supervisor; the last one executes the supervisor's program. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/memory.h"
#include "base/signals.h"
#include "box/seal/privilege.h"
#include "spawn/supervisor_message.h"

enum { PROGRAM_FD = SUPERVISOR_FD + 1 };

/* Nothing stays open but the socket, as SUPERVISOR_FD, and the program. */
static int supervisor_become_arrange_descriptors(int fd, int program_fd) {
        _cleanup_fd_ int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        int kept = fcntl(fd, F_DUPFD_CLOEXEC, PROGRAM_FD + 1);
        int kept_program = fcntl(program_fd, F_DUPFD_CLOEXEC, PROGRAM_FD + 1);
        for (int i = 0; i < 3; i++)
                if (null_fd < 0 || dup2(null_fd, i) < 0)
                        return -errno;
        if (kept < 0 || dup2(kept, SUPERVISOR_FD) < 0 || kept_program < 0 ||
            dup3(kept_program, PROGRAM_FD, O_CLOEXEC) < 0)
                return -errno;
        if (null_fd >= 3)
                null_fd = -1; /* closed with everything else */
        return syscall(SYS_close_range, PROGRAM_FD + 1, ~0u, 0) < 0 ? -errno : 0;
}

static int supervisor_become_prepare(int start_fd, int *fd, int program_fd, bool drop_groups) {
        char go;
        int code = fd_read_exactly(start_fd, &go, 1);
        if (code < 0)
                return code;
        (void) setsid();
        (void) umask(022);
        if ((drop_groups && setgroups(0, NULL) < 0) || setresgid(BOX_GID, BOX_GID, BOX_GID) < 0 ||
            setresuid(BOX_UID, BOX_UID, BOX_UID) < 0)
                return -errno;
        code = privilege_join_fresh_keyring();
        if (code == 0)
                code = supervisor_become_arrange_descriptors(*fd, program_fd);
        if (code < 0)
                return code;
        *fd = SUPERVISOR_FD;
        return privilege_pass_on();
}

void supervisor_become(int start_fd, int fd, int program_fd, const char *owner, bool drop_groups) {
        sigset_t all;
        signals_reset();
        sigfillset(&all); /* ignores signals from outside */
        (void) sigprocmask(SIG_BLOCK, &all, NULL);
        int code = supervisor_become_prepare(start_fd, &fd, program_fd, drop_groups);
        if (code == 0) {
                char *const argv[] = { (char[]) { "glovebox: supervisor" }, (char *) owner, NULL };
                char *const envp[] = { NULL };
                (void) syscall(SYS_execveat, PROGRAM_FD, "", argv, envp, AT_EMPTY_PATH);
                code = -errno;
        }
        struct supervisor_answer reply = { .code = -1 };
        const int none = -1;
        (void) err_sys(&reply.err, -code, "becoming a supervisor");
        (void) fd_passing_send(fd, &reply, sizeof(reply), &none, 1, 0);
        _exit(EXIT_FAILURE);
}
