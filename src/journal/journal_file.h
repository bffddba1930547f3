/* The files of a journal: how a record and the head of `events` look on disk. Numbers are little-endian.
 *
 * `events` is a head of 64 bytes and then records: { u32 size, u8 kind with the top bit set, u24 0, u32 CRC-32C of the
 * variable part, u32 CRC-32C of these 12 bytes and of the first 96 of the payload } and `size` bytes of payload. So all
 * that the index is made of is checked when a journal is opened, and the rest when it is read. A record that is damaged
 * costs its run: what follows is found again at the next request, which says where the streams were.
 *
 *   REQUEST  i64 wall clock ms, i64 monotonic ms, u64 timeout ms, u32 inbox offset, u8 flags, u8 type of frame, u8 size
 *            of the id, u64 end of stdout, u64 of stderr, id (1 to 32 bytes); payload of the frame: the
 *            request to the kernel; with the flag RUN a run
 *   OUT, ERR u64 offset, u64 size, u32 CRC-32C: bytes of the stream, directly behind those of the record before
 *   DONE     i64 wall clock ms, u64 bytes of stdout cut, u64 of stderr, u8 holds, result: the run has ended
 *   HOLDS    i64 wall clock ms, u32 inbox offset, u8 holds: where the variables are from now on; ends a request that
 *            is no run
 *
 * Older versions are still read. Their records begin with { u32 size, u8 kind, u24 checksum of size, kind and the first
 * 64 bytes of payload }; REQUEST has no ends, OUT and ERR no CRC. Version 1 had other kinds, too:
 *
 *   BEGIN    i64 wall clock ms, run id (1 to 32 bytes)
 *   CHANNEL  bytes
 *   END      i64 wall clock ms, u64 bytes of stdout cut, u64 of stderr, result
 *
 * All offsets are logical: they count from the first byte that the session ever wrote. The head says at which logical
 * offset each file begins, so dropping old runs copies tails verbatim and changes no record. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "journal/journal.h"

enum journal_kind {
        JOURNAL_KIND_BEGIN = 1,
        JOURNAL_KIND_OUT,
        JOURNAL_KIND_ERR,
        JOURNAL_KIND_CHANNEL,
        JOURNAL_KIND_END,
        JOURNAL_KIND_REQUEST,
        JOURNAL_KIND_DONE,
        JOURNAL_KIND_HOLDS,
        JOURNAL_KIND_CHECKED = 0x80, /* a bit of the byte on disk: a record of version 3 */
};

enum {
        JOURNAL_VERSION = 3,
        JOURNAL_HEAD_SIZE = 64,
        JOURNAL_RECORD_HEAD = 16,
        JOURNAL_RECORD_HEAD_2 = 8, /* up to version 2 */
        JOURNAL_CHECKED = 96, /* payload bytes that are checked with the head */
        JOURNAL_CHECKED_2 = 64,
        JOURNAL_ID_MAX = 32,
        JOURNAL_REQUEST_FIXED_2 = 31,
        JOURNAL_REQUEST_FIXED = 47, /* bytes of a REQUEST before its id */
        JOURNAL_DONE_FIXED = 25,
        JOURNAL_HOLDS_SIZE = 13,
        JOURNAL_FLAG_RUN = 1,
        JOURNAL_FLAG_TELLS_LOSS = 2,
};

/* Logical offsets stay below this, so that adding a size to one never wraps. */
#define JOURNAL_OFFSET_MAX (1ull << 60)

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
        bool is_checked; /* of version 3 */
        uint32_t crc;    /* of the variable part, then */
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

/* From the reader's place on, over whatever is there, to the next REQUEST that is whole. 1: there is one, and it is
 * read next; 0: there is none; -errno. */
int journal_reader_seek_request(struct journal_reader *reader);

/* Writes a record with one system call: `fixed` (at most JOURNAL_CHECKED bytes), then `rest`. If the disk is full, the
 * part that was written is cut off again. */
int journal_record_write(int fd, uint64_t base, uint64_t at, enum journal_kind kind, const void *fixed,
                         size_t fixed_size, const void *rest, size_t rest_size, uint64_t *ret_next_at);

/* Opens a file of the journal, made when it is not there; `flags` are added. A link or a device is refused (-ELOOP). */
int journal_file_open(int dir_fd, const char *name, int flags);
const char *journal_file_name(size_t file, uint32_t side); /* "out.0" */

uint64_t journal_get_u64(const uint8_t *bytes);
void journal_put_u64(uint8_t *bytes, uint64_t number);
uint32_t journal_get_u32(const uint8_t *bytes);
void journal_put_u32(uint8_t *bytes, uint32_t number);
