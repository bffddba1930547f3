/* Writing a journal. journal_file.h describes the files, journal_load.c how they are read after a crash. */
#include "journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "journal/journal_state.h"

enum { INBOX_KEPT = 1 << 20 }; /* a larger inbox is emptied before the next request */

int64_t journal_clock_ms(int clock) {
        struct timespec now;
        (void) clock_gettime(clock, &now);
        return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int write_owed_result(struct journal *journal, struct err *err);

struct journal *journal_alloc(void) {
        struct journal *journal = calloc(1, sizeof(*journal));
        if (!journal)
                return NULL;
        for (size_t i = 0; i < JOURNAL_FILES; i++)
                journal->fds[i] = journal->rotation.fds[i] = -1;
        journal->dir_fd = journal->inbox_fd = -1;
        return journal;
}

int journal_open(int dir_fd, struct journal **ret_journal, bool *ret_torn, struct err *err) {
        struct journal *journal = journal_alloc();
        if (!journal)
                return err_sys(err, ENOMEM, "cannot open the session's journal");
        journal->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
        bool torn = false;
        int code = journal->dir_fd < 0 ? err_sys(err, errno, "cannot open the session's journal")
                                       : journal_load(journal, &torn, err);
        if (code < 0) {
                journal_free(journal);
                return -1;
        }
        *ret_torn = journal->is_torn = torn;
        *ret_journal = journal;
        return 0;
}

bool journal_is_torn(const struct journal *journal) {
        return journal->is_torn;
}

void journal_free(struct journal *journal) {
        if (!journal)
                return;
        (void) write_owed_result(journal, NULL);
        for (size_t i = 0; i < journal->n_runs; i++)
                free(journal->runs[i].marks);
        journal_rotation_release(journal);
        for (size_t i = 0; i < JOURNAL_FILES; i++)
                fd_close(&journal->fds[i]);
        journal_inbox_close(journal);
        fd_close(&journal->dir_fd);
        free(journal->owed);
        free(journal->places);
        free(journal);
}

void journal_close(struct journal *journal) {
        if (journal && journal->is_scratch)
                journal_scratch_close(journal);
        else
                journal_free(journal);
}

int journal_append(struct journal *journal, enum journal_kind kind, const void *fixed, size_t fixed_size,
                   const void *rest, size_t rest_size, uint64_t *ret_next_at) {
        int code = journal_room_make(journal, kind, JOURNAL_RECORD_HEAD + fixed_size + rest_size);
        if (code < 0)
                return code;
        code = journal_record_write(journal->fds[JOURNAL_EVENTS], journal->head.base[JOURNAL_EVENTS],
                                    journal->end[JOURNAL_EVENTS], kind, fixed, fixed_size, rest, rest_size,
                                    ret_next_at);
        if (code < 0)
                journal->allocated = 0; /* the removed bytes contained it */
        return code;
}

static int no_run(struct err *err) {
        return err_set(err, ERR_USAGE, "no run is open in this session's journal");
}

static int refuse_open_request(const struct journal *journal, struct err *err) {
        return err_set(err, ERR_BUSY, "%s %s has not ended: wait for it or interrupt it first",
                       journal->is_open ? "run" : "request", journal->request.id);
}

/* Records a request before it is sent. Its answers begin behind those that were read. */
static int write_request(struct journal *journal, struct journal_request *request, uint64_t *ret_next_at,
                         int64_t *ret_now) {
        if (journal->inbox_end > INBOX_KEPT && journal->inbox_read == journal->inbox_end && request->carried == 0) {
                int code = journal_inbox_empty(journal);
                if (code < 0)
                        return code;
        }
        size_t id_size = strlen(request->id);
        uint8_t fixed[JOURNAL_REQUEST_FIXED + JOURNAL_ID_MAX];
        journal_room_make_inbox(journal);
        *ret_now = journal_clock_ms(CLOCK_REALTIME_COARSE); /* the clock of files: no file of the run is older */
        request->began_ms = journal_clock_ms(CLOCK_MONOTONIC);
        request->inbox_at = (uint32_t) journal->inbox_read - request->carried;
        journal_put_u64(fixed, (uint64_t) *ret_now);
        journal_put_u64(fixed + 8, (uint64_t) request->began_ms);
        journal_put_u64(fixed + 16, request->timeout_ms);
        journal_put_u32(fixed + 24, request->inbox_at);
        fixed[28] = (uint8_t) ((request->is_run ? JOURNAL_FLAG_RUN : 0) |
                               (request->reports_loss ? JOURNAL_FLAG_TELLS_LOSS : 0));
        fixed[29] = request->type;
        fixed[30] = (uint8_t) id_size;
        journal_put_u64(fixed + 31, journal->end[JOURNAL_OUT]);
        journal_put_u64(fixed + 39, journal->end[JOURNAL_ERR]);
        memcpy(fixed + JOURNAL_REQUEST_FIXED, request->id, id_size);
        int code = journal_append(journal, JOURNAL_KIND_REQUEST, fixed, JOURNAL_REQUEST_FIXED + id_size,
                                  request->payload, request->payload ? request->size : 0, ret_next_at);
        if (code == 0 && request->carried == 0 && journal->unsaved_size == 0)
                journal_set_gap(journal, false); /* its answers begin with a frame */
        return code;
}

static int check_request(struct journal *journal, const struct journal_request *request, struct err *err) {
        if (journal->is_asked || (journal->is_open && !journal->owed))
                return refuse_open_request(journal, err);
        if (!journal_is_run_id(request->id, strnlen(request->id, JOURNAL_ID_MAX + 1)))
                return err_set(err, ERR_USAGE, "a run id has 1 to %d characters of [A-Za-z0-9_-]", JOURNAL_ID_MAX);
        return write_owed_result(journal, err);
}

int journal_begin(struct journal *journal, const struct journal_request *run, struct err *err) {
        struct journal_request request = *run;
        request.is_run = true;
        if (check_request(journal, &request, err) < 0)
                return -1;
        journal_rotate(journal);
        int code = journal_index_reserve_run(journal);
        uint64_t next = 0;
        int64_t now = 0;
        if (code >= 0)
                code = write_request(journal, &request, &next, &now);
        if (code < 0)
                return err_sys(err, -code, "cannot write to the session's journal that run %s begins", request.id);
        /* Written only when something is cut. */
        journal->head.cut_run = journal->end[JOURNAL_EVENTS] + 1;
        memset(journal->head.cut, 0, sizeof(journal->head.cut));
        journal->recorded_ms = 0;
        journal_index_begin(journal, request.id, now);
        journal_index_request(journal, &request, request.payload ? next - request.size : 0);
        journal->is_request_checked = true;
        journal->request_crc = request.payload ? crc32c(0, request.payload, request.size) : 0;
        journal->end[JOURNAL_EVENTS] = next;
        return 0;
}

int journal_ask(struct journal *journal, const struct journal_request *asked, struct err *err) {
        struct journal_request request = *asked;
        request.is_run = false;
        if (check_request(journal, &request, err) < 0)
                return -1;
        uint64_t next;
        int64_t now;
        int code = write_request(journal, &request, &next, &now);
        if (code < 0)
                return err_sys(err, -code, "cannot record the request to the kernel in the session's journal");
        journal_index_request(journal, &request, request.payload ? next - request.size : 0);
        journal->is_request_checked = true;
        journal->request_crc = request.payload ? crc32c(0, request.payload, request.size) : 0;
        journal->end[JOURNAL_EVENTS] = next;
        return 0;
}

int journal_hold(struct journal *journal, enum journal_holds holds, struct err *err) {
        uint8_t fixed[JOURNAL_HOLDS_SIZE];
        if (journal->is_open)
                return refuse_open_request(journal, err);
        journal_put_u64(fixed, (uint64_t) journal_clock_ms(CLOCK_REALTIME));
        journal_put_u32(fixed + 8, journal->inbox_mark);
        fixed[12] = (uint8_t) holds;
        uint64_t next;
        int code = journal_append(journal, JOURNAL_KIND_HOLDS, fixed, sizeof(fixed), NULL, 0, &next);
        if (code < 0)
                return err_sys(err, -code, "cannot write to the session's journal where its variables are");
        journal_index_hold(journal, holds, journal->inbox_mark);
        journal->end[JOURNAL_EVENTS] = next;
        return 0;
}

enum journal_holds journal_holds(const struct journal *journal) {
        return journal->holds;
}

int journal_record_streams(struct journal *journal) {
        struct journal_entry *run = journal_newest(journal);
        for (size_t i = 0; i < JOURNAL_STREAMS; i++) {
                uint64_t size = journal->end[i] - run->recorded[i];
                if (size == 0)
                        continue;
                int code = journal_index_reserve(journal);
                if (code < 0)
                        return code;
                uint8_t payload[20];
                uint32_t crc;
                code = journal_stream_crc(journal, (enum journal_stream) i, run->recorded[i], size, &crc);
                if (code < 0)
                        return code;
                journal_put_u64(payload, run->recorded[i]);
                journal_put_u64(payload + 8, size);
                journal_put_u32(payload + 16, crc);
                uint64_t next;
                code = journal_append(journal, i == JOURNAL_OUT ? JOURNAL_KIND_OUT : JOURNAL_KIND_ERR, payload,
                                      sizeof(payload), NULL, 0, &next);
                if (code < 0)
                        return code;
                journal_index_stream(journal, (enum journal_stream) i, journal->end[JOURNAL_EVENTS], size);
                journal->end[JOURNAL_EVENTS] = next;
        }
        return 0;
}

/* Keeps the number of events of a run that prints byte by byte within bounds. */
static bool is_event_due(struct journal *journal, enum journal_stream stream) {
        struct journal_entry *run = journal_newest(journal);
        if (run->shown.events < JOURNAL_EVENTS_EACH)
                return true;
        uint64_t doublings = run->shown.events / JOURNAL_EVENTS_EACH - 1;
        if (doublings > JOURNAL_DOUBLINGS_MAX)
                doublings = JOURNAL_DOUBLINGS_MAX;
        int64_t now = journal_clock_ms(CLOCK_MONOTONIC);
        if (journal->end[stream] - run->recorded[stream] < (uint64_t) JOURNAL_EVENT_BYTES << doublings &&
            now - journal->recorded_ms < JOURNAL_EVENT_MS)
                return false;
        journal->recorded_ms = now;
        return true;
}

ssize_t journal_read_now(int fd, void *bytes, size_t size) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        int code = poll(&ready, 1, 0);
        if (code <= 0)
                return code < 0 && errno != EINTR ? -errno : -EAGAIN;
        ssize_t n = read(fd, bytes, size);
        if (n < 0)
                return errno == EINTR ? -EAGAIN : -errno;
        return n;
}

