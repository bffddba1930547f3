#include "session/chore.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"

struct chore {
        pid_t pid;
        int fd;
        struct loop_watch *watch;
        struct loop_timer *timer;
        chore_done *done;
        void *context;
        char *words;
        size_t size, room;
        bool broken; /* killed by us */
};

static void release(struct chore *chore) {
        loop_unwatch(&chore->watch);
        loop_timer_drop(&chore->timer);
        fd_close(&chore->fd);
        free(chore->words);
        free(chore);
}

static void break_off(struct chore *chore) {
        chore->broken = true;
        (void) kill(chore->pid, SIGKILL);
}

static void on_timeout(void *context) {
        struct chore *chore = context;
        chore->timer = NULL;
        break_off(chore); /* its end of the pipe closes, which is seen as any other end */
}

/* False at the end of the pipe. */
static bool take_words(struct chore *chore) {
        if (chore->size + 1 >= chore->room) {
                size_t room = chore->room ? 2 * chore->room : 4096;
                char *grown = room > 2 * CHORE_WORDS_MAX ? NULL : realloc(chore->words, room);
                if (!grown) {
                        break_off(chore);
                        chore->size = 0; /* read on to the end of the pipe, which is near */
                        return true;
                }
                chore->words = grown;
                chore->room = room;
        }
        ssize_t n = read(chore->fd, chore->words + chore->size, chore->room - chore->size - 1);
        if (n > 0)
                chore->size += (size_t) n;
        return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void on_words(void *context, uint32_t events) {
        struct chore *chore = context;
        (void) events;
        if (take_words(chore))
                return;
        int status = -1;
        while (waitpid(chore->pid, &status, 0) < 0 && errno == EINTR)
                ;
        chore_done *done = chore->done;
        void *whose = chore->context;
        bool good = !chore->broken && WIFEXITED(status) && WEXITSTATUS(status) == 0 && chore->words;
        _cleanup_free_ char *words = good ? take_ptr(chore->words) : NULL;
        size_t size = words ? chore->size : 0;
        if (words)
                words[size] = '\0';
        release(chore);
        done(whose, words, size);
}

_Noreturn static void become(chore_work *work, void *context, int fd, pid_t parent) {
        sigset_t none;
        sigemptyset(&none);
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) prctl(PR_SET_NAME, "glovebox-chore");
        (void) signal(SIGPIPE, SIG_DFL);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        if (getppid() != parent || dup2(fd, STDOUT_FILENO) < 0)
                _exit(EXIT_FAILURE);
        (void) syscall(SYS_close_range, 3, ~0u, 0);
        _exit(work(context, STDOUT_FILENO));
}

struct chore *chore_start(struct loop *loop, chore_work *work, chore_done *done, void *context, uint64_t timeout_ms,
                          struct err *err) {
        int ends[2] = { -1, -1 };
        struct chore *chore = calloc(1, sizeof(*chore));
        if (!chore || pipe2(ends, O_CLOEXEC) < 0) {
                (void) err_sys(err, chore ? errno : ENOMEM, "making a pipe");
                free(chore);
                return NULL;
        }
        pid_t parent = getpid();
        *chore = (struct chore) { .fd = ends[0], .done = done, .context = context };
        chore->watch = fd_set_nonblocking(ends[0]) < 0 ? NULL : loop_watch(loop, ends[0], EPOLLIN, on_words, chore);
        chore->timer = loop_timer(loop, loop_now_ms() + timeout_ms, on_timeout, chore);
        chore->pid = chore->watch && chore->timer ? fork() : -1;
        if (chore->pid == 0)
                become(work, context, ends[1], parent);
        fd_close(&ends[1]);
        if (chore->pid > 0)
                return chore;
        (void) err_sys(err, chore->watch && chore->timer ? errno : ENOMEM, "starting a process");
        release(chore);
        return NULL;
}

void chore_cancel(struct chore *chore) {
        if (!chore)
                return;
        break_off(chore);
        while (waitpid(chore->pid, NULL, 0) < 0 && errno == EINTR)
                ;
        release(chore);
}
