#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "journal_fixture.h"

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
        size_t total = BYTES;
        while (!journal_has_late_output(f.journal))
                total += feed(&f, JOURNAL_OUT, "x", 1);
        journal_record_late_output(f.journal);
        must(journal_find(f.journal, "drip", &run, &f.err) == 0, f.err.message);
        struct journal_event last;
        ok(!journal_has_late_output(f.journal) && journal_event(f.journal, "drip", run.events, &last, &f.err) == 0 &&
                   last.offset + last.size == total,
           "an event for the last bytes is made without more output");
        ok(end(&f, "{}", 2) == 0 && open_it(&f) == 0, "ended and opened again");
        size_t at = 0, wrong = 0;
        struct journal_event event;
        for (uint64_t i = 1; journal_event(f.journal, "drip", i, &event, &f.err) == 0; i++) {
                if (event.kind == JOURNAL_EVENT_RESULT)
                        break;
                wrong += event.offset != at || event.size == 0;
                at += event.size;
        }
        ok(wrong == 0 && at == total && event.kind == JOURNAL_EVENT_RESULT,
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
        ok(failed == 0 && journal_find(f.journal, "large", runs, &f.err) == 0 && runs[0].events < 20000,
           "has %llu events", (unsigned long long) runs[0].events);
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
        test_a_flood_is_cut_and_counted();
        test_byte_by_byte_output_makes_a_bounded_number_of_events();
        test_the_events_of_all_runs_are_bounded();
        test_old_runs_are_dropped();
        test_a_full_disk_stops_no_run();
        test_a_journal_without_a_name_is_emptied_and_used_again();
        return done_testing();
}
