#include "session/asker_errand.h"

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "session/asker.h"
#include "session/daemon.h"
#include "session/errand.h"

enum { PATIENCE_MS = 60000 };

struct asker_errand {
        struct asker *asker; /* NULL: it has left */
        asker_work *work;
        char *context;
};

static void asker_errand_free(struct asker_errand *errand) {
        if (errand->asker)
                errand->asker->held_by = NULL;
        free(errand->context);
        free(errand);
}

/* What the child says is 'a' and the answer, or 'e' and the error. */
static int do_work(const int *fds, int out_fd, void *context) {
        const struct asker_errand *errand = context;
        struct json_text answer = { 0 };
        struct err err = { 0 };
        json_text_put_literal(&answer, "a");
        int code = errand->work(fds[0], errand->context, &answer, &err);
        if (code < 0)
                return fd_write_all(out_fd, "e", 1) < 0 || fd_write_all(out_fd, &err, sizeof(err)) < 0 ? -1 : 0;
        return answer.failed ? -1 : fd_write_all(out_fd, answer.bytes, answer.size);
}

static void on_done(void *context, const char *bytes, size_t size) {
        struct asker_errand *errand = context;
        struct asker *asker = errand->asker;
        struct err err;
        asker_errand_free(errand);
        if (!asker)
                return;
        if (size > 1 && bytes[0] == 'a') {
                asker_answer_text(asker, bytes + 1, size - 1, NULL);
                return;
        }
        if (size == 1 + sizeof(err) && bytes[0] == 'e')
                memcpy(&err, bytes + 1, sizeof(err));
        else
                (void) err_set(&err, ERR_TIMEOUT, "it was not done after %d s: try again, or with less at a time",
                               PATIENCE_MS / 1000);
        asker_refuse(asker, &err);
}

int asker_errand_start(struct asker *asker, int fd, asker_work *work, const char *context, struct err *err) {
        struct asker_errand *errand = malloc(sizeof(*errand));
        char *copy = strdup(context);
        if (!errand || !copy) {
                free(errand);
                free(copy);
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        *errand = (struct asker_errand) { asker, work, copy };
        asker->held_by = &errand->asker;
        const struct errand_order order = { .fds = { fd }, .n_fds = 1, .timeout_ms = PATIENCE_MS, .work = do_work,
                                            .done = on_done, .context = errand,
                                            daemon_errand_of(asker->daemon, asker->owner) };
        if (errand_start(asker->daemon->loop, &order, err))
                return 0;
        asker_errand_free(errand);
        return -1;
}
