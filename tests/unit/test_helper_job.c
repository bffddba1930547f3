/* Jobs: one key has its share of them, and another finds some left. */
#include <signal.h>
#include <unistd.h>

#include "base/helper_job.h"
#include "tap.h"

enum { ALL = 64 };

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

int main(void) {
        static const struct share_row rows[] = { { .what = "jobs", .remedy = "wait", .total = ALL } };
        struct share_table shares;
        struct loop *loop;
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
        ok(share_used(&shares, 0, NULL) == 0, "what has ended counts no more");
        share_table_release(&shares);
        loop_free(loop);
        return done_testing();
}
