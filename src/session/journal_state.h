/* What the files of the journal's code share: the journal in memory. Offsets are logical (journal_file.h). */
#pragma once

#include "session/journal.h"
#include "session/journal_file.h"
#include "session/slate.h"

enum {
        JOURNAL_MARK_EVERY = 64,     /* stream events between two marks of the index */
        JOURNAL_EVENTS_EACH = 16384, /* stream events of a run that are never merged */
        JOURNAL_EVENT_BYTES = 1024,  /* later ones have this size, or come after this time */
        JOURNAL_EVENT_MS = 100,
        JOURNAL_RUNS_SLACK = 900, /* dropped runs that may lie in the files until they are rewritten */
};

/* A run of the index. The bytes of a run lie together in each stream's file, because one run is open at a time. */
struct journal_entry {
        struct journal_run shown;           /* but bytes, which journal_show computes */
        uint64_t start[JOURNAL_FILES];      /* where its bytes begin; of `events`: its BEGIN record */
        uint64_t recorded[JOURNAL_STREAMS]; /* up to where events tell of them */
        uint64_t result_at, result_size;
        uint64_t channel_size, n_notes; /* bytes and number of its CHANNEL records */
        uint64_t *marks;                /* where the records of events 1, 65, 129, ... are */
        size_t n_marks;
};

struct journal {
        bool is_scratch; /* its files have no name, and no directory */
        int dir_fd;      /* or -1 */
        int fds[JOURNAL_FILES];
        struct journal_head head;
        uint64_t end[JOURNAL_FILES]; /* where the next byte goes */
        bool is_open;                /* the newest run is */
        int64_t recorded_ms;         /* monotonic: the last stream event of a run that has very many */
        size_t n_dropped;            /* runs that lie in the files, but not in the index */
        size_t n_runs, n_places;
        struct journal_entry *runs;   /* oldest first; they lie somewhere in */
        struct journal_entry *places; /* which is grown in powers of two */
        char *path;                   /* of `events`; NULL: every record goes there at once */
        struct slate_place *waiting;  /* the newest records, before they are in `events` */
};

static inline struct journal_entry *journal_newest(struct journal *journal) {
        return journal->n_runs > 0 ? &journal->runs[journal->n_runs - 1] : NULL;
}

/* Where this file's bytes of a run end: where those of the next one begin. */
static inline uint64_t journal_end_of(const struct journal *journal, const struct journal_entry *run, size_t file) {
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

/* Drops old runs when there are too many or they are too large. What cannot be rewritten now is tried again later. */
void journal_rotate(struct journal *journal);
