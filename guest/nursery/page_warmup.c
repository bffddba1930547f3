/* The trial: which pages kernels read before they have done anything that differs.
 *
 * Theory of operation. A kernel begins with hardly any page tables: those of mappings that its nursery never wrote to
 * are not copied by a fork, but filled fault by fault. Some 650 of its first faults are for reading, and each takes
 * several microseconds, because the system looks at the pages around as well. To copy the entry of a page takes a small
 * part of that. So a child is forked that starts as a kernel does, runs a few cells, and says which pages of files it
 * has in its page tables. The nursery then reads those, and writes one byte of each such mapping, to what it is
 * already: a fork copies the entries of mappings that have a page of the process's own. What the nursery read while it
 * imported, and no kernel needs, leaves its page tables first.
 *
 * The first child tells too much: for one page the system enters up to 16. A second one has each of these pages in a
 * mapping of its own, so that it tells exactly what it touches. So has the nursery, if it is small, until it has forked
 * its first kernel: what it needs itself would bring its neighbours along, for all forks to copy. */
#include "page_warmup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
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

enum { RUNS_MAX = 16 << 10, TRIALS = 2, PATIENCE_MS = 10000, APART_MAX = 64, APART_PAGES_MAX = 16 << 10 };

struct run {
        uintptr_t start, end;
};

/* Shared with the child, which fills it. */
struct report {
        size_t n;
        struct run runs[RUNS_MAX];
};

static struct report *report;
static size_t next_run; /* to be read by the nursery */
static int pagemap_fd = -1, memory_fd = -1;

/* Mappings of the nursery whose pages are mappings of their own. In memory that forks do not copy for ever. */
static struct apart {
        struct mapping mappings[APART_MAX];
        size_t n, n_pages;
} *apart;

int page_warmup_open(void) {
        pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        memory_fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
        return pagemap_fd < 0 || memory_fd < 0 ? -errno : 0;
}

/* The pages of a mapping of a file, in order. */
static int visit_pages(const struct mapping *mapping,
                       void (*visit)(const struct mapping *mapping, uintptr_t page, uint64_t entry)) {
        uint64_t entries[PAGES_AT_ONCE];
        for (uintptr_t at = mapping->start; mapping->inode && at < mapping->end;) {
                size_t n = page_read(pagemap_fd, at, mapping->end, entries);
                if (n == 0)
                        return -EIO;
                for (size_t i = 0; i < n; i++, at += PAGE)
                        visit(mapping, at, entries[i]);
        }
        return 0;
}

/* The system enters pages around the one that was asked for, but none of another mapping: where every second page has
 * an advice of its own, every page is a mapping. */
static bool split(uintptr_t start, uintptr_t end) {
        for (; start < end; start += 2 * PAGE)
                if (madvise((void *) start, PAGE, MADV_DONTDUMP) < 0)
                        return false;
        return true;
}

/* ---- in the child ---- */

/* To look at its own pages it must be dumpable again, and what can be looked at should be worth little. */
static int become_harmless(void) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { 0 };
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            syscall(SYS_capset, &header, none) < 0)
                return -errno;
        return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* No run goes on from one mapping into the next. */
static void add_page(const struct mapping *mapping, uintptr_t page) {
        struct run *last = report->n > 0 ? &report->runs[report->n - 1] : NULL;
        if (last && last->end == page && page != mapping->start)
                last->end += PAGE;
        else if (report->n < RUNS_MAX)
                report->runs[report->n++] = (struct run) { page, page + PAGE };
}

static void report_page(const struct mapping *mapping, uintptr_t page, uint64_t entry) {
        if (page_is_present(entry)) /* what it wrote to, most kernels read before */
                add_page(mapping, page);
}

static int report_mapping(const struct mapping *mapping) {
        return visit_pages(mapping, report_page);
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
        return code < 0 ? -EIO : out[0]; /* open, for answers */
}

void page_warmup_end(void) {
        pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        _exit(report && pagemap_fd >= 0 && mapping_visit(report_mapping, NULL) == 0 ? 0 : 1);
}

static void split_runs(void) {
        for (size_t i = 0; i < report->n; i++)
                if (!split(report->runs[i].start, report->runs[i].end))
                        return; /* too many mappings: the rest is found less exactly */
        report->n = 0;
}

/* ---- in the nursery ---- */

static void drop(uintptr_t start, uintptr_t end) {
        if (start < end)
                (void) madvise((void *) start, end - start, MADV_DONTNEED);
}

/* What the nursery read while it imported: a fork would copy what of it is mapped beside pages of its own. */
static struct run cooled; /* pages of the file, not dropped yet */

static void cool_page(const struct mapping *mapping, uintptr_t page, uint64_t entry) {
        (void) mapping;
        if (page_is_own(entry))
                return;
        if (page != cooled.end) {
                drop(cooled.start, cooled.end);
                cooled.start = page;
        }
        cooled.end = page + PAGE;
}

