/* The snapshot: the memory of a ready nursery in one sealed file, which it and all its kernels map.
 *
 * Theory of operation. After its imports the nursery copies the memory that Python and its libraries write to into a
 * memfd, seals that against every change, and maps it in place of what it copied, privately: the same bytes at the same
 * addresses. The file cannot be written to; a process that writes to its memory gets a page of its own, as after any
 * fork. This has two benefits:
 * - a fork copies no page tables for it: they fill as pages are touched;
 * - a page can be given back. Most pages that a kernel writes to hold what they held before when the run is over
 *   (counts of references go up and down). cow_snapshot_return compares, and drops the kernel's own copy of those.
 * Pages are never shared because two kernels happen to have the same bytes: all shared pages existed before the first
 * kernel.
 *
 * Only memory is replaced whose owner neither expects zeroes after MADV_DONTNEED nor grows it with mremap: Python's
 * arenas (from the allocator below, and the first few from before it was set), the C library's heap (brk) and, with a
 * precaution, its large blocks, and what the loader mapped of libraries. All else stays. */
#include "cow_snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "mapping.h"
#include "merge_mappings.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

enum {
        SPANS_MAX = 4096,
        BLOCK_MIN = 128 << 10,
};
#define ARENAS_MAX (512ul << 20)
#define SPANS_BYTES (2 * SPANS_MAX * sizeof(struct span)) /* known and replaced */

struct span {
        uintptr_t start, end;
        size_t offset; /* in the file */
        int protection;
        bool is_block; /* a large one of the C library */
};

/* All that changes while memory is copied lies in here, and the page range of this library is left alone. */
static struct {
        struct span *spans; /* replaced */
        size_t n_spans, size;
        struct span *known; /* anonymous memory that may be replaced */
        size_t n_known;
        const uint8_t *original; /* the file, to be compared with */
        uint8_t *arenas;         /* address space for arenas */
        size_t arenas_used;
        struct span freed[64]; /* of them */
        size_t n_freed;
        ino_t inode; /* of the file */
} snapshot;

static int pagemap_fd = -1;

static void add_known(uintptr_t start, uintptr_t end) {
        if (start < end && snapshot.n_known < SPANS_MAX)
                snapshot.known[snapshot.n_known++] = (struct span) { .start = start, .end = end };
}

/* It was unmapped, or will be: other memory may be mapped there next. */
static void remove_known(uintptr_t start, uintptr_t end) {
        for (size_t i = 0; i < snapshot.n_known; i++) {
                struct span *span = &snapshot.known[i];
                if (span->end <= start || end <= span->start)
                        continue;
                add_known(end, span->end);
                span->end = span->start < start ? start : span->start;
        }
}

static int visit_mappings(mapping_visitor visit) {
        struct mapping_scratch scratch;
        int code = mapping_visit(visit, &scratch);
        remove_known(scratch.start, scratch.end);
        return code;
}

/* ---- before the imports ---- */

/* The size of a large block of the C library: at the start of a page, a size in pages and the flag of a mapped one. */
static size_t mapped_block_at(uintptr_t address, uintptr_t end) {
        const size_t *head = (const size_t *) address;
        size_t size = head[1] & ~(size_t) 7;
        return head[0] == 0 && (head[1] & 7) == 2 && size % PAGE == 0 && size > 0 && size <= end - address ? size : 0;
}

/* All anonymous memory is now the interpreter's or the loader's; but large blocks of the C library come and go. */
static int add_early_mapping(const struct mapping *mapping) {
        if (mapping->inode || *mapping->name || mapping->protection != (PROT_READ | PROT_WRITE))
                return 0;
        uintptr_t begin = mapping->start, at = begin;
        while (at < mapping->end) {
                /* Not read: each page that is read is one more entry for forks to copy. */
                bool is_own = at == (uintptr_t) snapshot.known;
                size_t skipped = is_own ? SPANS_BYTES : mapped_block_at(at, mapping->end);
                if (skipped > 0)
                        add_known(begin, at);
                at += skipped > 0 ? skipped : PAGE;
                if (skipped > 0)
                        begin = at;
        }
        add_known(begin, mapping->end);
        return 0;
}

