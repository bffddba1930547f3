/* The code, constants and tables of libraries, in as few mappings as can be.
 *
 * Every mapping is copied by each fork and removed by each exit, and two hundred libraries have five of them each.
 * Neighbours in one file that have the same rights are one mapping. So headers and constants get the right to be
 * executed, and tables that the loader has filled in the right to be written to, as the data beside them. This
 * does not weaken a box: code in it may map any memory with any rights. No code becomes writable. */
#include "merge_mappings.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "mapping.h"

/* Parts of a file that lie in memory as they lie in the file. */
struct row {
        uintptr_t start, end;
        uintptr_t shift; /* of memory against the file */
        unsigned n;
        bool has_code;
};

static void join_row(const struct row *row) {
        if (row->n > 1 && row->has_code)
                (void) mprotect((void *) row->start, row->end - row->start, PROT_READ | PROT_EXEC);
}

/* Data that the loader made read-only after relocation. */
static void join_filled(const struct dl_phdr_info *info, const ElfW(Phdr) * segment) {
        uintptr_t start = (info->dlpi_addr + segment->p_vaddr) & -(uintptr_t) PAGE;
        uintptr_t end = (info->dlpi_addr + segment->p_vaddr + segment->p_memsz) & -(uintptr_t) PAGE;
        if (start < end)
                (void) mprotect((void *) start, end - start, PROT_READ | PROT_WRITE);
}

static int join_library(struct dl_phdr_info *info, size_t size, void *context) {
        (void) size;
        (void) context;
        struct row row = { 0 };
        for (size_t i = 0; i < info->dlpi_phnum; i++) {
                const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
                if (segment->p_type == PT_GNU_RELRO)
                        join_filled(info, segment);
                if (segment->p_type != PT_LOAD)
                        continue;
                uintptr_t start = (info->dlpi_addr + segment->p_vaddr) & -(uintptr_t) PAGE;
                uintptr_t end = (info->dlpi_addr + segment->p_vaddr + segment->p_filesz + PAGE - 1) & -(uintptr_t) PAGE;
                uintptr_t shift = segment->p_vaddr - segment->p_offset;
                bool is_fixed = (segment->p_flags & PF_R) && !(segment->p_flags & PF_W);
                if (!is_fixed || row.n == 0 || start != row.end || shift != row.shift) {
                        join_row(&row);
                        row = (struct row) { .start = start, .shift = shift };
                }
                if (!is_fixed)
                        continue;
                row.end = end;
                row.n++;
                row.has_code |= (segment->p_flags & PF_X) != 0;
        }
        join_row(&row);
        return 0;
}

void merge_mappings(void) {
        (void) dl_iterate_phdr(join_library, NULL);
}
