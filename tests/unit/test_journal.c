#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/memory.h"
#include "journal/journal.h"
#include "scratch.h"
#include "tap.h"

/* A journal in a directory of its own, and a pipe to feed it. */
struct fixture {
        char dir[256];
        int dir_fd;
        int pipe[2];
        struct journal *journal;
        bool torn;
        struct err err;
};

static void set_up(struct fixture *f) {
        *f = (struct fixture) { 0 };
        scratch_make(f->dir);
        f->dir_fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        must(f->dir_fd >= 0 && pipe2(f->pipe, O_CLOEXEC) == 0, "pipe");
}

static int open_it(struct fixture *f) {
        journal_close(f->journal);
        f->journal = NULL;
        f->torn = false;
        return journal_open(f->dir_fd, &f->journal, &f->torn, &f->err);
}

static void tear_down(struct fixture *f) {
        journal_close(f->journal);
        close(f->dir_fd);
        close(f->pipe[0]);
        close(f->pipe[1]);
        scratch_remove(f->dir);
}

static int begin(struct fixture *f, const char *run_id) {
        struct journal_request run = { .type = 1, .timeout_ms = 1000, .payload = "{}", .size = 2 };
        *stpncpy(run.id, run_id, sizeof(run.id) - 1) = '\0';
        return journal_begin(f->journal, &run, &f->err);
}

static int end(struct fixture *f, const char *result, size_t size) {
        return journal_end(f->journal, result, size, JOURNAL_HOLDS_KERNEL, &f->err);
}

static size_t feed(struct fixture *f, enum journal_stream stream, const char *bytes, size_t size) {
        must(write(f->pipe[1], bytes, size) == (ssize_t) size, "write");
        size_t took = 0;
        bool closed;
        return journal_take(f->journal, stream, f->pipe[0], 1 << 20, &took, &closed, &f->err) == 0 ? took : 0;
}

/* All that a run's events say, as "O<stdout>E<stderr>R<result>" in order. */
static const char *tell(struct fixture *f, const char *run_id) {
        static char text[1 << 16];
        size_t length = 0;
        struct journal_event event;
        for (uint64_t i = 1; journal_event(f->journal, run_id, i, &event, &f->err) == 0; i++) {
                text[length++] = "OER"[event.kind];
                size_t n = 0;
                if (journal_read(f->journal, &event, 0, text + length, sizeof(text) - length - 2, &n, &f->err) < 0)
                        return "unreadable";
                length += n;
        }
        text[length] = '\0';
        return text;
}

static const char *stream_of(struct fixture *f, const char *run_id, enum journal_stream stream) {
        static char *bytes;
        free(bytes);
        bytes = NULL;
        size_t size;
        return journal_read_stream(f->journal, run_id, stream, 1 << 20, &bytes, &size, &f->err) < 0 ? "?" : bytes;
}

static void test_a_run_can_be_read_again(void) {
        struct fixture f;
        set_up(&f);
        ok(open_it(&f) == 0 && !f.torn && !journal_open_run(f.journal), "an empty directory becomes an empty journal");
        ok(end(&f, "{}", 2) < 0 && f.err.code == ERR_USAGE, "nothing ends when nothing began");
        ok(begin(&f, "no/slash") < 0 && f.err.code == ERR_USAGE, "a run id is checked");
        ok(begin(&f, "first") == 0, "a run begins");
        ok(begin(&f, "other") < 0 && f.err.code == ERR_BUSY, "one run at a time");
        size_t size = 1;
        bool closed = true;
        ok(journal_take(f.journal, JOURNAL_OUT, f.pipe[0], 100, &size, &closed, &f.err) == 0 && size == 0 && !closed,
           "an empty pipe, even a blocking one, gives nothing and does not wait");
        ok(feed(&f, JOURNAL_OUT, "hello", 5) == 5, "output is taken");
        ok(feed(&f, JOURNAL_ERR, "warn", 4) == 4 && feed(&f, JOURNAL_OUT, " you", 4) == 4, "and more output");
        for (int again = 0; again < 2; again++) {
                is_text(tell(&f, "first"), "OhelloEwarnO you", "events are in order%s", again ? ", opened again" : "");
                is_text(journal_open_run(f.journal) ? journal_open_run(f.journal) : "", "first", "the run is open");
                ok(again || (open_it(&f) == 0 && !f.torn), "the journal opens again");
        }
        ok(end(&f, "{\"a\":1}", 7) == 0 && !journal_open_run(f.journal), "it ends");
        ok(begin(&f, "second") == 0 && end(&f, "{}", 2) == 0, "one more");
        ok(open_it(&f) == 0 && !f.torn, "the journal opens a third time");
        is_text(tell(&f, "first"), "OhelloEwarnO youR{\"a\":1}", "the result is the last event");
        is_text(tell(&f, "second"), "R{}", "a silent run has only a result");
        is_text(stream_of(&f, "first", JOURNAL_OUT), "hello you", "stdout in one piece");
        is_text(stream_of(&f, "first", JOURNAL_ERR), "warn", "stderr in one piece");
        struct journal_run runs[5];
        ok(journal_list(f.journal, runs, 5) == 2 && strcmp(runs[0].run_id, "second") == 0,
           "the newest is listed first");
        ok(runs[1].ended && runs[1].events == 4 && runs[1].bytes[JOURNAL_OUT] == 9 && runs[1].began_ms > 0,
           "with numbers");
        ok(journal_find(f.journal, "third", runs, &f.err) < 0 && f.err.code == ERR_NOT_FOUND,
           "an unknown run is said so");
        struct stat status;
        ok(fstatat(f.dir_fd, "events", &status, 0) == 0 && (status.st_mode & 0777) == 0600, "files are private");
        tear_down(&f);
}

