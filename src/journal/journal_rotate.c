/* Dropping old runs. They are removed from the index at once, and from the files when there are enough of them: the
 * tails that stay are copied to new files, and renaming `events`, whose head names the other files, commits the change.
 * If the daemon is killed before that, the old files are valid; after it, the new ones; journal_load removes the rest.
 *
 * Code in the box decides how much there is to copy, so it is done in steps, while runs go on. A journal only grows, so
 * copied parts stay valid, and the last step copies the rest. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "journal/journal_state.h"
#include "store/reaper.h"

enum {
        ROTATED_AT_ONCE = 256 << 10,
        COPIED_AT_ONCE = 64 << 10, /* journal_file.c says why not more */
};

static int copy_plainly(int from_fd, off_t from, int to_fd, off_t to, uint64_t size) {
        char buffer[1 << 16];
        while (size > 0) {
                ssize_t n = fd_read_at(from_fd, buffer, size < sizeof(buffer) ? size : sizeof(buffer), (uint64_t) from);
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

static int journal_rotate_copy(int from_fd, uint64_t from_offset, int to_fd, uint64_t to_offset, uint64_t size) {
        off_t from = (off_t) from_offset, to = (off_t) to_offset;
        while (size > 0) {
                size_t piece = size < COPIED_AT_ONCE ? (size_t) size : COPIED_AT_ONCE;
                ssize_t n = copy_file_range(from_fd, &from, to_fd, &to, piece, 0);
                if (n < 0 && errno == EINTR)
                        continue;
                /* File systems that cannot do it say so in many ways; some copy nothing. */
                if (n <= 0)
                        return copy_plainly(from_fd, from, to_fd, to, size);
                size -= (uint64_t) n;
        }
        return 0;
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

static uint64_t skip_of(size_t file) {
        return file == JOURNAL_EVENTS ? JOURNAL_HEAD_SIZE : 0;
}

static void rotation_abandon(struct journal *journal) {
        struct journal_rotation *rotation = &journal->rotation;
        for (size_t i = 0; i < JOURNAL_FILES; i++)
                fd_close(&rotation->fds[i]);
        if (rotation->is_under_way)
                remove_side(journal, 1 - journal->head.side);
        rotation->is_under_way = false;
}

void journal_rotation_release(struct journal *journal) {
        rotation_abandon(journal);
}

static void begin_rotation(struct journal *journal) {
        struct journal_rotation *rotation = &journal->rotation;
        uint32_t side = 1 - journal->head.side;
        const uint64_t *from = journal->n_runs > 0 ? journal->runs[0].start : journal->end;
        memcpy(rotation->base, from, sizeof(rotation->base));
        memcpy(rotation->copied, from, sizeof(rotation->copied));
        rotation->n_dropped = journal->n_dropped;
        rotation->n_dropped_events = journal->n_dropped_events;
        rotation->is_under_way = true;
        remove_side(journal, side);
        for (size_t i = 0; i < JOURNAL_FILES; i++) {
                rotation->fds[i] = journal_file_open(
                        journal->dir_fd, i == JOURNAL_EVENTS ? "events.new" : journal_file_name(i, side), O_EXCL);
                if (rotation->fds[i] < 0) {
                        rotation_abandon(journal);
                        return;
                }
        }
}

/* Copies up to `budget` bytes of what is not copied yet. False: it cannot be. */
static bool copy_some(struct journal *journal, uint64_t budget) {
        struct journal_rotation *rotation = &journal->rotation;
        for (size_t i = 0; i < JOURNAL_FILES && budget > 0; i++) {
                uint64_t left = journal->end[i] - rotation->copied[i], size = left < budget ? left : budget;
                if (journal_rotate_copy(journal->fds[i], rotation->copied[i] - journal->head.base[i] + skip_of(i),
                                        rotation->fds[i], rotation->copied[i] - rotation->base[i] + skip_of(i),
                                        size) < 0)
                        return false;
                rotation->copied[i] += size;
                budget -= size;
        }
        return true;
}

/* Commits the rewrite. The reaper closes the old files: that takes time in proportion to their size. */
static bool journal_rotate_finish(struct journal *journal) {
        struct journal_rotation *rotation = &journal->rotation;
        struct journal_head head = journal->head;
        uint32_t old_side = head.side;
        head.side = 1 - head.side;
        memcpy(head.base, rotation->base, sizeof(head.base));
        if (journal_head_write(rotation->fds[JOURNAL_EVENTS], &head) < 0 ||
            renameat(journal->dir_fd, "events.new", journal->dir_fd, "events") < 0)
                return false;
        int old[JOURNAL_FILES];
        memcpy(old, journal->fds, sizeof(old));
        memcpy(journal->fds, rotation->fds, sizeof(journal->fds));
        for (size_t i = 0; i < JOURNAL_FILES; i++)
                rotation->fds[i] = -1;
        rotation->is_under_way = false;
        journal->head = head;
        journal->allocated = 0;
        journal->n_dropped -= rotation->n_dropped;
        journal->n_dropped_events -= rotation->n_dropped_events;
        remove_side(journal, old_side);
        reaper_close(old, JOURNAL_FILES);
        return true;
}

static bool rotate_by(struct journal *journal, uint64_t size) {
        if (!journal->rotation.is_under_way)
                return false;
        uint64_t left = bytes_from(journal, journal->rotation.copied);
        if (!copy_some(journal, size) || (left <= size && !journal_rotate_finish(journal)))
                rotation_abandon(journal);
        return journal->rotation.is_under_way;
}

bool journal_rotate_some(struct journal *journal) {
        return rotate_by(journal, ROTATED_AT_ONCE);
}

void journal_rotate_along(struct journal *journal, size_t size) {
        (void) rotate_by(journal, 2 * (uint64_t) size);
}

static uint64_t events_from(const struct journal *journal, size_t first) {
        uint64_t events = 0;
        for (size_t i = first; i < journal->n_runs; i++)
                events += journal->runs[i].shown.events;
        return events;
}

void journal_rotate(struct journal *journal) {
        bool large = bytes_from(journal, journal->head.base) > JOURNAL_BYTES_MAX ||
                     journal->n_dropped_events + events_from(journal, 0) > JOURNAL_STREAM_EVENTS_MAX;
        size_t drop = 0;
        /* To the half, so that not every run pays for a rewrite. */
        while (large && journal->n_runs - drop > 2 &&
               (bytes_from(journal, journal->runs[drop].start) > JOURNAL_BYTES_MAX / 2 ||
                events_from(journal, drop) > JOURNAL_STREAM_EVENTS_MAX / 2))
                drop++;
        while (journal->n_runs - drop > JOURNAL_RUNS_KEPT - 1)
                drop++;
        journal_index_drop(journal, drop);
        if (journal->rotation.is_under_way || journal->n_dropped == 0 ||
            (!large && journal->n_dropped <= JOURNAL_RUNS_SLACK))
                return;
        begin_rotation(journal);
        (void) journal_rotate_some(journal); /* all of it, as a rule */
}
