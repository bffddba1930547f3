#include "base/build.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { ID_BYTES_SHOWN = 8 };

static char name[80];

static void add_id(const unsigned char *id, size_t size) {
        size_t used = strlen(name);
        for (size_t i = 0; i < size && i < ID_BYTES_SHOWN && used + 4 < sizeof(name); i++)
                used += (size_t) snprintf(name + used, sizeof(name) - used, "%s%02x", i ? "" : "+", id[i]);
}

static size_t build_id_aligned(size_t size) {
        return (size + 3) & ~(size_t) 3;
}

/* The first object is the program itself. */
static int look_at_object(struct dl_phdr_info *info, size_t size, void *context) {
        (void) size;
        (void) context;
        for (size_t i = 0; i < info->dlpi_phnum; i++) {
                const ElfW(Phdr) *header = &info->dlpi_phdr[i];
                const char *at = (const char *) (uintptr_t) (info->dlpi_addr + header->p_vaddr);
                const char *end = at + header->p_memsz;
                while (header->p_type == PT_NOTE && end - at > (ptrdiff_t) sizeof(ElfW(Nhdr))) {
                        const ElfW(Nhdr) *note = (const ElfW(Nhdr) *) (const void *) at;
                        const char *owner = at + sizeof(*note), *id = owner + build_id_aligned(note->n_namesz);
                        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(owner, "GNU", 4) == 0) {
                                add_id((const unsigned char *) id, note->n_descsz);
                                return 1;
                        }
                        at = id + build_id_aligned(note->n_descsz);
                }
        }
        return 1;
}

const char *build_name(void) {
        if (!*name) {
                (void) snprintf(name, sizeof(name), "%s", GLOVEBOX_VERSION);
                (void) dl_iterate_phdr(look_at_object, NULL);
        }
        return name;
}
