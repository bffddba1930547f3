#include "base/helper_job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/priority.h"
#include "base/process_title.h"

enum {
        FIRST_FD = 3,
        PIECE = 64 << 10,
        MAX = 64,           /* jobs, waiting ones included */
        LARGE_AT_ONCE = 4,  /* with an answer of more than a piece; the answers of others wait in their pipes */
        QUEUED_AT_ONCE = 4, /* of those that have a queue, and one of each: they compete for the disk */
};

struct helper_job {
        struct helper_job *next; /* of all */
        struct loop *loop;
        struct helper_job_order order; /* its descriptors are duplicates while it waits */
        char key[SHARE_NAME_MAX + 1]; /* the key whose share it takes; order.key is borrowed */
        char queue[HELPER_JOB_QUEUE_ROOM]; /* "": it has none */
        uint64_t turn; /* of a queued one */
        enum { JOB_WAITS, JOB_RUNS, JOB_DROPPED } state;
        pid_t pid;
        int pid_fd; /* readable when it has ended */
        int fd; /* the pipe of its answer */
        struct loop_watch *watch, *end_watch;
        struct loop_timer *timer;
        char *bytes;
        size_t size;
        bool is_large, is_held; /* its answer is more than a piece; it waits before that */
};

static struct helper_job *jobs; /* of this process, newest first */
static unsigned n_jobs, n_queued_running, n_large;
static uint64_t last_turn; /* of the queued job that was begun last */

/* Closes all descriptors of the daemon but its own: a client's socket held here would stay open. */
_Noreturn static void helper_job_run(const struct helper_job_order *order, int out_fd, pid_t parent) {
        int fds[HELPER_JOB_FDS_MAX], moved[HELPER_JOB_FDS_MAX];
        sigset_t none;
        sigemptyset(&none);
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) signal(SIGPIPE, SIG_DFL);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        process_title_set("job", "");
        priority_stand_back();
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
        for (struct helper_job **at = &jobs; *at; at = &(*at)->next)
                if (*at == job) {
                        *at = job->next;
                        n_jobs--;
                        break;
                }
        if (job->order.shares)
                share_give(job->order.shares, job->order.share,
                           &(const struct share_claim) { .key = job->key, .amount = 1 });
        if (job->state == JOB_WAITS)
                for (size_t i = 0; i < job->order.n_fds; i++)
                        fd_close(&job->order.fds[i]);
        loop_unwatch(&job->watch);
        loop_unwatch(&job->end_watch);
        loop_timer_drop(&job->timer);
        fd_close(&job->pid_fd);
        fd_close(&job->fd);
        free(job->bytes);
        free(job);
}

static void begin_waiting(void);

/* The one that waits longest. */
static void hear_next(void) {
        struct helper_job *next = NULL;
        for (struct helper_job *job = jobs; job; job = job->next)
                if (job->is_held && job->watch)
                        next = job;
        if (!next)
                return;
        next->is_held = false;
        (void) loop_watch_change(next->watch, EPOLLIN);
}

/* It has ended, and is no longer a process. */
static void helper_job_finish(struct helper_job *job, bool good) {
        void (*done)(void *, const char *, size_t) = job->state == JOB_DROPPED ? NULL : job->order.done;
        void *context = job->order.context;
        char *bytes = job->bytes;
        size_t size = job->size;
        bool was_large = job->is_large;
        if (*job->queue)
                n_queued_running--;
        job->bytes = NULL;
        helper_job_free(job);
        if (done)
                done(context, good ? (bytes ? bytes : "") : NULL, good ? size : 0);
        free(bytes);
        if (was_large) {
                n_large--;
                hear_next();
        }
        begin_waiting();
}

