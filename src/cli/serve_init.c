/* Process 1 of a container: the kernel gives it the orphans of all others, and ends the container with it. So it does
 * nothing that can fail: it forks, waits and passes signals on.
 *
 *   1: glovebox serve (this) ──fork──▶ daemon ──▶ maker, reaper, … ; the vault and what outlives a daemon come back here
 */
#include "cli/serve_init.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"

enum { SHORT_LIFE_S = 5, CRASHES_MAX = 5, PAUSE_S = 1 };

static const int awaited[] = { SIGCHLD, SIGTERM, SIGINT, SIGHUP };

struct init {
        sigset_t signals, before;
        pid_t daemon;
        time_t started_s;
        unsigned n_started;
        unsigned crashes; /* in a row, each soon after the start */
        bool is_ending, restarts;
};

static time_t now_s(void) {
        struct timespec now = { 0 };
        (void) clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec;
}

/* True in the child. */
static bool init_fork(struct init *init) {
        init->started_s = now_s();
        init->n_started++;
        init->daemon = fork();
        if (init->daemon < 0) {
                (void) fprintf(stderr, "glovebox: the daemon could not be started: %s\n", strerror(errno));
                _exit(EXIT_FAILURE);
        }
        if (init->daemon == 0)
                (void) sigprocmask(SIG_SETMASK, &init->before, NULL);
        return init->daemon == 0;
}

/* The daemon has exited. True in the child that becomes the next daemon; does not return if there is no next one. */
static bool init_follow(struct init *init, int status) {
        /* The next daemon may find locks that the old one has not released yet: it is started again, too. */
        bool has_crashed = WIFSIGNALED(status) || (init->n_started > 1 && WEXITSTATUS(status) != 0);
        if (init->is_ending || (!has_crashed && !init->restarts))
                _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
        init->crashes = has_crashed && now_s() - init->started_s < SHORT_LIFE_S ? init->crashes + 1 : 0;
        if (init->crashes == CRASHES_MAX) {
                (void) fprintf(stderr, "glovebox: the daemon has crashed %d times in a row; the container ends\n",
                               CRASHES_MAX);
                _exit(EXIT_FAILURE);
        }
        if (WIFSIGNALED(status))
                (void) fprintf(
                        stderr,
                        "glovebox: signal %d ended the daemon; it is started again and takes over the sessions\n",
                        WTERMSIG(status));
        init->restarts = false;
        if (init->crashes)
                (void) sleep(PAUSE_S);
        return init_fork(init);
}

static bool init_reap(struct init *init) {
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
                if (pid == init->daemon && init_follow(init, status))
                        return true;
        return false;
}

void serve_init(void) {
        struct init init = { 0 };
        sigemptyset(&init.signals);
        for (size_t i = 0; i < ELEMENTS(awaited); i++)
                sigaddset(&init.signals, awaited[i]);
        (void) sigprocmask(SIG_BLOCK, &init.signals, &init.before);
        if (init_fork(&init))
                return;
        for (;;) {
                int number = sigwaitinfo(&init.signals, NULL);
                if (number == SIGCHLD) {
                        if (init_reap(&init))
                                return;
                } else if (number > 0) {
                        init.is_ending |= number != SIGHUP;
                        init.restarts |= number == SIGHUP;
                        (void) kill(init.daemon, SIGTERM);
                }
        }
}
