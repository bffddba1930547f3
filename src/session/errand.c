#include "session/errand.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

enum { FIRST_FD = 3, PIECE = 64 << 10, AT_ONCE_MAX = 64 };

static unsigned n_errands; /* of this process */

struct errand {
        struct errand_order order;
        char key[SHARE_NAME_MAX + 1]; /* whose share it takes; order.key is somebody else's text */
        pid_t pid;
        int fd;
        struct loop_watch *watch;
        struct loop_timer *timer;
        char *bytes;
        size_t size;
};

/* Keeps nothing of the daemon's but what it was given: a client's socket held here would look open. */
_Noreturn static void run(const struct errand_order *order, int out_fd, pid_t parent) {
        int fds[ERRAND_FDS_MAX], moved[ERRAND_FDS_MAX];
        sigset_t none;
        sigemptyset(&none);
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) signal(SIGPIPE, SIG_DFL);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        (void) prctl(PR_SET_NAME, "glovebox-errand");
        if (getppid() != parent || dup2(out_fd, STDOUT_FILENO) < 0)
                _exit(EXIT_FAILURE);
        for (size_t i = 0; i < order->n_fds; i++)
                if ((moved[i] = fcntl(order->fds[i], F_DUPFD_CLOEXEC, FIRST_FD + ERRAND_FDS_MAX)) < 0)
                        _exit(EXIT_FAILURE);
        for (size_t i = 0; i < order->n_fds; i++)
                if ((fds[i] = dup3(moved[i], FIRST_FD + (int) i, O_CLOEXEC)) < 0)
                        _exit(EXIT_FAILURE);
        if (syscall(SYS_close_range, FIRST_FD + order->n_fds, ~0u, 0) < 0)
                _exit(EXIT_FAILURE);
        _exit(order->work(fds, STDOUT_FILENO, order->context) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}

static void errand_free(struct errand *errand) {
        if (errand->order.shares)
                share_give(errand->order.shares, errand->order.share,
                           &(const struct share_claim) { .key = errand->key, .amount = 1 });
        loop_unwatch(&errand->watch);
        loop_timer_drop(&errand->timer);
        fd_close(&errand->fd);
        free(errand->bytes);
        free(errand);
        n_errands--;
}

/* It has closed its end, or said too much. */
static void finish(struct errand *errand, bool good) {
        int status = 0;
        pid_t waited;
        if (!good)
                (void) kill(errand->pid, SIGKILL);
        while ((waited = waitpid(errand->pid, &status, 0)) < 0 && errno == EINTR)
                ;
        good = good && waited == errand->pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        void (*done)(void *, const char *, size_t) = errand->order.done;
        void *context = errand->order.context;
        char *bytes = errand->bytes;
        size_t size = errand->size;
        errand->bytes = NULL;
        errand_free(errand);
        done(context, good ? (bytes ? bytes : "") : NULL, good ? size : 0);
        free(bytes);
}

static void on_timeout(void *context) {
        struct errand *errand = context;
        errand->timer = NULL;
        (void) kill(errand->pid, SIGKILL); /* its end of the pipe closes, which is seen as any other end */
}

static void on_words(void *context, uint32_t events) {
        struct errand *errand = context;
        (void) events;
        char *grown = errand->size + PIECE > ERRAND_ANSWER_MAX ? NULL : realloc(errand->bytes, errand->size + PIECE);
        if (!grown) {
                finish(errand, false);
                return;
        }
        errand->bytes = grown;
        ssize_t n = read(errand->fd, errand->bytes + errand->size, PIECE);
        if (n > 0)
                errand->size += (size_t) n;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
                finish(errand, n == 0);
}

static struct errand *refuse(struct err *err) {
        (void) err_set(err, ERR_BUSY, "the daemon has too much to wait for at once; try again in a moment");
        return NULL;
}

/* Without one, there is none to be given back. */
static int take_share(struct errand *errand, struct err *err) {
        const struct errand_order *order = &errand->order;
        if (!order->shares)
                return 0;
        (void) snprintf(errand->key, sizeof(errand->key), "%s", order->key);
        int code = share_take(order->shares, order->share,
                              &(const struct share_claim) { .key = errand->key, .amount = 1 }, err);
        if (code < 0)
                errand->order.shares = NULL;
        return code;
}

struct errand *errand_start(struct loop *loop, const struct errand_order *order, struct err *err) {
        int ends[2];
        struct errand *errand = n_errands < AT_ONCE_MAX ? calloc(1, sizeof(*errand)) : NULL;
        pid_t parent = getpid();
        if (!errand || pipe2(ends, O_CLOEXEC) < 0) {
                free(errand);
                return refuse(err);
        }
        n_errands++;
        *errand = (struct errand) { .order = *order, .fd = ends[0], .pid = -1 };
        if (take_share(errand, err) < 0) {
                fd_close(&ends[1]);
                errand_free(errand);
                return NULL;
        }
        if (order->timeout_ms)
                errand->timer = loop_timer(loop, loop_now_ms() + order->timeout_ms, on_timeout, errand);
        if (fd_set_nonblocking(errand->fd) == 0 && (errand->timer || !order->timeout_ms) &&
            (errand->watch = loop_watch(loop, errand->fd, EPOLLIN, on_words, errand)))
                errand->pid = fork();
        if (errand->pid == 0)
                run(order, ends[1], parent);
        fd_close(&ends[1]);
        if (errand->pid > 0)
                return errand;
        errand_free(errand);
        return refuse(err);
}

void errand_drop(struct errand **errand) {
        if (!*errand)
                return;
        (void) kill((*errand)->pid, SIGKILL);
        (void) waitpid((*errand)->pid, NULL, 0);
        errand_free(*errand);
        *errand = NULL;
}
