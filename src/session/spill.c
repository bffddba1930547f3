#include "session/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/helper_job.h"
#include "base/memory.h"
#include "journal/journal.h"
#include "session/caller.h"
#include "session/manager.h"

enum {
        CHUNK = 256 << 10,
        AT_ONCE = 256 << 10, /* bytes that the daemon copies itself; a child copies more */
        PATIENCE_MS = 60000,
};

enum record_kind { RECORD_OUT, RECORD_ERR, RECORD_ANSWER };

/* Before the bytes of each. Written and read by one process: no byte order to agree upon. */
struct record {
        enum record_kind kind;
        bool is_last;
        uint64_t number;
        size_t size;
};

struct spill {
        struct caller *caller;
        char owner[SHARE_NAME_MAX + 1], box[SHARE_NAME_MAX + 1]; /* who is charged */
        int fd;
        uint64_t size; /* that is charged */
        uint64_t at;   /* what comes next */
        struct helper_job *job; /* fills it */
        const struct spill_source *source; /* for the child, which has a copy */
};

/* Written into a spill by the child: the output of a run from event `cursor`, then a text. */
struct spill_source {
        int fd; /* of the spill */
        struct journal *journal;
        const char *run_id;
        uint64_t cursor;
        const char *text;
        size_t size;
};

static struct share_claim spill_claim(const struct spill *spill, uint64_t size) {
        return (struct share_claim) { .key = spill->owner, .box = spill->box, .amount = size };
}

static struct share_table *shares_of(const struct spill *spill) {
        return &spill->caller->manager->shares;
}

/* For `size` bytes. NULL if there is no room for them: only this reader's stream is aborted. */
static struct spill *spill_make(struct caller *caller, const char *box, uint64_t size) {
        struct spill *spill = calloc(1, sizeof(*spill));
        char dir[4200];
        if (!spill)
                return NULL;
        *spill = (struct spill) { .caller = caller, .size = size };
        (void) snprintf(spill->owner, sizeof(spill->owner), "%s", caller->owner);
        (void) snprintf(spill->box, sizeof(spill->box), "%s", box);
        (void) snprintf(dir, sizeof(dir), "%s/state", caller->manager->data_dir);
        const struct share_claim claim = spill_claim(spill, size);
        bool is_charged = share_take(shares_of(spill), SHARE_SPILL, &claim, NULL) == 0;
        spill->fd = is_charged ? open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
        if (spill->fd >= 0)
                return spill;
        if (is_charged)
                share_give(shares_of(spill), SHARE_SPILL, &claim);
        free(spill);
        return NULL;
}

void spill_free(struct spill *spill) {
        if (!spill)
                return;
        const struct share_claim all = spill_claim(spill, spill->size);
        helper_job_drop(&spill->job);
        share_give(shares_of(spill), SHARE_SPILL, &all);
        fd_close(&spill->fd);
        free(spill);
}

/* How much of the run its reader had read was unknown before it was filled. */
static void give_rest_back(struct spill *spill) {
        struct stat status;
        if (fstat(spill->fd, &status) < 0 || (uint64_t) status.st_size >= spill->size)
                return;
        const struct share_claim rest = spill_claim(spill, spill->size - (uint64_t) status.st_size);
        share_give(shares_of(spill), SHARE_SPILL, &rest);
        spill->size = (uint64_t) status.st_size;
}

/* ---- filling it ---- */

static int put_record(int fd, const struct record *record, const char *bytes) {
        int code = fd_write_all(fd, record, sizeof(*record));
        return code < 0 ? code : fd_write_all(fd, bytes, record->size);
}

/* The events from the cursor on. */
static int put_events(const struct spill_source *source) {
        _cleanup_free_ char *chunk = malloc(CHUNK);
        struct journal_event event;
        struct err err;
        int code = chunk ? 0 : -ENOMEM;
        for (uint64_t number = source->cursor; code == 0; number++) {
                if (journal_event(source->journal, source->run_id, number, &event, &err) < 0)
                        return err.code == ERR_NOT_FOUND ? 0 : -EBADMSG;
                if (event.kind == JOURNAL_EVENT_RESULT)
                        break;
                size_t size = 0;
                for (size_t at = 0; code == 0 && at < event.size; at += size) {
                        if (journal_read(source->journal, &event, at, chunk, CHUNK, &size, NULL) < 0)
                                return -EIO;
                        if (size == 0)
                                break;
                        const struct record record = { event.kind == JOURNAL_EVENT_ERR ? RECORD_ERR : RECORD_OUT,
                                                       at + size == event.size, number, size };
                        code = put_record(source->fd, &record, chunk);
                }
        }
        return code;
}

