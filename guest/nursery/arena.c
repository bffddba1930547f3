/* Where a nursery's Python keeps its objects: one region of address space, so that it can be had in large pages.
 *
 * Python asks the system for arenas (1 MiB each) one by one, and they come to lie between the shared libraries that are
 * loaded meanwhile: 70 MiB in pieces none of which is a large page. From here they come one behind the other. The
 * region is only reserved; what is not in use takes no memory, and when it is full the system is asked as before. */
#include "arena.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

enum { UNIT = 256 << 10, UNITS = 2048, LARGE_PAGE = 2 << 20 }; /* 512 MiB; arenas of older Pythons have 256 KiB */

static char *region;
static unsigned char taken[UNITS];

static void reserve(void) {
        size_t size = (size_t) UNIT * UNITS + LARGE_PAGE;
        void *start = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (start == MAP_FAILED)
                return;
        region = (char *) (((uintptr_t) start + LARGE_PAGE - 1) & ~(uintptr_t) (LARGE_PAGE - 1));
}

static size_t find_free(size_t n) {
        for (size_t i = 0, run = 0; i < UNITS; i++) {
                run = taken[i] ? 0 : run + 1;
                if (run == n)
                        return i + 1 - n;
        }
        return UNITS;
}

void *arena_alloc(void *context, size_t size) {
        size_t n = (size + UNIT - 1) / UNIT, at = UNITS;
        (void) context;
        if (!region)
                reserve();
        if (region && size > 0)
                at = find_free(n);
        if (at < UNITS && mprotect(region + at * UNIT, n * UNIT, PROT_READ | PROT_WRITE) == 0) {
                for (size_t i = at; i < at + n; i++)
                        taken[i] = 1;
                return region + at * UNIT;
        }
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return memory == MAP_FAILED ? NULL : memory;
}

void arena_free(void *context, void *memory, size_t size) {
        uintptr_t offset = (uintptr_t) memory - (uintptr_t) region;
        size_t n = (size + UNIT - 1) / UNIT, at = offset / UNIT;
        (void) context;
        if (!region || at >= UNITS || n > UNITS - at) { /* from before, or from when the region was full */
                (void) munmap(memory, size);
                return;
        }
        /* Writable it may stay: it costs nothing, and the region stays in one piece. */
        (void) madvise(memory, n * UNIT, MADV_DONTNEED);
        for (size_t i = at; i < at + n; i++)
                taken[i] = 0;
}

/* A fork copies an entry for each page of anonymous memory: 5 ms for 40,000 small pages, 0.2 ms for as much in large
 * ones. A kernel that writes to a large page gets a copy of the 4 KiB that it writes to, no more. */
static void gather(uintptr_t start, uintptr_t end) {
        start = (start + LARGE_PAGE - 1) & ~(uintptr_t) (LARGE_PAGE - 1);
        end &= ~(uintptr_t) (LARGE_PAGE - 1);
        for (; start < end; start += LARGE_PAGE)
                (void) madvise((void *) start, LARGE_PAGE, MADV_COLLAPSE); /* older kernels: it stays as it is */
}

void arena_gather(void) {
        char line[512];
        FILE *maps = fopen("/proc/self/maps", "re");
        (void) malloc_trim(0);
        while (maps && fgets(line, sizeof(line), maps)) {
                uintptr_t start, end;
                unsigned long inode;
                char rights[5];
                if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %lu", &start, &end, rights, &inode) == 4 &&
                    inode == 0 && strcmp(rights, "rw-p") == 0)
                        gather(start, end);
        }
        if (maps)
                (void) fclose(maps);
}
