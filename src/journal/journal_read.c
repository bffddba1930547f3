/* Reading a journal: runs, their events, their bytes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fd.h"
#include "base/memory.h"
#include "journal/journal_state.h"

static uint64_t entry_bytes(const struct journal *journal, const struct journal_entry *run, size_t file) {
        return journal_end_of(journal, run, file) - run->start[file];
}

static void journal_read_show(const struct journal *journal, const struct journal_entry *run,
                              struct journal_run *ret_run) {
        *ret_run = run->shown;
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                ret_run->bytes[i] = entry_bytes(journal, run, i);
}

size_t journal_list(const struct journal *journal, struct journal_run *runs, size_t n) {
        if (n > journal->n_runs)
                n = journal->n_runs;
        for (size_t i = 0; i < n; i++)
                journal_read_show(journal, &journal->runs[journal->n_runs - 1 - i], &runs[i]);
        return n;
}

static const struct journal_entry *journal_read_find(const struct journal *journal, const char *run_id,
                                                     struct err *err) {
        for (size_t i = journal->n_runs; i-- > 0;)
                if (strcmp(journal->runs[i].shown.run_id, run_id) == 0)
                        return &journal->runs[i];
        (void) err_set(err, ERR_NOT_FOUND,
                       "this session has no run %.64s: it never existed, or it is older than the last %d runs", run_id,
                       JOURNAL_RUNS_KEPT);
        return NULL;
}

int journal_find(const struct journal *journal, const char *run_id, struct journal_run *ret_run, struct err *err) {
        const struct journal_entry *run = journal_read_find(journal, run_id, err);
        if (!run)
                return -1;
        journal_read_show(journal, run, ret_run);
        return 0;
}

/* From the nearest mark on, over the records in between. */
static int find_stream_event(const struct journal *journal, const struct journal_entry *run, uint64_t number,
                             struct journal_event *ret_event) {
        size_t mark = (size_t) (number - 1) / JOURNAL_MARK_EVERY;
        uint64_t at_number = (uint64_t) mark * JOURNAL_MARK_EVERY;
        struct journal_reader reader;
        journal_reader_init(&reader, journal->fds[JOURNAL_EVENTS], journal->head.base[JOURNAL_EVENTS], run->marks[mark],
                            journal_end_of(journal, run, JOURNAL_EVENTS));
        for (;;) {
                struct journal_record record;
                int code = journal_reader_next(&reader, &record);
                if (code <= 0)
                        return code < 0 ? code : -EBADMSG;
                if (record.kind != JOURNAL_KIND_OUT && record.kind != JOURNAL_KIND_ERR)
                        continue;
                if (++at_number < number)
                        continue;
                *ret_event = (struct journal_event) {
                        .number = number,
                        .kind = record.kind == JOURNAL_KIND_OUT ? JOURNAL_EVENT_OUT : JOURNAL_EVENT_ERR,
                        .offset = journal_get_u64(record.checked),
                        .size = (size_t) journal_get_u64(record.checked + 8),
                        .is_checked = record.is_checked,
                        .crc = record.is_checked ? journal_get_u32(record.checked + 16) : 0,
                };
                return 0;
        }
}

int journal_stream_crc(const struct journal *journal, enum journal_stream stream, uint64_t offset, uint64_t size,
                       uint32_t *ret_crc) {
        static char buffer[64 << 10];
        uint32_t crc = 0;
        for (uint64_t done = 0; done < size;) {
                size_t piece = size - done < sizeof(buffer) ? (size_t) (size - done) : sizeof(buffer);
                ssize_t n = fd_read_at(journal->fds[stream], buffer, piece, offset + done - journal->head.base[stream]);
                if (n <= 0)
                        return n < 0 ? (int) n : -EBADMSG;
                crc = crc32c(crc, buffer, (size_t) n);
                done += (size_t) n;
        }
        *ret_crc = crc;
        return 0;
}