/* All that was received and not read. */
static const char *received(struct fixture *f) {
        static char text[4096];
        size_t length = 0, n = 0;
        do {
                if (journal_read_received(f->journal, text + length, 3, &n, &f->err) < 0)
                        return "unreadable";
                length += n;
        } while (n > 0);
        text[length] = '\0';
        return text;
}

static size_t answer(struct fixture *f, const char *bytes) {
        must(write(f->pipe[1], bytes, strlen(bytes)) == (ssize_t) strlen(bytes), "write");
        size_t size = 0;
        bool closed;
        return journal_receive(f->journal, f->pipe[0], 1 << 20, &size, &closed, &f->err) == 0 ? size : 0;
}

static void test_a_request_can_be_sent_again_and_its_answers_read_again(void) {
        struct fixture f;
        set_up(&f);
        must(open_it(&f) == 0, f.err.message);
        ok(journal_holds(f.journal) == JOURNAL_HOLDS_UNKNOWN && !journal_open_request(f.journal), "nothing is known");
        size_t size = 1;
        bool closed = true;
        ok(journal_receive(f.journal, f.pipe[0], 100, &size, &closed, &f.err) == 0 && size == 0 && !closed,
           "an empty pipe gives nothing and does not wait");
        ok(begin(&f, "first") == 0 && answer(&f, "one") == 3, "a run is answered");
        is_text(received(&f), "one", "the answer is read");
        ok(end(&f, "{}", 2) == 0 && journal_holds(f.journal) == JOURNAL_HOLDS_KERNEL, "and it ends");
        struct journal_request asked = {
                .id = "ask", .type = 4, .payload = "{\"id\":\"ask\"}", .size = 12, .carried = 1
        };
        ok(journal_ask(f.journal, &asked, &f.err) == 0 && begin(&f, "busy") < 0 && f.err.code == ERR_BUSY,
           "a request that is no run keeps runs out");
        ok(answer(&f, "two") == 3 && answer(&f, "three") == 5, "it is answered");
        is_text(received(&f), "twothree", "that is read");
        for (int again = 0; again < 2; again++) {
                must(open_it(&f) == 0 && !f.torn, f.err.message);
                const struct journal_request *open = journal_open_request(f.journal);
                ok(open && !open->is_run && open->type == 4 && strcmp(open->id, "ask") == 0 &&
                           !journal_open_run(f.journal),
                   "the next daemon finds it");
                char *payload = NULL;
                ok(journal_read_request(f.journal, &payload, &size, &f.err) == 0 && size == 12, "with its payload");
                is_text(payload ? payload : "", "{\"id\":\"ask\"}", "as it was");
                free(payload);
                is_text(received(&f), "etwothree", "and all answers, from the frame on that had begun before");
        }
        ok(journal_hold(f.journal, JOURNAL_HOLDS_FILE, &f.err) == 0 && !journal_open_request(f.journal), "it ends");
        ok(open_it(&f) == 0 && journal_holds(f.journal) == JOURNAL_HOLDS_FILE, "where the variables are is kept");
        ok(journal_clear_inbox(f.journal, &f.err) == 0 && open_it(&f) == 0 &&
                   journal_holds(f.journal) == JOURNAL_HOLDS_FILE,
           "also when another kernel begins");
        is_text(received(&f), "", "which has said nothing yet");
        ok(begin(&f, "last") == 0 && answer(&f, "x") == 1 && open_it(&f) == 0, "a run is open");
        const struct journal_request *run = journal_open_request(f.journal);
        ok(run && run->is_run && run->timeout_ms == 1000 && run->began_ms > 0 && strcmp(run->id, "last") == 0,
           "with its time limit and when it began");
        is_text(received(&f), "x", "and what was answered");
        scratch_write(f.dir, "inbox", "", 0);
        ok(open_it(&f) == 0 && end(&f, "{}", 2) == 0, "an inbox that is gone is an empty one");
        tear_down(&f);
}

static void test_a_result_without_room_is_written_later(void) {
        struct fixture f;
        set_up(&f);
        must(open_it(&f) == 0 && begin(&f, "first") == 0, f.err.message);
        journal_end_later(f.journal, "{\"a\":1}", 7, JOURNAL_HOLDS_NOTHING);
        ok(!journal_open_run(f.journal) && begin(&f, "second") == 0, "the next run writes it first");
        is_text(tell(&f, "first"), "R{\"a\":1}", "there it is");
        journal_end_later(f.journal, "{\"a\":2}", 7, JOURNAL_HOLDS_NOTHING);
        ok(open_it(&f) == 0 && !journal_open_run(f.journal) && journal_holds(f.journal) == JOURNAL_HOLDS_NOTHING,
           "or the end of the journal");
        is_text(tell(&f, "second"), "R{\"a\":2}", "there it is, too");
        tear_down(&f);
}

