/* Objects that kernels write to lie together: a program that is its own Python, with an allocator to be exchanged. It
 * runs three times, as a nursery does: twice to find out what is written to, and once with that in its place. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../guest/nursery/place.h"
#include "tap.h"

enum { OBJECTS = 4000, EVERY = 100, WRITTEN = OBJECTS / EVERY, CLOSE = 4 * 4096 };

__attribute__((visibility("default"))) void PyMem_GetAllocator(int domain, struct allocator *ret_allocator);
__attribute__((visibility("default"))) void PyMem_SetAllocator(int domain, const struct allocator *allocator);

static void *plain_malloc(void *context, size_t size) {
        (void) context;
        return malloc(size);
}

static void *plain_calloc(void *context, size_t n, size_t size) {
        (void) context;
        return calloc(n, size);
}

static void *plain_realloc(void *context, void *block, size_t size) {
        (void) context;
        return realloc(block, size);
}

static void plain_free(void *context, void *block) {
        (void) context;
        free(block);
}

static struct allocator allocators[3] = { { NULL, plain_malloc, plain_calloc, plain_realloc, plain_free },
                                          { NULL, plain_malloc, plain_calloc, plain_realloc, plain_free },
                                          { NULL, plain_malloc, plain_calloc, plain_realloc, plain_free } };

void PyMem_GetAllocator(int domain, struct allocator *ret_allocator) {
        *ret_allocator = allocators[domain];
}

void PyMem_SetAllocator(int domain, const struct allocator *allocator) {
        allocators[domain] = *allocator;
}

/* As Python does it: now by one way, now by another; some are moved, and many are freed again. */
static uint8_t *make_object(size_t i) {
        const struct allocator *own = &allocators[i % 3];
        size_t size = 32 + i % 7 * 16;
        own->free(own->context, own->malloc(own->context, size));
        uint8_t *object = i % 2 ? own->malloc(own->context, size) : own->calloc(own->context, 1, size);
        bool is_clear = i % 2 || (object && !object[0] && !object[size - 1]);
        if (object)
                memset(object, (int) (i % 251), size);
        if (object && i % 5 == 0)
                object = own->realloc(own->context, object, size + 16);
        return is_clear ? object : NULL;
}

static bool holds(const uint8_t *object, size_t i) {
        return object[0] == i % 251 && object[31 + i % 7 * 16] == i % 251;
}

/* What the snapshot is for a nursery: from here on, a page that is written to is the process's own. */
static uint8_t *heap_start;
static void snapshot(void) {
        size_t size = (size_t) ((uint8_t *) sbrk(0) - heap_start);
        int fd = memfd_create("heap", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t) size) < 0 || write(fd, heap_start, size) != (ssize_t) size ||
            mmap(heap_start, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED)
                _exit(1);
        (void) close(fd);
}

static void check(uint8_t *objects[static OBJECTS]) {
        uintptr_t lowest = UINTPTR_MAX, highest = 0;
        size_t n_kept = 0;
        for (size_t i = 0; i < OBJECTS; i++)
                n_kept += holds(objects[i], i);
        for (size_t i = 0; i < OBJECTS; i += EVERY) {
                uintptr_t at = (uintptr_t) objects[i];
                lowest = at < lowest ? at : lowest;
                highest = at > highest ? at : highest;
        }
        ok(n_kept == OBJECTS, "every object holds what it was given");
        ok(highest - lowest < CLOSE, "those that are written to lie within %zu bytes", (size_t) (highest - lowest));
        ok((uintptr_t) objects[OBJECTS - 1] - (uintptr_t) objects[1] > 8 * CLOSE, "the others do not");
        ok(allocators[2].malloc == plain_malloc, "and the allocator is the usual one again");
        for (size_t i = 0; i < OBJECTS; i++)
                allocators[i % 3].free(NULL, allocators[i % 3].realloc(NULL, objects[i], 200));
        ok(true, "which they all go back to");
        ok(!getenv(PLACE_VARIABLE) && !getenv("LD_PRELOAD"), "nothing tells how it was started");
}

int main(int argc, char **argv) {
        if (argc == 1) {
                (void) setenv(PLACE_VARIABLE, "1", 1);
                (void) execl("/proc/self/exe", argv[0], "again", NULL);
                return 1;
        }
        static uint8_t *objects[OBJECTS];
        uint8_t *first = malloc(1);
        heap_start = first - (uintptr_t) first % 4096;
        for (size_t i = 0; i < OBJECTS; i++)
                if (!(objects[i] = make_object(i)))
                        return 1;
        bool is_survey = place_is_survey();
        place_end();
        if (is_survey)
                snapshot();
        for (size_t i = 0; i < OBJECTS; i += EVERY)
                objects[i][1] ^= 1;
        if (is_survey)
                place_report();
        check(objects);
        return done_testing();
}
