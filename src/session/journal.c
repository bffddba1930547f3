/* Writing a journal. See journal_file.h for what is on disk, journal_load.c for what is made of it after a death. */
#include "session/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "session/journal_state.h"

static int64_t clock_ms(clockid_t clock) {
        struct timespec now;
        (void) clock_gettime(clock, &now);
        return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct journal *journal_alloc(void) {
        struct journal *journal = calloc(1, sizeof(*journal));
        if (!journal)
                return NULL;
        for (size_t i = 0; i < JOURNAL_FILES; i++)
                journal->fds[i] = -1;
        journal->dir_fd = -1;
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
        *ret_torn = torn;
        *ret_journal = journal;
        return 0;
}

void journal_free(struct journal *journal) {
        if (!journal)
                return;
        (void) slate_write(&journal->waiting);
        slate_forget(&journal->waiting);
        for (size_t i = 0; i < journal->n_runs; i++)
                free(journal->runs[i].marks);
        for (size_t i = 0; i < JOURNAL_FILES; i++)
                fd_close(&journal->fds[i]);
        fd_close(&journal->dir_fd);
        free(journal->places);
        free(journal->path);
        free(journal);
}

int journal_defer(struct journal *journal, const char *path) {
        journal->path = strdup(path);
        return journal->path ? 0 : -ENOMEM;
}

void journal_close(struct journal *journal) {
        if (journal && journal->is_scratch)
                journal_scratch_close(journal);
        else
                journal_free(journal);
}

static int append(struct journal *journal, enum journal_kind kind, const void *fixed, size_t fixed_size,
                  const void *rest, size_t rest_size, uint64_t *ret_next_at) {
        int fd = journal->fds[JOURNAL_EVENTS];
        uint64_t base = journal->head.base[JOURNAL_EVENTS], at = journal->end[JOURNAL_EVENTS];
        size_t size = JOURNAL_RECORD_HEAD + fixed_size + rest_size;
        void *room = journal->path ? slate_room(&journal->waiting, journal->path, fd, at - base + JOURNAL_HEAD_SIZE,
                                                size)
                                   : NULL;
        if (room) {
                journal_record_put(room, kind, fixed, fixed_size, rest, rest_size);
                slate_add(journal->waiting, size);
                *ret_next_at = at + size;
                return 0;
        }
        int code = slate_write(&journal->waiting); /* first what comes first */
        return code < 0 ? code
                        : journal_record_write(fd, base, at, kind, fixed, fixed_size, rest, rest_size, ret_next_at);
}

static int no_run(struct err *err) {
        return err_set(err, ERR_USAGE, "no run is open in this session's journal");
}

int journal_begin(struct journal *journal, const char *run_id, struct err *err) {
        if (journal->is_open)
                return err_set(err, ERR_BUSY, "run %s has not ended: wait for it or interrupt it first",
                               journal_newest(journal)->shown.run_id);
        size_t length = strnlen(run_id, JOURNAL_ID_MAX + 1);
        if (!journal_is_run_id(run_id, length))
                return err_set(err, ERR_USAGE, "a run id has 1 to %d characters of [A-Za-z0-9_-]", JOURNAL_ID_MAX);
        journal_rotate(journal);
        int code = journal_index_reserve_run(journal);
        if (code < 0)
                return err_sys(err, -code, "cannot begin run %s", run_id);

        int64_t now = clock_ms(CLOCK_REALTIME);
        uint8_t payload[8];
        journal_put_u64(payload, (uint64_t) now);
        uint64_t next;
        code = append(journal, JOURNAL_KIND_BEGIN, payload, sizeof(payload), run_id, length, &next);
        if (code < 0)
                return err_sys(err, -code, "cannot write to the session's journal that run %s begins", run_id);
        /* Written only when something is cut. */
        journal->head.cut_run = journal->end[JOURNAL_EVENTS] + 1;
        memset(journal->head.cut, 0, sizeof(journal->head.cut));
        journal->recorded_ms = 0;
        journal_index_begin(journal, run_id, now);
        journal->end[JOURNAL_EVENTS] = next;
        return 0;
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
                uint8_t payload[16];
                journal_put_u64(payload, run->recorded[i]);
                journal_put_u64(payload + 8, size);
                uint64_t next;
                code = append(journal, i == JOURNAL_OUT ? JOURNAL_KIND_OUT : JOURNAL_KIND_ERR, payload, sizeof(payload),
                              NULL, 0, &next);
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
        int64_t now = clock_ms(CLOCK_MONOTONIC);
        if (journal->end[stream] - run->recorded[stream] < JOURNAL_EVENT_BYTES &&
            now - journal->recorded_ms < JOURNAL_EVENT_MS)
                return false;
        journal->recorded_ms = now;
        return true;
}

/* Reads what is there now, also from a descriptor that would block. -EAGAIN: nothing; 0: the other end is closed. */
static ssize_t read_now(int fd, void *bytes, size_t size) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        int code = poll(&ready, 1, 0);
        if (code <= 0)
                return code < 0 && errno != EINTR ? -errno : -EAGAIN;
        ssize_t n = read(fd, bytes, size);
        if (n < 0)
                return errno == EINTR ? -EAGAIN : -errno;
        return n;
}

static bool is_full(ssize_t code) {
        return code == -ENOSPC || code == -EDQUOT || code == -EFBIG;
}

