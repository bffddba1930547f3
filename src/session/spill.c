#include "session/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "journal/journal.h"
#include "session/caller.h"
#include "session/manager.h"

enum { CHUNK = 256 << 10 };

enum record_kind { RECORD_OUT, RECORD_ERR, RECORD_ANSWER };

/* Before the bytes of each. Written and read by one process: no byte order to agree upon. */
struct record {
        enum record_kind kind;
        bool is_last;
        uint64_t number;
        size_t size;
};

struct spill {
        struct session_manager *manager;
        char owner[SHARE_NAME_MAX + 1], box[SHARE_NAME_MAX + 1]; /* who is charged */
        int fd;
        uint64_t size;
        uint64_t at; /* what comes next */
};

static struct spill *spill_make(struct session_manager *manager, const char *owner, const char *box) {
        struct spill *spill = calloc(1, sizeof(*spill));
        char dir[4200];
        (void) snprintf(dir, sizeof(dir), "%s/state", manager->data_dir);
        if (spill) {
                spill->manager = manager;
                (void) snprintf(spill->owner, sizeof(spill->owner), "%s", owner);
                (void) snprintf(spill->box, sizeof(spill->box), "%s", box);
        }
        if (!spill || (spill->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) < 0) {
                free(spill);
                return NULL;
        }
        return spill;
}

static struct share_claim claim_of(const struct spill *spill, uint64_t size) {
        return (struct share_claim) { .key = spill->owner, .box = spill->box, .amount = size };
}

void spill_free(struct spill *spill) {
        if (!spill)
                return;
        const struct share_claim all = claim_of(spill, spill->size);
        share_give(&spill->manager->shares, SHARE_SPILL, &all);
        fd_close(&spill->fd);
        free(spill);
}

static int spill_put(struct spill *spill, const struct record *record, const char *bytes) {
        const struct share_claim claim = claim_of(spill, record->size);
        if (share_take(&spill->manager->shares, SHARE_SPILL, &claim, NULL) < 0)
                return -ENOSPC; /* only this reader's stream is aborted */
        spill->size += record->size;
        int code = fd_write_all(spill->fd, record, sizeof(*record));
        return code < 0 ? code : fd_write_all(spill->fd, bytes, record->size);
}

/* The events from the cursor on. */
static int put_events(struct spill *spill, struct journal *journal, const char *run_id, uint64_t cursor) {
        _cleanup_free_ char *chunk = malloc(CHUNK);
        struct journal_event event;
        struct err err;
        int code = chunk ? 0 : -ENOMEM;
        for (uint64_t number = cursor; code == 0; number++) {
                if (journal_event(journal, run_id, number, &event, &err) < 0)
                        return err.code == ERR_NOT_FOUND ? 0 : -EBADMSG;
                if (event.kind == JOURNAL_EVENT_RESULT)
                        break;
                size_t size = 0;
                for (size_t at = 0; code == 0 && at < event.size; at += size) {
                        if (journal_read(journal, &event, at, chunk, CHUNK, &size, NULL) < 0)
                                return -EIO;
                        if (size == 0)
                                break;
                        const struct record record = { event.kind == JOURNAL_EVENT_ERR ? RECORD_ERR : RECORD_OUT,
                                                       at + size == event.size, number, size };
                        code = spill_put(spill, &record, chunk);
                }
        }
        return code;
}

int spill_run(struct caller *caller, struct journal *journal, const char *run_id, const char *text, size_t size,
              const char *box, struct err *err) {
        if (caller->manager->disk.is_short)
                return err_set(err, ERR_NO_SPACE,
                               "the host keeps the rest of its disk in reserve; read faster, or read "
                               "the run again later");
        struct spill *spill = spill_make(caller->manager, caller->owner, box);
        int code = spill ? put_events(spill, journal, run_id, caller->cursor) : -ENOSPC;
        if (code == 0)
                code = spill_put(spill, &(const struct record) { .kind = RECORD_ANSWER, .size = size }, text);
        if (code < 0) {
                spill_free(spill);
                if (code == -EBADMSG)
                        return err_set(err, ERR_DAMAGED,
                                       "the output of run %s is damaged on the disk: its checksum is "
                                       "not the one that was written",
                                       run_id);
                return err_sys(err, -code, "putting the output of run %s aside", run_id);
        }
        caller->spill = spill;
        spill_feed(caller);
        return 0;
}

static int read_at(const struct spill *spill, uint64_t at, void *bytes, size_t size) {
        for (size_t done = 0; done < size;) {
                ssize_t n = pread(spill->fd, (char *) bytes + done, size - done, (off_t) (at + done));
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                done += (size_t) n;
        }
        return 0;
}

void spill_feed(struct caller *caller) {
        struct spill *spill = caller->spill;
        while (caller->type->wants_more(caller)) {
                struct record record;
                _cleanup_free_ char *bytes = NULL;
                int code = read_at(spill, spill->at, &record, sizeof(record));
                if (code == 0 && !(bytes = malloc(record.size + 1)))
                        code = -ENOMEM;
                if (code == 0)
                        code = read_at(spill, spill->at + sizeof(record), bytes, record.size);
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
