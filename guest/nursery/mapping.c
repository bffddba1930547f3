#include "mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"

enum { MAPS_MAX = 4 << 20 };

void *mapping_make(size_t size) {
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return memory == MAP_FAILED ? NULL : memory;
}

/* False for what is not private, too. */
static bool parse_mapping(const char *line, struct mapping *ret_mapping) {
        unsigned long start, end, offset, inode;
        unsigned major, minor;
        char rights[5];
        struct mapping mapping = { 0 };
        if (sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %15[^\n]", &start, &end, rights, &offset, &major, &minor, &inode,
                   mapping.name) < 7)
                return false;
        mapping.start = start;
        mapping.end = end;
        mapping.offset = offset;
        mapping.device = major << 20 | minor;
        mapping.inode = inode;
        mapping.protection = (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0) |
                             (rights[2] == 'x' ? PROT_EXEC : 0);
        *ret_mapping = mapping;
        return rights[3] == 'p';
}

static int read_maps(char *text, size_t room) {
        _cleanup_fd_ int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
        size_t size = 0;
        for (ssize_t n; fd >= 0; size += (size_t) n) {
                n = read(fd, text + size, room - 1 - size);
                if (n < 0 || size + (size_t) n >= room - 1)
                        return n < 0 ? -errno : -E2BIG;
                if (n == 0)
                        return 0;
        }
        return -errno;
}

int mapping_visit(mapping_visitor visit, struct mapping_scratch *ret_scratch) {
        char *text = mapping_make(MAPS_MAX);
        int code = text ? read_maps(text, MAPS_MAX) : -ENOMEM;
        struct mapping mapping;
        for (char *at = text; code == 0 && *at;) {
                char *end = strchrnul(at, '\n');
                char *next = *end ? end + 1 : end;
                *end = '\0';
                if (parse_mapping(at, &mapping))
                        code = visit(&mapping);
                at = next;
        }
        if (text)
                (void) munmap(text, MAPS_MAX);
        if (ret_scratch)
                *ret_scratch = (struct mapping_scratch) { (uintptr_t) text, text ? (uintptr_t) text + MAPS_MAX : 0 };
        return code;
}

size_t page_read(int fd, uintptr_t start, uintptr_t end, uint64_t ret_entries[static PAGES_AT_ONCE]) {
        size_t n = (end - start) / PAGE;
        if (n > PAGES_AT_ONCE)
                n = PAGES_AT_ONCE;
        ssize_t got = pread(fd, ret_entries, n * sizeof(*ret_entries), (off_t) (start / PAGE * sizeof(*ret_entries)));
        return got > 0 ? (size_t) got / sizeof(*ret_entries) : 0;
}

bool page_any_own(int fd, uintptr_t start, uintptr_t end) {
        uint64_t entries[PAGES_AT_ONCE];
        for (size_t n; start < end; start += n * PAGE) {
                n = page_read(fd, start, end, entries);
                if (n == 0)
                        return false;
                for (size_t i = 0; i < n; i++)
                        if (page_is_own(entries[i]))
                                return true;
        }
        return false;
}
