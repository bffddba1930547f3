/* Opening a journal: reads what a killed daemon left, and cuts it off where it is not valid. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "journal/journal_state.h"

/* Files that are no journal are kept for a person to look at. `events` is moved last, so that a crash in between is
 * continued. */
static int move_files_aside(int dir_fd) {
        static const char *const names[] = { "out.0", "out.1", "err.0", "err.1", "events" };
        for (size_t i = 0; i < ELEMENTS(names); i++) {
                char aside[32];
                (void) snprintf(aside, sizeof(aside), "%s.damaged", names[i]);
                if (renameat(dir_fd, names[i], dir_fd, aside) < 0 && errno != ENOENT)
                        return -errno;
        }
        return 0;
}

static int make_events(struct journal *journal) {
        int fd = journal_file_open(journal->dir_fd, "events", O_TRUNC);
        if (fd < 0)
                return fd;
        journal->fds[JOURNAL_EVENTS] = fd;
        journal->head = (struct journal_head) { .version = JOURNAL_VERSION };
        return journal_head_write(fd, &journal->head);
}

static int open_events(struct journal *journal, bool *ret_torn) {
        if (faccessat(journal->dir_fd, "events", F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
                if (errno != ENOENT)
                        return -errno;
                /* It is made before the inbox. */
                *ret_torn = faccessat(journal->dir_fd, "inbox", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
                return make_events(journal);
        }
        int fd = journal_file_open(journal->dir_fd, "events", 0);
        if (fd < 0)
                return fd;
        journal->fds[JOURNAL_EVENTS] = fd;
        int code = journal_head_read(fd, &journal->head);
        if (code != -EBADMSG)
                return code;
        fd_close(&journal->fds[JOURNAL_EVENTS]);
        *ret_torn = true;
        code = move_files_aside(journal->dir_fd);
        return code < 0 ? code : make_events(journal);
}

/* Removes the leftovers of an interrupted rewrite: either its new files, or the old ones. */
static void remove_leftovers(struct journal *journal) {
        (void) unlinkat(journal->dir_fd, "events.new", 0);
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                (void) unlinkat(journal->dir_fd, journal_file_name(i, 1 - journal->head.side), 0);
}

static int apply_begin(struct journal *journal, const struct journal_record *record) {
        if (journal->is_open || record->size < 8 || record->size > 8 + JOURNAL_ID_MAX)
                return -EBADMSG;
        char id[JOURNAL_ID_MAX + 1] = { 0 };
        memcpy(id, record->checked + 8, record->size - 8);
        if (!journal_is_run_id(id, record->size - 8))
                return -EBADMSG;
        int code = journal_index_reserve_run(journal);
        if (code == 0)
                journal_index_begin(journal, id, (int64_t) journal_get_u64(record->checked));
        return code;
}

/* Reads the members of a REQUEST, if it is one. */
struct request_record {
        struct journal_request request;
        int64_t wall_ms;
        uint64_t ends[JOURNAL_STREAMS]; /* of the streams, then: after a gap nothing else has them */
};

/* -EBADMSG: it cannot stand here, whatever stood before it. Changes nothing. */
static int parse_request(const struct journal *journal, const struct journal_record *record,
                         struct request_record *ret_parsed) {
        const uint8_t *fixed = record->checked;
        size_t fixed_size = record->is_checked ? JOURNAL_REQUEST_FIXED : JOURNAL_REQUEST_FIXED_2;
        if (record->size < fixed_size)
                return -EBADMSG;
        size_t id_size = fixed[30];
        if (id_size > JOURNAL_ID_MAX || record->size < fixed_size + id_size)
                return -EBADMSG;
        struct request_record parsed = {
                .request = { .began_ms = (int64_t) journal_get_u64(fixed + 8),
                             .timeout_ms = journal_get_u64(fixed + 16),
                             .inbox_at = journal_get_u32(fixed + 24),
                             .is_run = fixed[28] & JOURNAL_FLAG_RUN,
                             .reports_loss = fixed[28] & JOURNAL_FLAG_TELLS_LOSS,
                             .type = fixed[29],
                             .size = record->size - fixed_size - id_size },
                .wall_ms = (int64_t) journal_get_u64(fixed),
        };
        for (size_t i = 0; i < JOURNAL_STREAMS; i++) {
                parsed.ends[i] =
                        record->is_checked ? journal_get_u64(fixed + JOURNAL_REQUEST_FIXED_2 + 8 * i) : journal->end[i];
                if (parsed.ends[i] < journal->end[i] || parsed.ends[i] - journal->end[i] > JOURNAL_OFFSET_MAX)
                        return -EBADMSG;
        }
        memcpy(parsed.request.id, fixed + fixed_size, id_size);
        if (!journal_is_run_id(parsed.request.id, id_size))
                return -EBADMSG;
        *ret_parsed = parsed;
        return 0;
}

static int apply_request(struct journal *journal, const struct journal_record *record) {
        struct request_record parsed;
        if (journal->is_open || parse_request(journal, record, &parsed) < 0)
                return -EBADMSG;
        const struct journal_request *request = &parsed.request;
        int code = request->is_run ? journal_index_reserve_run(journal) : 0;
        if (code < 0)
                return code;
        memcpy(journal->end, parsed.ends, sizeof(parsed.ends));
        if (request->is_run)
                journal_index_begin(journal, request->id, parsed.wall_ms);
        journal_index_request(journal, request, request->size > 0 ? record->next_at - request->size : 0);
        journal->is_request_checked = record->is_checked;
        journal->request_crc = record->crc;
        return 0;
}

static int apply_holds(struct journal *journal, const struct journal_record *record) {
        if (journal->is_open || record->size != JOURNAL_HOLDS_SIZE || record->checked[12] >= JOURNAL_HOLDS_STATES)
                return -EBADMSG;
        journal_index_hold(journal, record->checked[12], journal_get_u32(record->checked + 8));
        return 0;
}

/* END of version 1 says nothing about variables. */
static int apply_end(struct journal *journal, const struct journal_record *record) {
        bool is_old = record->kind == JOURNAL_KIND_END;
        size_t fixed = is_old ? 24 : JOURNAL_DONE_FIXED;
        uint64_t cut[JOURNAL_STREAMS];
        if (record->size < fixed || (!is_old && record->checked[24] >= JOURNAL_HOLDS_STATES))
                return -EBADMSG;
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                cut[i] = journal_get_u64(record->checked + 8 + 8 * i);
        journal_index_end(journal, (int64_t) journal_get_u64(record->checked), cut, record->payload_at + fixed,
                          record->size - fixed);
        struct journal_entry *run = journal_newest(journal);
        run->is_checked = record->is_checked;
        run->result_crc = record->crc;
        journal_index_hold(journal, is_old ? JOURNAL_HOLDS_UNKNOWN : (enum journal_holds) record->checked[24],
                           journal->inbox_mark);
        return 0;
}

static int apply_stream(struct journal *journal, const struct journal_record *record, enum journal_stream stream,
                        uint64_t limit) {
        if (!journal->is_open || record->size != (record->is_checked ? 20 : 16))
                return -EBADMSG;
        uint64_t offset = journal_get_u64(record->checked), size = journal_get_u64(record->checked + 8);
        /* Bytes that are missing are no reason to lose records: their checksum fails when they are read. */
        if (record->is_checked)
                limit = offset + JOURNAL_STREAM_MAX;
        if (offset != journal->end[stream] || size == 0 || size > limit - offset)
                return -EBADMSG;
        int code = journal_index_reserve(journal);
        if (code < 0)
                return code;
        journal_index_stream(journal, stream, record->at, size);
        journal->end[stream] = offset + size;
        return 0;
}

/* Applies a record, if it may stand in this place. -EBADMSG if not. `limits`: where the streams' files end. */
static int apply_record(struct journal *journal, const struct journal_record *record, const uint64_t *limits) {
        switch (record->kind) {
        case JOURNAL_KIND_BEGIN:
                return apply_begin(journal, record);
        case JOURNAL_KIND_REQUEST:
                return apply_request(journal, record);
        case JOURNAL_KIND_HOLDS:
                return apply_holds(journal, record);
        default:
                break;
        }
        if (!journal->is_open)
                return -EBADMSG;
        switch (record->kind) {
        case JOURNAL_KIND_OUT:
                return apply_stream(journal, record, JOURNAL_OUT, limits[JOURNAL_OUT]);
        case JOURNAL_KIND_ERR:
                return apply_stream(journal, record, JOURNAL_ERR, limits[JOURNAL_ERR]);
        case JOURNAL_KIND_CHANNEL:
                return 0;
        case JOURNAL_KIND_END:
        case JOURNAL_KIND_DONE:
                return apply_end(journal, record);
        default:
                return -EBADMSG;
        }
}

/* From the reader's place on, to the next record that is a request and can be applied. 1: there is one, and it is read
 * next; 0: there is none; -errno. */
static int seek_request(const struct journal *journal, struct journal_reader *reader) {
        int code;
        while ((code = journal_reader_seek_request(reader)) > 0) {
                uint64_t at = reader->at;
                struct journal_record record;
                struct request_record parsed;
                code = journal_reader_next(reader, &record);
                if (code < 0 && code != -EBADMSG)
                        return code;
                bool is_good = code > 0 && parse_request(journal, &record, &parsed) == 0;
                reader->at = is_good ? at : at + 1;
                if (is_good)
                        return 1;
        }
        return code;
}

/* The bytes are no record, or none that is valid here. If a request follows, something between has been damaged: it
 * costs the run that was open, if any, and those whose requests are lost. If none follows, the last daemon died while
 * it wrote, and its partial record is removed: the next record must directly follow the last valid one, or it would
 * count as a part of the damage. Returns 1 when there is more to read. */
static int skip_damage(struct journal *journal, struct journal_reader *reader) {
        uint64_t base = journal->head.base[JOURNAL_EVENTS];
        reader->at = journal->end[JOURNAL_EVENTS] + 1;
        int code = seek_request(journal, reader);
        journal->holds = journal->is_open && code <= 0 ? journal->holds : JOURNAL_HOLDS_UNKNOWN;
        if (code < 0)
                return code;
        if (code == 0) {
                off_t good = (off_t) (journal->end[JOURNAL_EVENTS] - base + JOURNAL_HEAD_SIZE);
                return ftruncate(journal->fds[JOURNAL_EVENTS], good) < 0 ? -errno : 0;
        }
        if (journal->is_open) {
                struct journal_entry *run = journal_newest(journal);
                journal_index_end(journal, run->shown.began_ms, run->shown.cut, reader->at, 0);
                run->shown.damaged = true;
        }
        journal->is_asked = false;
        journal->end[JOURNAL_EVENTS] = reader->at;
        return 1;
}

static int journal_load_scan(struct journal *journal, const uint64_t *limits, bool *ret_torn) {
        struct journal_reader reader;
        uint64_t base = journal->head.base[JOURNAL_EVENTS];
        journal_reader_init(&reader, journal->fds[JOURNAL_EVENTS], base, base, limits[JOURNAL_EVENTS]);
        for (;;) {
                struct journal_record record;
                int code = journal_reader_next(&reader, &record);
                if (code == 0)
                        return 0;
                if (code > 0)
                        code = apply_record(journal, &record, limits);
                if (code == -EBADMSG) {
                        *ret_torn = true;
                        code = skip_damage(journal, &reader);
                        if (code <= 0)
                                return code;
                        continue;
                }
                if (code < 0)
                        return code;
                journal->end[JOURNAL_EVENTS] = record.next_at;
        }
}

/* Bytes that no record mentions: of the open run, when the daemon died between moving and recording them; else of a run
 * whose records were lost, and then they cannot be requested. */
static int settle_tail(struct journal *journal, enum journal_stream stream, uint64_t limit) {
        uint64_t end = journal->end[stream];
        if (journal->is_open) {
                uint64_t run_max = journal_newest(journal)->start[stream] + JOURNAL_STREAM_MAX;
                end = limit < end ? end : limit < run_max ? limit : run_max > end ? run_max : end;
        }
        journal->end[stream] = end;
        if (limit > end && ftruncate(journal->fds[stream], (off_t) (end - journal->head.base[stream])) < 0)
                return -errno;
        return 0;
}

static int settle_cut(struct journal *journal) {
        struct journal_head *head = &journal->head;
        struct journal_entry *run = journal->is_open ? journal_newest(journal) : NULL;
        if (run && head->cut_run == run->start[JOURNAL_EVENTS] + 1) {
                memcpy(run->shown.cut, head->cut, sizeof(head->cut));
                return 0;
        }
        bool stale = head->cut_run != 0;
        head->cut_run = 0;
        memset(head->cut, 0, sizeof(head->cut));
        /* A run that begins where a lost one began must not inherit its number. */
        return stale ? journal_head_write_cut(journal->fds[JOURNAL_EVENTS], head) : 0;
}

/* Opens the files of the streams; ret_limits is the offset at which each file ends now. */
static int open_files(struct journal *journal, uint64_t ret_limits[static JOURNAL_FILES]) {
        for (size_t i = 0; i < JOURNAL_FILES; i++) {
                if (i < JOURNAL_STREAMS)
                        journal->fds[i] =
                                journal_file_open(journal->dir_fd, journal_file_name(i, journal->head.side), 0);
                if (journal->fds[i] < 0)
                        return journal->fds[i];
                struct stat status;
                if (fstat(journal->fds[i], &status) < 0)
                        return -errno;
                ret_limits[i] = journal->head.base[i] + (uint64_t) status.st_size -
                                (i == JOURNAL_EVENTS ? JOURNAL_HEAD_SIZE : 0);
                journal->end[i] = journal->head.base[i];
        }
        return 0;
}

/* So that an older version does not cut off records of this format. */
static int write_version(struct journal *journal) {
        if (journal->head.version >= JOURNAL_VERSION)
                return 0;
        int code = journal_head_write(journal->fds[JOURNAL_EVENTS], &journal->head);
        journal->head.version = JOURNAL_VERSION;
        return code;
}

static int journal_load_load(struct journal *journal, bool *ret_torn) {
        uint64_t limits[JOURNAL_FILES];
        int code = open_events(journal, ret_torn);
        if (code < 0)
                return code;
        if (journal->head.version > JOURNAL_VERSION)
                return -EPROTONOSUPPORT;
        remove_leftovers(journal);
        code = open_files(journal, limits);
        if (code < 0)
                return code;
        code = journal_load_scan(journal, limits, ret_torn);
        for (size_t i = 0; i < JOURNAL_STREAMS && code >= 0; i++)
                code = settle_tail(journal, (enum journal_stream) i, limits[i]);
        if (code >= 0)
                code = settle_cut(journal);
        if (code >= 0)
                code = write_version(journal);
        if (code >= 0)
                code = journal_inbox_open(journal);
        /* On a full disk the bytes stay without an event until there is room: nothing is lost. */
        if (code >= 0 && journal->is_open)
                (void) journal_record_streams(journal);
        return code;
}

int journal_load(struct journal *journal, bool *ret_torn, struct err *err) {
        int code = journal_load_load(journal, ret_torn);
        if (code == -EPROTONOSUPPORT)
                return err_set(
                        err, ERR_UNSUPPORTED,
                        "this session's journal has format %u, and this Glovebox knows only format %d: use the newer "
                        "version that wrote it, or remove the session",
                        journal->head.version, JOURNAL_VERSION);
        if (code < 0)
                return err_sys(err, -code, "cannot open the session's journal");
        return 0;
}