/* The promise after any truncation or damage: it opens, what it tells is a beginning of what was, and it goes on. */
static bool is_sound(struct fixture *f, const char *first, const char *second) {
        if (open_it(f) < 0)
                return false;
        if (strncmp(tell(f, "first"), first, strlen(tell(f, "first"))) != 0)
                return false;
        if (strncmp(tell(f, "second"), second, strlen(tell(f, "second"))) != 0)
                return false;
        if (journal_open_run(f->journal) && end(f, "x", 1) < 0)
                return false;
        if (begin(f, "next") < 0 || feed(f, JOURNAL_OUT, "new", 3) != 3 || end(f, "{}", 2) < 0)
                return false;
        return open_it(f) == 0 && !f->torn && strcmp(tell(f, "next"), "OnewR{}") == 0;
}

/* A record as versions 1 and 2 wrote it: its size, its kind and a checksum of 24 bits. */
static size_t put_old_record(uint8_t *at, uint8_t kind, const void *payload, size_t size) {
        uint32_t sum = 2166136261u;
        memcpy(at, &(uint32_t) { (uint32_t) size }, 4);
        at[4] = kind;
        memcpy(at + 8, payload, size);
        for (size_t i = 0; i < 5; i++)
                sum = (sum ^ at[i]) * 16777619u;
        for (size_t i = 0; i < size && i < 64; i++)
                sum = (sum ^ at[8 + i]) * 16777619u;
        sum = (sum >> 24) ^ (sum & 0xffffff);
        memcpy(at + 5, &sum, 3);
        return 8 + size;
}

static void test_journals_of_older_versions_are_read_and_gone_on_with(void) {
        struct fixture f;
        set_up(&f);
        for (uint32_t version = 1; version <= 2; version++) {
                uint8_t events[400] = "GLVBJNL", payload[100] = { 0 };
                size_t size = 64;
                memcpy(events + 8, &version, 4);
                if (version == 1) {
                        memcpy(payload + 8, "old", 3);
                        size += put_old_record(events + size, 1, payload, 11); /* BEGIN */
                } else {
                        payload[28] = 1; /* a run */
                        payload[30] = 3;
                        memcpy(payload + 31, "old", 3);
                        size += put_old_record(events + size, 6, payload, 34); /* REQUEST */
                }
                memset(payload, 0, sizeof(payload));
                payload[8] = 5;
                size += put_old_record(events + size, 2, payload, 16); /* OUT: 5 bytes at 0 */
                memset(payload, 0, sizeof(payload));
                size_t fixed = version == 1 ? 24 : 25;
                memcpy(payload + fixed, "{\"a\":1}", 7);
                size += put_old_record(events + size, version == 1 ? 5 : 7, payload, fixed + 7); /* END, DONE */
                scratch_write(f.dir, "events", (char *) events, size);
                scratch_write(f.dir, "out.0", "hello", 5);
                scratch_write(f.dir, "err.0", "", 0);
                ok(open_it(&f) == 0 && !f.torn, "a journal of version %u opens", version);
                is_text(tell(&f, "old"), "OhelloR{\"a\":1}", "and has its run");
                ok(begin(&f, "new") == 0 && feed(&f, JOURNAL_OUT, "more", 4) == 4 && end(&f, "{}", 2) == 0 &&
                           open_it(&f) == 0 && !f.torn,
                   "another run goes behind it");
                is_text(tell(&f, "old"), "OhelloR{\"a\":1}", "the old one stays");
                is_text(tell(&f, "new"), "OmoreR{}", "the new one is there");
        }
        tear_down(&f);
}

