#include "cli/input_feed.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random_id.h"
#include "client/daemon_client.h"

enum { PIECE_MAX = 256 << 10, PAUSE_MS = 5 };

int input_feed_init(struct input_feed *feed, const struct socket_place *place, const char *session, struct err *err) {
        int code = random_id_make(feed->token);
        if (code < 0)
                return err_sys(err, -code, "reading random bytes");
        feed->place = place;
        feed->session = session;
        feed->pid = 0;
        return 0;
}

static int input_feed_call(struct daemon_client *client, const char *operation, const struct input_feed *feed,
                           unsigned number, const char *bytes, size_t size, struct err *err) {
        char path[80];
        json_t *answer = NULL;
        (void) snprintf(path, sizeof(path), "input-%s-%u", feed->token, number);
        json_t *body =
                json_pack("{s:s, s:s, s:s, s:b}", "op", operation, "session", feed->session, "path", path, "input", 1);
        const struct daemon_request request = { .body = body, .follows = bytes, .follows_size = size };
        int code = body ? daemon_client_call(client, &request, &answer, err) : -1;
        json_decref(answer);
        json_decref(body);
        return code;
}

static void wait_until_taken(struct daemon_client *client, const struct input_feed *feed, unsigned number) {
        struct err gone;
        while (input_feed_call(client, "file.stat", feed, number, NULL, 0, &gone) == 0)
                (void) poll(NULL, 0, PAUSE_MS);
}

static void feed_input(const struct input_feed *feed) __attribute__((noreturn));
static void feed_input(const struct input_feed *feed) {
        static char bytes[PIECE_MAX];
        struct daemon_client client = DAEMON_CLIENT_NONE;
        struct err err = { 0 };
        int code = daemon_client_open(feed->place, 0, &client, &err);
        for (unsigned number = 0; code == 0; number++) {
                ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
                if (n < 0 && errno == EINTR)
                        continue;
                if (feed->written)
                        *feed->written = number + 1;
                code = input_feed_call(&client, "file.write", feed, number, bytes, n > 0 ? (size_t) n : 0, &err);
                if (n <= 0)
                        break;
                if (code == 0)
                        wait_until_taken(&client, feed, number);
        }
        if (code < 0)
                (void) fprintf(stderr, "glovebox: standard input cannot be passed on: %s\n", err.message);
        _exit(code < 0);
}

void input_feed_start(struct input_feed *feed, const char *token) {
        if (!token || feed->pid != 0 || strcmp(token, feed->token) != 0)
                return;
        void *shared = mmap(NULL, sizeof(unsigned), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        feed->written = shared == MAP_FAILED ? NULL : shared;
        pid_t parent = getpid(), pid = fork();
        if (pid == 0) {
                (void) signal(SIGINT, SIG_IGN); /* Ctrl-C is for the run */
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() != parent)
                        _exit(1);
                feed_input(feed);
        }
        feed->pid = pid > 0 ? pid : -1;
}

/* The piece that came too late for the run. */
static void remove_last(const struct input_feed *feed) {
        struct daemon_client client = DAEMON_CLIENT_NONE;
        struct err ignored;
        if (!feed->written || *feed->written == 0 || daemon_client_open(feed->place, 0, &client, &ignored) < 0)
                return;
        (void) input_feed_call(&client, "file.remove", feed, *feed->written - 1, NULL, 0, &ignored);
        daemon_client_close(&client);
}

void input_feed_stop(struct input_feed *feed) {
        if (feed->pid > 0) {
                (void) kill(feed->pid, SIGKILL);
                (void) waitpid(feed->pid, NULL, 0);
                remove_last(feed);
        }
        if (feed->written)
                (void) munmap(feed->written, sizeof(unsigned));
        feed->written = NULL;
        feed->pid = 0;
}