bool journal_is_full(ssize_t code) {
        return code == -ENOSPC || code == -EDQUOT || code == -EFBIG;
}

/* Counting before dropping could overstate the loss after a crash; counting afterwards can understate it by one call,
 * which is the smaller error. */
static int count_cut(struct journal *journal, enum journal_stream stream, size_t size) {
        journal_newest(journal)->shown.cut[stream] += size;
        journal->head.cut[stream] += size;
        return journal_head_write_cut(journal->fds[JOURNAL_EVENTS], &journal->head);
}

/* Drops up to max bytes. Returns how many, 0 when the other end is closed, or -errno. */
static ssize_t journal_drop(struct journal *journal, enum journal_stream stream, int pipe_fd, size_t max) {
        char buffer[1 << 16];
        size_t done = 0;
        ssize_t n = 0;
        while (done < max) {
                n = journal_read_now(pipe_fd, buffer, max - done < sizeof(buffer) ? max - done : sizeof(buffer));
                if (n <= 0)
                        break;
                done += (size_t) n;
        }
        if (done == 0)
                return n;
        int code = count_cut(journal, stream, done);
        return code < 0 && !journal_is_full(code) ? code : (ssize_t) done;
}

/* For what cannot be spliced (a socket, an odd file system). Bytes for which there is no room are dropped. */
static ssize_t move_by_copy(struct journal *journal, enum journal_stream stream, int pipe_fd, size_t max,
                            size_t *ret_kept) {
        char buffer[1 << 16];
        ssize_t n = journal_read_now(pipe_fd, buffer, max < sizeof(buffer) ? max : sizeof(buffer));
        if (n <= 0)
                return n;
        ssize_t kept;
        do
                kept = pwrite(journal->fds[stream], buffer, (size_t) n,
                              (off_t) (journal->end[stream] - journal->head.base[stream]));
        while (kept < 0 && errno == EINTR);
        int code = kept < 0 ? -errno : 0;
        *ret_kept = kept < 0 ? 0 : (size_t) kept;
        if (*ret_kept < (size_t) n)
                (void) count_cut(journal, stream, (size_t) n - *ret_kept);
        return code < 0 && !journal_is_full(code) ? code : n;
}

