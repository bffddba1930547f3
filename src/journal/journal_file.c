#include "journal/journal_file.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fd.h"
#include "base/fnv.h"

static const char magic[8] = "GLVBJNL";

/* `cut_run` has the lower bits of its place, and a checksum the others. */
#define CUT_RUN_BITS 40
#define CUT_RUN_MAX ((1ull << CUT_RUN_BITS) - 1)

enum { PIECE = 64 << 10 }; /* bytes of a record that are written at a time */
enum { HEAD_VERSION = 8, HEAD_SIDE = 12, HEAD_BASE = 16, HEAD_CUT = 40 };
_Static_assert(HEAD_CUT + 8 + 8 * JOURNAL_STREAMS == JOURNAL_HEAD_SIZE, "the head is full");

uint64_t journal_get_u64(const uint8_t *bytes) {
        uint64_t number;
        memcpy(&number, bytes, sizeof(number));
        return le64toh(number);
}

void journal_put_u64(uint8_t *bytes, uint64_t number) {
        number = htole64(number);
        memcpy(bytes, &number, sizeof(number));
}

uint32_t journal_get_u32(const uint8_t *bytes) {
        uint32_t number;
        memcpy(&number, bytes, sizeof(number));
        return le32toh(number);
}

void journal_put_u32(uint8_t *bytes, uint32_t number) {
        number = htole32(number);
        memcpy(bytes, &number, sizeof(number));
}

static int write_head_part(int fd, const void *bytes, size_t size, off_t offset) {
        ssize_t n;
        do
                n = pwrite(fd, bytes, size, offset);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        return (size_t) n == size ? 0 : -ENOSPC;
}

/* 24 bits, for the upper ones of a number that needs fewer. */
static uint32_t short_crc(const uint8_t *bytes, size_t size) {
        return crc32c(0, bytes, size) & 0xffffff;
}

/* Of version, side and bases. `bytes` is a whole head. */
static uint32_t head_crc(const uint8_t *bytes) {
        uint8_t copy[HEAD_CUT];
        memcpy(copy, bytes, sizeof(copy));
        memset(copy + HEAD_SIDE + 1, 0, 3);
        return short_crc(copy, sizeof(copy));
}

/* If the number of cut bytes is damaged, it is ignored: that is no reason to lose a journal. */
static void read_cut(const uint8_t *bytes, struct journal_head *head) {
        uint8_t copy[JOURNAL_HEAD_SIZE - HEAD_CUT];
        memcpy(copy, bytes, sizeof(copy));
        head->cut_run = journal_get_u64(bytes);
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                head->cut[i] = journal_get_u64(bytes + 8 + 8 * i);
        if (head->version < 3)
                return;
        uint32_t crc = (uint32_t) (head->cut_run >> CUT_RUN_BITS);
        head->cut_run &= CUT_RUN_MAX;
        journal_put_u64(copy, head->cut_run);
        if (crc != short_crc(copy, sizeof(copy)))
                head->cut_run = 0;
}

int journal_head_read(int fd, struct journal_head *ret_head) {
        uint8_t bytes[JOURNAL_HEAD_SIZE];
        ssize_t n = fd_read_at(fd, bytes, sizeof(bytes), 0);
        if (n < 0)
                return (int) n;
        if ((size_t) n < sizeof(bytes) || memcmp(bytes, magic, sizeof(magic)) != 0)
                return -EBADMSG;
        struct journal_head head = { .version = journal_get_u32(bytes + HEAD_VERSION),
                                     .side = journal_get_u32(bytes + HEAD_SIDE) };
        bool sane = head.version > 0;
        if (head.version >= 3) {
                sane = head.side >> 8 == head_crc(bytes);
                head.side &= 0xff;
        }
        sane = sane && head.side <= 1;
        for (size_t i = 0; i < JOURNAL_FILES; i++) {
                head.base[i] = journal_get_u64(bytes + HEAD_BASE + 8 * i);
                sane = sane && head.base[i] < JOURNAL_OFFSET_MAX;
        }
        read_cut(bytes + HEAD_CUT, &head);
        /* The format of a newer version is unknown. */
        if (!sane && head.version <= JOURNAL_VERSION)
                return -EBADMSG;
        *ret_head = head;
        return 0;
}

static void put_cut(uint8_t *bytes, const struct journal_head *head) {
        journal_put_u64(bytes, head->cut_run & CUT_RUN_MAX);
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                journal_put_u64(bytes + 8 + 8 * i, head->cut[i]);
        uint64_t crc = short_crc(bytes, JOURNAL_HEAD_SIZE - HEAD_CUT);
        journal_put_u64(bytes, (head->cut_run & CUT_RUN_MAX) | crc << CUT_RUN_BITS);
}

