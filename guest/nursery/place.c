/* Where Python's objects lie: those that kernels write to, together.
 *
 * Theory of operation. Python counts references in the objects themselves, so a kernel writes to whatever it looks at,
 * and each page that it writes to must be copied. The few thousand objects that every kernel looks at lie all over the
 * heap, two or three on a page. They cannot be moved, but the start of an interpreter is the same every time: the n-th
 * object of a size is the same one. So before Python starts, two children are forked, one after the other, that start
 * as the nursery will, do what kernels do, and tell what they wrote to:
 * - the first, by pages: all objects on a page that was written to are suspects;
 * - the second has each suspect on a page of its own, and so tells exactly which objects they are.
 * The nursery then has a block of the C library's ready for each of these, one beside the other, and gives them out as
 * their turn comes. Python frees what is not in its own pools by the C library, so a block ends like any other; once
 * the nursery is ready nothing of this is left but the order of things in memory.
 *
 * When the start is not the same after all, blocks go to the wrong objects. Kernels then write to more pages, as they
 * did without; nothing depends on it. For the same reason the seed of Python's hashes is drawn here, once for all
 * three. The children are in no box, have no capability, and run none but our own cells. */
#include "place.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/memory.h"
#include "box/seal/nursery_message.h"
#include "mapping.h"
#include "page_warmup.h"

enum {
        PLACED_MAX = PAGE, /* bytes of an object; larger ones have pages of their own anyway */
        NOTES_MAX = 1 << 15,
        SEEN_MAX = 1 << 19,
        DOMAINS = 3, /* of Python's allocators: raw, memory, objects */
};

/* The ordinal-th block of that size. */
struct note {
        uint32_t size, ordinal;
};

struct plan {
        size_t n;
        struct note notes[NOTES_MAX]; /* in order */
};

struct seen {
        uintptr_t address;
        struct note note;
};

enum mode { MODE_NONE, MODE_PAGES, MODE_OBJECTS, MODE_PLACE };

/* In shared memory, for the children's sake; and so that the snapshot does not take it for the interpreter's. */
struct state {
        struct plan plan;   /* what this process goes by */
        struct plan result; /* what a child found */
        uint32_t counts[PLACED_MAX + 1];
        uint32_t nexts[PLACED_MAX + 1]; /* ordinal of the next in the plan, or 0 */
        uint32_t cursors[PLACED_MAX + 1];
        void *blocks[NOTES_MAX];
        struct seen seen[SEEN_MAX];
};

static struct state *state;
static enum mode mode;
static int begun; /* PLACE_… */
static bool is_inside, is_over;
static struct allocator usual[DOMAINS];
static uint8_t *slots; /* a page for each note of the plan */
static int slots_fd = -1;

/* ---- the allocator ---- */

static bool is_slot(const void *block) {
        return slots && slots <= (const uint8_t *) block && (const uint8_t *) block < slots + state->plan.n * PAGE;
}

/* Notes that such a block is asked for. The block that is meant for it, if any. */
static void *take(size_t size, uint32_t *ret_ordinal) {
        *ret_ordinal = 0;
        if (is_inside || is_over || size == 0 || size > PLACED_MAX)
                return NULL;
        *ret_ordinal = ++state->counts[size];
        if (*ret_ordinal != state->nexts[size])
                return NULL;
        size_t at = state->cursors[size]++;
        const struct note *next = &state->plan.notes[at + 1];
        state->nexts[size] = at + 1 < state->plan.n && next->size == size ? next->ordinal : 0;
        return mode == MODE_OBJECTS ? slots + at * PAGE : state->blocks[at];
}

static void *remember(void *block, size_t size, uint32_t ordinal) {
        if (mode != MODE_PAGES || ordinal == 0 || !block)
                return block;
        size_t at = ((uintptr_t) block >> 4) * 0x9E3779B97F4A7C15ull >> 45;
        for (size_t i = 0; i < 64; i++, at = (at + 1) % SEEN_MAX) {
                struct seen *seen = &state->seen[at];
                if (seen->address && seen->address != (uintptr_t) block)
                        continue;
                *seen = (struct seen) { (uintptr_t) block, { (uint32_t) size, ordinal } };
                break;
        }
        return block;
}