static bool is_saving;

void journal_save_space(bool save) {
        is_saving = save;
}

/* Moves up to max bytes; *ret_kept says how many of them are in the file. */
static ssize_t journal_move(struct journal *journal, enum journal_stream stream, int pipe_fd, size_t max,
                            size_t *ret_kept) {
        *ret_kept = 0;
        uint64_t limit = is_saving ? JOURNAL_STREAM_SAVING_MAX : JOURNAL_STREAM_MAX;
        uint64_t size = journal->end[stream] - journal_newest(journal)->start[stream];
        if (size >= limit)
                return journal_drop(journal, stream, pipe_fd, max);
        if (max > limit - size)
                max = (size_t) (limit - size);
        off_t offset = (off_t) (journal->end[stream] - journal->head.base[stream]);
        ssize_t n = splice(pipe_fd, NULL, journal->fds[stream], &offset, max, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n >= 0) {
                *ret_kept = (size_t) n;
                return n;
        }
        if (journal_is_full(-errno))
                return journal_drop(journal, stream, pipe_fd, max);
        if (errno == EINVAL)
                return move_by_copy(journal, stream, pipe_fd, max, ret_kept);
        return errno == EINTR ? -EAGAIN : -errno;
}

int journal_take(struct journal *journal, enum journal_stream stream, int pipe_fd, size_t max, size_t *ret_size,
                 bool *ret_closed, struct err *err) {
        if (!journal->is_open)
                return no_run(err);
        *ret_size = 0;
        *ret_closed = false;
        if (max == 0)
                return 0;
        size_t kept;
        ssize_t n = journal_move(journal, stream, pipe_fd, max, &kept);
        if (n == -EAGAIN)
                return 0;
        if (n < 0)
                return err_sys(err, (int) -n, "cannot write the run's output to the session's journal");
        *ret_closed = n == 0;
        *ret_size = (size_t) n;
        journal->end[stream] += kept;
        journal_rotate_along(journal, kept); /* or a program that prints fast enough would keep the loop busy */
        if (kept == 0 || !is_event_due(journal, stream))
                return 0;
        /* Without room or memory for the event the bytes wait for the next one. */
        int code = journal_record_streams(journal);
        if (code < 0 && code != -ENOMEM && !journal_is_full(code))
                return err_sys(err, -code, "cannot write to the session's journal");
        return 0;
}

