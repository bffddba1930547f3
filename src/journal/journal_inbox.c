/* The inbox of a journal: the kernel's answers, moved from its pipe into a file with splice. At every moment each byte
 * is in exactly one of them, so a killed daemon loses none, and the next one reads none twice. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "journal/journal_state.h"
#include "store/reaper.h"

enum {
        UNSAVED_PIECE = 64 << 10,
        GAP_MODE = 01600, /* of the file, if bytes are missing behind its own: needs no room on a full disk */
};

bool journal_has_gap(const struct journal *journal) {
        return journal->has_gap;
}

void journal_set_gap(struct journal *journal, bool has_gap) {
        if (journal->inbox_fd < 0 || journal->has_gap == has_gap)
                return;
        if (fchmod(journal->inbox_fd, has_gap ? GAP_MODE : 0600) == 0)
                journal->has_gap = has_gap;
}

int journal_inbox_open(struct journal *journal) {
        journal->inbox_fd = journal_file_open(journal->dir_fd, "inbox", 0);
        struct stat status;
        if (journal->inbox_fd < 0)
                return journal->inbox_fd;
        if (fstat(journal->inbox_fd, &status) < 0)
                return -errno;
        journal->inbox_end = (uint64_t) status.st_size;
        journal->has_gap = (status.st_mode & 07777) == GAP_MODE;
        if (journal->inbox_mark <= journal->inbox_end) {
                journal->inbox_read = journal->inbox_mark;
                return 0;
        }
        /* The last daemon died between emptying the inbox and recording that. */
        int code = journal_inbox_empty(journal);
        return code < 0 && !journal_is_full(code) ? code : 0;
}

void journal_inbox_close(struct journal *journal) {
        /* Closing a file that was emptied and filled again can write it to the disk first. */
        if (journal->inbox_fd >= 0)
                reaper_close(&journal->inbox_fd, 1);
        free(journal->unsaved);
        journal->unsaved = NULL;
        journal->unsaved_size = journal->unsaved_read = 0;
}

/* Another file takes its place, and the reaper closes the old one: giving back blocks can take as long as the disk
 * likes (if it is mounted with `discard`, at each of them). */
static int replace_file(struct journal *journal) {
        if (journal->inbox_fd < 0 || (journal->inbox_end == 0 && journal->inbox_allocated == 0))
                return 0;
        (void) unlinkat(journal->dir_fd, "inbox.new", 0);
        _cleanup_fd_ int fd = journal_file_open(journal->dir_fd, "inbox.new", O_EXCL);
        if (fd < 0)
                return fd;
        if (renameat(journal->dir_fd, "inbox.new", journal->dir_fd, "inbox") < 0)
                return -errno;
        reaper_close(&journal->inbox_fd, 1);
        journal->inbox_fd = take_fd(&fd);
        journal->has_gap = false;
        return 0;
}

/* The file first: a mark behind its end is known to be old, one in the middle of other frames is not. */
int journal_inbox_empty(struct journal *journal) {
        int replaced = replace_file(journal);
        if (journal_is_full(replaced) && ftruncate(journal->inbox_fd, 0) == 0)
                replaced = 0; /* no room for another file */
        if (replaced < 0)
                return replaced;
        journal_set_gap(journal, false);
        journal->inbox_mark = 0;
        journal->inbox_allocated = 0;
        journal->inbox_read = journal->inbox_end = 0;
        free(journal->unsaved);
        journal->unsaved = NULL;
        journal->unsaved_size = journal->unsaved_read = 0;
        uint8_t fixed[JOURNAL_HOLDS_SIZE] = { 0 };
        journal_put_u64(fixed, (uint64_t) journal_clock_ms(CLOCK_REALTIME));
        fixed[12] = (uint8_t) journal->holds;
        uint64_t next;
        /* A mark of an open request never lies behind the end; and a journal without a name is not read later. */
        if (journal->is_open || journal->is_asked || journal->is_scratch)
                return 0;
        int code = journal_append(journal, JOURNAL_KIND_HOLDS, fixed, sizeof(fixed), NULL, 0, &next);
        if (code == 0)
                journal->end[JOURNAL_EVENTS] = next;
        return code;
}

