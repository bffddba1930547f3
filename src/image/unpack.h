/* Unpacks tar streams below a directory that no other process writes to. The archive is hostile: no symbolic link is
 * followed when writing, hard links lead only to regular files unpacked before, devices and FIFOs are left out and
 * counted, setuid and setgid bits go, everything belongs to the caller and can be read by the box's user. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "image/bounds.h"
#include "image/stream.h"

struct unpack {
        int root_fd; /* borrowed */
        uint64_t max_bytes, max_entries;
        uint64_t bytes, entries; /* of all streams so far */
        uint64_t skipped;        /* devices, FIFOs */
        int parent_fd;           /* the directory written to last: most entries follow a sibling */
        char parent[BOUND_PATH + 1];
};

/* unpack_close frees what the struct holds, never root_fd. */
void unpack_init(struct unpack *unpack, int root_fd, uint64_t max_bytes, uint64_t max_entries);
void unpack_close(struct unpack *unpack);

/* All entries of a stream. In a layer (`layered`), whiteouts are skipped: they concern the layers below and have been
 * applied before. Later entries of one name replace earlier ones. */
int unpack_entries(struct unpack *unpack, struct stream *stream, bool layered, struct err *err);

/* Removes the files of lower layers that a layer's whiteouts (.wh.NAME, .wh..wh..opq) hide. */
int unpack_whiteouts(struct unpack *unpack, struct stream *stream, struct err *err);
