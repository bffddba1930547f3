/* The first words of a box's agent, said by a hostile program: sizes, timing, descriptors. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/loop.h"
#include "base/memory.h"
#include "engine/handshake.h"
#include "tap.h"
#include "wire/frame.h"

enum { DEADLINE_MS = 600, SLACK_MS = 1500 };

static struct sockaddr_un address = { .sun_family = AF_UNIX };
static struct err err;

static void say_ready(int fd) {
        (void) frame_send(fd, FRAME_READY, 0, NULL, NULL, 0);
}

static void say_nothing(int fd) {
        (void) fd;
        (void) pause();
}

static void hang_up(int fd) {
        (void) close(fd);
}

/* Within any time limit of one call, and never whole. */
static void drip(int fd) {
        unsigned char header[FRAME_HEADER_SIZE];
        frame_make_header(header, FRAME_FAILED, 0, 1 << 19);
        (void) send(fd, header, sizeof(header), MSG_NOSIGNAL);
        for (;;) {
                (void) usleep(50000);
                (void) send(fd, "x", 1, MSG_NOSIGNAL);
        }
}

static void claim_4_gib(int fd) {
        unsigned char header[FRAME_HEADER_SIZE] = { 255, 255, 255, 255, FRAME_READY };
        (void) send(fd, header, sizeof(header), MSG_NOSIGNAL);
        (void) pause();
}

static void say_something_else(int fd) {
        (void) frame_send(fd, FRAME_EXITED, 0, NULL, NULL, 0);
        (void) pause();
}

static void fail_with_control_characters(int fd) {
        struct frame_writer payload = { 0 };
        frame_put_u32(&payload, UINT32_MAX);
        frame_put_text(&payload, "a\n2026-01-01 forged\x1b[2J\xff\xfe");
        (void) frame_send(fd, FRAME_FAILED, 0, &payload, NULL, 0);
        (void) pause();
}

static void fail_without_a_text(int fd) {
        struct frame_writer payload = { 0 };
        frame_put_u32(&payload, 1);
        (void) frame_send(fd, FRAME_FAILED, 0, &payload, NULL, 0);
        (void) pause();
}

static void ready_with_descriptors(int fd) {
        int fds[FRAME_FDS_MAX];
        for (size_t i = 0; i < ELEMENTS(fds); i++)
                fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        (void) frame_send(fd, FRAME_EXITED, 0, NULL, fds, ELEMENTS(fds));
        (void) pause();
}

static void hand_out(int fd, int handed) {
        (void) fd_passing_send(fd, "L", 1, &handed, 1, MSG_NOSIGNAL);
        say_ready(fd);
        (void) pause();
}

static void hand_out_a_pipe(int fd) {
        int ends[2];
        if (pipe(ends) == 0)
                hand_out(fd, ends[0]);
}

static void hand_out_a_unix_listener(int fd) {
        int other = socket(AF_UNIX, SOCK_STREAM, 0);
        const struct sockaddr_un own = { .sun_family = AF_UNIX }; /* any name */
        if (bind(other, (const struct sockaddr *) &own, sizeof(sa_family_t)) == 0 && listen(other, 1) == 0)
                hand_out(fd, other);
}

static void hand_out_many(int fd) {
        int fds[4] = { 0, 0, 0, 0 };
        (void) fd_passing_send(fd, "L", 1, fds, ELEMENTS(fds), MSG_NOSIGNAL);
        say_ready(fd);
        (void) pause();
}

static void hand_out_none(int fd) {
        (void) fd_passing_send(fd, "L", 1, NULL, 0, MSG_NOSIGNAL);
        (void) pause();
}

static void hand_out_a_listener(int fd) {
        int other = socket(AF_INET, SOCK_STREAM, 0);
        if (listen(other, 1) == 0)
                hand_out(fd, other);
}

static int is_alive(void *context, struct err *ret_err) {
        (void) context;
        (void) ret_err;
        return 0;
}

static int count_descriptors(void) {
        int n = 0;
        DIR *directory = opendir("/proc/self/fd");
        while (directory && readdir(directory))
                n++;
        if (directory)
                (void) closedir(directory);
        return n;
}

