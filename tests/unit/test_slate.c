/* Journals whose newest records wait in memory: what is in the file, and what the next daemon finds. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "scratch.h"
#include "session/journal.h"
#include "session/slate.h"
#include "tap.h"

static char dir[256], path[300];
static struct loop *loop;

static struct journal *open_journal(bool is_deferred) {
        struct err err;
        struct journal *journal = NULL;
        bool torn;
        _cleanup_fd_ int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (journal_open(dir_fd, &journal, &torn, &err) < 0 || (is_deferred && journal_defer(journal, path) < 0))
                return NULL;
        return journal;
}

static off_t file_size(void) {
        struct stat status;
        return stat(path, &status) == 0 ? status.st_size : -1;
}

static bool has_result(struct journal *journal, const char *run_id, const char *expected) {
        struct journal_run run;
        struct journal_event event;
        char text[8192];
        size_t size = 0;
        return journal_find(journal, run_id, &run, NULL) == 0 && run.ended &&
               journal_event(journal, run_id, run.events, &event, NULL) == 0 &&
               journal_read(journal, &event, 0, text, sizeof(text), &size, NULL) == 0 && size == strlen(expected) &&
               memcmp(text, expected, size) == 0;
}

static void stop_loop(void *context) {
        loop_stop(context);
}

static void test_wait(void) {
        struct journal *journal = open_journal(true);
        off_t before = file_size();
        ok(journal && journal_begin(journal, "first", NULL) == 0 && journal_end(journal, "{\"a\":1}", 7, NULL) == 0,
           "a run begins and ends");
        ok(file_size() == before, "nothing of it is in the file");
        ok(has_result(journal, "first", "{\"a\":1}"), "it can be read all the same");
        ok(file_size() > before, "and is in the file then");

        before = file_size();
        (void) journal_begin(journal, "second", NULL);
        (void) journal_end(journal, "{}", 2, NULL);
        ok(file_size() == before, "nor is anything of the next one");
        (void) loop_timer(loop, loop_now_ms() + 100, stop_loop, loop);
        (void) loop_run(loop, NULL);
        ok(file_size() > before, "a moment later it is");

        before = file_size();
        (void) journal_begin(journal, "third", NULL);
        char large[5000];
        memset(large, ' ', sizeof(large));
        memcpy(large, "{}", 2);
        ok(journal_end(journal, large, sizeof(large), NULL) == 0 && file_size() > before + (off_t) sizeof(large),
           "what is too large goes to the file at once, behind what waited");
        before = file_size();
        for (int i = 0; i < 30; i++) {
                char id[16];
                (void) snprintf(id, sizeof(id), "many-%d", i);
                (void) journal_begin(journal, id, NULL);
                (void) journal_end(journal, large, 300, NULL);
        }
        ok(file_size() > before + 20 * 300, "more than there is room for: the oldest are written");
        before = file_size();
        journal_close(journal);
        ok(file_size() > before, "closing writes the rest");
        journal = open_journal(false);
        struct journal_run runs[40];
        ok(journal && journal_list(journal, runs, 40) == 33 && runs[0].ended, "all of them are there");
        is_text(runs[0].run_id, "many-29", "the newest is the last one");
        journal_close(journal);
}

/* Killed at a moment when everything is in memory only. */
static void die_with(const char *run_id, bool is_ended) {
        struct journal *journal = open_journal(true);
        if (journal && journal_begin(journal, run_id, NULL) == 0 &&
            (!is_ended || journal_end(journal, "{\"b\":2}", 7, NULL) == 0))
                (void) kill(getpid(), SIGKILL);
        _exit(1);
}