/* Three runs that ended; one bit of each byte of their files flips. */
static void test_no_flipped_bit_becomes_a_wrong_answer(void) {
        static const char *const ids[] = { "first", "second", "third" };
        static const char *const outs[] = { "one", "", "three" };
        static const char *const files[] = { "events", "out.0", "err.0" };
        char results[3][200], told[3][400], content[3][2048];
        size_t sizes[3], wrong = 0, silent = 0, collateral = 0, flips = 0;
        struct fixture f;
        set_up(&f);
        must(open_it(&f) == 0, f.err.message);
        for (int i = 0; i < 3; i++) {
                memset(results[i], 'a' + i, sizeof(results[i]));
                (void) begin(&f, ids[i]);
                (void) feed(&f, JOURNAL_OUT, outs[i], strlen(outs[i]));
                (void) feed(&f, JOURNAL_ERR, "oops", 4);
                must(end(&f, results[i], sizeof(results[i])) == 0, f.err.message);
                (void) snprintf(told[i], sizeof(told[i]), "%s", tell(&f, ids[i]));
        }
        for (int file = 0; file < 3; file++)
                sizes[file] = scratch_read(f.dir, files[file], content[file], sizeof(content[file]));
        for (int file = 0; file < 3; file++)
                for (size_t byte = 0; byte < sizes[file]; byte++) {
                        size_t lost = 0, bit = 8 * byte + byte * 5 % 8;
                        for (int other = 0; other < 3; other++)
                                scratch_write(f.dir, files[other], content[other], sizes[other]);
                        content[file][bit / 8] = (char) (content[file][bit / 8] ^ 1 << bit % 8);
                        scratch_write(f.dir, files[file], content[file], sizes[file]);
                        content[file][bit / 8] = (char) (content[file][bit / 8] ^ 1 << bit % 8);
                        flips++;
                        if (open_it(&f) < 0)
                                continue; /* of a newer version, it seems: nothing was read, and it is said */
                        for (int i = 0; i < 3; i++) {
                                const char *text = tell(&f, ids[i]);
                                bool is_whole = strcmp(text, told[i]) == 0;
                                lost += !is_whole;
                                wrong += !is_whole && strcmp(text, "unreadable") != 0 &&
                                         strncmp(text, told[i], strlen(text)) != 0;
                                silent += !is_whole && !f.torn && f.err.code != ERR_DAMAGED;
                        }
                        collateral += lost > 1 && (file > 0 || bit >= 8 * 64);
                }
        ok(flips > 1000 && wrong == 0, "no flip of %zu is taken for data (%zu)", flips, wrong);
        ok(silent == 0, "none goes unnoticed (%zu)", silent);
        ok(collateral == 0, "but for the head, it costs no more than its run (%zu)", collateral);
        tear_down(&f);
}

static void test_any_torn_or_damaged_file_opens(void) {
        struct fixture f;
        set_up(&f);
        must(open_it(&f) == 0, f.err.message);
        (void) begin(&f, "first");
        (void) feed(&f, JOURNAL_OUT, "one", 3);
        must(write(f.pipe[1], "frame", 5) == 5, "write");
        (void) journal_receive(f.journal, f.pipe[0], 100, &(size_t) { 0 }, &(bool) { false }, &f.err);
        (void) end(&f, "{\"result\":1}", 12);
        size_t n_first = (size_t) scratch_size(f.dir, "events");
        (void) begin(&f, "second");
        (void) feed(&f, JOURNAL_OUT, "two", 3);
        (void) feed(&f, JOURNAL_ERR, "oops", 4);
        static const char first[] = "OoneR{\"result\":1}", second[] = "OtwoEoops";
        char events[1024], out[64], errors[64];
        size_t n_events = scratch_read(f.dir, "events", events, sizeof(events));
        size_t n_out = scratch_read(f.dir, "out.0", out, sizeof(out));
        size_t n_errors = scratch_read(f.dir, "err.0", errors, sizeof(errors));

        /* Bytes of the second run can be there only if the first one's records are. */
        size_t bad = 0, torn = 0;
        for (size_t cut = 0; cut < n_events; cut++) {
                scratch_write(f.dir, "events", events, cut);
                scratch_write(f.dir, "out.0", out, cut < n_first ? 3 : n_out);
                scratch_write(f.dir, "err.0", errors, cut < n_first ? 0 : n_errors);
                bad += !is_sound(&f, first, second);
        }
        ok(bad == 0, "`events` cut to each of %zu lengths", n_events);
        for (size_t i = 0; i < n_events; i++) {
                char damaged[1024];
                memcpy(damaged, events, n_events);
                damaged[i] = (char) (damaged[i] ^ 0x41);
                scratch_write(f.dir, "events", damaged, n_events);
                scratch_write(f.dir, "out.0", out, i < n_first ? 3 : n_out);
                scratch_write(f.dir, "err.0", errors, i < n_first ? 0 : n_errors);
                bool opens = open_it(&f) == 0;
                torn += opens && f.torn;
                bad += !opens && f.err.code != ERR_UNSUPPORTED;
                bad += opens && strncmp(tell(&f, "first"), first, strlen(tell(&f, "first"))) != 0;
        }
        ok(bad == 0 && torn > n_events / 2, "each byte of `events` damaged in turn (%zu seen as torn)", torn);
        for (size_t cut = 0; cut < n_out; cut++) {
                scratch_write(f.dir, "events", events, n_events);
                scratch_write(f.dir, "out.0", out, cut);
                scratch_write(f.dir, "err.0", errors, 0);
                bad += !is_sound(&f, first, second);
        }
        ok(bad == 0, "`out` cut to each of %zu lengths", n_out);

        scratch_write(f.dir, "events", events, n_events);
        scratch_write(f.dir, "out.0", out, n_out);
        scratch_write(f.dir, "err.0", "oops, and more", 14);
        ok(open_it(&f) == 0 && !f.torn, "bytes that were moved but not recorded");
        is_text(tell(&f, "second"), "OtwoEoopsE, and more", "belong to the open run");
        tear_down(&f);
}