static void *place_malloc(void *context, size_t size) {
        const struct allocator *allocator = context;
        uint32_t ordinal;
        void *block = take(size, &ordinal);
        if (block)
                return block;
        bool was_inside = is_inside;
        is_inside = true; /* Python's allocators call each other */
        block = allocator->malloc(allocator->context, size);
        is_inside = was_inside;
        return remember(block, size, ordinal);
}

static void *place_calloc(void *context, size_t n, size_t size) {
        const struct allocator *allocator = context;
        uint32_t ordinal;
        size_t all = size > 0 && n > PLACED_MAX / size ? 0 : n * size;
        void *block = take(all, &ordinal);
        if (block)
                return memset(block, 0, all);
        bool was_inside = is_inside;
        is_inside = true;
        block = allocator->calloc(allocator->context, n, size);
        is_inside = was_inside;
        return remember(block, all, ordinal);
}

static void *move_slot(const struct allocator *allocator, const void *slot, void *block, size_t size) {
        size_t old = state->plan.notes[(size_t) ((const uint8_t *) slot - slots) / PAGE].size;
        if (!block)
                block = allocator->malloc(allocator->context, size);
        return block ? memcpy(block, slot, old < size ? old : size) : NULL;
}

static void *place_realloc(void *context, void *old, size_t size) {
        const struct allocator *allocator = context;
        if (!old)
                return place_malloc(context, size);
        uint32_t ordinal;
        void *block = take(size, &ordinal), *moved;
        bool was_inside = is_inside;
        is_inside = true;
        if (is_slot(old)) {
                moved = move_slot(allocator, old, block, size);
        } else {
                moved = allocator->realloc(allocator->context, old, size);
                if (moved && block) {
                        memcpy(block, moved, size);
                        allocator->free(allocator->context, moved);
                        moved = block;
                }
        }
        is_inside = was_inside;
        return block ? moved : remember(moved, size, ordinal);
}

static void place_free(void *context, void *block) {
        const struct allocator *allocator = context;
        if (!is_slot(block))
                allocator->free(allocator->context, block);
}

/* Python's own functions; both or none. */
static void (*get_allocator)(int domain, struct allocator *ret_allocator);
static void (*set_allocator)(int domain, const struct allocator *allocator);

static bool find_python(void) {
        void *get = dlsym(RTLD_DEFAULT, "PyMem_GetAllocator"), *set = dlsym(RTLD_DEFAULT, "PyMem_SetAllocator");
        memcpy(&get_allocator, &get, sizeof(get));
        memcpy(&set_allocator, &set, sizeof(set));
        return get && set;
}

static void install(void) {
        for (int i = 0; i < DOMAINS; i++) {
                get_allocator(i, &usual[i]);
                set_allocator(i, &(struct allocator) { &usual[i], place_malloc, place_calloc, place_realloc,
                                                       place_free });
        }
}

/* ---- the plan ---- */

static int compare_notes(const void *a, const void *b) {
        const struct note *one = a, *other = b;
        if (one->size != other->size)
                return one->size < other->size ? -1 : 1;
        return one->ordinal < other->ordinal ? -1 : one->ordinal > other->ordinal;
}

static void adopt_plan(void) {
        struct plan *plan = &state->plan;
        *plan = state->result;
        state->result.n = 0;
        memset(state->counts, 0, sizeof(state->counts));
        memset(state->nexts, 0, sizeof(state->nexts));
        qsort(plan->notes, plan->n, sizeof(*plan->notes), compare_notes);
        for (size_t i = plan->n; i-- > 0;) {
                state->nexts[plan->notes[i].size] = plan->notes[i].ordinal;
                state->cursors[plan->notes[i].size] = (uint32_t) i;
        }
}

static void add_note(struct note note) {
        if (state->result.n < NOTES_MAX)
                state->result.notes[state->result.n++] = note;
}

