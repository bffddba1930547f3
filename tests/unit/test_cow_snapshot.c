/* The nursery's snapshot: the same bytes at the same addresses, pages that come and go, and nothing lost. */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../guest/nursery/cow_snapshot.h"
#include "tap.h"

enum { PAGE = 4096, ARENA = 1 << 20, BLOCK = 1 << 20, HEAP = 64 << 10 };

/* 1: a page of this process's own; 0: the file's; -1: not there. */
static int is_own(const void *address) {
        uint64_t entry = 0;
        int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        ssize_t n = pread(fd, &entry, sizeof(entry), (off_t) ((uintptr_t) address / PAGE * sizeof(entry)));
        (void) close(fd);
        return n != sizeof(entry) || !(entry >> 63) ? -1 : !(entry >> 61 & 1);
}

static void fill(uint8_t *bytes, size_t size, unsigned seed) {
        for (size_t i = 0; i < size; i++)
                bytes[i] = (uint8_t) (i * 7 + i / PAGE + seed);
}

static bool holds(const uint8_t *bytes, size_t size, unsigned seed) {
        for (size_t i = 0; i < size; i++)
                if (bytes[i] != (uint8_t) (i * 7 + i / PAGE + seed))
                        return false;
        return true;
}

static void check_pages(uint8_t *arena) {
        ok(is_own(arena) < 1, "after the snapshot the arena is the file's");
        arena[5] ^= 1;
        ok(is_own(arena) == 1, "who writes gets a page of his own");
        arena[5] ^= 1;
        arena[3 * PAGE] ^= 1;
        ok(cow_snapshot_return() == 0 && is_own(arena) < 1, "a page that holds what it held is given back");
        ok(is_own(arena + 3 * PAGE) == 1, "one that does not is kept");
        arena[3 * PAGE] ^= 1;
        ok(holds(arena, ARENA, 1), "and nothing has changed");
}

/* The C library grows it with mremap if it can: then the bytes behind it in the file would be its own. */
static void check_block(uint8_t *block) {
        ok(is_own(block) < 1, "a large block of the C library is the file's, too");
        block = realloc(block, 64 * BLOCK);
        ok(block && holds(block, BLOCK, 3), "a large block that grows takes its bytes along");
        if (!block)
                return;
        fill(block, 64 * BLOCK, 4);
        ok(cow_snapshot_return() == 0 && holds(block, 64 * BLOCK, 4), "and can be used to its end");
        free(block);
}

static void check_fork(uint8_t *arena) {
        pid_t child = fork();
        if (child == 0) {
                bool good = holds(arena, ARENA, 1);
                arena[PAGE] ^= 1;
                _exit(good && cow_snapshot_return() == 0 && !holds(arena, ARENA, 1) ? 0 : 1);
        }
        int status = -1;
        ok(waitpid(child, &status, 0) == child && status == 0, "a forked child has the same, and writes to its own");
        ok(holds(arena, ARENA, 1), "its parent sees nothing of that");
}

static void *wait_for_end(void *fd) {
        char byte;
        return read(*(int *) fd, &byte, 1) < 0 ? fd : NULL;
}

static void check_threads(uint8_t *arena) {
        pthread_t thread;
        int ends[2];
        if (pipe(ends) < 0 || pthread_create(&thread, NULL, wait_for_end, &ends[0]) != 0)
                return;
        *(volatile uint8_t *) &arena[5] ^= 1;
        *(volatile uint8_t *) &arena[5] ^= 1;
        ok(cow_snapshot_return() == 0 && is_own(arena) == 1, "nothing is dropped beside a second thread");
        (void) close(ends[1]);
        (void) pthread_join(thread, NULL);
        (void) close(ends[0]);
}

/* As Python's: objects of one size from one pool after another. The first is half used. */
static size_t n_small, n_freed;

static void *allocate_small(size_t size) {
        enum { POOL = 16 << 10 };
        static uint8_t pools[2 * POOL] __attribute__((aligned(POOL)));
        static size_t used, last_size;
        if (size != last_size)
                used = POOL / 2;
        if (used < POOL && used + size > POOL)
                used = POOL;
        last_size = size;
        n_small++;
        used += size;
        return used <= sizeof(pools) ? pools + used - size : NULL;
}

static void free_small(void *object) {
        n_freed += object != NULL;
}

int main(void) {
        ok(cow_snapshot_take() < 0, "not without being opened");
        ok(cow_snapshot_open() == 0, "opened");
        uint8_t *arena = cow_snapshot_arena_allocate(NULL, ARENA), *other = cow_snapshot_arena_allocate(NULL, ARENA);
        uint8_t *heap = malloc(HEAP), *block = malloc(BLOCK);
        if (!arena || !other || !heap || !block)
                return EXIT_FAILURE;
        /* Somebody else's memory, who counts on zeroes after MADV_DONTNEED. */
        uint8_t *foreign = mmap(NULL, ARENA + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        (void) mprotect(foreign + ARENA, PAGE, PROT_NONE); /* a mapping of its own */
        fill(arena, ARENA, 1);
        fill(heap, HEAP, 2);
        fill(block, BLOCK, 3);
        fill(foreign, ARENA, 5);
        cow_snapshot_arena_free(NULL, other, ARENA);
        ok(cow_snapshot_arena_allocate(NULL, ARENA) == other && other[PAGE] == 0, "a freed arena is used again, empty");

        cow_snapshot_fill(allocate_small, free_small);
        ok(n_small > 0 && n_freed > 0 && n_freed < n_small, "gaps are filled; the pool that was not begun is not");
        ok(cow_snapshot_take() == 0, "taken");
        ok(holds(arena, ARENA, 1) && holds(heap, HEAP, 2) && holds(block, BLOCK, 3) && holds(foreign, ARENA, 5),
           "every byte is where it was");
        (void) madvise(foreign, ARENA, MADV_DONTNEED);
        ok(foreign[0] == 0 && foreign[ARENA - 1] == 0, "what is not known was left alone");
        check_pages(arena);
        check_block(block);
        check_fork(arena);
        check_threads(arena);
        return done_testing();
}
