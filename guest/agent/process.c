#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/signals.h"
#include "identity.h"
#include "wire/frame.h"

/* The child's report to its parent if it could not become the process. */
struct failure {
        int code;
        uint32_t step;
};

enum { STEP_DESCRIPTORS, STEP_TERMINAL, STEP_IDENTITY, STEP_DIRECTORY, STEP_EXECUTE, STEPS };
static const char *const step_names[STEPS] = { "arranging its descriptors", "taking its terminal", "becoming its user",
                                               "entering its directory", "executing it" };

static void process_fail(int report_fd, int code, uint32_t step) __attribute__((noreturn));
static void process_fail(int report_fd, int code, uint32_t step) {
        struct failure failure = { code, step };
        (void) fd_write_all(report_fd, &failure, sizeof(failure));
        _exit(127);
}

/* For a close_range() without this flag, as in an older gVisor. */
static int mark_each(int first) {
        struct rlimit limit;
        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return -errno;
        for (int fd = first; (rlim_t) fd < limit.rlim_max; fd++)
                if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 && errno != EBADF)
                        return -errno;
        return 0;
}

/* Descriptors 0… of the process. They are first moved out of the way of each other. */
static int process_arrange_descriptors(const struct process *process, int *report_fd) {
        int moved[FRAME_FDS_MAX + 1];
        enum { ABOVE = FRAME_FDS_MAX + 1 };
        *report_fd = fcntl(*report_fd, F_DUPFD_CLOEXEC, ABOVE);
        if (*report_fd < 0)
                return -errno;
        size_t count = process->n_fds < 3 ? 3 : process->n_fds;
        for (size_t i = 0; i < count; i++) {
                if (i < process->n_fds)
                        moved[i] = fcntl(process->fds[i], F_DUPFD_CLOEXEC, ABOVE);
                else {
                        _cleanup_fd_ int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
                        moved[i] = null_fd < 0 ? -1 : fcntl(null_fd, F_DUPFD_CLOEXEC, ABOVE);
                }
                if (moved[i] < 0)
                        return -errno;
        }
        for (size_t i = 0; i < count; i++)
                if (dup2(moved[i], (int) i) < 0)
                        return -errno;
        /* Nothing else is inherited, above all not the agent's socket. */
        if (syscall(SYS_close_range, (unsigned) count, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */) == 0)
                return 0;
        return errno == EINVAL || errno == ENOSYS ? mark_each((int) count) : -errno;
}

static const char *find_variable(char *const *envp, const char *name) {
        size_t size = strlen(name);
        for (; *envp; envp++)
                if (strncmp(*envp, name, size) == 0 && (*envp)[size] == '=')
                        return *envp + size + 1;
        return NULL;
}

/* execvpe, by the PATH of the new process instead of the agent's. */
static int execute(char *const *argv, char *const *envp) {
        if (strchr(argv[0], '/')) {
                (void) execve(argv[0], argv, envp);
                return -errno;
        }
        const char *path = find_variable(envp, "PATH");
        int code = -ENOENT;
        for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
                const char *end = strchrnul(at, ':');
                char file[4096];
                int length = snprintf(file, sizeof(file), "%.*s/%s", (int) (end - at), at, argv[0]);
                if (length > 0 && (size_t) length < sizeof(file)) {
                        (void) execve(file, argv, envp);
                        if (errno != ENOENT && errno != ENOTDIR)
                                code = -errno;
                }
                at = *end ? end + 1 : end;
        }
        return code;
}

static void become(const struct process *process, int report_fd) __attribute__((noreturn));
static void become(const struct process *process, int report_fd) {
        sigset_t none;
        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        /* Signals that Glovebox ignores (the daemon ignores SIGHUP; so do children of nohup) must not be ignored in the
         * box. */
        signals_reset();
        (void) setsid();
        int code = process_arrange_descriptors(process, &report_fd);
        if (code < 0)
                process_fail(report_fd, code, STEP_DESCRIPTORS);
        if (process->terminal && ioctl(STDIN_FILENO, TIOCSCTTY, 0) < 0)
                process_fail(report_fd, -errno, STEP_TERMINAL);
        code = process->identity ? identity_become(process->identity) : 0;
        if (code < 0)
                process_fail(report_fd, code, STEP_IDENTITY);
        if (chdir(process->cwd) < 0)
                process_fail(report_fd, -errno, STEP_DIRECTORY);
        process_fail(report_fd, execute(process->argv, process->envp), STEP_EXECUTE);
}

int process_start(struct process *process, const char **ret_step) {
        int report[2];
        *ret_step = "starting a process";
        if (pipe2(report, O_CLOEXEC) < 0)
                return -errno;
        _cleanup_fd_ int read_fd = report[0];
        _cleanup_fd_ int write_fd = report[1];
        pid_t pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0)
                become(process, write_fd);
        fd_close(&write_fd);
        struct failure failure;
        int code = fd_read_exactly(read_fd, &failure, sizeof(failure));
        if (code == -ENODATA) { /* closed by the exec: it runs */
                process->pid = pid;
                return 0;
        }
        (void) waitpid(pid, NULL, 0);
        if (code < 0)
                return code;
        *ret_step = failure.step < STEPS ? step_names[failure.step] : *ret_step;
        return failure.code < 0 ? failure.code : -EIO;
}

void process_signal(pid_t pid, int signal_number, bool whole_group) {
        /* In a box with users it may belong to any of them. */
        if (identity_rise() < 0)
                return;
        (void) kill(whole_group ? -pid : pid, signal_number);
        (void) identity_rest();
}

void process_release(struct process *process) {
        free(process->cwd);
        frame_free_texts(process->argv);
        frame_free_texts(process->envp);
        *process = (struct process) { 0 };
}