static bool make_slots(void) {
        size_t size = state->plan.n * PAGE;
        slots_fd = memfd_create("slots", MFD_CLOEXEC);
        if (slots_fd < 0 || ftruncate(slots_fd, (off_t) size) < 0)
                return false;
        void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, slots_fd, 0);
        slots = mapped == MAP_FAILED ? NULL : mapped;
        return slots;
}

static bool make_blocks(void) {
        for (size_t i = 0; i < state->plan.n; i++)
                if (!(state->blocks[i] = malloc(state->plan.notes[i].size)))
                        return false;
        return true;
}

/* ---- before Python ---- */

/* Neither Python nor what kernels see of this process tells how it was started. */
static void forget_variable(const char *name) {
        char *value = getenv(name);
        if (!value)
                return;
        size_t size = strlen(value);
        (void) unsetenv(name);
        memset(value - strlen(name) - 1, 0, strlen(name) + 1 + size);
}

static bool fix_hashes(void) {
        uint32_t seed;
        char text[16];
        if (getenv("PYTHONHASHSEED"))
                return true; /* they are fixed */
        if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
                return false;
        begun |= PLACE_SEEDED;
        (void) snprintf(text, sizeof(text), "%u", seed > 0 ? seed : 1); /* 0 would be none */
        return setenv("PYTHONHASHSEED", text, 1) == 0;
}

static void become_survey(enum mode wanted) {
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        mode = wanted;
        /* Whoever asks the nursery for kernels is not to be heard here. */
        if (null_fd < 0 || dup2(null_fd, NURSERY_SOCKET_FD) < 0 || page_warmup_become_harmless() < 0 ||
            (mode == MODE_OBJECTS && !make_slots()))
                _exit(1);
        (void) close(null_fd);
}

/* The children in turn, and then the nursery itself; each returns with its mode, or with MODE_NONE. */
static void choose_mode(void) {
        for (enum mode wanted = MODE_PAGES; wanted <= MODE_OBJECTS; wanted++) {
                pid_t child = fork();
                if (child == 0) {
                        become_survey(wanted);
                        return;
                }
                if (child < 0 || page_warmup_await(child) < 0 || state->result.n == 0)
                        return;
                adopt_plan();
        }
        if (make_blocks())
                mode = MODE_PLACE;
}

__attribute__((constructor)) static void place_begin(void) {
        if (!getenv(PLACE_VARIABLE) || !find_python())
                return;
        begun = PLACE_BEGUN;
        forget_variable(PLACE_VARIABLE);
        forget_variable("LD_PRELOAD");
        if (!fix_hashes())
                return;
        void *shared = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
                return;
        state = shared;
        choose_mode();
        if (mode != MODE_NONE)
                install();
}

/* ---- when the nursery is ready ---- */

int place_begun(void) {
        return begun;
}

bool place_is_survey(void) {
        return mode == MODE_PAGES || mode == MODE_OBJECTS;
}

void place_end(void) {
        is_over = true;
        if (mode == MODE_OBJECTS) {
                /* The same bytes; but from here on, who writes to a page gets one of his own. */
                (void) !mmap(slots, state->plan.n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, slots_fd, 0);
        } else if (mode == MODE_PLACE) {
                for (int i = 0; i < DOMAINS; i++)
                        set_allocator(i, &usual[i]);
        }
        if (!place_is_survey() && state) {
                (void) munmap(state, sizeof(*state));
                state = NULL;
        }
}

void place_report(void) {
        int fd = prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ? -1 : open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                _exit(1);
        for (size_t i = 0; mode == MODE_PAGES && i < SEEN_MAX; i++) {
                const struct seen *seen = &state->seen[i];
                uintptr_t start = seen->address & -(uintptr_t) PAGE;
                uintptr_t end = (seen->address + seen->note.size + PAGE - 1) & -(uintptr_t) PAGE;
                if (seen->address && page_any_own(fd, start, end))
                        add_note(seen->note);
        }
        for (size_t i = 0; mode == MODE_OBJECTS && i < state->plan.n; i++) {
                uintptr_t start = (uintptr_t) slots + i * PAGE;
                if (page_any_own(fd, start, start + PAGE))
                        add_note(state->plan.notes[i]);
        }
        _exit(0);
}
