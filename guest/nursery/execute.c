/* A forked kernel becomes a command: what glovebox_kernel/program.py does for commands, without Python. That took
 * longer than the execution itself, since every object that Python uses is on a page that the fork has to copy. */
#include "execute.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"

enum {
        REQUESTS_FD = 3,
        REPLIES_FD = 4,
        KERNEL_STARTED = 134, /* types of frames: docs/KERNEL-PROTOCOL.md */
        KERNEL_ENDED = 135,
        FRAME_HEADER_BYTES = 8,
        NOT_FOUND = 127,
};

#define KERNEL_PATH "/opt/glovebox/kernel"
#define WORKSPACE "/workspace"

/* ---- before there is a request ---- */

#ifdef __aarch64__
#define MULTIARCH "/lib/aarch64-linux-gnu"
#define LOADER "/lib/ld-linux-aarch64.so.1"
#else
#define MULTIARCH "/lib/x86_64-linux-gnu"
#define LOADER "/lib64/ld-linux-x86-64.so.2"
#endif

void execute_look_up(void) {
        static const char *const files[] = {
                "/bin/sh",
                "/bin/bash",
                LOADER,
                "/etc/ld.so.preload",
                "/etc/ld.so.cache",
                MULTIARCH "/libc.so.6",
                MULTIARCH "/libtinfo.so.6", /* of bash */
                "/dev/tty",
                "/usr/lib/locale/locale-archive",
                "/usr/share/locale/locale.alias",
                "/usr/lib/locale/C.UTF-8/LC_CTYPE",
                "/usr/lib/locale/C.utf8/LC_CTYPE",
                "/usr" MULTIARCH "/gconv/gconv-modules.cache",
        };
        for (size_t i = 0; i < ELEMENTS(files); i++)
                (void) !access(files[i], F_OK);
}

/* ---- the request ---- */

static void execute_send(int type, const char *text) {
        char frame[FRAME_HEADER_BYTES + 40] = { 0 };
        const uint32_t size = htole32((uint32_t) strlen(text));
        memcpy(frame, &size, sizeof(size));
        frame[4] = (char) type;
        memcpy(frame + FRAME_HEADER_BYTES, text, strlen(text));
        (void) fd_write_all(REPLIES_FD, frame, FRAME_HEADER_BYTES + strlen(text));
}

static _Noreturn void execute_fail(int code) {
        char text[40];
        (void) snprintf(text, sizeof(text), "failed %d", code);
        execute_send(KERNEL_ENDED, text);
        _exit(NOT_FOUND);
}

/* ---- the environment: that of a box without a kernel ---- */

/* The workspace in place of the kernel's own directory. */
static int set_python_path(void) {
        const char *given = getenv("PYTHONPATH");
        size_t room = sizeof(WORKSPACE) + (given ? strlen(given) : 0) + 1;
        char *path = malloc(room);
        if (!path)
                return -ENOMEM;
        size_t n = (size_t) snprintf(path, room, "%s", WORKSPACE);
        for (const char *at = given; at && *at;) {
                const char *end = strchrnul(at, ':');
                bool is_ours =
                        (size_t) (end - at) == strlen(KERNEL_PATH) && memcmp(at, KERNEL_PATH, (size_t) (end - at)) == 0;
                if (end > at && !is_ours)
                        n += (size_t) snprintf(path + n, room - n, ":%.*s", (int) (end - at), at);
                at = *end ? end + 1 : end;
        }
        int code = setenv("PYTHONPATH", path, 1) < 0 ? -errno : 0;
        free(path);
        return code;
}

static int enter_environment(char *at, const char *end) {
        (void) unsetenv("DF_BYTES"); /* a kernel's, not a program's */
        (void) unsetenv("NP_BYTES");
        int code = set_python_path();
        for (; code == 0 && at < end; at += strlen(at) + 1)
                code = putenv(at) == 0 ? 0 : -errno;
        return code;
}

/* ---- the execution ---- */

/* Python ignores or handles these, other programs do not. The kernel holds interrupts back (Gate.hold): one that has
 * arrived ends the command. */
static void take_plain_signals(void) {
        static const int changed[] = { SIGINT, SIGPIPE, SIGXFSZ };
        sigset_t interrupt;
        for (size_t i = 0; i < ELEMENTS(changed); i++)
                (void) signal(changed[i], SIG_DFL);
        sigemptyset(&interrupt);
        sigaddset(&interrupt, SIGINT);
        (void) sigprocmask(SIG_UNBLOCK, &interrupt, NULL);
}

/* Returns the reason why it cannot be executed: the first one that is not "there is none in this directory". */
static int execute_by_path(char **argv) {
        const char *path = getenv("PATH");
        int reason = ENOENT;
        if (strchr(argv[0], '/')) {
                (void) execve(argv[0], argv, environ);
                return errno;
        }
        for (const char *at = path ? path : "/bin:/usr/bin";; at++) {
                char file[PATH_MAX];
                const char *end = strchrnul(at, ':');
                int n = snprintf(file, sizeof(file), "%.*s%s%s", (int) (end - at), at, end > at ? "/" : "", argv[0]);
                if (n > 0 && (size_t) n < sizeof(file)) {
                        (void) execve(file, argv, environ);
                        if (errno != ENOENT && errno != ENOTDIR && reason == ENOENT)
                                reason = errno;
                }
                if (!*end)
                        return reason;
                at = end;
        }
}

static const char *next_text(char **at, const char *end) {
        char *text = *at, *after = text < end ? memchr(text, 0, (size_t) (end - text)) : NULL;
        if (!after)
                execute_fail(EPROTO);
        *at = after + 1;
        return text;
}

void execute_program(char *payload, size_t size) {
        char *at = payload;
        const char *end = payload + size;
        execute_send(KERNEL_STARTED, "");
        (void) next_text(&at, end); /* "exec" */
        const char *directory = next_text(&at, end);
        size_t n = strtoul(next_text(&at, end), NULL, 10);
        if (n == 0 || n > size)
                execute_fail(EPROTO);
        char **argv = calloc(n + 1, sizeof(*argv));
        for (size_t i = 0; argv && i < n; i++)
                argv[i] = (char *) (uintptr_t) next_text(&at, end);
        int code = !argv ? -ENOMEM : enter_environment(at, end);
        if (code == 0 && dup2(REQUESTS_FD, 0) < 0)
                code = -errno;
        if (code < 0)
                execute_fail(-code);
        if (!*argv[0])
                argv[0] = (char *) (uintptr_t) (access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh");
        if (*directory)
                (void) !chdir(directory); /* an image may name a directory that it does not have */
        take_plain_signals();
        execute_fail(execute_by_path(argv));
}