static int cool_mapping(const struct mapping *mapping) {
        cooled = (struct run) { mapping->start, mapping->start };
        int code = visit_pages(mapping, cool_page);
        drop(cooled.start, cooled.end);
        return code;
}

/* What a fork copies of a mapping: nothing, unless a page of it was written to. By way of /proc, because code must not
 * become writable, not even for a moment. */
static void make_copied(uintptr_t page) {
        char byte = *(volatile const char *) page;
        (void) !pwrite(memory_fd, &byte, 1, (off_t) page); /* some systems do not let code be written to even so */
}

static void drop_apart(void) {
        if (apart)
                (void) munmap(apart, sizeof(*apart));
        apart = NULL;
}

/* Enters the pages of a run and no others: see split. */
static void read_run(uintptr_t start, uintptr_t end) {
        if (madvise((void *) start, end - start, MADV_DONTDUMP) < 0)
                return;
        (void) madvise((void *) start, end - start, MADV_POPULATE_READ);
        (void) madvise((void *) start, end - start, MADV_DODUMP);
}

/* The runs are in order, as mappings are; one that lies in no mapping of ours is left out. */
static int warm_mapping(const struct mapping *mapping) {
        while (next_run < report->n && report->runs[next_run].start < mapping->start)
                next_run++;
        const struct run *first = &report->runs[next_run];
        if (next_run == report->n || first->start >= mapping->end)
                return 0;
        for (; next_run < report->n && report->runs[next_run].start < mapping->end; next_run++) {
                const struct run *run = &report->runs[next_run];
                read_run(run->start, run->end < mapping->end ? run->end : mapping->end);
        }
        make_copied(first->start);
        size_t n_pages = (mapping->end - mapping->start) / PAGE;
        if (apart && apart->n < APART_MAX && n_pages <= APART_PAGES_MAX - apart->n_pages) {
                apart->mappings[apart->n++] = *mapping;
                apart->n_pages += n_pages;
        } else
                drop_apart(); /* a large nursery */
        return 0;
}

/* Once more, exactly; after make_copied, without which the parts could not be joined again. */
static void warm_apart(void) {
        for (size_t i = 0; i < apart->n; i++)
                (void) split(apart->mappings[i].start, apart->mappings[i].end);
        for (size_t i = 0; i < apart->n; i++)
                (void) cool_mapping(&apart->mappings[i]);
        for (size_t i = 0; i < report->n; i++)
                (void) madvise((void *) report->runs[i].start, report->runs[i].end - report->runs[i].start,
                               MADV_POPULATE_READ);
}

void page_warmup_settle(void) {
        for (size_t i = 0; apart && i < apart->n; i++) {
                const struct mapping *mapping = &apart->mappings[i];
                (void) madvise((void *) mapping->start, mapping->end - mapping->start, MADV_DODUMP);
        }
        drop_apart();
}

static int await_child(pid_t child) {
        int status = -1;
        int pidfd = (int) syscall(SYS_pidfd_open, child, 0);
        struct pollfd wanted = { .fd = pidfd, .events = POLLIN };
        if (pidfd < 0 || poll(&wanted, 1, PATIENCE_MS) != 1)
                (void) kill(child, SIGKILL);
        fd_close(&pidfd);
        if (waitpid(child, &status, 0) != child)
                return -errno;
        return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

/* As kernels are forked: nothing that libraries have registered to be done at a fork is done. */
static pid_t fork_plainly(void) {
        void *tid_address;
        if (prctl(PR_GET_TID_ADDRESS, (unsigned long) &tid_address, 0, 0, 0) < 0)
                return -1;
        return (pid_t) syscall(SYS_clone, CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD, NULL, NULL, tid_address,
                               0);
}

/* 0 in the child, 1 when it has reported. */
static int fork_trial(void) {
        pid_t child = fork_plainly();
        if (child != 0) {
                int code = child < 0 ? -errno : await_child(child);
                return code < 0 ? code : 1;
        }
        fd_close(&pagemap_fd);
        fd_close(&memory_fd);
        if (become_harmless() < 0)
                _exit(1);
        split_runs();
        return 0;
}

int page_warmup_begin(void) {
        if (pagemap_fd < 0 || memory_fd < 0) { /* before anything is shared: every kernel would inherit it */
                fd_close(&pagemap_fd);
                fd_close(&memory_fd);
                return -EINVAL;
        }
        void *shared = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
                return -ENOMEM;
        report = shared;
        next_run = 0;
        int code = mapping_visit(cool_mapping, NULL) < 0 ? -EIO : 1;
        for (int i = 0; i < TRIALS && code == 1; i++) {
                code = fork_trial();
                if (code == 0)
                        return 0;
        }
        apart = mapping_make(sizeof(*apart));
        if (code == 1)
                code = mapping_visit(warm_mapping, NULL);
        if (code == 0 && apart)
                warm_apart();
        (void) munmap(shared, sizeof(*report));
        report = NULL;
        fd_close(&pagemap_fd);
        fd_close(&memory_fd);
        return code < 0 ? code : 1;
}
