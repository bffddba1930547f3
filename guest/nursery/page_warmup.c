/* Page warm-up: fills the page tables that every kernel needs before the first kernel is forked.
 *
 * A fork copies the page tables of a mapping of a file only if the process has written to a page of it; otherwise the
 * child fills them fault by fault. A kernel had some 650 read faults of 2 to 5 µs before its first cell had run, where
 * to copy an entry and to remove it again takes about 0.3 µs. So the nursery forks one child that starts as a kernel
 * does, runs a few cells and reports which pages of files it has in its page tables. The nursery drops from its own
 * page tables what it read during its imports, reads the reported pages, and writes one byte of each such mapping (the
 * byte that is there), so that forks copy their entries.
 *
 * For one page that is read, Linux enters up to 16 that lie around it in the same mapping, which would be 9,000 entries
 * too many. So the child splits its mappings into short ones before it begins. */
#include "page_warmup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "mapping.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
        MAPPINGS_MAX = 4096,
        RANGES_MAX = 16 << 10,
        WRITTEN_MAX = 1024,
        CHILD_WAIT_MS = 10000,
        /* Mappings are split into pages if there are no more pages than this. With pandas and the like loaded there are
         * 30,000 writable ones and 54,000 others, but Linux allows 65,530 mappings: then the others are split into
         * parts of four pages. Beyond that the report is less exact. */
        SPLIT_INTO_PAGES_MAX = 32 << 10,
        SPLIT_OTHERS = 4,
};

struct page_range {
        uintptr_t start, end;
};

/* Shared with the child, which fills the ranges in the order of addresses. No range extends over two mappings. */
struct report {
        size_t n_mappings, n_ranges, n_written;
        struct mapping mappings[MAPPINGS_MAX]; /* of files, before the child splits them */
        struct page_range ranges[RANGES_MAX];
        struct page_range written[WRITTEN_MAX]; /* those of them that the child has written to */
};

static struct report *report;
static struct page_range written[WRITTEN_MAX]; /* the report's, for kernels */
static size_t n_written;
static int pagemap_fd = -1, memory_fd = -1;

int page_warmup_open(void) {
        pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        memory_fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
        return pagemap_fd < 0 || memory_fd < 0 ? -errno : 0;
}

static int add_mapping(const struct mapping *mapping) {
        if (mapping->inode && (mapping->protection & PROT_READ) && report->n_mappings < MAPPINGS_MAX)
                report->mappings[report->n_mappings++] = *mapping;
        return 0;
}

static const struct mapping *mappings_end(void) {
        return report->mappings + report->n_mappings;
}

/* The pages of each mapping, in order. */
static int visit_pages(void (*visit)(const struct mapping *mapping, uintptr_t page, uint64_t entry)) {
        uint64_t entries[PAGES_AT_ONCE];
        for (const struct mapping *mapping = report->mappings; mapping < mappings_end(); mapping++)
                for (uintptr_t at = mapping->start; at < mapping->end;) {
                        size_t n = page_read(pagemap_fd, at, mapping->end, entries);
                        if (n == 0)
                                return -EIO;
                        for (size_t i = 0; i < n; i++, at += PAGE)
                                visit(mapping, at, entries[i]);
                }
        return 0;
}

/* ---- in the child ---- */

/* The child must be dumpable to read its own pagemap, so it gives up the nursery's capability first. */
static int drop_privileges(void) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { 0 };
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            syscall(SYS_capset, &header, none) < 0)
                return -errno;
        return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* Neighbours with the same flags would be one mapping: every second part gets another flag. */
static void split_mapping(const struct mapping *mapping, size_t others) {
        size_t part = (mapping->protection & PROT_WRITE ? 1 : others) * PAGE;
        for (uintptr_t at = mapping->start; at < mapping->end; at += 2 * part)
                if (madvise((void *) at, part < mapping->end - at ? part : mapping->end - at, MADV_DONTDUMP) < 0)
                        return;
}

static void append_page(struct page_range *ranges, size_t *n, size_t max, uintptr_t page, bool is_first) {
        struct page_range *last = *n > 0 ? &ranges[*n - 1] : NULL;
        if (last && last->end == page && !is_first)
                last->end += PAGE;
        else if (*n < max)
                ranges[(*n)++] = (struct page_range) { page, page + PAGE };
}

/* Pages that the child wrote to count as read, too: most kernels read them before they write. */
static void report_page(const struct mapping *mapping, uintptr_t page, uint64_t entry) {
        bool is_first = page == mapping->start;
        if (page_is_present(entry))
                append_page(report->ranges, &report->n_ranges, RANGES_MAX, page, is_first);
        if (page_is_own(entry) && (mapping->protection & PROT_WRITE))
                append_page(report->written, &report->n_written, WRITTEN_MAX, page, is_first);
}

int page_warmup_feed(int requests_fd, int replies_fd, const char *requests, size_t size) {
        int in[2], out[2];
        if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || dup2(in[0], requests_fd) < 0 ||
            dup2(out[1], replies_fd) < 0)
                return -errno;
        int code = fcntl(in[1], F_SETFL, O_NONBLOCK) < 0 ? -errno : fd_write_all(in[1], requests, size);
        (void) close(in[0]);
        (void) close(in[1]);
        (void) close(out[1]);
        return code < 0 ? -EIO : out[0];
}

