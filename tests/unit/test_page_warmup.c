/* Page warm-up: what the child touched is in the page tables of every later child; nothing else has changed. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../guest/nursery/page_warmup.h"
#include "tap.h"

enum { PAGE = 4096, ARENA = 1 << 20, READ = 40, READ_TOO = 50, WRITTEN = 60, UNTOUCHED = 42 };

/* 'a' is absent, 'o' this process's own, 'f' a file's. */
static char kind_of(const void *address) {
        uint64_t entry = 0;
        int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        ssize_t n = pread(fd, &entry, sizeof(entry), (off_t) ((uintptr_t) address / PAGE * sizeof(entry)));
        (void) close(fd);
        return n != sizeof(entry) || !(entry >> 63) ? 'a' : entry >> 61 & 1 ? 'f' : 'o';
}

static void fill(uint8_t *bytes) {
        for (size_t i = 0; i < ARENA; i++)
                bytes[i] = (uint8_t) (i * 7 + i / PAGE);
}

static bool holds(const uint8_t *bytes) {
        for (size_t i = 0; i < ARENA; i++)
                if (bytes[i] != (uint8_t) (i * 7 + i / PAGE))
                        return false;
        return true;
}

/* Mappings of this program with these rights. */
static unsigned count_maps(const char *rights) {
        char line[512];
        unsigned n = 0;
        FILE *file = fopen("/proc/self/maps", "re");
        while (file && fgets(line, sizeof(line), file))
                n += strstr(line, rights) && strstr(line, "/test_page_warmup");
        if (file)
                (void) fclose(file);
        return n;
}

static unsigned count_shared(void) {
        char line[512];
        unsigned n = 0;
        FILE *file = fopen("/proc/self/maps", "re");
        while (file && fgets(line, sizeof(line), file))
                n += strstr(line, " rw-s ") != NULL;
        if (file)
                (void) fclose(file);
        return n;
}

static void try(volatile uint8_t *arena) {
        (void) arena[READ * PAGE];
        (void) arena[READ_TOO * PAGE];
        arena[WRITTEN * PAGE] ^= 1;
        page_warmup_end();
}

static void check_waiting_kernel(const uint8_t *arena) {
        pid_t child = fork();
        if (child == 0) {
                bool is_shared_first = kind_of(arena + WRITTEN * PAGE) == 'f';
                page_warmup_own();
                _exit(is_shared_first && kind_of(arena + WRITTEN * PAGE) == 'o' &&
                                      kind_of(arena + READ_TOO * PAGE) == 'f' &&
                                      kind_of(arena + UNTOUCHED * PAGE) == 'a' && holds(arena)
                              ? 0
                              : 1);
        }
        int status = -1;
        ok(waitpid(child, &status, 0) == child && status == 0,
           "a kernel that waits has a copy of the page that was written, and of no other");
}

static void check_child(const uint8_t *arena) {
        pid_t child = fork();
        if (child == 0)
                _exit(kind_of(arena + READ * PAGE) != 'a' && kind_of(arena + WRITTEN * PAGE) != 'a' &&
                                      kind_of(arena + UNTOUCHED * PAGE) == 'a'
                              ? 0
                              : 1);
        int status = -1;
        ok(waitpid(child, &status, 0) == child && status == 0, "a child begins with the entries of both pages");
}

int main(void) {
        unsigned shared = count_shared();
        ok(page_warmup_begin() < 0, "not without being opened");
        ok(count_shared() == shared, "and then nothing is shared with kernels");
        ok(cow_snapshot_open() == 0 && page_warmup_open() == 0, "opened");
        uint8_t *arena = cow_snapshot_arena_allocate(NULL, ARENA);
        if (!arena)
                return EXIT_FAILURE;
        fill(arena);
        ok(cow_snapshot_take() == 0, "taken");
        ok(count_maps("r-xp") == 1 && count_maps("rwxp") == 0, "code and constants are one mapping, not writable");
        int code = page_warmup_begin();
        if (code == 0)
                try(arena);
        ok(code == 1, "tried");
        ok(kind_of(arena + READ * PAGE) != 'a', "what the child read is there");
        ok(kind_of(arena + WRITTEN * PAGE) != 'a', "what it wrote to, too");
        ok(kind_of(arena + UNTOUCHED * PAGE) == 'a', "what it did not touch is not, however near");
        check_child(arena);
        check_waiting_kernel(arena);
        ok(holds(arena), "every byte is what it was");
        arena[READ * PAGE] ^= 1;
        arena[READ * PAGE] ^= 1;
        ok(cow_snapshot_return() == 0 && kind_of(arena + READ * PAGE) != 'o' && holds(arena),
           "and pages can be given back");

        ok(page_warmup_open() == 0, "opened again");
        code = page_warmup_begin();
        if (code == 0)
                _exit(3);
        ok(code < 0 && holds(arena), "a warm-up that fails is reported, and changes nothing");
        return done_testing();
}