/* False: it is still a process. It may stay one for long, if it hangs in the disk; this does not wait. */
static bool helper_job_reap(struct helper_job *job) {
        int status = 0;
        pid_t waited;
        while ((waited = waitpid(job->pid, &status, WNOHANG)) < 0 && errno == EINTR)
                ;
        if (waited == 0)
                return false;
        helper_job_finish(job, waited == job->pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        return true;
}

static void on_end(void *context, uint32_t events) {
        (void) events;
        (void) helper_job_reap(context);
}

/* Its answer is complete, or not wanted any more: only its end is awaited. */
static void await_end(struct helper_job *job) {
        loop_unwatch(&job->watch);
        fd_close(&job->fd);
        if (!helper_job_reap(job) && !job->end_watch)
                job->end_watch = loop_watch(job->loop, job->pid_fd, EPOLLIN, on_end, job);
}

static void on_timeout(void *context) {
        struct helper_job *job = context;
        job->timer = NULL;
        (void) kill(job->pid, SIGKILL); /* its end of the pipe closes, which is seen as any other end */
}

/* True if more than a piece of its answer may be read now. A child that has ended has at most the contents of its pipe.
 * */
static bool may_send_more(struct helper_job *job, uint32_t events) {
        if (job->size < PIECE || job->is_large || events & EPOLLHUP)
                return true;
        if (n_large >= LARGE_AT_ONCE) {
                job->is_held = true;
                (void) loop_watch_change(job->watch, 0);
                return false;
        }
        job->is_large = true;
        n_large++;
        return true;
}

static void on_answer_bytes(void *context, uint32_t events) {
        struct helper_job *job = context;
        if (!may_send_more(job, events))
                return;
        char *grown = job->size + PIECE > HELPER_JOB_ANSWER_MAX ? NULL : realloc(job->bytes, job->size + PIECE);
        ssize_t n = -1;
        if (grown) {
                job->bytes = grown;
                n = read(job->fd, job->bytes + job->size, PIECE);
                if (n > 0)
                        job->size += (size_t) n;
                if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
                        return;
        }
        if (n < 0) /* the answer is too large */
                (void) kill(job->pid, SIGKILL);
        await_end(job);
}

static int helper_job_begin(struct helper_job *job) {
        int ends[2];
        const struct helper_job_order *order = &job->order;
        pid_t parent = getpid();
        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        job->fd = ends[0];
        if (order->timeout_ms)
                job->timer = loop_timer(job->loop, loop_now_ms() + order->timeout_ms, on_timeout, job);
        if (fd_set_nonblocking(job->fd) == 0 && (job->timer || !order->timeout_ms) &&
            (job->watch = loop_watch(job->loop, job->fd, EPOLLIN, on_answer_bytes, job)))
                job->pid = fork();
        if (job->pid == 0)
                helper_job_run(order, ends[1], parent);
        fd_close(&ends[1]);
        if (job->pid < 0)
                return -EAGAIN;
        job->pid_fd = (int) syscall(SYS_pidfd_open, job->pid, 0);
        if (job->pid_fd < 0) { /* no descriptors: its end could not be noticed */
                (void) kill(job->pid, SIGKILL);
                (void) waitpid(job->pid, NULL, 0);
                return -EAGAIN;
        }
        if (job->state == JOB_WAITS)
                for (size_t i = 0; i < job->order.n_fds; i++)
                        fd_close(&job->order.fds[i]);
        job->state = JOB_RUNS;
        if (*job->queue) {
                n_queued_running++;
                last_turn = job->turn;
        }
        return 0;
}

/* ---- waiting for a turn ---- */

static bool may_begin(const char *queue) {
        for (const struct helper_job *job = jobs; job; job = job->next)
                if (job->state != JOB_WAITS && strcmp(job->queue, queue) == 0)
                        return false;
        return n_queued_running < QUEUED_AT_ONCE;
}

static struct helper_job *find_next(void) {
        struct helper_job *next = NULL;
        for (struct helper_job *job = jobs; job; job = job->next) /* the oldest is last */
                if (job->state == JOB_WAITS && (!next || job->turn <= next->turn) && may_begin(job->queue))
                        next = job;
        return next;
}

static void begin_waiting(void) {
        struct helper_job *job;
        while ((job = find_next())) {
                if (helper_job_begin(job) == 0)
                        continue;
                void (*done)(void *, const char *, size_t) = job->order.done;
                void *context = job->order.context;
                helper_job_free(job);
                done(context, NULL, 0);
        }
}

/* One turn behind the last job of the same queue; a queue that has none waiting is in the next turn. */
static uint64_t turn_of(const char *queue) {
        uint64_t turn = last_turn + 1;
        for (const struct helper_job *job = jobs; job; job = job->next)
                if (job->state == JOB_WAITS && job->turn >= turn && strcmp(job->queue, queue) == 0)
                        turn = job->turn + 1;
        return turn;
}

/* Descriptors are the job's own from here on: their owner may close them before its turn. */
static int keep_descriptors(struct helper_job *job) {
        int kept[HELPER_JOB_FDS_MAX];
        for (size_t i = 0; i < job->order.n_fds; i++) {
                kept[i] = fcntl(job->order.fds[i], F_DUPFD_CLOEXEC, FIRST_FD);
                if (kept[i] < 0) {
                        while (i > 0)
                                fd_close(&kept[--i]);
                        job->order.n_fds = 0;
                        return -errno;
                }
        }
        memcpy(job->order.fds, kept, sizeof(kept));
        return 0;
}

/* ---- for others ---- */

void helper_job_name_queue(int fd, char ret_queue[static HELPER_JOB_QUEUE_ROOM]) {
        struct stat status = { 0 };
        (void) fstat(fd, &status);
        (void) snprintf(ret_queue, HELPER_JOB_QUEUE_ROOM, "%llx-%llx", (unsigned long long) status.st_dev,
                        (unsigned long long) status.st_ino);
}

/* Without one, there is none to be given back. */
static int take_share(struct helper_job *job, struct err *err) {
        const struct helper_job_order *order = &job->order;
        if (!order->shares)
                return 0;
        (void) snprintf(job->key, sizeof(job->key), "%s", order->key);
        int code = share_take(order->shares, order->share, &(const struct share_claim) { .key = job->key, .amount = 1 },
                              err);
        if (code < 0)
                job->order.shares = NULL;
        return code;
}

static struct helper_job *refuse_job(struct err *err) {
        (void) err_set(err, ERR_BUSY, "the daemon has too much to wait for at once; try again in a moment");
        return NULL;
}

struct helper_job *helper_job_start(struct loop *loop, const struct helper_job_order *order, struct err *err) {
        struct helper_job *job = n_jobs < MAX ? calloc(1, sizeof(*job)) : NULL;
        if (!job)
                return refuse_job(err);
        *job = (struct helper_job) {
                .loop = loop, .order = *order, .fd = -1, .pid_fd = -1, .pid = -1, .state = JOB_RUNS
        };
        if (take_share(job, err) < 0) {
                free(job);
                return NULL;
        }
        (void) snprintf(job->queue, sizeof(job->queue), "%s", order->queue ? order->queue : "");
        job->turn = turn_of(job->queue);
        int code = 0;
        if (*job->queue && !may_begin(job->queue)) {
                code = keep_descriptors(job);
                job->state = JOB_WAITS;
        } else
                code = helper_job_begin(job);
        job->next = jobs;
        jobs = job;
        n_jobs++;
        if (code == 0)
                return job;
        helper_job_free(job);
        return refuse_job(err);
}

void helper_job_drop(struct helper_job **job) {
        struct helper_job *dropped = *job;
        *job = NULL;
        if (!dropped)
                return;
        if (dropped->state == JOB_WAITS) {
                helper_job_free(dropped);
                return;
        }
        dropped->state = JOB_DROPPED;
        (void) kill(dropped->pid, SIGKILL);
        loop_timer_drop(&dropped->timer);
        await_end(dropped);
}
