/* Space that is allocated in a journal's files in advance, so that a run that has begun can end on a disk that has
 * become full. */
#include <errno.h>
#include <fcntl.h>

#include "journal/journal_state.h"
#include "store/disk_reserve.h"

enum {
        AHEAD = 32 << 10,    /* allocated at a time */
        END_ROOM = 8 << 10,  /* kept for the end of a run, whatever else it writes */
        INBOX_AHEAD = 64 << 10,
};

static bool is_end(enum journal_kind kind) {
        return kind == JOURNAL_KIND_DONE || kind == JOURNAL_KIND_HOLDS || kind == JOURNAL_KIND_END;
}

/* Without changing the file's size, which is where its records end. */
static int allocate_room(int fd, uint64_t offset, uint64_t size) {
        int code;
        do
                code = fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t) offset, (off_t) size) < 0 ? -errno : 0;
        while (code == -EINTR);
        return code;
}

int journal_room_make(struct journal *journal, enum journal_kind kind, uint64_t size) {
        uint64_t at = journal->end[JOURNAL_EVENTS], need = at + size + (is_end(kind) ? 0 : END_ROOM);
        if (journal->is_scratch || need <= journal->allocated)
                return 0;
        int fd = journal->fds[JOURNAL_EVENTS];
        uint64_t offset = at - journal->head.base[JOURNAL_EVENTS] + JOURNAL_HEAD_SIZE, more = need - at + AHEAD;
        int code = allocate_room(fd, offset, more);
        if (journal_is_full(code) && is_end(kind) && disk_reserve_use())
                code = allocate_room(fd, offset, more);
        if (journal_is_full(code)) {
                more = need - at; /* as much as is needed, and no more */
                code = allocate_room(fd, offset, more);
        }
        if (code == 0)
                journal->allocated = at + more;
        else if (!journal_is_full(code))
                code = 0; /* a file system that cannot: writing will fail */
        return code;
}

void journal_room_make_inbox(struct journal *journal) {
        if (journal->inbox_fd >= 0 && journal->inbox_end + INBOX_AHEAD / 2 > journal->inbox_allocated &&
            allocate_room(journal->inbox_fd, journal->inbox_end, INBOX_AHEAD) == 0)
                journal->inbox_allocated = journal->inbox_end + INBOX_AHEAD;
}
