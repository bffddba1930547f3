#include "image/pip.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "image/interrupt.h"

enum { TICK_MS = 250, GRACE_MS = 3000, LINE_MAX_BYTES = 400 };

/* Reads the output of pip line by line. */
struct listener {
        const struct pip_job *job;
        char line[LINE_MAX_BYTES + 1];
        size_t length;
        char doing[160];
        char error[LINE_MAX_BYTES + 1]; /* the last line with ERROR, else the last line */
        bool error_said;
};

static bool starts_with(const char *text, const char *start) {
        return strncmp(text, start, strlen(start)) == 0;
}

static void report_output(struct listener *listener) {
        if (listener->job->report)
                listener->job->report(listener->job->context, listener->doing);
}

/* "Downloading https://.../numpy-2.0-cp311.whl (18 MB)" -> "downloading numpy-2.0-cp311.whl (18 MB)" */
static void note_file(struct listener *listener, const char *verb, const char *rest) {
        size_t name = strcspn(rest, " ");
        const char *slash = memrchr(rest, '/', name);
        (void) snprintf(listener->doing, sizeof(listener->doing), "%s %.130s", verb, slash ? slash + 1 : rest);
}

static void note_line(struct listener *listener, const char *line) {
        line += strspn(line, " \t");
        if (!*line)
                return;
        bool is_error = starts_with(line, "ERROR:") || starts_with(line, "error:");
        if (is_error || !listener->error_said)
                (void) snprintf(listener->error, sizeof(listener->error), "%s",
                                is_error ? line + 6 + (line[6] == ' ') : line);
        listener->error_said |= is_error;
        if (starts_with(line, "Collecting "))
                note_file(listener, "looking for", line + strlen("Collecting "));
        else if (starts_with(line, "Downloading "))
                note_file(listener, "downloading", line + strlen("Downloading "));
        else if (starts_with(line, "Using cached "))
                note_file(listener, "taking from pip's cache", line + strlen("Using cached "));
        else if (starts_with(line, "Building wheel"))
                (void) snprintf(listener->doing, sizeof(listener->doing), "building %.100s",
                                line + strlen("Building "));
        else if (starts_with(line, "Installing collected packages: "))
                note_file(listener, "installing", line + strlen("Installing collected packages: "));
        else
                return;
        report_output(listener);
}

static void note_output(struct listener *listener, const char *bytes, size_t size) {
        for (size_t i = 0; i < size; i++) {
                if (bytes[i] == '\n' || bytes[i] == '\r') {
                        listener->line[listener->length] = '\0';
                        note_line(listener, listener->line);
                        listener->length = 0;
                } else if (listener->length < LINE_MAX_BYTES) {
                        /* the text may reach a terminal: no control characters */
                        listener->line[listener->length++] = (unsigned char) bytes[i] < ' ' ? ' ' : bytes[i];
                }
        }
}

