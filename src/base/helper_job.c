#include "base/helper_job.h"

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
#include "base/process_title.h"

enum { FIRST_FD = 3, PIECE = 64 << 10, AT_ONCE_MAX = 64 };

static unsigned n_jobs; /* of this process */

struct helper_job {
        struct helper_job_order order;
        char key[SHARE_NAME_MAX + 1]; /* the key whose share it takes; order.key is borrowed */
        pid_t pid;
        int fd;
        struct loop_watch *watch;
        struct loop_timer *timer;
        char *bytes;
        size_t size;
};

/* Keeps nothing of the daemon's but what it was given: a client's socket held here would look open. */
_Noreturn static void helper_job_run(const struct helper_job_order *order, int out_fd, pid_t parent) {
        int fds[HELPER_JOB_FDS_MAX], moved[HELPER_JOB_FDS_MAX];
        sigset_t none;
        sigemptyset(&none);
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) signal(SIGPIPE, SIG_DFL);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        process_title_set("job", "");
        if (getppid() != parent || dup2(out_fd, STDOUT_FILENO) < 0)
                _exit(EXIT_FAILURE);
        for (size_t i = 0; i < order->n_fds; i++)
                if ((moved[i] = fcntl(order->fds[i], F_DUPFD_CLOEXEC, FIRST_FD + HELPER_JOB_FDS_MAX)) < 0)
                        _exit(EXIT_FAILURE);
        for (size_t i = 0; i < order->n_fds; i++)
                if ((fds[i] = dup3(moved[i], FIRST_FD + (int) i, O_CLOEXEC)) < 0)
                        _exit(EXIT_FAILURE);
        if (syscall(SYS_close_range, FIRST_FD + order->n_fds, ~0u, 0) < 0)
                _exit(EXIT_FAILURE);
        _exit(order->work(fds, STDOUT_FILENO, order->context) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}

static void helper_job_free(struct helper_job *job) {
        if (job->order.shares)
                share_give(job->order.shares, job->order.share,
                           &(const struct share_claim) { .key = job->key, .amount = 1 });
        loop_unwatch(&job->watch);
        loop_timer_drop(&job->timer);
        fd_close(&job->fd);
        free(job->bytes);
        free(job);
        n_jobs--;
}

/* It has closed its end, or said too much. */
static void helper_job_finish(struct helper_job *job, bool good) {
        int status = 0;
        pid_t waited;
        if (!good)
                (void) kill(job->pid, SIGKILL);
        while ((waited = waitpid(job->pid, &status, 0)) < 0 && errno == EINTR)
                ;
        good = good && waited == job->pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        void (*done)(void *, const char *, size_t) = job->order.done;
        void *context = job->order.context;
        char *bytes = job->bytes;
        size_t size = job->size;
        job->bytes = NULL;
        helper_job_free(job);
        done(context, good ? (bytes ? bytes : "") : NULL, good ? size : 0);
        free(bytes);
}

static void on_timeout(void *context) {
        struct helper_job *job = context;
        job->timer = NULL;
        (void) kill(job->pid, SIGKILL); /* its end of the pipe closes, which is seen as any other end */
}

static void on_words(void *context, uint32_t events) {
        struct helper_job *job = context;
        (void) events;
        char *grown = job->size + PIECE > HELPER_JOB_ANSWER_MAX ? NULL : realloc(job->bytes, job->size + PIECE);
        if (!grown) {
                helper_job_finish(job, false);
                return;
        }
        job->bytes = grown;
        ssize_t n = read(job->fd, job->bytes + job->size, PIECE);
        if (n > 0)
                job->size += (size_t) n;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
                helper_job_finish(job, n == 0);
}

static struct helper_job *helper_job_refuse(struct err *err) {
        (void) err_set(err, ERR_BUSY, "the daemon has too much to wait for at once; try again in a moment");
        return NULL;
}

/* Without one, there is none to be given back. */
static int take_share(struct helper_job *job, struct err *err) {
        const struct helper_job_order *order = &job->order;
        if (!order->shares)
                return 0;
        (void) snprintf(job->key, sizeof(job->key), "%s", order->key);
        int code = share_take(order->shares, order->share,
                              &(const struct share_claim) { .key = job->key, .amount = 1 }, err);
        if (code < 0)
                job->order.shares = NULL;
        return code;
}

struct helper_job *helper_job_start(struct loop *loop, const struct helper_job_order *order, struct err *err) {
        int ends[2];
        struct helper_job *job = n_jobs < AT_ONCE_MAX ? calloc(1, sizeof(*job)) : NULL;
        pid_t parent = getpid();
        if (!job || pipe2(ends, O_CLOEXEC) < 0) {
                free(job);
                return helper_job_refuse(err);
        }
        n_jobs++;
        *job = (struct helper_job) { .order = *order, .fd = ends[0], .pid = -1 };
        if (take_share(job, err) < 0) {
                fd_close(&ends[1]);
                helper_job_free(job);
                return NULL;
        }
        if (order->timeout_ms)
                job->timer = loop_timer(loop, loop_now_ms() + order->timeout_ms, on_timeout, job);
        if (fd_set_nonblocking(job->fd) == 0 && (job->timer || !order->timeout_ms) &&
            (job->watch = loop_watch(loop, job->fd, EPOLLIN, on_words, job)))
                job->pid = fork();
        if (job->pid == 0)
                helper_job_run(order, ends[1], parent);
        fd_close(&ends[1]);
        if (job->pid > 0)
                return job;
        helper_job_free(job);
        return helper_job_refuse(err);
}

void helper_job_drop(struct helper_job **job) {
        if (!*job)
                return;
        (void) kill((*job)->pid, SIGKILL);
        (void) waitpid((*job)->pid, NULL, 0);
        helper_job_free(*job);
        *job = NULL;
}