/* Counted first on disk would overstate, counted after may understate by what one call drops: the smaller lie. */
static int count_cut(struct journal *journal, enum journal_stream stream, size_t size) {
        journal_newest(journal)->shown.cut[stream] += size;
        journal->head.cut[stream] += size;
        return journal_head_write_cut(journal->fds[JOURNAL_EVENTS], &journal->head);
}

/* Drops up to max bytes. Returns how many, 0 when the other end is closed, or -errno. */
static ssize_t drop(struct journal *journal, enum journal_stream stream, int pipe_fd, size_t max) {
        char buffer[1 << 16];
        size_t done = 0;
        ssize_t n = 0;
        while (done < max) {
                n = read_now(pipe_fd, buffer, max - done < sizeof(buffer) ? max - done : sizeof(buffer));
                if (n <= 0)
                        break;
                done += (size_t) n;
        }
        if (done == 0)
                return n;
        int code = count_cut(journal, stream, done);
        return code < 0 && !is_full(code) ? code : (ssize_t) done;
}

/* For what cannot be spliced (a socket, an odd file system). Bytes for which there is no room are dropped. */
static ssize_t move_by_copy(struct journal *journal, enum journal_stream stream, int pipe_fd, size_t max,
                            size_t *ret_kept) {
        char buffer[1 << 16];
        ssize_t n = read_now(pipe_fd, buffer, max < sizeof(buffer) ? max : sizeof(buffer));
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
        return code < 0 && !is_full(code) ? code : n;
}

/* Moves up to max bytes; *ret_kept says how many of them are in the file. */
static ssize_t move(struct journal *journal, enum journal_stream stream, int pipe_fd, size_t max, size_t *ret_kept) {
        *ret_kept = 0;
        uint64_t room = journal_newest(journal)->start[stream] + JOURNAL_STREAM_MAX - journal->end[stream];
        if (room == 0 || room > JOURNAL_STREAM_MAX)
                return drop(journal, stream, pipe_fd, max);
        if (max > room)
                max = (size_t) room;
        off_t offset = (off_t) (journal->end[stream] - journal->head.base[stream]);
        ssize_t n = splice(pipe_fd, NULL, journal->fds[stream], &offset, max, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n >= 0) {
                *ret_kept = (size_t) n;
                return n;
        }
        if (is_full(-errno))
                return drop(journal, stream, pipe_fd, max);
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
        ssize_t n = move(journal, stream, pipe_fd, max, &kept);
        if (n == -EAGAIN)
                return 0;
        if (n < 0)
                return err_sys(err, (int) -n, "cannot write the run's output to the session's journal");
        *ret_closed = n == 0;
        *ret_size = (size_t) n;
        journal->end[stream] += kept;
        if (kept == 0 || !is_event_due(journal, stream))
                return 0;
        /* Without room for the event the bytes wait for the next one. */
        int code = journal_record_streams(journal);
        if (code < 0 && !is_full(code))
                return err_sys(err, -code, "cannot write to the session's journal");
        return 0;
}

int journal_note_channel(struct journal *journal, const void *bytes, size_t size, struct err *err) {
        if (!journal->is_open)
                return no_run(err);
        struct journal_entry *run = journal_newest(journal);
        uint64_t used = run->channel_size + (run->n_notes + 1) * JOURNAL_RECORD_HEAD;
        if (used > JOURNAL_CHANNEL_MAX || size > JOURNAL_CHANNEL_MAX - used)
                return err_set(err, ERR_LIMIT,
                               "the kernel sent more than %d MiB of results and displays in one run: stop it",
                               JOURNAL_CHANNEL_MAX >> 20);
        if (size == 0)
                return 0;
        uint64_t next;
        int code = append(journal, JOURNAL_KIND_CHANNEL, NULL, 0, bytes, size, &next);
        if (code < 0)
                return err_sys(err, -code, "cannot write the kernel's answer to the session's journal");
        journal->end[JOURNAL_EVENTS] = next;
        run->channel_size += size;
        run->n_notes++;
        return 0;
}

int journal_end(struct journal *journal, const char *result, size_t size, struct err *err) {
        if (!journal->is_open)
                return no_run(err);
        if (size > JOURNAL_RESULT_MAX)
                return err_set(err, ERR_LIMIT, "a result of %zu bytes is larger than the %d MiB that a run may answer",
                               size, JOURNAL_RESULT_MAX >> 20);
        struct journal_entry *run = journal_newest(journal);
        int64_t now = clock_ms(CLOCK_REALTIME);
        uint8_t payload[24];
        journal_put_u64(payload, (uint64_t) now);
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                journal_put_u64(payload + 8 + 8 * i, run->shown.cut[i]);
        uint64_t next;
        int code = journal_record_streams(journal);
        if (code >= 0)
                code = append(journal, JOURNAL_KIND_END, payload, sizeof(payload), result, size, &next);
        if (code < 0)
                return err_sys(err, -code, "cannot write the result of run %s to the session's journal",
                               run->shown.run_id);
        journal_index_end(journal, now, run->shown.cut, journal->end[JOURNAL_EVENTS] + JOURNAL_RECORD_HEAD + 24, size);
        journal->end[JOURNAL_EVENTS] = next;
        return 0;
}

const char *journal_open_run(const struct journal *journal) {
        return journal->is_open ? journal->runs[journal->n_runs - 1].shown.run_id : NULL;
}