int journal_head_write(int fd, const struct journal_head *head) {
        uint8_t bytes[JOURNAL_HEAD_SIZE];
        memcpy(bytes, magic, sizeof(magic));
        journal_put_u32(bytes + HEAD_VERSION, JOURNAL_VERSION);
        journal_put_u32(bytes + HEAD_SIDE, head->side);
        for (size_t i = 0; i < JOURNAL_FILES; i++)
                journal_put_u64(bytes + HEAD_BASE + 8 * i, head->base[i]);
        journal_put_u32(bytes + HEAD_SIDE, head->side | head_crc(bytes) << 8);
        put_cut(bytes + HEAD_CUT, head);
        return write_head_part(fd, bytes, sizeof(bytes), 0);
}

int journal_head_write_cut(int fd, const struct journal_head *head) {
        uint8_t bytes[JOURNAL_HEAD_SIZE - HEAD_CUT];
        put_cut(bytes, head);
        return write_head_part(fd, bytes, sizeof(bytes), HEAD_CUT);
}

/* Of versions 1 and 2: FNV-1a, folded to 24 bits. */
static uint32_t checksum_2(uint32_t size, uint8_t kind, const uint8_t *checked) {
        uint8_t head[5];
        journal_put_u32(head, size);
        head[4] = kind;
        uint32_t sum = fnv_add(FNV_START, head, sizeof(head));
        sum = fnv_add(sum, checked, size < JOURNAL_CHECKED_2 ? size : JOURNAL_CHECKED_2);
        return (sum >> 24) ^ (sum & 0xffffff);
}

void journal_reader_init(struct journal_reader *reader, int fd, uint64_t base, uint64_t at, uint64_t end) {
        reader->fd = fd;
        reader->base = base;
        reader->at = at;
        reader->end = end;
        reader->buffer_at = 0;
        reader->buffered = 0;
}

/* Makes `size` bytes at the reader's place available in its buffer, or as many as there are. */
static ssize_t journal_file_fill(struct journal_reader *reader, size_t size, const uint8_t **ret_bytes) {
        uint64_t there = reader->end - reader->at;
        if (size > there)
                size = (size_t) there;
        if (reader->buffered == 0 || reader->at < reader->buffer_at ||
            reader->at + size > reader->buffer_at + reader->buffered) {
                size_t want = there < sizeof(reader->buffer) ? (size_t) there : sizeof(reader->buffer);
                ssize_t n = fd_read_at(reader->fd, reader->buffer, want, reader->at - reader->base + JOURNAL_HEAD_SIZE);
                if (n < 0)
                        return n;
                reader->buffer_at = reader->at;
                reader->buffered = (size_t) n;
                if ((size_t) n < size)
                        size = (size_t) n;
        }
        *ret_bytes = reader->buffer + (reader->at - reader->buffer_at);
        return (ssize_t) size;
}

/* True if this is the head of a version 3 record, with the part of its payload that the head's checksum covers. `n`:
 * the number of bytes available. */
static bool is_checked_head(const uint8_t *bytes, size_t n) {
        if (n < JOURNAL_RECORD_HEAD || bytes[5] || bytes[6] || bytes[7])
                return false;
        uint32_t size = journal_get_u32(bytes);
        size_t checked = size < JOURNAL_CHECKED ? size : JOURNAL_CHECKED;
        return n >= JOURNAL_RECORD_HEAD + checked &&
               journal_get_u32(bytes + 12) == crc32c(crc32c(0, bytes, 12), bytes + JOURNAL_RECORD_HEAD, checked);
}

static bool is_head_2(const uint8_t *bytes, size_t n) {
        uint32_t size = journal_get_u32(bytes);
        size_t checked = size < JOURNAL_CHECKED_2 ? size : JOURNAL_CHECKED_2;
        return n >= JOURNAL_RECORD_HEAD_2 + checked &&
               journal_get_u32(bytes + 4) >> 8 == checksum_2(size, bytes[4], bytes + JOURNAL_RECORD_HEAD_2);
}

int journal_reader_next(struct journal_reader *reader, struct journal_record *ret_record) {
        if (reader->at >= reader->end)
                return 0;
        const uint8_t *bytes;
        ssize_t n = journal_file_fill(reader, JOURNAL_RECORD_HEAD + JOURNAL_CHECKED, &bytes);
        if (n < 0)
                return (int) n;
        if (n < JOURNAL_RECORD_HEAD_2)
                return -EBADMSG;
        bool is_new = bytes[4] & JOURNAL_KIND_CHECKED;
        size_t head = is_new ? JOURNAL_RECORD_HEAD : JOURNAL_RECORD_HEAD_2;
        if (!(is_new ? is_checked_head : is_head_2)(bytes, (size_t) n))
                return -EBADMSG;
        struct journal_record record = { .kind = bytes[4] & ~JOURNAL_KIND_CHECKED,
                                         .size = journal_get_u32(bytes),
                                         .at = reader->at,
                                         .payload_at = reader->at + head,
                                         .is_checked = is_new,
                                         .crc = is_new ? journal_get_u32(bytes + 8) : 0 };
        record.next_at = record.payload_at + record.size;
        if (record.next_at > reader->end)
                return -EBADMSG;
        size_t room = is_new ? JOURNAL_CHECKED : JOURNAL_CHECKED_2;
        memcpy(record.checked, bytes + head, record.size < room ? record.size : room);
        reader->at = record.next_at;
        *ret_record = record;
        return 1;
}

