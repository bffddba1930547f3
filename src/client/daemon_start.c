#include "client/daemon_start.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"

enum { WORDS_MAX = 4096 };

/* Between fork and exec: only functions that are safe there. */
_Noreturn static void become_serve(const struct socket_place *place, int words_fd) {
        char project_word[] = "--project";
        char *argv[] = { (char[]) { "glovebox" },
                         (char[]) { "serve" },
                         (char[]) { "--background" },
                         (char[]) { "--socket" },
                         (char *) (uintptr_t) place->path,
                         *place->project ? project_word : NULL,
                         (char *) (uintptr_t) place->project,
                         NULL };
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 && dup2(null_fd, STDOUT_FILENO) >= 0 &&
            dup2(words_fd, STDERR_FILENO) >= 0)
                (void) execv("/proc/self/exe", argv);
        _exit(127);
}

/* "glovebox: what went wrong\n", as terminal_fail prints it: the last line counts. */
static void take_reason(char *words, struct err *err) {
        size_t size = strlen(words);
        while (size > 0 && words[size - 1] == '\n')
                words[--size] = '\0';
        const char *line = strrchr(words, '\n');
        line = line ? line + 1 : words;
        static const char prefix[] = "glovebox: ";
        if (strncmp(line, prefix, sizeof(prefix) - 1) == 0)
                line += sizeof(prefix) - 1;
        (void) err_set(err, ERR_SYSTEM, "the daemon could not be started: %.800s",
                       *line ? line : "it printed no reason; try \"glovebox serve\" to see it");
}

int daemon_start(const struct socket_place *place, struct err *err) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0)
                return err_sys(err, errno, "making a pipe");
        _cleanup_fd_ int from_fd = ends[0];
        pid_t pid = fork();
        if (pid == 0)
                become_serve(place, ends[1]);
        int fork_errno = errno;
        fd_close(&ends[1]);
        if (pid < 0)
                return err_sys(err, fork_errno, "starting the daemon");
        _cleanup_free_ char *words = NULL;
        size_t size = 0;
        int read_code = fd_read_to_end(from_fd, WORDS_MAX, &words, &size);
        fd_close(&from_fd); /* a process that writes more gets EPIPE, and does not wait on a full pipe */
        int status = 0;
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return err_sys(err, errno, "waiting for the daemon to start");
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return 0;
        char nothing[] = "";
        take_reason(read_code < 0 ? nothing : words, err);
        return -1;
}