_Noreturn static void pip_become(const struct pip_job *job, char *const argv[], int output_fd, pid_t parent) {
        static const char *const misleading[] = { "PYTHONHOME", "PYTHONPATH", "PIP_TARGET",    "PIP_PREFIX",
                                                  "PIP_ROOT",   "PIP_USER",   "PIP_NO_COMPILE" };
        for (size_t i = 0; i < ELEMENTS(misleading); i++)
                (void) unsetenv(misleading[i]);
        (void) setenv("PIP_REQUIRE_VIRTUALENV", "0", 1); /* nothing outside this directory is changed */
        (void) setenv("TMPDIR", job->work_dir, 1);
        (void) setenv("PYTHONUNBUFFERED", "1", 1);
        for (int i = 1; i < NSIG; i++)
                (void) signal(i, SIG_DFL);
        /* A process group of its own: this process gets Ctrl-C, and ends the whole group. If it is killed, so is pip.
         * */
        if (setpgid(0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
                _exit(126);
        (void) umask(022);
        int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (chdir(job->work_dir) < 0 || null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(output_fd, 1) < 0 ||
            dup2(output_fd, 2) < 0)
                _exit(126);
        execv(argv[0], argv);
        _exit(127);
}

/* Follows the output to its end. On Ctrl-C the group gets SIGTERM, and SIGKILL a moment later. */
static void follow_output(struct listener *listener, int output_fd, pid_t group) {
        int waited_ms = 0;
        for (bool asked = false;;) {
                if (interrupt_pending() && !asked) {
                        (void) kill(-group, SIGTERM);
                        asked = true;
                }
                if (asked && waited_ms >= GRACE_MS)
                        return;
                struct pollfd poll_fd = { .fd = output_fd, .events = POLLIN };
                int n = poll(&poll_fd, 1, TICK_MS);
                if (n < 0 && errno != EINTR)
                        return;
                if (n <= 0) {
                        waited_ms += asked ? TICK_MS : 0;
                        report_output(listener);
                        continue;
                }
                char buffer[4096];
                ssize_t size = read(output_fd, buffer, sizeof(buffer));
                if (size == 0 || (size < 0 && errno != EINTR))
                        return;
                if (size > 0)
                        note_output(listener, buffer, (size_t) size);
        }
}

/* Runs one program of the job to its end. Returns its exit status (255 for a signal), or -1. */
static int pip_run(struct listener *listener, char *const argv[], struct err *err) {
        int pipe_fds[2];
        if (pipe2(pipe_fds, O_CLOEXEC) < 0)
                return err_sys(err, errno, "cannot make a pipe");
        _cleanup_fd_ int read_fd = pipe_fds[0], write_fd = pipe_fds[1];
        pid_t parent = getpid(), pid = fork();
        if (pid < 0)
                return err_sys(err, errno, "cannot start %s", argv[0]);
        if (pid == 0)
                pip_become(listener->job, argv, write_fd, parent);
        (void) setpgid(pid, pid); /* in parent and child: either may run first */
        fd_close(&write_fd);
        follow_output(listener, read_fd, pid);
        int status = 0;
        if (interrupt_pending())
                (void) kill(-pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                if (interrupt_pending())
                        (void) kill(-pid, SIGKILL);
        if (interrupt_pending())
                return interrupt_error(err);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/* The interpreter to run `-m pip` with: the one wanted, or a throw-away environment's when it has no pip. */
static int find_pip(struct listener *listener, char ret_interpreter[static 4200], struct err *err) {
        const struct pip_job *job = listener->job;
        char *const try_pip[] = { (char *) job->interpreter, (char *) "-m", (char *) "pip", (char *) "--version",
                                  NULL };
        char venv[4096];
        (void) snprintf(ret_interpreter, 4200, "%s", job->interpreter);
        int status = pip_run(listener, try_pip, err);
        if (status <= 0)
                return status;
        if ((size_t) snprintf(venv, sizeof(venv), "%s/venv", job->work_dir) >= sizeof(venv))
                return err_sys(err, ENAMETOOLONG, "cannot make a virtual environment");
        char *const make_venv[] = { (char *) job->interpreter, (char *) "-m", (char *) "venv", venv, NULL };
        status = pip_run(listener, make_venv, err);
        if (status < 0)
                return -1;
        if (status > 0)
                return err_set(
                        err, ERR_UNSUPPORTED,
                        "%s has no pip and cannot make a virtual environment; install one of the two: apt install "
                        "python3-pip, or apt install python3-venv",
                        job->interpreter);
        (void) snprintf(ret_interpreter, 4200, "%s/bin/python3", venv);
        return 0;
}

static int pip_explain(const struct listener *listener, const struct pip_job *job, struct err *err) {
        const char *hint = "see pip's message, fix the cause, and build again";
        if (strstr(listener->error, "No matching distribution") || strstr(listener->error, "ould not find a version"))
                hint = job->allow_source
                               ? "check the name and version, and that pip can reach its index"
                               : "check the name and version, that pip can reach its index, and that there is a "
                                 "wheel for this Python (--allow-source builds from source)";
        else if (strstr(listener->error, "No space left"))
                hint = "free some disk space (the scientific packages take about 1 GiB), or set GLOVEBOX_DATA_DIR";
        return err_set(err, ERR_SYSTEM, "pip could not install the packages: %s; %s. The image is as it was before",
                       *listener->error ? listener->error : "it ended without a word", hint);
}

int pip_install(const struct pip_job *job, struct err *err) {
        char interpreter[4200];
        struct listener listener = { .job = job, .doing = "starting pip" };
        report_output(&listener);
        if (find_pip(&listener, interpreter, err) < 0)
                return -1;
        static const char *const fixed[] = { "-m",
                                             "pip",
                                             "install",
                                             "--no-input",
                                             "--no-user",
                                             "--compile",
                                             "--no-color",
                                             "--progress-bar",
                                             "off",
                                             "--disable-pip-version-check",
                                             "--no-warn-script-location",
                                             "--target" };
        _cleanup_free_ const char **argv = calloc(ELEMENTS(fixed) + job->n_packages + 10, sizeof(*argv));
        if (!argv)
                return err_sys(err, ENOMEM, "cannot start pip");
        size_t n = 0;
        argv[n++] = interpreter;
        for (size_t i = 0; i < ELEMENTS(fixed); i++)
                argv[n++] = fixed[i];
        argv[n++] = job->target;
        if (!job->allow_source) {
                argv[n++] = "--only-binary";
                argv[n++] = ":all:";
        }
        if (job->requirements) {
                argv[n++] = "--requirement";
                argv[n++] = job->requirements;
        }
        argv[n++] = "--";
        for (size_t i = 0; i < job->n_packages; i++)
                argv[n++] = job->packages[i];
        listener = (struct listener) { .job = job, .doing = "starting pip" };
        int status = pip_run(&listener, (char *const *) argv, err);
        if (status < 0)
                return -1;
        return status == 0 ? 0 : pip_explain(&listener, job, err);
}
