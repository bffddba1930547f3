/* Declarations that the journal's source files share: the journal in memory. Offsets are logical (journal_file.h). */
#pragma once

#include "journal/journal.h"
#include "journal/journal_file.h"

enum {
        JOURNAL_MARK_EVERY = 64,     /* stream events between two marks of the index */
        JOURNAL_EVENTS_EACH = 4096,  /* stream events of a run that are never merged */
        JOURNAL_EVENT_BYTES = 1024,  /* later ones have this size, or come after this time; */
        JOURNAL_EVENT_MS = JOURNAL_LATE_MS,
        JOURNAL_DOUBLINGS_MAX = 4,   /* the size is doubled after as many again, up to so often */
        JOURNAL_STREAM_EVENTS_MAX = 1 << 16, /* of all runs that lie in the files: a journal is opened in one go */
        JOURNAL_RUNS_SLACK = 900, /* dropped runs that may lie in the files until they are rewritten */
};

/* A run of the index. The bytes of a run lie together in each stream's file, because one run is open at a time. */
struct journal_entry {
        struct journal_run shown;           /* but bytes, which journal_show computes */
        uint64_t start[JOURNAL_FILES];      /* where its bytes begin; of `events`: its BEGIN record */
        uint64_t recorded[JOURNAL_STREAMS]; /* the end of what events describe */
        uint64_t result_at, result_size;
        bool is_checked; /* its result has the checksum below */
        uint32_t result_crc;
        uint64_t *marks;                /* where the records of events 1, 65, 129, ... are */
        size_t n_marks;
};

/* Old runs are leaving the files: see journal_rotate.c. */
struct journal_rotation {
        bool is_under_way;
        int fds[JOURNAL_FILES];
        uint64_t base[JOURNAL_FILES], copied[JOURNAL_FILES];
        size_t n_dropped;
        uint64_t n_dropped_events;
};

struct journal {
        bool is_scratch; /* its files have no name, and no directory */
        int dir_fd;      /* or -1 */
        int fds[JOURNAL_FILES];
        struct journal_head head;
        uint64_t end[JOURNAL_FILES]; /* where the next byte goes */
        uint64_t allocated;          /* up to where `events` has room, whatever the disk has */
        uint64_t inbox_allocated;
        bool is_open;                /* the newest run is */
        bool is_asked;               /* a request that is no run is open */
        struct journal_request request; /* the open one */
        uint64_t request_at;            /* where its payload is in `events`; 0: nowhere */
        bool is_request_checked;
        uint32_t request_crc; /* of the payload, then */
        enum journal_holds holds;
        struct journal_owed *owed; /* a result that there was no room for */
        int inbox_fd;              /* or -1 */
        uint32_t inbox_mark;       /* where the answers to the last request begin: always where a frame does */
        uint64_t inbox_read, inbox_end;
        bool has_gap;  /* journal_has_gap */
        bool is_torn;  /* records were damaged when it was opened */
        char *unsaved; /* bytes that belong behind those in the inbox, which there was no room for */
        size_t unsaved_size, unsaved_read;
        int64_t recorded_ms;         /* monotonic: the last stream event of a run that has very many */
        size_t n_dropped;            /* runs that lie in the files, but not in the index */
        uint64_t n_dropped_events;   /* of them */
        struct journal_rotation rotation;
        size_t n_runs, n_places;
        struct journal_entry *runs;   /* oldest first; they lie somewhere in */
        struct journal_entry *places; /* which is grown in powers of two */
};

static inline struct journal_entry *journal_newest(struct journal *journal) {
        return journal->n_runs > 0 ? &journal->runs[journal->n_runs - 1] : NULL;
}

/* Where this file's bytes of a run end: of one that has ended, where its records say; else where those of the next one
 * begin. Between the two may be bytes of a run whose records are damaged. */
static inline uint64_t journal_end_of(const struct journal *journal, const struct journal_entry *run, size_t file) {
        if (file < JOURNAL_STREAMS && run->shown.ended)
                return run->recorded[file];
        size_t next = (size_t) (run - journal->runs) + 1;
        return next < journal->n_runs ? journal->runs[next].start[file] : journal->end[file];
}

/* The changes that a record means for the index; used when it is written and when it is read back. A run begins at
 * journal->end. Before it there must be room for it, before a stream event for its mark (-ENOMEM). */
int journal_index_reserve_run(struct journal *journal);
void journal_index_begin(struct journal *journal, const char *run_id, int64_t began_ms);
int journal_index_reserve(struct journal *journal);
void journal_index_stream(struct journal *journal, enum journal_stream stream, uint64_t at, uint64_t size);
void journal_index_end(struct journal *journal, int64_t ended_ms, const uint64_t cut[static JOURNAL_STREAMS],
                       uint64_t result_at, uint64_t result_size);
void journal_index_drop(struct journal *journal, size_t n_oldest);

struct journal_owed {
        enum journal_holds holds;
        size_t size;
        char result[];
};

/* The changes that REQUEST, DONE and HOLDS mean for what is open. */
void journal_index_request(struct journal *journal, const struct journal_request *request, uint64_t payload_at);
void journal_index_hold(struct journal *journal, enum journal_holds holds, uint32_t inbox_mark);

/* Appends a record; *ret_next_at is where the next one goes. */
int journal_append(struct journal *journal, enum journal_kind kind, const void *fixed, size_t fixed_size,
                   const void *rest, size_t rest_size, uint64_t *ret_next_at);

/* Sees to it that a record of this size can be written, and the end of the run after it: -ENOSPC. Ends are written also
 * when nothing else is. */
int journal_room_make(struct journal *journal, enum journal_kind kind, uint64_t size);
void journal_room_make_inbox(struct journal *journal); /* if that can be */

/* Reads what is there now, also from a descriptor that would block. -EAGAIN: nothing; 0: the other end is closed. */
ssize_t journal_read_now(int fd, void *bytes, size_t size);
bool journal_is_full(ssize_t code);
int64_t journal_clock_ms(int clock);

/* Opens the inbox of a journal whose records were read. */
int journal_inbox_open(struct journal *journal);
void journal_inbox_close(struct journal *journal);
int journal_inbox_empty(struct journal *journal); /* 0 or -errno */

/* The checksum of stream bytes that lie at a logical offset. 0 or -errno. */
int journal_stream_crc(const struct journal *journal, enum journal_stream stream, uint64_t offset, uint64_t size,
                       uint32_t *ret_crc);

/* Writes events for the bytes of the open run that have none yet. */
int journal_record_streams(struct journal *journal);

bool journal_is_run_id(const char *id, size_t size);

/* A journal without files, and the end of any: files without a name go with it. NULL is fine. */
struct journal *journal_alloc(void);
void journal_free(struct journal *journal);

/* Empties one without a name for the next run that needs one, or throws it away. */
void journal_scratch_close(struct journal *journal);

/* Opens the files in dir_fd and builds the index from what is in them. */
int journal_load(struct journal *journal, bool *ret_torn, struct err *err);

/* Drops old runs when there are too many or they are too large. If that fails now, it is tried again later. */
void journal_rotate(struct journal *journal);
void journal_rotate_along(struct journal *journal, size_t size); /* so many bytes were added: two are copied for each */
void journal_rotation_release(struct journal *journal);