int cow_snapshot_open(void) {
        if (sysconf(_SC_PAGESIZE) != PAGE)
                return -EOPNOTSUPP;
        snapshot.known = mapping_make(SPANS_BYTES);
        /* Now, because a process that is not dumpable may not. */
        pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        if (!snapshot.known || pagemap_fd < 0)
                return snapshot.known ? -errno : -ENOMEM;
        snapshot.spans = snapshot.known + SPANS_MAX;
        int code = visit_mappings(add_early_mapping);
        if (code < 0)
                return code;
        snapshot.arenas = mapping_make(ARENAS_MAX);
        return snapshot.arenas ? 0 : -ENOMEM;
}

static bool is_among_arenas(const void *arena) {
        const uint8_t *at = arena;
        return snapshot.arenas && snapshot.arenas <= at && at < snapshot.arenas + ARENAS_MAX;
}

void *cow_snapshot_arena_allocate(void *context, size_t size) {
        (void) context;
        for (size_t i = 0; i < snapshot.n_freed; i++)
                if (snapshot.freed[i].end - snapshot.freed[i].start == size) {
                        void *arena = (void *) snapshot.freed[i].start;
                        snapshot.freed[i] = snapshot.freed[--snapshot.n_freed];
                        return arena;
                }
        if (!snapshot.arenas || size % PAGE != 0 || size > ARENAS_MAX - snapshot.arenas_used)
                return mapping_make(size);
        void *arena = snapshot.arenas + snapshot.arenas_used;
        snapshot.arenas_used += size;
        return arena;
}

/* Those among ours stay mapped, and are used again: what else came to lie there would be taken for an arena. */
void cow_snapshot_arena_free(void *context, void *arena, size_t size) {
        (void) context;
        uintptr_t start = (uintptr_t) arena;
        if (is_among_arenas(arena)) {
                (void) madvise(arena, size, MADV_DONTNEED);
                if (snapshot.n_freed < ELEMENTS(snapshot.freed))
                        snapshot.freed[snapshot.n_freed++] = (struct span) { .start = start, .end = start + size };
                return;
        }
        remove_known(start, start + size);
        (void) munmap(arena, size);
}

/* ---- after the imports ---- */

/* Takes every free block of the C library's heap, so that what a kernel allocates lies together, behind all that is
 * there, and not in a gap on every page. Largest first: a smaller one would split it. */
static void fill_heap(void) {
        const size_t top_size = mallinfo2().keepcost;
        const uintptr_t top = (uintptr_t) sbrk(0) - top_size;
        for (size_t size = (64 << 10) - 8; size >= 24; size -= size > 4096 ? 1024 : 16)
                for (;;) {
                        void *block = malloc(size);
                        if (!block || (uintptr_t) block >= top) {
                                free(block);
                                break;
                        }
                }
}

/* The same for Python's small objects, which lie in pools of one size: until a whole pool in a row is ours. That one
 * was empty, and goes back. */
static void fill_pools(cow_snapshot_allocate allocate, cow_snapshot_free release) {
        enum { POOL = 16 << 10, SMALL_MAX = 512, EACH_MAX = 4 << 20 };
        static void *row[POOL / 16];
        for (size_t size = 16; size <= SMALL_MAX; size += 16) {
                size_t n = 0;
                for (size_t spent = 0; spent < EACH_MAX && n < (POOL - 64) / size; spent += size) {
                        void *object = allocate(size);
                        if (!object)
                                break;
                        if (n > 0 && ((uintptr_t) object ^ (uintptr_t) row[0]) >= POOL)
                                n = 0;
                        row[n++] = object;
                }
                while (n > 0)
                        release(row[--n]);
        }
}

void cow_snapshot_fill(cow_snapshot_allocate allocate, cow_snapshot_free release) {
        if (snapshot.arenas_used > 0) /* or Python uses another allocator */
                fill_pools(allocate, release);
        fill_heap();
}

/* Writable mappings of libraries: of their files, and the anonymous ones behind them (.bss). */
static int add_library(struct dl_phdr_info *info, size_t size, void *context) {
        (void) size;
        (void) context;
        for (size_t i = 0; i < info->dlpi_phnum; i++) {
                const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
                if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_W))
                        continue;
                uintptr_t start = info->dlpi_addr + segment->p_vaddr, own = (uintptr_t) &snapshot;
                uintptr_t end = (start + segment->p_memsz + PAGE - 1) & -(uintptr_t) PAGE;
                start &= -(uintptr_t) PAGE;
                if (start <= own && own < end)
                        remove_known(start, end); /* may have been taken for an early one */
                else
                        add_known(start, end);
        }
        return 0;
}