static int spill_fill(const struct spill_source *source) {
        int code = put_events(source);
        if (code == 0)
                code = put_record(source->fd, &(const struct record) { .kind = RECORD_ANSWER, .size = source->size },
                                  source->text);
        return code;
}

/* Runs in a child, which has a copy of the journal's state. It reports failures by errno. */
static int fill_in_child(const int *fds, int out_fd, void *context) {
        struct spill_source source = *((const struct spill *) context)->source;
        journal_set_files(source.journal, fds);
        source.fd = fds[JOURNAL_FILES];
        int code = spill_fill(&source);
        return fd_write_all(out_fd, &code, sizeof(code));
}

static int describe_failure(int code, struct err *err) {
        if (code == -EBADMSG)
                return err_set(err, ERR_DAMAGED,
                               "the run's output is damaged on the disk: its checksum is not the one that was written");
        return err_sys(err, -code, "putting the run's output aside");
}

static void on_filled(void *context, const char *bytes, size_t size) {
        struct spill *spill = context;
        struct caller *caller = spill->caller;
        struct err err;
        int code = -EIO;
        spill->job = NULL;
        if (size == sizeof(code))
                memcpy(&code, bytes, sizeof(code));
        if (code < 0) {
                (void) describe_failure(code, &err);
                caller_refuse(caller, &err);
                return;
        }
        give_rest_back(spill);
        spill_feed(caller);
}

/* A child does it, because it reads, checks and writes megabytes, for which the event loop must not wait. */
static int begin_filling(struct spill *spill, const struct spill_source *source, struct err *err) {
        struct session_manager *manager = spill->caller->manager;
        struct helper_job_order order = { .n_fds = JOURNAL_FILES + 1,
                                          .timeout_ms = PATIENCE_MS,
                                          .work = fill_in_child,
                                          .done = on_filled,
                                          manager_job_of(manager, spill->owner),
                                          .context = spill };
        journal_get_files(source->journal, order.fds);
        order.fds[JOURNAL_FILES] = spill->fd;
        spill->source = source;
        spill->job = helper_job_start(manager->loop, &order, err);
        spill->source = NULL;
        return spill->job ? 0 : -1;
}

int spill_run(struct caller *caller, struct journal *journal, const char *run_id, const char *text, size_t size,
              const char *box, struct err *err) {
        struct journal_run run;
        if (journal_find(journal, run_id, &run, err) < 0)
                return -1;
        if (caller->manager->disk.is_short)
                return err_set(err, ERR_NO_SPACE,
                               "the host keeps the rest of its disk in reserve; read faster, or read "
                               "the run again later");
        uint64_t most = run.bytes[JOURNAL_OUT] + run.bytes[JOURNAL_ERR] + size;
        struct spill *spill = spill_make(caller, box, most);
        if (!spill)
                return describe_failure(-ENOSPC, err);
        const struct spill_source source = { spill->fd, journal, run_id, caller->cursor, text, size };
        int code = 0;
        if (most > AT_ONCE)
                code = begin_filling(spill, &source, err);
        else if ((code = spill_fill(&source)) < 0)
                (void) describe_failure(code, err);
        if (code < 0) {
                spill_free(spill);
                return -1;
        }
        caller->spill = spill;
        if (!spill->job) {
                give_rest_back(spill);
                spill_feed(caller);
        }
        return 0;
}

/* ---- reading it ---- */

static int spill_read(const struct spill *spill, uint64_t at, void *bytes, size_t size) {
        ssize_t n = fd_read_at(spill->fd, bytes, size, at);
        if (n < 0)
                return (int) n;
        return (size_t) n == size ? 0 : -EIO;
}

void spill_feed(struct caller *caller) {
        struct spill *spill = caller->spill;
        while (!spill->job && caller->type->wants_more(caller)) {
                struct record record;
                _cleanup_free_ char *bytes = NULL;
                int code = spill_read(spill, spill->at, &record, sizeof(record));
                if (code == 0 && !(bytes = malloc(record.size + 1)))
                        code = -ENOMEM;
                if (code == 0)
                        code = spill_read(spill, spill->at + sizeof(record), bytes, record.size);
                if (code < 0) {
                        struct err err;
                        (void) err_sys(&err, -code, "reading the rest of the output");
                        caller_refuse(caller, &err);
                        return;
                }
                spill->at += sizeof(record) + record.size;
                if (record.kind == RECORD_ANSWER) {
                        caller_answer_text(caller, bytes, record.size, NULL);
                        return;
                }
                const struct caller_output output = { record.kind == RECORD_ERR, record.is_last, record.number, bytes,
                                                      record.size };
                caller->type->output(caller, &output);
        }
}
