#include "users.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "identity.h"
#include "process.h"

enum { STREAMS = 3, RUN_ID_SIZE = 32, MESSAGE_MAX = 400, OWN_VARIABLES = 4 };

static struct {
        bool are_there, had_channel;
        int channel_fd;
        size_t polled;
        char **environment; /* that the host gave the kernel */
        char *run, *user, *cwd, **argv, **envp; /* what is permitted; NULL: nothing */
        char last_run[RUN_ID_SIZE + 1];         /* that was redeemed */
        pid_t pid; /* of the command, 0: none */
} users = { .channel_fd = -1 };

int users_begin(void) {
        users.are_there = true;
        return identity_begin();
}

bool users_are_there(void) {
        return users.are_there;
}

int users_open_channel(char *const *envp, int *ret_fd) {
        int ends[2];
        *ret_fd = -1;
        if (!users.are_there || users.had_channel)
                return 0;
        size_t n = 0;
        while (envp[n])
                n++;
        users.environment = calloc(n + 1, sizeof(char *));
        if (!users.environment)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++)
                if (!(users.environment[i] = strdup(envp[i])))
                        return -ENOMEM;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return -errno;
        users.had_channel = true;
        users.channel_fd = ends[0];
        *ret_fd = ends[1];
        return 0;
}

/* ---- permits ---- */

static void forget_permit(void) {
        free(users.run);
        free(users.user);
        free(users.cwd);
        frame_free_texts(users.argv);
        frame_free_texts(users.envp);
        users.run = users.user = users.cwd = NULL;
        users.argv = users.envp = NULL;
}

int users_permit(struct request *request) {
        struct frame_reader *fields = &request->fields;
        forget_permit();
        if (!users.are_there)
                return -EPERM;
        if (!frame_get_text(fields, &users.run) || !frame_get_text(fields, &users.user) ||
            !frame_get_text(fields, &users.cwd) || !frame_get_texts(fields, &users.argv) ||
            !frame_get_texts(fields, &users.envp) || !users.argv[0] || strlen(users.run) != RUN_ID_SIZE) {
                forget_permit();
                return -EPROTO;
        }
        if (strcmp(users.run, users.last_run) == 0) /* a permit is used once, even if it is sent again */
                forget_permit();
        return 0;
}

/* ---- answers to the kernel: if it does not read them, they are dropped ---- */

static void close_channel(void) {
        fd_close(&users.channel_fd);
        if (users.pid > 0)
                process_signal(users.pid, SIGKILL, true);
}

__attribute__((format(printf, 1, 2))) static void send_answer(const char *format, ...) {
        char text[MESSAGE_MAX];
        va_list arguments;
        va_start(arguments, format);
        int size = vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        if (size >= (int) sizeof(text))
                size = sizeof(text) - 1;
        if (users.channel_fd >= 0 && send(users.channel_fd, text, (size_t) size, MSG_NOSIGNAL | MSG_DONTWAIT) != size)
                close_channel();
}

/* ---- commands ---- */

static bool is_same_variable(const char *a, const char *b) {
        size_t size = strcspn(a, "=");
        return strncmp(a, b, size) == 0 && b[size] == '=';
}

/* A later variable of the same name replaces an earlier one. Texts are borrowed. */
static void add_variable(char **list, size_t *n, char *text) {
        for (size_t i = 0; i < *n; i++)
                if (is_same_variable(list[i], text)) {
                        list[i] = text;
                        return;
                }
        list[(*n)++] = text;
}

static size_t count_texts(char *const *texts) {
        size_t n = 0;
        while (texts && texts[n])
                n++;
        return n;
}

/* The box's own variables, then those of the user, then those from the host. None comes from the kernel. */
static char **make_environment(const struct identity *identity, char own[OWN_VARIABLES][IDENTITY_TEXT_MAX + 16]) {
        static const char *const names[OWN_VARIABLES] = { "HOME", "USER", "LOGNAME", "SHELL" };
        const char *const values[OWN_VARIABLES] = { identity->home, identity->name, identity->name, identity->shell };
        char **list =
                calloc(count_texts(users.environment) + OWN_VARIABLES + count_texts(users.envp) + 1, sizeof(char *));
        size_t n = 0;
        for (size_t i = 0; list && users.environment[i]; i++)
                add_variable(list, &n, users.environment[i]);
        for (size_t i = 0; list && i < OWN_VARIABLES; i++) {
                (void) snprintf(own[i], IDENTITY_TEXT_MAX + 16, "%s=%s", names[i], values[i]);
                add_variable(list, &n, own[i]);
        }
        for (size_t i = 0; list && users.envp && users.envp[i]; i++)
                add_variable(list, &n, users.envp[i]);
        return list;
}

