/* The files of a journal: how a record and the head of `events` look on disk. Numbers are little-endian.
 *
 * `events` is a head of 64 bytes and then records: { u32 size, u8 kind, u24 checksum } and `size` bytes of payload.
 *
 *   BEGIN    i64 wall clock ms, run id (1 to 32 bytes)
 *   OUT, ERR u64 offset, u64 size: bytes of the stream, directly behind those of the record before
 *   CHANNEL  bytes
 *   END      i64 wall clock ms, u64 bytes of stdout cut, u64 of stderr, result
 *
 * All offsets are logical: they count from the first byte that the session ever wrote. The head says at which logical
 * offset each file begins, so dropping old runs copies tails verbatim and changes no record.
 *
 * The checksum covers size, kind and the first 64 bytes of payload: all of a small record. A killed process leaves a
 * short file, which the size shows; the checksum is against a file that is not what it was. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "session/journal.h"

enum journal_kind {
        JOURNAL_KIND_BEGIN = 1,
        JOURNAL_KIND_OUT,
        JOURNAL_KIND_ERR,
        JOURNAL_KIND_CHANNEL,
        JOURNAL_KIND_END,
};

enum {
        JOURNAL_VERSION = 1,
        JOURNAL_HEAD_SIZE = 64,
        JOURNAL_RECORD_HEAD = 8,
        JOURNAL_CHECKED = 64, /* payload bytes that the checksum covers */
        JOURNAL_ID_MAX = 32,
        JOURNAL_EVENTS = JOURNAL_STREAMS, /* index of `events` among the files */
        JOURNAL_FILES,
};

struct journal_head {
        uint32_t version;
        uint32_t side;                 /* N of out.N and err.N */
        uint64_t base[JOURNAL_FILES];  /* logical offset of each file's first byte (of `events`: behind the head) */
        uint64_t cut_run;              /* logical offset of the BEGIN that `cut` is about, plus 1 */
        uint64_t cut[JOURNAL_STREAMS]; /* dropped bytes of a run that is still open */
};

/* -EBADMSG: not the head of a journal. */
int journal_head_read(int fd, struct journal_head *ret_head);
int journal_head_write(int fd, const struct journal_head *head);

/* Only `cut`: a few bytes in one page, so that a killed process leaves the old or the new ones. */
int journal_head_write_cut(int fd, const struct journal_head *head);

struct journal_record {
        enum journal_kind kind;
        uint32_t size;
        uint64_t at, payload_at, next_at; /* logical */
        uint8_t checked[JOURNAL_CHECKED]; /* the first bytes of the payload */
};

/* Reads records one after the other, through a small buffer. */
struct journal_reader {
        int fd;
        uint64_t base, at, end; /* logical; `at` is where the next record begins */
        uint64_t buffer_at;
        size_t buffered;
        uint8_t buffer[4096];
};

void journal_reader_init(struct journal_reader *reader, int fd, uint64_t base, uint64_t at, uint64_t end);

/* 1: a record; 0: the end; -EBADMSG: what is there is no whole record; else -errno. */
int journal_reader_next(struct journal_reader *reader, struct journal_record *ret_record);

/* Writes a record with one system call: `fixed` (at most JOURNAL_CHECKED bytes), then `rest`. What a full disk left of
 * it is cut off again. */
int journal_record_write(int fd, uint64_t base, uint64_t at, enum journal_kind kind, const void *fixed,
                         size_t fixed_size, const void *rest, size_t rest_size, uint64_t *ret_next_at);

/* The same bytes in memory that has JOURNAL_RECORD_HEAD + fixed_size + rest_size of room. */
void journal_record_put(uint8_t *room, enum journal_kind kind, const void *fixed, size_t fixed_size, const void *rest,
                        size_t rest_size);

/* Opens a file of the journal, made when it is not there; `flags` are added. A link or a device is refused (-ELOOP). */
int journal_file_open(int dir_fd, const char *name, int flags);
const char *journal_file_name(size_t file, uint32_t side); /* "out.0" */

/* Reads what there is, up to size bytes, at this offset of the file. Returns how many or -errno. */
ssize_t journal_file_read(int fd, void *bytes, size_t size, uint64_t offset);

uint64_t journal_get_u64(const uint8_t *bytes);
void journal_put_u64(uint8_t *bytes, uint64_t number);