static int refuse_damaged(const char *run_id, const char *what, struct err *err) {
        return err_set(err, ERR_DAMAGED,
                       "the %s of run %s is damaged on the disk: its checksum is not the one that was written; run it "
                       "again, and check the disk",
                       what, run_id);
}

/* True if the bytes of the stream are those of when the event was written. */
static int check_event(const struct journal *journal, const struct journal_event *event, const char *run_id,
                       struct err *err) {
        enum journal_stream stream = event->kind == JOURNAL_EVENT_OUT ? JOURNAL_OUT : JOURNAL_ERR;
        uint32_t crc;
        if (!event->is_checked)
                return 0;
        int code = journal_stream_crc(journal, stream, event->offset, event->size, &crc);
        if (code == -EBADMSG || (code == 0 && crc != event->crc))
                return refuse_damaged(run_id, "output", err);
        return code < 0 ? err_sys(err, -code, "cannot read the output of run %s", run_id) : 0;
}

int journal_event(struct journal *journal, const char *run_id, uint64_t number, struct journal_event *ret_event,
                  struct err *err) {
        const struct journal_entry *run = journal_read_find(journal, run_id, err);
        if (!run)
                return -1;
        if (number == 0 || number > run->shown.events)
                return err_set(err, ERR_NOT_FOUND, "run %s has %llu events%s: there is no number %llu", run_id,
                               (unsigned long long) run->shown.events, run->shown.ended ? "" : " so far",
                               (unsigned long long) number);
        if (run->shown.ended && number == run->shown.events) {
                *ret_event = (struct journal_event) { .number = number,
                                                      .kind = JOURNAL_EVENT_RESULT,
                                                      .offset = run->result_at,
                                                      .size = (size_t) run->result_size,
                                                      .is_checked = run->is_checked,
                                                      .crc = run->result_crc };
                return run->shown.damaged ? refuse_damaged(run_id, "result", err) : 0;
        }
        struct journal_event event;
        int code = find_stream_event(journal, run, number, &event);
        if (code == -EBADMSG)
                return refuse_damaged(run_id, "record", err);
        if (code < 0)
                return err_sys(err, -code, "cannot read the journal of run %s", run_id);
        if (check_event(journal, &event, run_id, err) < 0)
                return -1;
        *ret_event = event;
        return 0;
}

int journal_read(struct journal *journal, const struct journal_event *event, size_t at, void *bytes, size_t size,
                 size_t *ret_size, struct err *err) {
        size_t file = event->kind == JOURNAL_EVENT_OUT   ? JOURNAL_OUT
                      : event->kind == JOURNAL_EVENT_ERR ? JOURNAL_ERR
                                                         : JOURNAL_EVENTS;
        uint64_t base = journal->head.base[file];
        if (event->offset < base)
                return err_set(err, ERR_GONE, "the run's output was dropped to make room for newer runs");
        if (at >= event->size)
                size = 0;
        else if (size > event->size - at)
                size = event->size - at;
        uint64_t offset = event->offset - base + at + (file == JOURNAL_EVENTS ? JOURNAL_HEAD_SIZE : 0);
        ssize_t n = fd_read_at(journal->fds[file], bytes, size, offset);
        if (n < 0)
                return err_sys(err, (int) -n, "cannot read the session's journal");
        bool is_whole = event->kind == JOURNAL_EVENT_RESULT && at == 0 && (size_t) n == event->size;
        if (is_whole && event->is_checked && crc32c(0, bytes, event->size) != event->crc)
                return refuse_damaged("asked for", "result", err);
        *ret_size = (size_t) n;
        return 0;
}

void journal_get_files(const struct journal *journal, int ret_fds[static JOURNAL_FILES]) {
        memcpy(ret_fds, journal->fds, sizeof(journal->fds));
}

void journal_set_files(struct journal *journal, const int fds[static JOURNAL_FILES]) {
        memcpy(journal->fds, fds, sizeof(journal->fds));
}

