/* The journal of one session: what its runs printed and answered, on disk as it happens, so that a daemon that is
 * killed loses nothing and a client that lost its connection can read a run again from any event on.
 *
 * Files in the session's own state directory (never shown in the box):
 *   out.N, err.N the bytes of stdout and stderr of all kept runs, one after the other; N is 0 or 1, the other one
 * exists only while old runs are being dropped events       records: run began, stream bytes [offset, size), kernel
 * channel bytes, run ended with this result
 *
 * Output goes from the kernel's pipe into `out` or `err` with splice: there is no moment at which bytes are only in the
 * daemon's memory. Channel bytes are peeked at, appended here, and only then consumed; a daemon killed between the two
 * leaves a piece of a large frame in both places, and the next one ends a kernel whose frame makes no sense. Writes
 * are not fsynced: what is here survives the death of any process (slate.h: the last milliseconds that of any one), not
 * a power cut. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum journal_stream { JOURNAL_OUT, JOURNAL_ERR, JOURNAL_STREAMS };

enum {
        JOURNAL_RUNS_KEPT = 100,
        JOURNAL_STREAM_MAX = 16 << 20, /* bytes of one stream of one run; the rest is counted and dropped */
        JOURNAL_RESULT_MAX = 32 << 20,
        JOURNAL_CHANNEL_MAX = 64 << 20, /* channel bytes of one run, with 8 more for each note */
        JOURNAL_BYTES_MAX = 64 << 20,   /* of all files together; past it, old runs go when the next one begins */
};

struct journal;

/* Opens or makes the journal in this directory (borrowed descriptor). A torn tail is cut off, and said in *ret_torn.
 * Files that are no journal are moved aside (NAME.damaged) and said in the same way; those of a newer version are an
 * error and stay as they are. */
int journal_open(int dir_fd, struct journal **ret_journal, bool *ret_torn, struct err *err);
void journal_close(struct journal *journal); /* NULL is fine */

/* From now on small records may wait on the slate (slate.h) for some milliseconds. `path` is that of `events`, for a
 * daemon that finds them there. -ENOMEM: they do not. */
int journal_defer(struct journal *journal, const char *path);

/* A journal for a run that ends with its daemon: nothing in it can be read once that is gone. Its files are made in the
 * directory named at the start, have no name there, and are emptied and used again by the next. */
void journal_scratch_start(const char *dir);
int journal_scratch_open(struct journal **ret_journal, struct err *err);
void journal_scratch_stop(void); /* lets go of those that wait for the next run */

/* One run at a time is open: ERR_BUSY while there is another. A run id is 1 to 32 characters of [A-Za-z0-9_-]. Old runs
 * are dropped here, and only here: the newest JOURNAL_RUNS_KEPT stay, fewer when they are large, never less than the
 * two before this one. */
int journal_begin(struct journal *journal, const char *run_id, struct err *err);

/* Moves what is in the pipe now (nonblocking, at most max bytes) to the stream's file. *ret_size 0: nothing there;
 * *ret_closed: the other end is closed. Past JOURNAL_STREAM_MAX bytes are dropped and counted as cut, and so are those
 * that the disk has no room for: a full disk must not stop a run. A program that prints byte by byte gets an event for
 * each at first, and after thousands of them events of at least a kilobyte or a tenth of a second. */
int journal_take(struct journal *journal, enum journal_stream stream, int pipe_fd, size_t max, size_t *ret_size,
                 bool *ret_closed, struct err *err);

/* Kernel channel bytes of the open run, in order. ERR_LIMIT past JOURNAL_CHANNEL_MAX. */
int journal_note_channel(struct journal *journal, const void *bytes, size_t size, struct err *err);

/* Ends the open run with its result (JSON text, stored as is). When this fails (ERR_LIMIT, ERR_NO_SPACE) the run is
 * still open: try again with a smaller result. */
int journal_end(struct journal *journal, const char *result, size_t size, struct err *err);

/* The run that was open when the last daemon died, or NULL. Its channel bytes so far can be read with
 * journal_read_channel, so that a half-received frame is completed by what comes next. */
const char *journal_open_run(const struct journal *journal);
int journal_read_channel(struct journal *journal, char **ret_bytes, size_t *ret_size, struct err *err);

/* Reading a run again. Events are numbered from 1 in order; the last one of a finished run is its result. */
struct journal_event {
        uint64_t number;
        enum { JOURNAL_EVENT_OUT, JOURNAL_EVENT_ERR, JOURNAL_EVENT_RESULT } kind;
        uint64_t offset; /* for journal_read */
        size_t size;
};

struct journal_run {
        char run_id[33];
        bool ended;
        uint64_t events;                 /* how many there are so far */
        uint64_t bytes[JOURNAL_STREAMS]; /* kept */
        uint64_t cut[JOURNAL_STREAMS];
        int64_t began_ms, ended_ms; /* wall clock, for display */
};

/* Newest first; at most n. Returns how many were filled. */
size_t journal_list(const struct journal *journal, struct journal_run *runs, size_t n);
int journal_find(const struct journal *journal, const char *run_id, struct journal_run *ret_run, struct err *err);

/* The event with this number of this run; ERR_NOT_FOUND when it does not exist (yet). */
int journal_event(struct journal *journal, const char *run_id, uint64_t number, struct journal_event *ret_event,
                  struct err *err);

/* Reads an event's bytes, from `at` within it. *ret_size: how many; 0 at its end. ERR_GONE when its run was dropped
 * since the event was asked for. */
int journal_read(struct journal *journal, const struct journal_event *event, size_t at, void *bytes, size_t size,
                 size_t *ret_size, struct err *err);

/* The whole of one stream of a run, its first max bytes (inline results): NUL-terminated, the caller frees it. */
int journal_read_stream(const struct journal *journal, const char *run_id, enum journal_stream stream, size_t max,
                        char **ret_bytes, size_t *ret_size, struct err *err);
