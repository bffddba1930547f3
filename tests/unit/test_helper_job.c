/* Jobs: one key has its share of them, and another finds some left. */
#include <string.h>
#include <unistd.h>

#include "base/helper_job.h"
#include "tap.h"

enum { ALL = 64 };

static struct loop *loop;

static int wait_for_ever(const int *fds, int out_fd, void *context) {
        (void) fds;
        (void) out_fd;
        (void) context;
        return pause();
}

static void on_done(void *context, const char *bytes, size_t size) {
        (void) context;
        (void) bytes;
        (void) size;
}

/* Until the processes that were dropped are gone. */
static void stop_when_gone(void *context) {
        const struct share_table *shares = context;
        if (share_used(shares, 0, NULL) == 0 || !loop_timer(loop, loop_now_ms() + 5, stop_when_gone, context))
                loop_stop(loop);
}

/* ---- queues ---- */

static unsigned n_began, n_done;
static char order_of_end[32];

static int say_hello(const int *fds, int out_fd, void *context) {
        (void) context;
        char byte;
        if (fds[0] >= 0 && read(fds[0], &byte, 1) != 1)
                return -1;
        return write(out_fd, "hello", 5) == 5 ? 0 : -1;
}

static void on_hello(void *context, const char *bytes, size_t size) {
        if (n_done < sizeof(order_of_end) && bytes && size == 5)
                order_of_end[n_done] = *(const char *) context;
        if (++n_done == n_began || *(const char *) context == 'm')
                loop_stop(loop);
}

/* A greedy queue has many waiting when another one comes: that does not wait for them, though none of them ends.
 * Descriptors may be closed while a job waits. */
static void test_queues(void) {
        int for_greedy[2], for_modest[2];
        char greedy[] = "g", modest[] = "m";
        struct err err = { 0 };
        ok(pipe(for_greedy) == 0 && pipe(for_modest) == 0, "pipes");
        struct helper_job_order job = { .fds = { for_greedy[0] },
                                        .n_fds = 1,
                                        .work = say_hello,
                                        .done = on_hello,
                                        .queue = "greedy",
                                        .context = greedy };
        for (unsigned i = 0; i < 10; i++)
                n_began += helper_job_start(loop, &job, &err) != NULL;
        struct helper_job *dropped = helper_job_start(loop, &job, &err);
        job.fds[0] = for_modest[0];
        job.queue = "modest";
        job.context = modest;
        n_began += helper_job_start(loop, &job, &err) != NULL;
        (void) close(for_greedy[0]);
        (void) close(for_modest[0]);
        helper_job_drop(&dropped);
        ok(n_began == 11 && !dropped, "they are taken: %u", n_began);
        ok(write(for_modest[1], "x", 1) == 1 && loop_run(loop, &err) == 0 && n_done == 1 && *order_of_end == 'm',
           "the modest one does not wait for the greedy ones: %s", order_of_end);
        ok(write(for_greedy[1], "xxxxxxxxxxxx", 12) == 12 && loop_run(loop, &err) == 0 && n_done == 11,
           "all are done: %u", n_done);
        (void) close(for_greedy[1]);
        (void) close(for_modest[1]);
}

int main(void) {
        static const struct share_row rows[] = { { .what = "jobs", .remedy = "wait", .total = ALL } };
        struct share_table shares;
        struct helper_job *greedy[ALL + 1] = { NULL }, *other;
        struct err err = { 0 };
        size_t n = 0;
        share_table_open(&shares, rows, 1, 0);
        shares.n_keys = 2;
        ok(loop_make(&loop, &err) == 0, "a loop");
        struct helper_job_order order = { .work = wait_for_ever, .done = on_done, .shares = &shares, .key = "greedy" };
        while (n < ALL && (greedy[n] = helper_job_start(loop, &order, &err)))
                n++;
        ok(n == ALL / 2 && err.code == ERR_LIMIT, "one key has half of them: %zu, %s", n, err.message);
        order.key = "other";
        other = helper_job_start(loop, &order, &err);
        ok(other, "another one finds some left");
        helper_job_drop(&other);
        while (n > 0)
                helper_job_drop(&greedy[--n]);
        stop_when_gone(&shares);
        ok(loop_run(loop, &err) == 0 && share_used(&shares, 0, NULL) == 0, "what has ended counts no more");
        test_queues();
        share_table_release(&shares);
        loop_free(loop);
        return done_testing();
}