int journal_reader_seek_request(struct journal_reader *reader) {
        for (; reader->at < reader->end; reader->at++) {
                const uint8_t *bytes;
                ssize_t n = journal_file_fill(reader, JOURNAL_RECORD_HEAD + JOURNAL_CHECKED, &bytes);
                if (n < JOURNAL_RECORD_HEAD)
                        return n < 0 ? (int) n : 0;
                if (bytes[4] == (JOURNAL_KIND_REQUEST | JOURNAL_KIND_CHECKED) && is_checked_head(bytes, (size_t) n) &&
                    reader->at + JOURNAL_RECORD_HEAD + journal_get_u32(bytes) <= reader->end)
                        return 1;
        }
        return 0;
}

/* The head of a record and as much of its payload as is checked with it. Returns how many bytes of `rest` that is. */
static size_t put_head(uint8_t head[static JOURNAL_RECORD_HEAD + JOURNAL_CHECKED], enum journal_kind kind,
                       const void *fixed, size_t fixed_size, const void *rest, size_t rest_size) {
        uint8_t *checked = head + JOURNAL_RECORD_HEAD;
        if (fixed_size > 0)
                memcpy(checked, fixed, fixed_size);
        size_t beside = rest_size < JOURNAL_CHECKED - fixed_size ? rest_size : JOURNAL_CHECKED - fixed_size;
        if (beside > 0)
                memcpy(checked + fixed_size, rest, beside);
        journal_put_u32(head, (uint32_t) (fixed_size + rest_size));
        journal_put_u32(head + 4, (uint32_t) kind | JOURNAL_KIND_CHECKED);
        journal_put_u32(head + 8, crc32c(0, rest, rest_size));
        journal_put_u32(head + 12, crc32c(crc32c(0, head, 12), checked, fixed_size + beside));
        return beside;
}

/* In pieces. For one large write the page cache takes blocks of up to 2 MiB that have been free for long. In a virtual
 * machine whose host was given them back (free page reporting) the first touch of each takes 10 ms and more. */
static int write_pieces(int fd, const char *bytes, size_t size, off_t offset) {
        for (size_t done = 0; done < size;) {
                ssize_t n = pwrite(fd, bytes + done, size - done < PIECE ? size - done : PIECE, offset + (off_t) done);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -ENOSPC;
                done += (size_t) n;
        }
        return 0;
}

int journal_record_write(int fd, uint64_t base, uint64_t at, enum journal_kind kind, const void *fixed,
                         size_t fixed_size, const void *rest, size_t rest_size, uint64_t *ret_next_at) {
        size_t size = fixed_size + rest_size;
        if (fixed_size > JOURNAL_CHECKED || size > UINT32_MAX / 2)
                return -EMSGSIZE;
        uint8_t head[JOURNAL_RECORD_HEAD + JOURNAL_CHECKED];
        size_t beside = put_head(head, kind, fixed, fixed_size, rest, rest_size);
        size_t in_head = JOURNAL_RECORD_HEAD + fixed_size + beside;
        size_t left = rest_size - beside, first = left < PIECE ? left : PIECE;
        const char *more = left > 0 ? (const char *) rest + beside : NULL;
        const struct iovec parts[2] = { { .iov_base = head, .iov_len = in_head },
                                        { .iov_base = (char *) (uintptr_t) more, .iov_len = first } };
        off_t offset = (off_t) (at - base + JOURNAL_HEAD_SIZE);
        ssize_t n;
        do
                n = pwritev(fd, parts, first > 0 ? 2 : 1, offset);
        while (n < 0 && errno == EINTR);
        int code = n < 0 ? -errno : (size_t) n == in_head + first ? 0 : -ENOSPC;
        if (code == 0 && left > first)
                code = write_pieces(fd, more + first, left - first, offset + n);
        if (code < 0)
                /* If even this fails, the next record is written over it, or journal_load cuts it off. */
                return ftruncate(fd, offset) < 0 ? -errno : code;
        *ret_next_at = at + JOURNAL_RECORD_HEAD + size;
        return 0;
}

int journal_file_open(int dir_fd, const char *name, int flags) {
        _cleanup_fd_ int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
        if (fd < 0)
                return -errno;
        struct stat status;
        if (fstat(fd, &status) < 0)
                return -errno;
        return S_ISREG(status.st_mode) ? take_fd(&fd) : -ELOOP;
}

const char *journal_file_name(size_t file, uint32_t side) {
        static const char *const names[JOURNAL_STREAMS][2] = { { "out.0", "out.1" }, { "err.0", "err.1" } };
        return file < JOURNAL_STREAMS ? names[file][side & 1] : "events";
}