enum wanted { NOTHING, LISTENER, WORKSPACE };

static int meet(void (*agent)(int fd), enum wanted wanted, int *ret_fd, int *ret_handed) {
        (void) unlink(address.sun_path);
        _cleanup_fd_ int listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (bind(listen_fd, (const struct sockaddr *) &address, sizeof(address)) < 0 || listen(listen_fd, 1) < 0)
                return -2;
        pid_t child = fork();
        if (child == 0) {
                int fd = socket(AF_UNIX, SOCK_STREAM, 0);
                if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) == 0)
                        agent(fd);
                _exit(0);
        }
        err = (struct err) { 0 };
        int code =
                handshake_accept(listen_fd, loop_now_ms() + DEADLINE_MS, is_alive, NULL, ret_fd,
                                 wanted == LISTENER ? ret_handed : NULL, wanted == WORKSPACE ? ret_handed : NULL, &err);
        (void) kill(child, SIGKILL);
        (void) waitpid(child, NULL, 0);
        return code;
}

static const struct {
        const char *what;
        void (*agent)(int fd);
        enum wanted wanted;
        enum err_code code;
} refused[] = {
        { "silence", say_nothing, NOTHING, ERR_TIMEOUT },
        { "silence in place of a descriptor", say_nothing, LISTENER, ERR_UNSUPPORTED },
        { "a hang-up", hang_up, NOTHING, ERR_NONE },
        { "a byte now and then", drip, NOTHING, ERR_TIMEOUT },
        { "4 GiB announced", claim_4_gib, NOTHING, ERR_NONE },
        { "another frame", say_something_else, NOTHING, ERR_PROTOCOL },
        { "a failure with control characters", fail_with_control_characters, NOTHING, ERR_SYSTEM },
        { "a failure without a text", fail_without_a_text, NOTHING, ERR_PROTOCOL },
        { "descriptors that nobody expects", ready_with_descriptors, NOTHING, ERR_PROTOCOL },
        { "a pipe as the proxy's socket", hand_out_a_pipe, LISTENER, ERR_UNSUPPORTED },
        { "a UNIX socket as the proxy's", hand_out_a_unix_listener, LISTENER, ERR_UNSUPPORTED },
        { "four descriptors for one", hand_out_many, LISTENER, ERR_UNSUPPORTED },
        { "no descriptor", hand_out_none, LISTENER, ERR_UNSUPPORTED },
        { "a pipe as the workspace", hand_out_a_pipe, WORKSPACE, ERR_UNSUPPORTED },
};

static void test_refused(void) {
        for (size_t i = 0; i < ELEMENTS(refused); i++) {
                int fd = -1, handed = -1, before = count_descriptors();
                uint64_t begun = loop_now_ms();
                int code = meet(refused[i].agent, refused[i].wanted, &fd, &handed);
                uint64_t took = loop_now_ms() - begun;
                ok(code == -1 && fd == -1 && handed == -1, "%s is refused", refused[i].what);
                ok(refused[i].code == ERR_NONE || err.code == refused[i].code, "%s: the right error (%s)",
                   refused[i].what, err_code_name(err.code));
                ok(took < DEADLINE_MS + SLACK_MS, "%s takes no longer than the deadline", refused[i].what);
                ok(count_descriptors() == before, "%s leaves no descriptor", refused[i].what);
                ok(err.message[0] && !strpbrk(err.message, "\n\x1b\xff"), "%s: one line, printable", refused[i].what);
        }
}

static void test_good(void) {
        int fd = -1, handed = -1;
        ok(meet(say_ready, NOTHING, &fd, NULL) == 0 && fd >= 0, "an agent that is ready is taken");
        ok((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0, "its socket blocks");
        fd_close(&fd);
        ok(meet(hand_out_a_listener, LISTENER, &fd, &handed) == 0 && handed >= 0, "and one with a proxy's socket");
        fd_close(&fd);
        fd_close(&handed);
}

int main(void) {
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/test-handshake-%d", (int) getpid());
        test_good();
        test_refused();
        (void) unlink(address.sun_path);
        return done_testing();
}
