/* The mappings of this process, from /proc, and which of their pages are its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        PAGE = 4096,
        PAGES_AT_ONCE = 512, /* looked at in one read of pagemap */
};

struct mapping {
        uintptr_t start, end;
        int protection;
        size_t offset;
        unsigned device;
        unsigned long inode; /* 0: anonymous */
        char name[16];       /* its beginning */
};

/* The bounds of the text that is read while visiting, which is unmapped afterwards. */
struct mapping_scratch {
        uintptr_t start, end;
};

/* Private mappings in order. Reads all before the first visit: a visitor may change what is mapped. Stops at the first
 * visit that is not 0 and returns that; or -errno. */
typedef int (*mapping_visitor)(const struct mapping *mapping);
int mapping_visit(mapping_visitor visit, struct mapping_scratch *ret_scratch);

/* Fresh memory, or NULL. */
void *mapping_make(size_t size);

/* Entries of /proc/self/pagemap, opened as fd, for pages from start on. How many there are; 0 if it cannot be read. */
size_t page_read(int fd, uintptr_t start, uintptr_t end, uint64_t ret_entries[static PAGES_AT_ONCE]);

static inline bool page_is_present(uint64_t entry) {
        return entry & (1ull << 63);
}

/* The process's own, in memory or swapped, and not the page of a file. */
static inline bool page_is_own(uint64_t entry) {
        return (entry & (3ull << 62)) && !(entry & (1ull << 61));
}

/* True if the process has a page of its own (not the file's) among these. */
bool page_any_own(int fd, uintptr_t start, uintptr_t end);
