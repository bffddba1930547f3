/* Reading a journal: runs, their events, their bytes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "session/journal_state.h"

static uint64_t bytes_of(const struct journal *journal, const struct journal_entry *run, size_t file) {
        return journal_end_of(journal, run, file) - run->start[file];
}

static void show(const struct journal *journal, const struct journal_entry *run, struct journal_run *ret_run) {
        *ret_run = run->shown;
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                ret_run->bytes[i] = bytes_of(journal, run, i);
}

size_t journal_list(const struct journal *journal, struct journal_run *runs, size_t n) {
        if (n > journal->n_runs)
                n = journal->n_runs;
        for (size_t i = 0; i < n; i++)
                show(journal, &journal->runs[journal->n_runs - 1 - i], &runs[i]);
        return n;
}

static const struct journal_entry *find(const struct journal *journal, const char *run_id, struct err *err) {
        for (size_t i = journal->n_runs; i-- > 0;)
                if (strcmp(journal->runs[i].shown.run_id, run_id) == 0)
                        return &journal->runs[i];
        (void) err_set(err, ERR_NOT_FOUND,
                       "this session has no run %.64s: it never was, or it is older than the last %d runs", run_id,
                       JOURNAL_RUNS_KEPT);
        return NULL;
}

int journal_find(const struct journal *journal, const char *run_id, struct journal_run *ret_run, struct err *err) {
        const struct journal_entry *run = find(journal, run_id, err);
        if (!run)
                return -1;
        show(journal, run, ret_run);
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
                *ret_event = (struct journal_event){
                        .number = number,
                        .kind = record.kind == JOURNAL_KIND_OUT ? JOURNAL_EVENT_OUT : JOURNAL_EVENT_ERR,
                        .offset = journal_get_u64(record.checked),
                        .size = (size_t) journal_get_u64(record.checked + 8),
                };
                return 0;
        }
}

int journal_event(struct journal *journal, const char *run_id, uint64_t number, struct journal_event *ret_event,
                  struct err *err) {
        const struct journal_entry *run = find(journal, run_id, err);
        if (!run)
                return -1;
        if (number == 0 || number > run->shown.events)
                return err_set(err, ERR_NOT_FOUND, "run %s has %llu events%s: there is no number %llu", run_id,
                               (unsigned long long) run->shown.events, run->shown.ended ? "" : " so far",
                               (unsigned long long) number);
        if (run->shown.ended && number == run->shown.events) {
                *ret_event = (struct journal_event){ .number = number,
                                                     .kind = JOURNAL_EVENT_RESULT,
                                                     .offset = run->result_at,
                                                     .size = (size_t) run->result_size };
                return 0;
        }
        int code = slate_write(&journal->waiting);
        if (code == 0)
                code = find_stream_event(journal, run, number, ret_event);
        if (code < 0)
                return err_sys(err, -code, "cannot read the journal of run %s", run_id);
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
        int code = file == JOURNAL_EVENTS ? slate_write(&journal->waiting) : 0;
        if (code < 0)
                return err_sys(err, -code, "cannot write the session's journal");
        if (at >= event->size)
                size = 0;
        else if (size > event->size - at)
                size = event->size - at;
        uint64_t offset = event->offset - base + at + (file == JOURNAL_EVENTS ? JOURNAL_HEAD_SIZE : 0);
        ssize_t n = journal_file_read(journal->fds[file], bytes, size, offset);
        if (n < 0)
                return err_sys(err, (int) -n, "cannot read the session's journal");
        *ret_size = (size_t) n;
        return 0;
}

int journal_read_stream(const struct journal *journal, const char *run_id, enum journal_stream stream, size_t max,
                        char **ret_bytes, size_t *ret_size, struct err *err) {
        const struct journal_entry *run = find(journal, run_id, err);
        if (!run)
                return -1;
        uint64_t there = bytes_of(journal, run, stream);
        size_t size = there < max ? (size_t) there : max;
        _cleanup_free_ char *bytes = malloc(size + 1);
        if (!bytes)
                return err_sys(err, ENOMEM, "cannot read the output of run %s", run_id);
        ssize_t n =
                journal_file_read(journal->fds[stream], bytes, size, run->start[stream] - journal->head.base[stream]);
        if (n < 0)
                return err_sys(err, (int) -n, "cannot read the output of run %s", run_id);
        bytes[n] = '\0';
        *ret_bytes = take_ptr(bytes);
        *ret_size = (size_t) n;
        return 0;
}

int journal_read_channel(struct journal *journal, char **ret_bytes, size_t *ret_size, struct err *err) {
        if (!journal->is_open)
                return err_set(err, ERR_NOT_FOUND, "no run is open in this session's journal");
        const struct journal_entry *run = journal_newest(journal);
        int written = slate_write(&journal->waiting);
        if (written < 0)
                return err_sys(err, -written, "cannot write the session's journal");
        _cleanup_free_ char *bytes = malloc((size_t) run->channel_size + 1);
        if (!bytes)
                return err_sys(err, ENOMEM, "cannot read what the kernel answered");
        uint64_t base = journal->head.base[JOURNAL_EVENTS];
        struct journal_reader reader;
        journal_reader_init(&reader, journal->fds[JOURNAL_EVENTS], base, run->start[JOURNAL_EVENTS],
                            journal->end[JOURNAL_EVENTS]);
        size_t size = 0;
        for (;;) {
                struct journal_record record;
                int code = journal_reader_next(&reader, &record);
                if (code == 0)
                        break;
                if (code > 0 && record.kind != JOURNAL_KIND_CHANNEL)
                        continue;
                ssize_t n = code < 0 ? code : record.size > run->channel_size - size ? -EBADMSG : 0;
                if (n == 0)
                        n = journal_file_read(reader.fd, bytes + size, record.size,
                                              record.payload_at - base + JOURNAL_HEAD_SIZE);
                if (n < 0)
                        return err_sys(err, (int) -n, "cannot read what the kernel answered");
                size += (size_t) n;
        }
        bytes[size] = '\0';
        *ret_bytes = take_ptr(bytes);
        *ret_size = size;
        return 0;
}
