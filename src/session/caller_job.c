#include "session/caller_job.h"

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/helper_job.h"
#include "session/caller.h"
#include "session/manager.h"

enum { PATIENCE_MS = 60000 };

struct caller_job {
        struct caller *caller; /* NULL: it has left */
        caller_work *work;
        const void *context; /* for the child alone */
};

static void caller_job_free(struct caller_job *job) {
        if (job->caller)
                job->caller->held_by = NULL;
        free(job);
}

/* The child writes 'a' and the answer, or 'e' and the error. */
static int do_work(const int *fds, int out_fd, void *context) {
        const struct caller_job *job = context;
        struct json_writer answer = { 0 };
        struct err err = { 0 };
        json_writer_put_literal(&answer, "a");
        int code = job->work(fds[0], job->context, &answer, &err);
        if (code < 0)
                return fd_write_all(out_fd, "e", 1) < 0 || fd_write_all(out_fd, &err, sizeof(err)) < 0 ? -1 : 0;
        return answer.failed ? -1 : fd_write_all(out_fd, answer.bytes, answer.size);
}

static void caller_job_on_done(void *context, const char *bytes, size_t size) {
        struct caller_job *job = context;
        struct caller *caller = job->caller;
        struct err err;
        caller_job_free(job);
        if (!caller)
                return;
        if (size > 1 && bytes[0] == 'a') {
                caller_answer_text(caller, bytes + 1, size - 1, NULL);
                return;
        }
        if (size == 1 + sizeof(err) && bytes[0] == 'e')
                memcpy(&err, bytes + 1, sizeof(err));
        else
                (void) err_set(&err, ERR_TIMEOUT, "it took longer than %d s: try again, or with less at a time",
                               PATIENCE_MS / 1000);
        caller_refuse(caller, &err);
}

int caller_job_start(struct caller *caller, int fd, caller_work *work, const void *context, struct err *err) {
        struct caller_job *job = malloc(sizeof(*job));
        if (!job)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        *job = (struct caller_job) { caller, work, context };
        caller->held_by = &job->caller;
        const struct helper_job_order order = { .fds = { fd },
                                                .n_fds = 1,
                                                .timeout_ms = PATIENCE_MS,
                                                .work = do_work,
                                                .done = caller_job_on_done,
                                                .context = job,
                                                manager_job_of(caller->manager, caller->owner) };
        if (helper_job_start(caller->manager->loop, &order, err))
                return 0;
        caller_job_free(job);
        return -1;
}
