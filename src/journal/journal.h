/* The journal of one session: the output and results of its runs, written as they arrive, so that a killed daemon loses
 * nothing, and a client that lost its connection can read a run again from any event.
 *
 * Files in the session's own state directory (never shown in the box):
 *   out.N, err.N the bytes of stdout and stderr of all kept runs, one after the other; N is 0 or 1, the other one
 *                exists only while old runs are being dropped
 *   inbox        what the kernel answered, as it came from its pipe
 *   events       records: a request to the kernel, stream bytes [offset, size), its end; where the variables are
 *
 * Output goes from the kernel's pipe into `out` or `err`, and its frames into `inbox`, with splice: at every moment
 * each byte is either in the pipe or in the file. A request is written down before it is sent, with all that is needed
 * to send it again: a daemon that finds one without an end sends it again, and the kernel, which knows the id of its
 * last request, ignores what it has done already. Writes are not fsynced: what is here survives the death of any
 * process, not a power cut. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum journal_stream { JOURNAL_OUT, JOURNAL_ERR, JOURNAL_STREAMS };

enum {
        JOURNAL_EVENTS = JOURNAL_STREAMS, /* index of `events` among the files */
        JOURNAL_FILES,
        JOURNAL_RUNS_KEPT = 100,
        JOURNAL_STREAM_MAX = 16 << 20, /* bytes of one stream of one run; the rest is counted and dropped */
        JOURNAL_STREAM_SAVING_MAX = 64 << 10, /* the same while space is saved */
        JOURNAL_RESULT_MAX = 32 << 20,
        JOURNAL_CHANNEL_MAX = 64 << 20, /* bytes that a kernel answers to one request */
        JOURNAL_BYTES_MAX = 64 << 20, /* of all files together; above it, the next run drops old ones */
};

struct journal;

/* Opens or makes the journal in this directory (borrowed descriptor). A torn tail is cut off and reported in *ret_torn.
 * A damaged record costs its run and is reported in the same way. Files that are no journal are moved aside
 * (NAME.damaged) and reported, too; those of a newer version are an error and stay as they are. */
int journal_open(int dir_fd, struct journal **ret_journal, bool *ret_torn, struct err *err);
void journal_close(struct journal *journal); /* NULL is fine */

/* A journal for a run that ends with its daemon: no later daemon reads it. Its files have no name, are made in the
 * directory that was given at the start, and are emptied and reused. */
void journal_scratch_start(const char *dir);
int journal_scratch_open(struct journal **ret_journal, struct err *err);
void journal_scratch_stop(void); /* closes the files that wait for the next run */

/* Where a session's variables are. */
enum journal_holds {
        JOURNAL_HOLDS_UNKNOWN, /* nothing was ever recorded */
        JOURNAL_HOLDS_NOTHING, /* there are none, and that was reported */
        JOURNAL_HOLDS_KERNEL, /* in the memory of a kernel */
        JOURNAL_HOLDS_TRIMMED, /* the same, with large data on disk */
        JOURNAL_HOLDS_FILE, /* asleep: in the sleep file */
        JOURNAL_HOLDS_LOST, /* they are lost, and that was not reported yet */
        JOURNAL_HOLDS_STATES
};

/* A request to a kernel: a frame, with an id that the answer repeats. */
struct journal_request {
        char id[33];
        bool is_run;
        bool reports_loss; /* of a run: its result has to say that variables were lost before it */
        uint8_t type; /* of the frame */
        uint64_t timeout_ms; /* of a run */
        int64_t began_ms; /* monotonic, since boot; set by journal_begin and journal_ask */
        uint32_t inbox_at; /* where its answers begin in the inbox; set in the same way */
        uint32_t carried; /* bytes that were read from the inbox before and belong to a frame that has not ended */
        const void *payload; /* of the frame; NULL where it is never sent again, and in what is read back */
        size_t size;
};

/* One request at a time is open: ERR_BUSY while there is another. A run id is 1 to 32 characters of [A-Za-z0-9_-]. Old
 * runs are dropped here, and only here: the newest JOURNAL_RUNS_KEPT stay, fewer when they are large or have very many
 * events, never less than the two before this one. A result that could not be written before is written first. */
int journal_begin(struct journal *journal, const struct journal_request *run, struct err *err);

/* Drops old runs in steps, to be called at any time: true while there are more. */
bool journal_rotate_some(struct journal *journal);

/* The same for a request that is no run; journal_hold ends it. */
int journal_ask(struct journal *journal, const struct journal_request *request, struct err *err);

/* Records where the variables are from now on. Ends an open request that is no run. */
int journal_hold(struct journal *journal, enum journal_holds holds, struct err *err);
enum journal_holds journal_holds(const struct journal *journal);

/* The open request, or NULL. Its payload is read by journal_read_request: the caller frees it. ERR_NOT_FOUND when there
 * is none (a run of an older version). */
const struct journal_request *journal_open_request(const struct journal *journal);
int journal_read_request(const struct journal *journal, char **ret_payload, size_t *ret_size, struct err *err);

/* ---- what the kernel answers ---- */

/* Moves what is in the pipe now, at most max bytes, to the inbox. *ret_size 0: nothing there; *ret_closed: the other
 * end is closed. ERR_LIMIT when the open request has been answered with more than JOURNAL_CHANNEL_MAX bytes. */