static void test_what_is_no_journal_is_not_destroyed(void) {
        struct fixture f;
        set_up(&f);
        char garbage[200], back[300];
        memset(garbage, 'x', sizeof(garbage));
        scratch_write(f.dir, "events", garbage, sizeof(garbage));
        ok(open_it(&f) == 0 && f.torn, "garbage makes way for a new journal");
        ok(scratch_read(f.dir, "events.damaged", back, sizeof(back)) == 200, "and is kept aside");
        size_t n = scratch_read(f.dir, "events", back, sizeof(back));
        back[8] = 9;
        scratch_write(f.dir, "events", back, n);
        ok(open_it(&f) < 0 && f.err.code == ERR_UNSUPPORTED, "a newer format is refused");
        ok(scratch_read(f.dir, "events", garbage, sizeof(garbage)) == n && memcmp(garbage, back, n) == 0,
           "and untouched");
        scratch_write(f.dir, "target", "precious", 8);
        ok(unlinkat(f.dir_fd, "events", 0) == 0 && symlinkat("target", f.dir_fd, "events") == 0 && open_it(&f) < 0,
           "a link is not followed");
        ok(scratch_read(f.dir, "target", back, sizeof(back)) == 8, "nor written through");
        tear_down(&f);
}

/* Whatever moment the daemon dies in: what is in the journal and what is still in the pipe make up all that was
 * written. */
static void test_kill_loses_no_byte(void) {
        enum { ROUNDS = 25, SIZE = 60000 };
        char *pattern = malloc(SIZE), *rest = malloc(SIZE), *got = NULL;
        must(pattern && rest, "malloc");
        for (size_t i = 0; i < SIZE; i++)
                pattern[i] = (char) ('a' + (i * 7 + i / 26) % 26);
        int lost = 0, unopened = 0;
        for (int round = 0; round < ROUNDS; round++) {
                struct fixture f;
                set_up(&f);
                must(fcntl(f.pipe[1], F_SETPIPE_SZ, 1 << 17) > 0 && write(f.pipe[1], pattern, SIZE) == SIZE, "write");
                pid_t child = fork();
                must(child >= 0, "fork");
                if (child == 0) {
                        size_t size = 1;
                        bool closed;
                        if (open_it(&f) < 0 || begin(&f, "run") < 0)
                                _exit(1);
                        while (size > 0)
                                if (journal_take(f.journal, JOURNAL_OUT, f.pipe[0], 11, &size, &closed, &f.err) < 0)
                                        _exit(1);
                        _exit(0);
                }
                struct timespec pause = { .tv_nsec = round * 300000 };
                nanosleep(&pause, NULL);
                (void) kill(child, SIGKILL);
                (void) waitpid(child, NULL, 0);
                (void) fcntl(f.pipe[0], F_SETFL, O_NONBLOCK);
                ssize_t n_rest = read(f.pipe[0], rest, SIZE);
                if (n_rest < 0)
                        n_rest = 0;
                size_t n_got = 0;
                if (open_it(&f) < 0)
                        unopened++;
                else if (journal_open_run(f.journal) &&
                         journal_read_stream(f.journal, "run", JOURNAL_OUT, SIZE, &got, &n_got, &f.err) < 0)
                        unopened++;
                lost += n_got + (size_t) n_rest != SIZE || memcmp(pattern + n_got, rest, (size_t) n_rest) != 0 ||
                        (n_got > 0 && memcmp(pattern, got, n_got) != 0);
                free(got);
                got = NULL;
                tear_down(&f);
        }
        ok(unopened == 0, "%d times killed: the journal opened each time", ROUNDS);
        ok(lost == 0, "and no byte was lost or doubled");
        free(pattern);
        free(rest);
}

/* Feeds a megabyte at a time. Returns what was taken. */
static size_t flood(struct fixture *f, enum journal_stream stream, size_t megabytes) {
        static char block[1 << 20];
        memset(block, 'f', sizeof(block));
        must(fcntl(f->pipe[1], F_SETPIPE_SZ, 1 << 16) > 0, "F_SETPIPE_SZ");
        size_t took = 0;
        for (size_t i = 0; i < megabytes * 16; i++)
                took += feed(f, stream, block, 1 << 16);
        return took;
}

static void test_a_flood_is_cut_and_counted(void) {
        struct fixture f;
        set_up(&f);
        must(open_it(&f) == 0 && begin(&f, "flood") == 0, f.err.message);
        ok(flood(&f, JOURNAL_OUT, 18) == 18 << 20, "18 MiB are taken from the pipe");
        struct journal_run run;
        for (int i = 0; i < 3; i++) {
                ok(journal_find(f.journal, "flood", &run, &f.err) == 0 &&
                           run.bytes[JOURNAL_OUT] == JOURNAL_STREAM_MAX && run.cut[JOURNAL_OUT] == 2 << 20 &&
                           run.cut[JOURNAL_ERR] == 0,
                   "16 are kept and 2 counted as cut: %s",
                   i == 0   ? "at once"
                   : i == 1 ? "after a death in the run"
                            : "after its end");
                ok(i != 1 || end(&f, "{}", 2) == 0, "ended");
                ok(open_it(&f) == 0 && !f.torn, "opened again");
        }
        ok(begin(&f, "calm") == 0 && feed(&f, JOURNAL_OUT, "a", 1) == 1 && open_it(&f) == 0 &&
                   journal_find(f.journal, "calm", &run, &f.err) == 0 && run.cut[JOURNAL_OUT] == 0,
           "the next run does not inherit the number");
        static char large[JOURNAL_RESULT_MAX + 1];
        ok(end(&f, large, sizeof(large)) < 0 && f.err.code == ERR_LIMIT, "a result is bounded");
        ok(end(&f, large, 100) == 0, "and a smaller one still ends the run");
        tear_down(&f);
}

