/* Dropping old runs. They leave the index at once, and the files when enough of them has come together: the tails that
 * stay are copied to new files, and the rename of `events`, whose head names the others, is the moment it becomes true.
 * Killed before it, the old files stand; killed after it, the new ones do; journal_load removes the rest. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/journal_state.h"

static int copy_plainly(int from_fd, off_t from, int to_fd, off_t to, uint64_t size) {
        char buffer[1 << 16];
        while (size > 0) {
                ssize_t n = journal_file_read(from_fd, buffer, size < sizeof(buffer) ? size : sizeof(buffer),
                                              (uint64_t) from);
                if (n <= 0)
                        return n < 0 ? (int) n : -ENODATA;
                ssize_t written = pwrite(to_fd, buffer, (size_t) n, to);
                if (written < 0 && errno == EINTR)
                        continue;
                if (written < 0)
                        return -errno;
                from += written;
                to += written;
                size -= (uint64_t) written;
        }
        return 0;
}

static int copy(int from_fd, uint64_t from_offset, int to_fd, uint64_t to_offset, uint64_t size) {
        off_t from = (off_t) from_offset, to = (off_t) to_offset;
        while (size > 0) {
                ssize_t n = copy_file_range(from_fd, &from, to_fd, &to, size, 0);
                if (n < 0 && errno == EINTR)
                        continue;
                /* File systems that cannot do it say so in many ways; some copy nothing. */
                if (n <= 0)
                        return copy_plainly(from_fd, from, to_fd, to, size);
                size -= (uint64_t) n;
        }
        return 0;
}

/* A new file with what lies from `from` on. Returns its descriptor or -errno. */
static int copy_tail(struct journal *journal, size_t file, uint64_t from, const char *name, uint64_t skip) {
        (void) unlinkat(journal->dir_fd, name, 0);
        _cleanup_fd_ int fd = journal_file_open(journal->dir_fd, name, O_EXCL);
        if (fd < 0)
                return fd;
        uint64_t offset = from - journal->head.base[file] + skip;
        int code = copy(journal->fds[file], offset, fd, skip, journal->end[file] - from);
        return code < 0 ? code : take_fd(&fd);
}

static int rewrite(struct journal *journal, int fds[static JOURNAL_FILES], struct journal_head *head) {
        const uint64_t *from = journal->n_runs > 0 ? journal->runs[0].start : journal->end;
        head->side = 1 - head->side;
        memcpy(head->base, from, sizeof(head->base));
        for (size_t i = 0; i < JOURNAL_FILES; i++) {
                bool is_events = i == JOURNAL_EVENTS;
                fds[i] = copy_tail(journal, i, from[i], is_events ? "events.new" : journal_file_name(i, head->side),
                                   is_events ? JOURNAL_HEAD_SIZE : 0);
                if (fds[i] < 0)
                        return fds[i];
        }
        int code = journal_head_write(fds[JOURNAL_EVENTS], head);
        if (code < 0)
                return code;
        return renameat(journal->dir_fd, "events.new", journal->dir_fd, "events") < 0 ? -errno : 0;
}

/* Either side: the files of the one that is not in use. */
static void remove_side(struct journal *journal, uint32_t side) {
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                (void) unlinkat(journal->dir_fd, journal_file_name(i, side), 0);
        (void) unlinkat(journal->dir_fd, "events.new", 0);
}

static uint64_t bytes_from(const struct journal *journal, const uint64_t *from) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < JOURNAL_FILES; i++)
                bytes += journal->end[i] - from[i];
        return bytes;
}

void journal_rotate(struct journal *journal) {
        bool large = bytes_from(journal, journal->head.base) > JOURNAL_BYTES_MAX;
        size_t drop = 0;
        /* To the half, so that not every run pays for a rewrite. */
        while (large && journal->n_runs - drop > 2 &&
               bytes_from(journal, journal->runs[drop].start) > JOURNAL_BYTES_MAX / 2)
                drop++;
        while (journal->n_runs - drop > JOURNAL_RUNS_KEPT - 1)
                drop++;
        journal_index_drop(journal, drop);
        if (journal->n_dropped == 0 || (!large && journal->n_dropped <= JOURNAL_RUNS_SLACK) ||
            slate_write(&journal->waiting) < 0)
                return;

        int fds[JOURNAL_FILES] = { -1, -1, -1 };
        struct journal_head head = journal->head;
        if (rewrite(journal, fds, &head) < 0) {
                remove_side(journal, head.side);
                for (size_t i = 0; i < JOURNAL_FILES; i++)
                        fd_close(&fds[i]);
                return;
        }
        remove_side(journal, journal->head.side);
        for (size_t i = 0; i < JOURNAL_FILES; i++) {
                fd_close(&journal->fds[i]);
                journal->fds[i] = fds[i];
        }
        journal->head = head;
        journal->n_dropped = 0;
}