static void start_command(const int streams[static STREAMS]) {
        struct identity identity;
        char own[OWN_VARIABLES][IDENTITY_TEXT_MAX + 16];
        static char shell[] = "/bin/sh", bash[] = "/bin/bash";
        int code = identity_find(users.user, &identity);
        if (code < 0) {
                send_answer(code == -ENOENT
                                    ? "failed 0 there is no user \"%.64s\" in /etc/passwd of this sandbox"
                                    : "failed 0 the user \"%.64s\" cannot be looked up in /etc/passwd of this sandbox",
                            users.user);
                return;
        }
        _cleanup_free_ char **envp = make_environment(&identity, own);
        if (!envp) {
                send_answer("failed %d there is no memory for it", ENOMEM);
                return;
        }
        _cleanup_free_ char *named = NULL;
        if (!*users.argv[0]) { /* a shell command: the image's best shell */
                named = users.argv[0];
                users.argv[0] = access(bash, X_OK) == 0 ? bash : shell;
        }
        struct process process = { .cwd = users.cwd,
                                   .argv = users.argv,
                                   .envp = envp,
                                   .fds = streams,
                                   .n_fds = STREAMS,
                                   .identity = &identity };
        const char *step = "";
        code = process_start(&process, &step);
        if (code < 0)
                send_answer("failed %d %s: %s", -code, step, strerror(-code));
        else {
                users.pid = process.pid;
                send_answer("started");
        }
        if (named) {
                users.argv[0] = named;
                named = NULL;
        }
}

static void permit_redeem(const char *run, const int *fds, size_t n_fds) {
        if (users.pid > 0)
                send_answer("failed 0 another command of a user is running");
        else if (!users.run || n_fds != STREAMS || strcmp(users.run, run) != 0)
                send_answer("failed 0 no client requested a command as another user of this sandbox");
        else {
                memcpy(users.last_run, users.run, sizeof(users.last_run));
                start_command(fds);
                forget_permit();
        }
}

/* ---- the channel ---- */

static void serve(const char *text, const int *fds, size_t n_fds) {
        char *end;
        if (strncmp(text, "start ", 6) == 0)
                permit_redeem(text + 6, fds, n_fds);
        else if (strncmp(text, "signal ", 7) == 0) {
                long number = strtol(text + 7, &end, 10);
                if (!*end && number > 0 && number <= 64 && users.pid > 0)
                        process_signal(users.pid, (int) number, true);
        }
}

static void users_receive(void) {
        char text[MESSAGE_MAX + 1];
        int fds[STREAMS];
        size_t n_fds = 0;
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int) * STREAMS)];
        } control;
        struct iovec part = { text, MESSAGE_MAX };
        struct msghdr message = {
                .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)
        };
        ssize_t size = recvmsg(users.channel_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (size < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        for (struct cmsghdr *head = size < 0 ? NULL : CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head))
                if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
                        n_fds = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                        memcpy(fds, CMSG_DATA(head), n_fds * sizeof(int)); /* at most what there was room for */
                }
        if (size <= 0)
                close_channel();
        else if (!(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
                text[size] = '\0';
                serve(text, fds, n_fds);
        }
        for (size_t i = 0; i < n_fds; i++)
                fd_close(&fds[i]);
}

void users_wait(struct polls *polls) {
        users.polled = users.channel_fd < 0 ? 0 : polls_add(polls, users.channel_fd, POLLIN);
}

bool users_happened(const struct polls *polls) {
        return users.channel_fd >= 0 && polls_happened(polls, users.polled);
}

void users_move(void) {
        if (users.channel_fd >= 0)
                users_receive();
}

void users_reaped(pid_t pid, int status) {
        if (users.pid <= 0 || pid != users.pid)
                return;
        users.pid = 0;
        send_answer("ended %d", status);
}

void users_release(void) {
        forget_permit();
        frame_free_texts(users.environment);
        users.environment = NULL;
        fd_close(&users.channel_fd);
}