static void test_byte_by_byte_output_makes_a_bounded_number_of_events(void) {
        enum { BYTES = 40000 };
        struct fixture f;
        set_up(&f);
        must(open_it(&f) == 0 && begin(&f, "drip") == 0, f.err.message);
        for (int i = 0; i < BYTES; i++)
                (void) feed(&f, JOURNAL_OUT, &"0123456789"[i % 10], 1);
        struct journal_run run;
        ok(journal_find(f.journal, "drip", &run, &f.err) == 0 && run.bytes[JOURNAL_OUT] == BYTES, "all bytes are kept");
        ok(run.events > 4000 && run.events < 5000, "in %llu events", (unsigned long long) run.events);
        ok(end(&f, "{}", 2) == 0 && open_it(&f) == 0, "ended and opened again");
        size_t at = 0, wrong = 0;
        struct journal_event event;
        for (uint64_t i = 1; journal_event(f.journal, "drip", i, &event, &f.err) == 0; i++) {
                if (event.kind == JOURNAL_EVENT_RESULT)
                        break;
                wrong += event.offset != at || event.size == 0;
                at += event.size;
        }
        ok(wrong == 0 && at == BYTES && event.kind == JOURNAL_EVENT_RESULT,
           "the events tell of each byte once, in order");
        tear_down(&f);
}

/* Opening a journal is one step of the daemon's loop: what it reads must not grow with what boxes print. */
static void test_the_events_of_all_runs_are_bounded(void) {
        enum { BYTES = 16 << 20, PIECE = 1024, MAX = (1 << 16) + 20000 };
        static char piece[PIECE];
        struct journal_run runs[JOURNAL_RUNS_KEPT];
        struct fixture f;
        char id[33];
        int failed = 0;
        set_up(&f);
        must(open_it(&f) == 0, f.err.message);
        memset(piece, 'p', sizeof(piece));
        for (int i = 0; i < 30; i++) {
                (void) snprintf(id, sizeof(id), "run-%d", i);
                failed += begin(&f, id) < 0;
                for (int n = 0; n < 8000; n++)
                        failed += feed(&f, n % 2 ? JOURNAL_OUT : JOURNAL_ERR, piece, n < 4000 ? 1 : 100) == 0;
                failed += end(&f, "{}", 2) < 0;
                while (journal_rotate_some(f.journal))
                        ;
        }
        ok(failed == 0, "30 runs that print 8000 pieces");
        long records = scratch_size(f.dir, "events") / 36;
        ok(records < MAX, "the file holds %ld records, and not 120000", records);
        ok(open_it(&f) == 0 && !f.torn && journal_list(f.journal, runs, JOURNAL_RUNS_KEPT) > 5, "the newest are kept");
        ok(begin(&f, "large") == 0, "a run that prints as much as is kept, in pieces of a kilobyte");
        for (int n = 0; n < BYTES / PIECE; n++)
                failed += feed(&f, JOURNAL_OUT, piece, PIECE) == 0 || feed(&f, JOURNAL_ERR, piece, PIECE) == 0;
        ok(failed == 0 && journal_find(f.journal, "large", runs, &f.err) == 0 && runs[0].events < 20000, "has %llu events",
           (unsigned long long) runs[0].events);
        tear_down(&f);
}