bool journal_has_late_output(const struct journal *journal) {
        if (!journal_open_run(journal))
                return false;
        const struct journal_entry *run = &journal->runs[journal->n_runs - 1];
        return journal->end[JOURNAL_OUT] > run->recorded[JOURNAL_OUT] ||
               journal->end[JOURNAL_ERR] > run->recorded[JOURNAL_ERR];
}

void journal_record_late_output(struct journal *journal) {
        if (!journal_has_late_output(journal))
                return;
        journal->recorded_ms = journal_clock_ms(CLOCK_MONOTONIC);
        (void) journal_record_streams(journal);
}

int journal_end(struct journal *journal, const char *result, size_t size, enum journal_holds holds, struct err *err) {
        if (!journal->is_open)
                return no_run(err);
        if (size > JOURNAL_RESULT_MAX)
                return err_set(err, ERR_LIMIT, "a result of %zu bytes is larger than the %d MiB that a run may answer",
                               size, JOURNAL_RESULT_MAX >> 20);
        struct journal_entry *run = journal_newest(journal);
        int64_t now = journal_clock_ms(CLOCK_REALTIME);
        uint8_t fixed[JOURNAL_DONE_FIXED];
        journal_put_u64(fixed, (uint64_t) now);
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                journal_put_u64(fixed + 8 + 8 * i, run->shown.cut[i]);
        fixed[24] = (uint8_t) holds;
        uint64_t next;
        int code = journal_record_streams(journal);
        if (code >= 0)
                code = journal_append(journal, JOURNAL_KIND_DONE, fixed, sizeof(fixed), result, size, &next);
        if (code < 0)
                return err_sys(err, -code, "cannot write the result of run %s to the session's journal",
                               run->shown.run_id);
        journal_index_end(journal, now, run->shown.cut, next - size, size);
        run->is_checked = true;
        run->result_crc = crc32c(0, result, size);
        journal_index_hold(journal, holds, journal->inbox_mark);
        journal->end[JOURNAL_EVENTS] = next;
        free(journal->owed);
        journal->owed = NULL;
        return 0;
}

void journal_end_later(struct journal *journal, const char *result, size_t size, enum journal_holds holds) {
        struct journal_owed *owed = malloc(sizeof(*owed) + size);
        if (!journal->is_open || !owed) {
                free(owed);
                return; /* then the next daemon finds and reports a run without an end */
        }
        *owed = (struct journal_owed) { .holds = holds, .size = size };
        memcpy(owed->result, result, size);
        free(journal->owed);
        journal->owed = owed;
}

/* Writes the result for which there was no room. */
static int write_owed_result(struct journal *journal, struct err *err) {
        if (!journal->owed)
                return 0;
        return journal_end(journal, journal->owed->result, journal->owed->size, journal->owed->holds, err);
}

const char *journal_open_run(const struct journal *journal) {
        return journal->is_open && !journal->owed ? journal->runs[journal->n_runs - 1].shown.run_id : NULL;
}

const struct journal_request *journal_open_request(const struct journal *journal) {
        return (journal->is_open && !journal->owed) || journal->is_asked ? &journal->request : NULL;
}

bool journal_is_cut(const struct journal *journal, enum journal_stream stream) {
        return journal->is_open && journal->runs[journal->n_runs - 1].shown.cut[stream] > 0;
}