void page_warmup_end(void) {
        pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        _exit(report && pagemap_fd >= 0 && visit_pages(report_page) == 0 ? 0 : 1);
}

/* ---- in the nursery ---- */

static void drop_range(const struct page_range *range) {
        if (range->start < range->end)
                (void) madvise((void *) range->start, range->end - range->start, MADV_DONTNEED);
}

/* Drops what the nursery read during its imports: forks would copy entries that no kernel needs. */
static struct page_range unneeded; /* pages of the file, not dropped yet */

static void drop_read_page(const struct mapping *mapping, uintptr_t page, uint64_t entry) {
        if (page_is_own(entry))
                return;
        if (page != unneeded.end || page == mapping->start) {
                drop_range(&unneeded);
                unneeded.start = page;
        }
        unneeded.end = page + PAGE;
}

static int drop_read_pages(void) {
        unneeded = (struct page_range) { 0 };
        int code = visit_pages(drop_read_page);
        drop_range(&unneeded);
        return code;
}

/* Gives the process a page of its own in the mapping. Through /proc/self/mem, so that code never becomes writable; some
 * systems refuse that, and then the entries of this mapping are not copied. */
static void make_forks_copy(uintptr_t page) {
        char byte = *(volatile const char *) page;
        (void) !pwrite(memory_fd, &byte, 1, (off_t) page);
}

/* Reads these pages and none around them: with another flag they are a mapping of their own. */
static void populate_range(const struct page_range *range) {
        size_t size = range->end - range->start;
        if (madvise((void *) range->start, size, MADV_DONTDUMP) < 0)
                return;
        (void) madvise((void *) range->start, size, MADV_POPULATE_READ);
        (void) madvise((void *) range->start, size, MADV_DODUMP);
}

static void populate_mappings(void) {
        const struct page_range *range = report->ranges, *end = report->ranges + report->n_ranges;
        for (const struct mapping *mapping = report->mappings; mapping < mappings_end(); mapping++)
                for (bool is_first = true; range < end && range->start < mapping->end; range++, is_first = false) {
                        populate_range(range);
                        if (is_first)
                                make_forks_copy(range->start);
                }
}

static int await_child(pid_t child) {
        int status = -1;
        int pidfd = (int) syscall(SYS_pidfd_open, child, 0);
        struct pollfd wanted = { .fd = pidfd, .events = POLLIN };
        if (pidfd < 0 || poll(&wanted, 1, CHILD_WAIT_MS) != 1)
                (void) kill(child, SIGKILL);
        fd_close(&pidfd);
        if (waitpid(child, &status, 0) != child)
                return -errno;
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

/* As kernels are forked: without the C library's fork handlers. */
static pid_t fork_plainly(void) {
        void *tid_address;
        if (prctl(PR_GET_TID_ADDRESS, (unsigned long) &tid_address, 0, 0, 0) < 0)
                return -1;
        return (pid_t) syscall(SYS_clone, CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD, NULL, NULL, tid_address,
                               0);
}

/* True in the child. In the nursery *ret_code is 0 when the child has reported. */
static bool fork_child(int *ret_code) {
        pid_t child = fork_plainly();
        if (child != 0) {
                *ret_code = child < 0 ? -errno : await_child(child);
                return false;
        }
        fd_close(&pagemap_fd);
        fd_close(&memory_fd);
        if (drop_privileges() < 0)
                _exit(1);
        size_t n_pages = 0;
        for (const struct mapping *mapping = report->mappings; mapping < mappings_end(); mapping++)
                n_pages += (mapping->end - mapping->start) / PAGE;
        for (const struct mapping *mapping = report->mappings; mapping < mappings_end(); mapping++)
                split_mapping(mapping, n_pages <= SPLIT_INTO_PAGES_MAX ? 1 : SPLIT_OTHERS);
        return true;
}

int page_warmup_begin(void) {
        void *shared = MAP_FAILED;
        int code = pagemap_fd < 0 || memory_fd < 0 ? -EINVAL : 0;
        if (code == 0)
                shared = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (code == 0 && shared == MAP_FAILED)
                code = -ENOMEM;
        if (code == 0) {
                report = shared;
                code = mapping_visit(add_mapping, NULL);
        }
        if (code == 0)
                code = drop_read_pages();
        if (code == 0 && fork_child(&code))
                return 0;
        if (code == 0) {
                populate_mappings();
                n_written = report->n_written;
                memcpy(written, report->written, n_written * sizeof(*written));
        }
        if (shared != MAP_FAILED)
                (void) munmap(shared, sizeof(*report)); /* kernels must not inherit shared memory */
        report = NULL;
        fd_close(&pagemap_fd);
        fd_close(&memory_fd);
        return code < 0 ? code : 1;
}

/* ---- in a kernel ---- */

void page_warmup_own(void) {
        for (size_t i = 0; i < n_written; i++)
                (void) madvise((void *) written[i].start, written[i].end - written[i].start, MADV_POPULATE_WRITE);
}