static void test_old_runs_are_dropped(void) {
        struct fixture f;
        set_up(&f);
        must(open_it(&f) == 0, f.err.message);
        struct journal_run runs[JOURNAL_RUNS_KEPT + 10];
        struct journal_event stale = { 0 };
        char id[33], text[16] = "";
        int failed = 0;
        for (int i = 0; i < 2500; i++) {
                (void) snprintf(id, sizeof(id), "run-%d", i);
                failed +=
                        begin(&f, id) < 0 || feed(&f, JOURNAL_OUT, id, strlen(id)) == 0 || end(&f, id, strlen(id)) < 0;
                if (i == 0)
                        (void) journal_event(f.journal, id, 1, &stale, &f.err);
        }
        ok(failed == 0, "2500 runs");
        ok(journal_list(f.journal, runs, JOURNAL_RUNS_KEPT + 10) == JOURNAL_RUNS_KEPT, "the last hundred are kept");
        ok(scratch_size(f.dir, "events") < 150000, "the file did not grow with all of them");
        ok(open_it(&f) == 0 && !f.torn && journal_list(f.journal, runs, JOURNAL_RUNS_KEPT + 10) == JOURNAL_RUNS_KEPT,
           "so it is when opened again");
        is_text(runs[JOURNAL_RUNS_KEPT - 1].run_id, "run-2400", "the oldest of them");
        is_text(tell(&f, "run-2400"), "Orun-2400Rrun-2400", "reads as it was");
        is_text(tell(&f, "run-2499"), "Orun-2499Rrun-2499", "and so does the newest");
        size_t n;
        ok(stale.size > 0 && journal_read(f.journal, &stale, 0, text, sizeof(text), &n, &f.err) < 0 &&
                   f.err.code == ERR_GONE,
           "an event of a dropped run is gone, not another run's bytes");
        tear_down(&f);

        set_up(&f);
        must(open_it(&f) == 0, f.err.message);
        for (int i = 0; i < 6; i++) {
                (void) snprintf(id, sizeof(id), "big-%d", i);
                failed += begin(&f, id) < 0 || flood(&f, JOURNAL_OUT, 15) == 0 || end(&f, id, strlen(id)) < 0;
        }
        ok(failed == 0 && begin(&f, "small") == 0, "six runs of 15 MiB, and a small one");
        ok(journal_list(f.journal, runs, 10) < 7 && journal_find(f.journal, "big-5", runs, &f.err) == 0 &&
                   journal_find(f.journal, "big-4", runs, &f.err) == 0,
           "large old runs are dropped, but not the newest two");
        /* In steps, while the run goes on. */
        int steps = 0;
        failed = 0;
        for (; journal_rotate_some(f.journal) && steps < 1000; steps++)
                failed += steps == 2 && feed(&f, JOURNAL_OUT, "tiny", 4) != 4;
        ok(!failed && steps > 3, "in %d steps", steps);
        long out = scratch_size(f.dir, "out.0") + scratch_size(f.dir, "out.1");
        ok(out > 30 << 20 && out <= JOURNAL_BYTES_MAX, "and the disk is given back");
        ok(open_it(&f) == 0 && !f.torn, "opened after the rewrite");
        is_text(tell(&f, "small"), "Otiny", "with the open run");

        scratch_write(f.dir, "events.new", "half", 4);
        const char *other = scratch_size(f.dir, "out.0") >= 0 ? "out.1" : "out.0";
        scratch_write(f.dir, other, "half", 4);
        ok(open_it(&f) == 0 && !f.torn && scratch_size(f.dir, "events.new") < 0 && scratch_size(f.dir, other) < 0,
           "what a rewrite that was killed left is removed");
        is_text(tell(&f, "small"), "Otiny", "and disturbs nothing");
        tear_down(&f);

        set_up(&f);
        must(open_it(&f) == 0, f.err.message);
        failed = 0;
        for (int i = 0; i < 24; i++) {
                (void) snprintf(id, sizeof(id), "more-%d", i);
                failed += begin(&f, id) < 0 || flood(&f, JOURNAL_OUT, 15) == 0 || end(&f, id, strlen(id)) < 0;
        }
        out = scratch_size(f.dir, "out.0") + scratch_size(f.dir, "out.1");
        ok(!failed && out <= 2 * JOURNAL_BYTES_MAX, "also while runs print faster than time passes: %ld MiB",
           out >> 20);
        tear_down(&f);
}

static void test_a_socket_is_read_where_splice_cannot(void) {
        struct fixture f;
        set_up(&f);
        int pair[2];
        must(open_it(&f) == 0 && begin(&f, "run") == 0, f.err.message);
        must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 && write(pair[1], "socket", 6) == 6,
             "socketpair");
        size_t size = 0;
        bool closed = true;
        ok(journal_take(f.journal, JOURNAL_OUT, pair[0], 100, &size, &closed, &f.err) == 0 && size == 6 && !closed,
           "taken");
        ok(journal_take(f.journal, JOURNAL_OUT, pair[0], 100, &size, &closed, &f.err) == 0 && size == 0 && !closed,
           "nothing more: no waiting");
        close(pair[1]);
        ok(journal_take(f.journal, JOURNAL_OUT, pair[0], 100, &size, &closed, &f.err) == 0 && closed,
           "the end is seen");
        is_text(tell(&f, "run"), "Osocket", "and kept");
        close(pair[0]);
        close(f.pipe[1]);
        f.pipe[1] = -1;
        ok(journal_take(f.journal, JOURNAL_OUT, f.pipe[0], 100, &size, &closed, &f.err) == 0 && closed,
           "the end of a pipe is seen too");
        tear_down(&f);
}

