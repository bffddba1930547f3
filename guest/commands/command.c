#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "input.h"

enum { NOT_FOUND = 127, CANNOT_RUN = 126, ENDING_MS = 500 };

struct command {
        char **argv;
        const char *cwd, *stdin_path;
        json_t *env;
        int input_fd; /* -1: none is offered */
};

/* ---- the request ---- */

static const char *shell(void) {
        return access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
}

/* The texts belong to the request. */
static char **words_of(json_t *request) {
        json_t *list = json_object_get(request, "argv"), *word;
        size_t i;
        char **words = json_array_size(list) ? calloc(json_array_size(list) + 1, sizeof(char *)) : NULL;
        if (!words)
                return NULL;
        json_array_foreach (list, i, word) {
                words[i] = (char *) (uintptr_t) json_string_value(word);
                if (!words[i]) {
                        free(words);
                        return NULL;
                }
        }
        if (!*words[0]) /* a shell command: the image's best shell */
                words[0] = (char *) (uintptr_t) shell();
        return words;
}

static bool is_environment(json_t *env) {
        const char *name;
        json_t *value;
        if (env && !json_is_object(env))
                return false;
        json_object_foreach (env, name, value)
                if (!*name || strchr(name, '=') || !json_is_string(value))
                        return false;
        return true;
}

/* ---- the child ---- */

static void command_fail(int report_fd) __attribute__((noreturn));
static void command_fail(int report_fd) {
        int code = errno;
        (void) fd_write_all(report_fd, &code, sizeof(code));
        _exit(NOT_FOUND);
}

static void become(const struct command *command, int report_fd) __attribute__((noreturn));
static void become(const struct command *command, int report_fd) {
        const char *name;
        json_t *value;
        sigset_t none;
        sigemptyset(&none);
        (void) setsid();
        json_object_foreach (command->env, name, value)
                (void) setenv(name, json_string_value(value), 1);
        int in_fd = command->input_fd;
        if (in_fd < 0)
                in_fd = open(command->stdin_path ? command->stdin_path : "/dev/null", O_RDONLY | O_CLOEXEC);
        if (in_fd < 0 || dup2(in_fd, 0) < 0 || (command->cwd && chdir(command->cwd) < 0) ||
            sigprocmask(SIG_SETMASK, &none, NULL) < 0)
                command_fail(report_fd);
        (void) execvp(command->argv[0], command->argv);
        command_fail(report_fd);
}

/* ---- until it ends ---- */

void command_reap(void) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
                ;
}

/* True if SIGINT has arrived. SIGCHLD only wakes the caller, which then checks its children. */
static bool take_signals(int signal_fd) {
        struct signalfd_siginfo signals[8];
        bool came = false;
        ssize_t size = read(signal_fd, signals, sizeof(signals));
        for (ssize_t i = 0; i < size / (ssize_t) sizeof(signals[0]); i++)
                came |= signals[i].ssi_signo == SIGINT;
        return came;
}

static int wait_for(pid_t pid, int signal_fd, struct input *input, bool *ret_interrupted) {
        uint64_t kill_ms = 0;
        int status;
        for (;;) {
                if (waitpid(pid, &status, WNOHANG) == pid)
                        break;
                int patience_ms = input_move(input); /* -1: no timeout */
                if (*ret_interrupted && (patience_ms < 0 || patience_ms > 20))
                        patience_ms = 20;
                struct pollfd polled = { .fd = signal_fd, .events = POLLIN };
                (void) poll(&polled, 1, patience_ms);
                if (take_signals(signal_fd) && !*ret_interrupted) {
                        *ret_interrupted = true;
                        kill_ms = clock_now_ms() + ENDING_MS;
                        (void) kill(-pid, SIGINT);
                }
                if (*ret_interrupted && clock_now_ms() >= kill_ms)
                        (void) kill(-pid, SIGKILL);
        }
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int start(struct command *command, struct input *input, pid_t *ret_pid) {
        int report[2] = { -1, -1 }, feed[2] = { -1, -1 }, failure = 0;
        if (pipe2(report, O_CLOEXEC) < 0 || (input->is_offered && pipe2(feed, O_CLOEXEC) < 0))
                failure = errno;
        command->input_fd = feed[0];
        pid_t pid = failure ? -1 : fork();
        if (pid == 0)
                become(command, report[1]);
        if (!failure && pid < 0)
                failure = errno;
        fd_close(&report[1]);
        fd_close(&feed[0]);
        if (pid > 0 && fd_read_exactly(report[0], &failure, sizeof(failure)) < 0)
                failure = 0; /* it was executed */
        fd_close(&report[0]);
        if (failure && pid > 0)
                (void) waitpid(pid, NULL, 0);
        if (failure)
                fd_close(&feed[1]);
        input->fd = feed[1];
        *ret_pid = pid;
        return failure;
}

int command_run(json_t *request, int signal_fd, bool *ret_interrupted) {
        struct command command = { .argv = words_of(request),
                                   .cwd = json_string_value(json_object_get(request, "cwd")),
                                   .stdin_path = json_string_value(json_object_get(request, "stdin")),
                                   .env = json_object_get(request, "env"),
                                   .input_fd = -1 };
        if (!command.argv || !is_environment(command.env)) {
                free(command.argv);
                return -1;
        }
        if (command.stdin_path && !*command.stdin_path)
                command.stdin_path = NULL;
        struct input input = input_of(request);
        pid_t pid = -1;
        bool wants_python = json_is_true(json_object_get(request, "python"));
        int failure = wants_python ? ENOENT : start(&command, &input, &pid), code;
        if (failure == ENOENT || failure == ENOTDIR) {
                (void) dprintf(STDERR_FILENO, "glovebox: %s: there is no such command or directory\n",
                               wants_python ? "python3" : command.argv[0]);
                code = NOT_FOUND;
        } else if (failure) {
                (void) dprintf(STDERR_FILENO, "glovebox: %s: %s\n", command.argv[0], strerror(failure));
                code = CANNOT_RUN;
        } else
                code = wait_for(pid, signal_fd, &input, ret_interrupted);
        input_end(&input);
        free(command.argv);
        return code;
}