static void test_death(int fd, const char *run_id, bool is_ended) {
        struct err err;
        off_t before = file_size();
        pid_t pid = fork();
        if (pid == 0) {
                slate_close();
                if (slate_take_over(loop, fd, &err) < 0)
                        _exit(2);
                die_with(run_id, is_ended);
        }
        int status = 0;
        (void) waitpid(pid, &status, 0);
        ok(WIFSIGNALED(status) && file_size() == before, "a daemon is killed before %s is in the file", run_id);
        slate_close();
        ok(slate_take_over(loop, fd, &err) == 0 && file_size() > before, "the next one writes it");
        struct journal *journal = open_journal(false);
        if (is_ended)
                ok(has_result(journal, run_id, "{\"b\":2}"), "and has its result");
        else {
                is_text(journal_open_run(journal), run_id, "and knows that it is open");
                (void) journal_end(journal, "{}", 2, NULL);
        }
        off_t after = file_size();
        journal_close(journal);
        slate_close();
        ok(slate_take_over(loop, fd, &err) == 0 && file_size() == after, "once only");
}

/* Memory that is not what a daemon wrote harms nothing. */
static void test_nonsense(int fd) {
        struct err err;
        slate_close();
        char *memory = mmap(NULL, 32 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        static const uint32_t sizes[] = { 1, 3056, 3057, UINT32_MAX };
        off_t before = file_size();
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                memset(memory, 0, 32 * 4096);
                memset(memory, 0x41, 4096);
                memcpy(memory, &sizes[i], 4);
                ok(slate_take_over(loop, fd, &err) == 0 && file_size() == before, "a place that says %u, without a path",
                   sizes[i]);
                slate_close();
                memset(memory, 0, 4096);
                memcpy(memory, &sizes[i], 4);
                memset(memory + 8, 0x7f, 7);
                strcpy(memory + 16, path);
                ok(slate_take_over(loop, fd, &err) == 0 && file_size() == before, "one far behind the end of its file");
                slate_close();
        }
        _cleanup_fd_ int small = memfd_create("small", MFD_CLOEXEC);
        ok(slate_take_over(loop, small, &err) < 0, "what has another size is no slate");
        (void) munmap(memory, 32 * 4096);
}

/* A full disk: what waits stays, and is written when there is room. */
static void test_no_room(void) {
        (void) signal(SIGXFSZ, SIG_IGN);
        struct journal *journal = open_journal(true);
        struct rlimit old, limit;
        (void) getrlimit(RLIMIT_FSIZE, &old);
        limit = old;
        limit.rlim_cur = (rlim_t) file_size();
        (void) setrlimit(RLIMIT_FSIZE, &limit);
        off_t before = file_size();
        ok(journal_begin(journal, "full", NULL) == 0 && journal_end(journal, "{}", 2, NULL) == 0, "a run on a full disk");
        struct journal_event event;
        char text[64];
        size_t size;
        struct journal_run run;
        ok(journal_find(journal, "full", &run, NULL) == 0 && journal_event(journal, "full", run.events, &event, NULL) == 0 &&
                   journal_read(journal, &event, 0, text, sizeof(text), &size, NULL) < 0,
           "cannot be read");
        char large[5000];
        memset(large, ' ', sizeof(large));
        ok(journal_begin(journal, "more", NULL) == 0 && journal_end(journal, large, sizeof(large), NULL) < 0,
           "one with a large result says so");
        (void) setrlimit(RLIMIT_FSIZE, &old);
        ok(journal_end(journal, "{\"c\":3}", 7, NULL) == 0 && has_result(journal, "more", "{\"c\":3}") &&
                   has_result(journal, "full", "{}") && file_size() > before,
           "with room again both are there");
        journal_close(journal);
}

int main(void) {
        struct err err;
        int fd = -1;
        scratch_make(dir);
        (void) snprintf(path, sizeof(path), "%s/events", dir);
        ok(loop_make(&loop, &err) == 0 && slate_make(loop, &fd, &err) == 0, "a slate");
        test_wait();
        test_no_room();
        test_death(fd, "lost-in-the-middle", false);
        test_death(fd, "lost-at-the-end", true);
        test_nonsense(fd);
        close(fd);
        loop_free(loop);
        scratch_remove(dir);
        return done_testing();
}