/* A file size limit answers like a full disk, and needs no disk of its own. */
static void test_a_full_disk_stops_no_run(void) {
        struct fixture f;
        set_up(&f);
        must(open_it(&f) == 0 && begin(&f, "run") == 0, f.err.message);
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
                (void) signal(SIGXFSZ, SIG_IGN);
                struct rlimit limit = { 4096, 4096 };
                must(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
                static char block[1 << 16];
                size_t took = feed(&f, JOURNAL_OUT, block, 8192), more = 0;
                bool closed;
                while (took < 8192 &&
                       journal_take(f.journal, JOURNAL_OUT, f.pipe[0], 1 << 20, &more, &closed, &f.err) == 0 &&
                       more > 0)
                        took += more;
                if (took != 8192)
                        _exit(1);
                if (end(&f, block, sizeof(block)) == 0)
                        _exit(2);
                _exit(end(&f, "{}", 2) == 0 ? 0 : 3);
        }
        int status = 0;
        must(waitpid(child, &status, 0) == child, "waitpid");
        ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a full disk takes the output away and lets the run end (%d)",
           WEXITSTATUS(status));
        struct journal_run run;
        ok(open_it(&f) == 0 && !f.torn && journal_find(f.journal, "run", &run, &f.err) == 0, "opened again");
        ok(run.ended && run.bytes[JOURNAL_OUT] == 4096 && run.cut[JOURNAL_OUT] == 4096,
           "half of it kept, half counted as cut");
        tear_down(&f);
}

/* One run in a journal without a name: what it printed can be read as long as the journal is open. */
static void run_scratch(struct fixture *f, const char *bytes, size_t size) {
        must(journal_scratch_open(&f->journal, &f->err) == 0, "scratch");
        ok(journal_list(f->journal, &(struct journal_run) { 0 }, 1) == 0 && !journal_open_run(f->journal),
           "it is empty");
        ok(begin(f, "run") == 0 && feed(f, JOURNAL_OUT, bytes, size) == size && end(f, "{}", 2) == 0,
           "a run of %zu bytes", size);
        ok(strncmp(stream_of(f, "run", JOURNAL_OUT), bytes, size) == 0, "its output can be read");
        ok(stream_of(f, "run", JOURNAL_ERR)[0] == '\0', "and there is none of another");
}

/* Of this process: those of files without a name, and the bytes in them. */
static size_t count_nameless(const char *dir, size_t *ret_bytes) {
        size_t n = 0;
        *ret_bytes = 0;
        for (int fd = 0; fd < 256; fd++) {
                char path[64], target[512] = "";
                struct stat status;
                (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                if (readlink(path, target, sizeof(target) - 1) < 0 || strncmp(target, dir, strlen(dir)) != 0 ||
                    fstat(fd, &status) < 0 || status.st_nlink != 0)
                        continue;
                n++;
                *ret_bytes += (size_t) status.st_size;
        }
        return n;
}

static void test_a_journal_without_a_name_is_emptied_and_used_again(void) {
        enum { LARGE = 300 << 10 };
        struct fixture f;
        size_t bytes;
        set_up(&f);
        _cleanup_free_ char *large = calloc(1, LARGE);
        must(large != NULL && fcntl(f.pipe[1], F_SETPIPE_SZ, 1 << 20) > 0, "a large pipe");
        memset(large, 'x', LARGE);
        journal_scratch_start(f.dir);
        for (int turn = 0; turn < 3; turn++) {
                run_scratch(&f, turn ? "b" : "a secret", turn ? 1 : 8);
                ok(count_nameless(f.dir, &bytes) == 3 && bytes > 0, "the same three files, not one more");
                journal_close(f.journal);
                ok(count_nameless(f.dir, &bytes) == 3 && bytes == 0, "nothing is left in them");
        }
        run_scratch(&f, large, LARGE);
        journal_close(f.journal);
        ok(count_nameless(f.dir, &bytes) == 0, "a large one is thrown away");
        struct journal *many[12];
        for (size_t i = 0; i < ELEMENTS(many); i++)
                must(journal_scratch_open(&many[i], &f.err) == 0, "scratch");
        ok(count_nameless(f.dir, &bytes) == 36, "each has its own");
        for (size_t i = 0; i < ELEMENTS(many); i++)
                journal_close(many[i]);
        ok(count_nameless(f.dir, &bytes) == 24, "and eight wait for the next");
        journal_scratch_stop();
        ok(count_nameless(f.dir, &bytes) == 0, "until the end");
        f.journal = NULL;
        tear_down(&f);
}

int main(void) {
        if (access("/dev/shm", W_OK) == 0)
                (void) setenv("TMPDIR", "/dev/shm", 0); /* thousands of small files: not on a disk */
        test_a_run_can_be_read_again();
        test_a_request_can_be_sent_again_and_its_answers_read_again();
        test_a_result_without_room_is_written_later();
        test_journals_of_older_versions_are_read_and_gone_on_with();
        test_no_flipped_bit_becomes_a_wrong_answer();
        test_any_torn_or_damaged_file_opens();
        test_what_is_no_journal_is_not_destroyed();
        test_kill_loses_no_byte();
        test_a_flood_is_cut_and_counted();
        test_byte_by_byte_output_makes_a_bounded_number_of_events();
        test_the_events_of_all_runs_are_bounded();
        test_old_runs_are_dropped();
        test_a_socket_is_read_where_splice_cannot();
        test_a_full_disk_stops_no_run();
        test_a_journal_without_a_name_is_emptied_and_used_again();
        return done_testing();
}
