#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "journal_fixture.h"

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
                (void) snprintf(told[i], sizeof(told[i]), "%.399s", tell(&f, ids[i]));
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
        test_a_socket_is_read_where_splice_cannot();
        return done_testing();
}
