#include "engine/program_call.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/memory.h"

enum { NOT_EXECUTED = 127, READ_BYTES = 64 << 10 };

void program_answer_release(struct program_answer *answer) {
        free(answer->output);
        *answer = (struct program_answer) { 0 };
}

bool program_is_there(const char *name) {
        const char *path = getenv("PATH");
        for (const char *at = path; at && *at;) {
                size_t size = strcspn(at, ":");
                char file[4096];
                if (size > 0 && snprintf(file, sizeof(file), "%.*s/%s", (int) size, at, name) < (int) sizeof(file) &&
                    access(file, X_OK) == 0)
                        return true;
                at += size + (at[size] == ':');
        }
        return false;
}

/* A running call, with our ends of the child's streams. */
struct call {
        pid_t pid;
        int pidfd;
        int in_fd, out_fd, error_fd;
        const char *input;
        size_t input_left;
        char *output;
        size_t size, room;
        char *error_output;
        size_t error_size;
};

static void exec_program(const char *const *argv, int in_fd, int out_fd, int error_fd) __attribute__((noreturn));
static void exec_program(const char *const *argv, int in_fd, int out_fd, int error_fd) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigset_t none;
        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        (void) signal(SIGPIPE, SIG_DFL);
        (void) signal(SIGINT, SIG_IGN); /* after Ctrl-C the daemon waits for this call before it exits */
        if (dup2(in_fd, 0) == 0 && dup2(out_fd, 1) == 1 && dup2(error_fd, 2) == 2 &&
            syscall(SYS_close_range, 3, ~0u, 0) == 0)
                (void) execvp(argv[0], (char *const *) (uintptr_t) argv);
        _exit(NOT_EXECUTED);
}

static int call_begin(const char *const *argv, bool has_input, struct call *call) {
        int in[2] = { -1, -1 }, out[2] = { -1, -1 }, error_output[2] = { -1, -1 };
        int code = 0;
        if (pipe2(out, O_CLOEXEC) < 0 || pipe2(error_output, O_CLOEXEC) < 0 || (has_input && pipe2(in, O_CLOEXEC) < 0))
                code = -errno;
        if (code == 0 && !has_input && (in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
                code = -errno;
        if (code == 0 && (call->pid = fork()) == 0)
                exec_program(argv, in[0], out[1], error_output[1]);
        if (code == 0 && call->pid < 0)
                code = -errno;
        fd_close(&in[0]);
        fd_close(&out[1]);
        fd_close(&error_output[1]);
        call->in_fd = in[1];
        call->out_fd = out[0];
        call->error_fd = error_output[0];
        if (code == 0) {
                call->pidfd = (int) syscall(SYS_pidfd_open, call->pid, 0);
                for (size_t i = 0; i < 3; i++) {
                        int fd = (const int[]) { call->in_fd, call->out_fd, call->error_fd }[i];
                        if (fd >= 0)
                                (void) fd_set_nonblocking(fd);
                }
        }
        return code;
}

/* 0 or -errno. Closes a stream that has ended. */
static int call_read_output(struct call *call) {
        if (call->size + READ_BYTES + 1 > call->room) {
                size_t room = call->room ? 2 * call->room : 2 * READ_BYTES;
                char *grown = room > PROGRAM_CALL_OUTPUT_MAX ? NULL : realloc(call->output, room);
                if (!grown)
                        return -EMSGSIZE;
                call->output = grown;
                call->room = room;
        }
        ssize_t n = read(call->out_fd, call->output + call->size, READ_BYTES);
        if (n == 0)
                fd_close(&call->out_fd);
        if (n > 0)
                call->size += (size_t) n;
        return 0;
}

static void call_read_error_output(struct call *call) {
        char bytes[4096];
        ssize_t n = read(call->error_fd, bytes, sizeof(bytes));
        if (n == 0)
                fd_close(&call->error_fd);
        for (ssize_t i = 0; i < n && call->error_size + 1 < PROGRAM_CALL_ERROR_OUTPUT_MAX; i++) {
                bool is_blank = (unsigned char) bytes[i] < 0x20;
                if (is_blank && (call->error_size == 0 || call->error_output[call->error_size - 1] == ' '))
                        continue;
                call->error_output[call->error_size++] = is_blank ? ' ' : bytes[i];
        }
}

static void call_write_input(struct call *call) {
        ssize_t n = write(call->in_fd, call->input, call->input_left);
        if (n > 0) {
                call->input += n;
                call->input_left -= (size_t) n;
        }
        if (call->input_left == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
                fd_close(&call->in_fd); /* a program that stops reading writes the reason to its standard error */
}

static int call_move_bytes(struct call *call, uint64_t deadline_ms) {
        while (call->out_fd >= 0 || call->error_fd >= 0) {
                uint64_t now_ms = loop_now_ms();
                if (now_ms >= deadline_ms)
                        return -ETIMEDOUT;
                struct pollfd polled[] = { { .fd = call->in_fd, .events = POLLOUT },
                                           { .fd = call->out_fd, .events = POLLIN },
                                           { .fd = call->error_fd, .events = POLLIN } };
                if (poll(polled, ELEMENTS(polled), (int) (deadline_ms - now_ms)) < 0 && errno != EINTR)
                        return -errno;
                if (polled[0].revents)
                        call_write_input(call);
                if (polled[2].revents)
                        call_read_error_output(call);
                int code = polled[1].revents ? call_read_output(call) : 0;
                if (code < 0)
                        return code;
        }
        return 0;
}

static int call_end(struct call *call, int code, uint64_t deadline_ms, int *ret_status) {
        struct pollfd polled = { .fd = call->pidfd, .events = POLLIN };
        uint64_t now_ms = loop_now_ms();
        int status = 0;
        if (code == 0 && poll(&polled, 1, deadline_ms > now_ms ? (int) (deadline_ms - now_ms) : 0) != 1)
                code = -ETIMEDOUT;
        if (code < 0)
                (void) kill(call->pid, SIGKILL);
        while (waitpid(call->pid, &status, 0) < 0 && errno == EINTR)
                ;
        *ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return code;
}

int program_call(const char *const *argv, const char *input, uint64_t deadline_ms, struct program_answer *ret_answer,
                 struct err *err) {
        struct program_answer answer = { 0 };
        struct call call = { .pidfd = -1,
                             .in_fd = -1,
                             .out_fd = -1,
                             .error_fd = -1,
                             .input = input,
                             .input_left = input ? strlen(input) : 0,
                             .error_output = answer.error_output };
        if (!program_is_there(argv[0]))
                return err_set(err, ERR_UNSUPPORTED, "there is no program \"%s\" in PATH: install it", argv[0]);
        (void) signal(SIGPIPE, SIG_IGN);
        int code = call_begin(argv, input != NULL, &call);
        if (code == 0) {
                code = call_move_bytes(&call, deadline_ms);
                code = call_end(&call, code, deadline_ms, &answer.status);
        }
        fd_close(&call.pidfd);
        fd_close(&call.in_fd);
        fd_close(&call.out_fd);
        fd_close(&call.error_fd);
        answer.output = call.output ? call.output : strdup("");
        answer.size = call.size;
        if (answer.output)
                answer.output[answer.size] = '\0';
        if (code == 0 && answer.output) {
                *ret_answer = answer;
                return 0;
        }
        program_answer_release(&answer);
        if (code == -ETIMEDOUT)
                return err_set(err, ERR_TIMEOUT, "\"%s %s\" did not answer in time: is its server stuck?", argv[0],
                               argv[1] ? argv[1] : "");
        return err_sys(err, code < 0 ? -code : ENOMEM, "running %s", argv[0]);
}