/* A span that continues the last one needs no mapping of its own, so it is added even without own pages. */
static bool continues_last_span(uintptr_t start, int protection) {
        const struct span *last = snapshot.n_spans > 0 ? &snapshot.spans[snapshot.n_spans - 1] : NULL;
        return last && last->end == start && last->protection == protection && !last->is_block;
}

static void add_span(uintptr_t start, uintptr_t end, int protection, bool is_block) {
        uintptr_t own = (uintptr_t) &snapshot;
        if (start >= end || snapshot.n_spans == SPANS_MAX || (start <= own && own < end) ||
            ((is_block || !continues_last_span(start, protection)) && !page_any_own(pagemap_fd, start, end)))
                return;
        snapshot.spans[snapshot.n_spans++] =
                (struct span) { start, end, .offset = snapshot.size, .protection = protection, .is_block = is_block };
        snapshot.size += end - start;
}

/* What is known; and large blocks of the C library, in anonymous memory, that begin where such a thing ends. */
static void add_known_parts(const struct mapping *mapping) {
        bool may_be_blocks = !mapping->inode && mapping->protection == (PROT_READ | PROT_WRITE);
        uintptr_t at = mapping->start;
        for (size_t i = 0; at < mapping->end; at = snapshot.known[i++].end) {
                while (i < snapshot.n_known && snapshot.known[i].end <= at)
                        i++;
                uintptr_t next = i < snapshot.n_known ? snapshot.known[i].start : mapping->end;
                for (size_t size; may_be_blocks && at < next && at < mapping->end; at += size) {
                        size = mapped_block_at(at, mapping->end < next ? mapping->end : next);
                        if (size < BLOCK_MIN)
                                break;
                        add_span(at, at + size, mapping->protection, true);
                }
                if (i == snapshot.n_known)
                        return;
                add_span(next > mapping->start ? next : mapping->start,
                         snapshot.known[i].end < mapping->end ? snapshot.known[i].end : mapping->end,
                         mapping->protection, false);
        }
}

static int add_mapping_parts(const struct mapping *mapping) {
        if ((mapping->protection & PROT_EXEC) || !(mapping->protection & PROT_READ))
                return 0;
        if (strcmp(mapping->name, "[heap]") == 0)
                add_span(mapping->start, mapping->end, mapping->protection, false);
        else if (*mapping->name != '[') /* the stack, and what the system maps */
                add_known_parts(mapping);
        return 0;
}