int journal_clear_inbox(struct journal *journal, struct err *err) {
        int code = journal_inbox_empty(journal);
        return code < 0 ? err_sys(err, -code, "cannot empty the session's inbox") : 0;
}

/* On a full disk answers stay in memory: a daemon that is killed then loses them, and a run does not. */
static ssize_t receive_unsaved(struct journal *journal, int pipe_fd, size_t max) {
        journal_set_gap(journal, true); /* before a byte has left the pipe */
        size_t room = max < UNSAVED_PIECE ? max : UNSAVED_PIECE;
        char *grown = realloc(journal->unsaved, journal->unsaved_size + room);
        if (!grown)
                return -ENOMEM;
        journal->unsaved = grown;
        ssize_t n = journal_read_now(pipe_fd, grown + journal->unsaved_size, room);
        if (n > 0)
                journal->unsaved_size += (size_t) n;
        return n;
}

static ssize_t journal_inbox_receive(struct journal *journal, int pipe_fd, size_t max) {
        if (journal->unsaved_size > 0 || journal->inbox_fd < 0)
                return receive_unsaved(journal, pipe_fd, max);
        off_t offset = (off_t) journal->inbox_end;
        ssize_t n = splice(pipe_fd, NULL, journal->inbox_fd, &offset, max, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n < 0 && (journal_is_full(-errno) || errno == EINVAL)) /* or a file system that cannot splice */
                return receive_unsaved(journal, pipe_fd, max);
        if (n < 0)
                return errno == EINTR ? -EAGAIN : -errno;
        journal->inbox_end += (uint64_t) n;
        return n;
}

int journal_receive(struct journal *journal, int pipe_fd, size_t max, size_t *ret_size, bool *ret_closed,
                    struct err *err) {
        *ret_size = 0;
        *ret_closed = false;
        if (journal->inbox_end + journal->unsaved_size - journal->inbox_mark > JOURNAL_CHANNEL_MAX)
                return err_set(err, ERR_LIMIT,
                               "the kernel sent more than %d MiB of results and displays in one run: stop it",
                               JOURNAL_CHANNEL_MAX >> 20);
        ssize_t n = journal_inbox_receive(journal, pipe_fd, max);
        if (n == -EAGAIN)
                return 0;
        if (n < 0)
                return err_sys(err, (int) -n, "cannot write the kernel's answer to the session's journal");
        *ret_size = (size_t) n;
        *ret_closed = n == 0;
        return 0;
}

int journal_read_received(struct journal *journal, void *bytes, size_t size, size_t *ret_size, struct err *err) {
        *ret_size = 0;
        uint64_t there = journal->inbox_end - journal->inbox_read;
        if (there > 0) {
                ssize_t n =
                        fd_read_at(journal->inbox_fd, bytes, there < size ? (size_t) there : size, journal->inbox_read);
                if (n <= 0)
                        return err_sys(err, n < 0 ? (int) -n : EIO, "cannot read what the kernel answered");
                journal->inbox_read += (uint64_t) n;
                *ret_size = (size_t) n;
                return 0;
        }
        size_t left = journal->unsaved_size - journal->unsaved_read;
        if (size > left)
                size = left;
        if (size > 0)
                memcpy(bytes, journal->unsaved + journal->unsaved_read, size);
        journal->unsaved_read += size;
        if (journal->unsaved_read == journal->unsaved_size) {
                free(journal->unsaved);
                journal->unsaved = NULL;
                journal->unsaved_size = journal->unsaved_read = 0;
        }
        *ret_size = size;
        return 0;
}

void journal_unread(struct journal *journal) {
        journal->inbox_read = journal->inbox_mark;
}

void journal_skip_received(struct journal *journal) {
        journal->inbox_read = journal->inbox_end;
        journal->unsaved_read = journal->unsaved_size;
}