int journal_receive(struct journal *journal, int pipe_fd, size_t max, size_t *ret_size, bool *ret_closed,
                    struct err *err);

/* Reads received bytes that were not read before: *ret_size 0 at the end. journal_unread starts again at the answers
 * to the last request, for a daemon that has just opened the journal; journal_skip_received goes to the end. */
int journal_read_received(struct journal *journal, void *bytes, size_t size, size_t *ret_size, struct err *err);
void journal_unread(struct journal *journal);
void journal_skip_received(struct journal *journal);

/* Bytes are missing behind those in the inbox, or there may be answers to requests that no record names: where the next
 * frame begins is unknown to a daemon that opens the journal. The mark outlives this daemon, and needs no room. It is
 * taken away with the inbox, and when a request is recorded that no bytes were carried into. */
bool journal_has_gap(const struct journal *journal);
void journal_set_gap(struct journal *journal, bool has_gap);

/* Records were damaged or incomplete when it was opened. */
bool journal_is_torn(const struct journal *journal);

/* Empties the inbox for a new kernel. */
int journal_clear_inbox(struct journal *journal, struct err *err);

/* Moves what is in the pipe now (nonblocking, at most max bytes) to the stream's file. *ret_size 0: nothing there;
 * *ret_closed: the other end is closed. Past JOURNAL_STREAM_MAX bytes are dropped and counted as cut, and so are those
 * that the disk has no room for: a full disk must not stop a run. A program that prints byte by byte gets an event for
 * each at first, after thousands of them events of at least some kilobytes or a tenth of a second. */
int journal_take(struct journal *journal, enum journal_stream stream, int pipe_fd, size_t max, size_t *ret_size,
                 bool *ret_closed, struct err *err);

/* True if output was taken for which no event was written yet. The caller writes one after JOURNAL_LATE_MS; otherwise
 * the output of a program that prints and then computes would be shown late. Without room or memory for the event the
 * bytes wait for the next one. */
enum { JOURNAL_LATE_MS = 100 };
bool journal_has_late_output(const struct journal *journal);
void journal_record_late_output(struct journal *journal);

/* Ends the open run with its result (JSON text, stored as is), and says where the variables are afterwards. When this
 * fails (ERR_LIMIT, ERR_NO_SPACE) the run is still open: try again with a smaller result. */
int journal_end(struct journal *journal, const char *result, size_t size, enum journal_holds holds, struct err *err);

/* The same for a result without room on the disk: it is written as soon as there is room, at the latest when the next
 * run begins or the journal is closed. Takes a copy. */
void journal_end_later(struct journal *journal, const char *result, size_t size, enum journal_holds holds);

/* The run that is open, or NULL. */
const char *journal_open_run(const struct journal *journal);

/* For all journals of this process, while less than the reserve of the host's disk is free: output is not kept at the
 * cost of the reserve. */
void journal_save_space(bool save);

/* True if the open run has printed more than is kept of this stream. */
bool journal_is_cut(const struct journal *journal, enum journal_stream stream);

/* Reading a run again. Events are numbered from 1 in order; the last one of a finished run is its result. */
struct journal_event {
        uint64_t number;
        enum { JOURNAL_EVENT_OUT, JOURNAL_EVENT_ERR, JOURNAL_EVENT_RESULT } kind;
        uint64_t offset; /* for journal_read */
        size_t size;
        bool is_checked; /* of a result: journal_read compares the checksum when it is read whole */
        uint32_t crc;
};

struct journal_run {
        char run_id[33];
        bool ended;
        bool damaged; /* its records on the disk are not what was written: it has no result */
        uint64_t events; /* how many there are so far */
        uint64_t bytes[JOURNAL_STREAMS]; /* kept */
        uint64_t cut[JOURNAL_STREAMS];
        int64_t began_ms, ended_ms; /* wall clock, for display */
};

/* Newest first; at most n. Returns how many were filled. */
size_t journal_list(const struct journal *journal, struct journal_run *runs, size_t n);
int journal_find(const struct journal *journal, const char *run_id, struct journal_run *ret_run, struct err *err);

/* The event with this number of this run; ERR_NOT_FOUND when it does not exist (yet). ERR_DAMAGED, from here on: the
 * bytes on the disk are not those that were written. */
int journal_event(struct journal *journal, const char *run_id, uint64_t number, struct journal_event *ret_event,
                  struct err *err);

/* Reads an event's bytes, from `at` within it. *ret_size: how many; 0 at its end. ERR_GONE when its run was dropped
 * since the event was asked for. */
int journal_read(struct journal *journal, const struct journal_event *event, size_t at, void *bytes, size_t size,
                 size_t *ret_size, struct err *err);

/* For a child that reads the journal's present contents: the files, borrowed; the child opens descriptors of its
 * own. */
void journal_get_files(const struct journal *journal, int ret_fds[static JOURNAL_FILES]);
void journal_set_files(struct journal *journal, const int fds[static JOURNAL_FILES]);

/* The whole of one stream of a run, its first max bytes (inline results): NUL-terminated, the caller frees it. */
int journal_read_stream(const struct journal *journal, const char *run_id, enum journal_stream stream, size_t max,
                        char **ret_bytes, size_t *ret_size, struct err *err);
