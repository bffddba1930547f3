/* Whatever is in `events`: the journal opens or says why not, tells only what lies within its files, and goes on. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "journal/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition) {
        if (!condition)
                abort();
}

static int dir_fd = -1;
static char dir_path[] = "/tmp/glovebox-fuzz-XXXXXX";
static const char *const names[] = { "events",        "events.damaged", "events.new",    "out.0",
                                     "out.1",         "err.0",          "err.1",         "out.0.damaged",
                                     "out.1.damaged", "err.0.damaged",  "err.1.damaged", "inbox" };

static void empty_dir(void) {
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                (void) unlinkat(dir_fd, names[i], 0);
}

static void remove_dir(void) {
        empty_dir();
        (void) rmdir(dir_path);
}

static void put_file(const char *name, const void *bytes, size_t size) {
        int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        must(fd >= 0 && write(fd, bytes, size) == (ssize_t) size);
        close(fd);
}

/* Of the head of version 3, which has 24 bits of it behind the first byte of `side`. */
static void repair_head(uint8_t *events, size_t size) {
        if (size < 64 || events[8] != 3)
                return;
        memset(events + 13, 0, 3);
        uint32_t crc = crc32c(0, events, 40);
        for (size_t i = 0; i < 3; i++)
                events[13 + i] = (uint8_t) (crc >> (8 * i));
}

/* Gives each record the checksum it should have, or no damage would get past it. */
static void repair(uint8_t *events, size_t size) {
        size_t at = 64;
        repair_head(events, size);
        while (at + 8 <= size) {
                size_t payload = (size_t) events[at] | (size_t) events[at + 1] << 8;
                events[at + 2] = events[at + 3] = 0;
                if (events[at + 4] & 0x80) {
                        if (size - at < 16 || payload > size - at - 16)
                                return;
                        memset(events + at + 5, 0, 3);
                        uint32_t crc =
                                crc32c(crc32c(0, events + at, 12), events + at + 16, payload < 96 ? payload : 96);
                        for (size_t i = 0; i < 4; i++)
                                events[at + 12 + i] = (uint8_t) (crc >> (8 * i));
                        at += 16 + payload;
                        continue;
                }
                if (payload > size - at - 8)
                        return;
                uint32_t sum = 2166136261u;
                for (size_t i = 0; i < 5; i++)
                        sum = (sum ^ events[at + i]) * 16777619u;
                for (size_t i = 0; i < payload && i < 64; i++)
                        sum = (sum ^ events[at + 8 + i]) * 16777619u;
                sum = (sum >> 24) ^ (sum & 0xffffff);
                for (size_t i = 0; i < 3; i++)
                        events[at + 5 + i] = (uint8_t) (sum >> (8 * i));
                at += 8 + payload;
        }
}

static void read_all(struct journal *journal) {
        struct journal_run runs[JOURNAL_RUNS_KEPT];
        size_t n = journal_list(journal, runs, JOURNAL_RUNS_KEPT);
        for (size_t i = 0; i < n; i++) {
                struct journal_event event;
                for (uint64_t number = 1; number <= runs[i].events; number++) {
                        /* An id may come twice in a file that we did not write; then the newer run answers. */
                        if (journal_event(journal, runs[i].run_id, number, &event, NULL) < 0)
                                continue;
                        char bytes[64];
                        size_t got = 0;
                        if (journal_read(journal, &event, 0, bytes, sizeof(bytes), &got, NULL) < 0)
                                continue; /* its checksum is another */
                        must(event.is_checked || got == (event.size < sizeof(bytes) ? event.size : sizeof(bytes)));
                }
                char *stream = NULL;
                size_t got = 0;
                struct err err = { 0 };
                must(journal_read_stream(journal, runs[i].run_id, JOURNAL_OUT, 1000, &stream, &got, &err) == 0 ||
                     err.code == ERR_DAMAGED);
                free(stream);
        }
}

static bool is_same_run(const struct journal_run *a, const struct journal_run *b) {
        return strcmp(a->run_id, b->run_id) == 0 && a->ended == b->ended && a->damaged == b->damaged &&
               a->events == b->events && memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* Whatever the files were before, what was told once is told again. Damage between two requests stays and is told
 * again; where there was none, there is none now. */
static struct journal *open_again(struct journal *journal, bool was_torn) {
        static struct journal_run before[JOURNAL_RUNS_KEPT], after[JOURNAL_RUNS_KEPT];
        size_t n = journal_list(journal, before, JOURNAL_RUNS_KEPT);
        bool torn;
        journal_close(journal);
        must(journal_open(dir_fd, &journal, &torn, NULL) == 0 && (!torn || was_torn));
        must(journal_list(journal, after, JOURNAL_RUNS_KEPT) >= n); /* dropped ones stay in the files for a while */
        for (size_t i = 0; i < n; i++)
                must(is_same_run(&before[i], &after[i]));
        return journal;
}

/* The first byte says how long the streams are, the second whether checksums are repaired, the rest is `events`. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static uint8_t events[1 << 16];
        if (size < 2 || size - 2 > sizeof(events))
                return 0;
        memcpy(events, data + 2, size - 2);
        if (data[1] & 1)
                repair(events, size - 2);
        if (dir_fd < 0) {
                must(mkdtemp(dir_path) != NULL && (dir_fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0);
                (void) atexit(remove_dir);
        }
        static const char stream[16] = "0123456789abcde";
        empty_dir();
        put_file("events", events, size - 2);
        put_file("out.0", stream, data[0] & 15);
        put_file("err.0", stream, data[0] >> 4);
        struct journal *journal = NULL;
        bool torn;
        struct err err = { 0 };
        if (journal_open(dir_fd, &journal, &torn, &err) < 0) {
                must(err.message[0] != '\0');
                return 0;
        }
        read_all(journal);
        char *payload = NULL, bytes[64];
        size_t n;
        if (journal_open_request(journal))
                (void) journal_read_request(journal, &payload, &n, &err);
        free(payload);
        must(journal_read_received(journal, bytes, sizeof(bytes), &n, &err) == 0);
        if (journal_open_run(journal))
                must(journal_end(journal, "{}", 2, JOURNAL_HOLDS_KERNEL, &err) == 0);
        must(journal_hold(journal, JOURNAL_HOLDS_FILE, &err) == 0);
        journal = open_again(journal, torn);
        must(journal_holds(journal) == JOURNAL_HOLDS_FILE);
        const struct journal_request next = { .id = "next", .payload = "{}", .size = 2 };
        must(journal_begin(journal, &next, &err) == 0 &&
             journal_end(journal, "{}", 2, JOURNAL_HOLDS_KERNEL, &err) == 0);
        journal = open_again(journal, torn);
        must(!journal_open_run(journal) && journal_holds(journal) == JOURNAL_HOLDS_KERNEL);
        read_all(journal);
        journal_close(journal);
        return 0;
}