static int cow_snapshot_make_file(void) {
        int fd = memfd_create("snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
        if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
                fd = memfd_create("snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        return fd < 0 ? -errno : fd;
}

/* From here to the end of replace_spans nothing may be written to memory that is replaced, or it is lost: nothing is
 * allocated, no signal is handled. */
static int fill_file(int fd) {
        if (ftruncate(fd, (off_t) snapshot.size) < 0)
                return -errno;
        uint8_t *copy = mmap(NULL, snapshot.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (copy == MAP_FAILED)
                return -errno;
        /* Untouched pages as well: there must be no hole that a kernel would fill. */
        for (size_t i = 0; i < snapshot.n_spans; i++) {
                const struct span *span = &snapshot.spans[i];
                memcpy(copy + span->offset, (const void *) span->start, span->end - span->start);
        }
        (void) munmap(copy, snapshot.size);
        return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0 ? -errno : 0;
}

static int replace_spans(int fd) {
        struct stat status;
        if (fstat(fd, &status) < 0)
                return -errno;
        snapshot.inode = status.st_ino;
        void *original = mmap(NULL, snapshot.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (original == MAP_FAILED)
                return -errno;
        for (size_t i = 0; i < snapshot.n_spans; i++) {
                const struct span *span = &snapshot.spans[i];
                if (mmap((void *) span->start, span->end - span->start, span->protection, MAP_PRIVATE | MAP_FIXED, fd,
                         (off_t) span->offset) == MAP_FAILED) {
                        snapshot.n_spans = i; /* the rest stays what it was */
                        break;
                }
                /* realloc() would grow it with mremap, into what comes next in the file. Two mappings are not grown:
                 * the library allocates, copies, and unmaps. */
                if (span->is_block)
                        (void) madvise((void *) (span->end - PAGE), PAGE, MADV_RANDOM);
        }
        snapshot.original = original;
        return 0;
}

static int compare_spans(const void *a, const void *b) {
        uintptr_t one = ((const struct span *) a)->start, other = ((const struct span *) b)->start;
        return one < other ? -1 : one > other;
}

/* Known spans, apart from each other: one page is replaced once. */
static void sort_known(void) {
        qsort(snapshot.known, snapshot.n_known, sizeof(*snapshot.known), compare_spans);
        for (size_t i = 1; i < snapshot.n_known; i++)
                if (snapshot.known[i].start < snapshot.known[i - 1].end) {
                        snapshot.known[i].start = snapshot.known[i - 1].end;
                        if (snapshot.known[i].end < snapshot.known[i].start)
                                snapshot.known[i].end = snapshot.known[i].start;
                }
}

int cow_snapshot_take(void) {
        if (!snapshot.known)
                return -EINVAL;
        if (snapshot.arenas) {
                uint8_t *unused = snapshot.arenas + snapshot.arenas_used;
                add_known((uintptr_t) snapshot.arenas, (uintptr_t) unused);
                if (snapshot.arenas_used < ARENAS_MAX)
                        (void) munmap(unused, ARENAS_MAX - snapshot.arenas_used);
                snapshot.arenas = NULL;
        }
        merge_mappings();
        (void) dl_iterate_phdr(add_library, NULL);
        sort_known();
        int code = visit_mappings(add_mapping_parts);
        fd_close(&pagemap_fd);
        _cleanup_fd_ int fd = code < 0 ? -1 : cow_snapshot_make_file();
        if (fd < 0)
                return code < 0 ? code : fd;
        sigset_t all, before;
        (void) sigfillset(&all);
        (void) sigprocmask(SIG_SETMASK, &all, &before);
        code = fill_file(fd);
        if (code == 0)
                code = replace_spans(fd);
        (void) sigprocmask(SIG_SETMASK, &before, NULL);
        return code;
}

/* ---- in a kernel ---- */

static bool has_one_thread(void) {
        struct stat status;
        return stat("/proc/self/task", &status) == 0 && status.st_nlink == 3;
}

/* Drops the pages [first, last) of a span, all equal to the file's. */
static void drop_pages(const struct span *span, size_t first, size_t last) {
        if (first < last)
                (void) madvise((void *) (span->start + first * PAGE), (last - first) * PAGE, MADV_DONTNEED);
}

static void release_span(const struct span *span) {
        uint64_t entries[PAGES_AT_ONCE];
        size_t n;
        for (uintptr_t window = span->start; window < span->end; window += n * PAGE) {
                n = page_read(pagemap_fd, window, span->end, entries);
                if (n == 0)
                        break;
                size_t base = (window - span->start) / PAGE, first = base; /* [first, base + i) are equal */
                for (size_t i = 0; i < n; i++) {
                        size_t at = (base + i) * PAGE;
                        if (page_is_present(entries[i]) && page_is_own(entries[i]) &&
                            memcmp((const void *) (span->start + at), snapshot.original + span->offset + at, PAGE) == 0)
                                continue;
                        drop_pages(span, first, base + i);
                        first = base + i + 1;
                }
                drop_pages(span, first, base + n);
        }
}

/* Only where the file is still mapped: an arena may have been unmapped, and its addresses used again. */
static int release_mapping(const struct mapping *mapping) {
        if (mapping->inode != snapshot.inode)
                return 0;
        for (size_t i = 0; i < snapshot.n_spans; i++) {
                struct span part = snapshot.spans[i];
                uintptr_t start = part.start > mapping->start ? part.start : mapping->start;
                part.end = part.end < mapping->end ? part.end : mapping->end;
                part.offset += start - part.start;
                part.start = start;
                if (part.start < part.end && mapping->offset + (start - mapping->start) == part.offset)
                        release_span(&part);
        }
        return 0;
}

int cow_snapshot_return(void) {
        if (!snapshot.original)
                return 0;
        sigset_t all, before;
        (void) sigfillset(&all);
        (void) sigprocmask(SIG_SETMASK, &all, &before);
        int code = 0;
        pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        if (pagemap_fd < 0)
                code = -errno;
        else if (has_one_thread()) /* another one could write between comparison and drop */
                code = visit_mappings(release_mapping);
        fd_close(&pagemap_fd);
        /* Looking at the file took page tables. */
        (void) madvise((void *) (uintptr_t) snapshot.original, snapshot.size, MADV_DONTNEED);
        (void) sigprocmask(SIG_SETMASK, &before, NULL);
        return code;
}