/* Checks each event of the stream that has a part in its first `size` bytes. */
static int check_stream(const struct journal *journal, const struct journal_entry *run, enum journal_stream stream,
                        size_t size, struct err *err) {
        uint64_t end = run->start[stream] + size;
        struct journal_reader reader;
        struct journal_record record;
        journal_reader_init(&reader, journal->fds[JOURNAL_EVENTS], journal->head.base[JOURNAL_EVENTS],
                            run->start[JOURNAL_EVENTS], journal_end_of(journal, run, JOURNAL_EVENTS));
        for (int code; (code = journal_reader_next(&reader, &record)) != 0;) {
                if (code < 0)
                        return code == -EBADMSG ? refuse_damaged(run->shown.run_id, "record", err)
                                                : err_sys(err, -code, "cannot read the session's journal");
                if (record.kind == JOURNAL_KIND_DONE || record.kind == JOURNAL_KIND_END)
                        return 0;
                if (record.kind != (stream == JOURNAL_OUT ? JOURNAL_KIND_OUT : JOURNAL_KIND_ERR) || !record.is_checked)
                        continue;
                const struct journal_event event = {
                        .kind = stream == JOURNAL_OUT ? JOURNAL_EVENT_OUT : JOURNAL_EVENT_ERR,
                        .offset = journal_get_u64(record.checked),
                        .size = (size_t) journal_get_u64(record.checked + 8),
                        .is_checked = true,
                        .crc = journal_get_u32(record.checked + 16),
                };
                if (event.offset >= end)
                        return 0;
                if (check_event(journal, &event, run->shown.run_id, err) < 0)
                        return -1;
        }
        return 0;
}

int journal_read_stream(const struct journal *journal, const char *run_id, enum journal_stream stream, size_t max,
                        char **ret_bytes, size_t *ret_size, struct err *err) {
        const struct journal_entry *run = journal_read_find(journal, run_id, err);
        if (!run)
                return -1;
        uint64_t there = entry_bytes(journal, run, stream);
        size_t size = there < max ? (size_t) there : max;
        _cleanup_free_ char *bytes = malloc(size + 1);
        if (!bytes)
                return err_sys(err, ENOMEM, "cannot read the output of run %s", run_id);
        ssize_t n = fd_read_at(journal->fds[stream], bytes, size, run->start[stream] - journal->head.base[stream]);
        if (n < 0)
                return err_sys(err, (int) -n, "cannot read the output of run %s", run_id);
        if (n > 0 && check_stream(journal, run, stream, (size_t) n, err) < 0)
                return -1;
        bytes[n] = '\0';
        *ret_bytes = take_ptr(bytes);
        *ret_size = (size_t) n;
        return 0;
}

int journal_read_request(const struct journal *journal, char **ret_payload, size_t *ret_size, struct err *err) {
        if (!journal_open_request(journal) || !journal->request_at)
                return err_set(err, ERR_NOT_FOUND, "the session's journal does not have the request to its kernel");
        size_t size = journal->request.size;
        _cleanup_free_ char *payload = malloc(size + 1);
        if (!payload)
                return err_sys(err, ENOMEM, "cannot read the request to the kernel");
        ssize_t n = fd_read_at(journal->fds[JOURNAL_EVENTS], payload, size,
                               journal->request_at - journal->head.base[JOURNAL_EVENTS] + JOURNAL_HEAD_SIZE);
        if (n < 0 || (size_t) n != size)
                return err_sys(err, n < 0 ? (int) -n : EIO, "cannot read the request to the kernel");
        if (journal->is_request_checked && crc32c(0, payload, size) != journal->request_crc)
                return refuse_damaged(journal->request.id, "request", err);
        payload[size] = '\0';
        *ret_payload = take_ptr(payload);
        *ret_size = size;
        return 0;
}
