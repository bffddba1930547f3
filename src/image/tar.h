/* A strict reader of tar streams: ustar, pax (path, linkpath, size) and GNU long names. Everything else that would
 * change what an entry means (sparse files, multi-volume archives, unknown types) is refused, never guessed, so that
 * all readers agree about the contents of an archive. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "image/bounds.h"
#include "image/stream.h"

enum tar_type { TAR_FILE, TAR_DIRECTORY, TAR_SYMLINK, TAR_HARDLINK, TAR_SPECIAL };

struct tar_entry {
        enum tar_type type;
        char path[BOUND_PATH + 1]; /* as written: clean it with path_clean before use */
        char link[BOUND_PATH + 1]; /* target of a link */
        uint64_t size;             /* of the contents; 0 for everything but files */
        uint64_t offset;           /* of the contents, in the (decompressed) stream */
        mode_t mode;               /* permission bits, setuid, setgid and sticky as written */
        int64_t mtime;
};

struct tar {
        struct stream *stream; /* borrowed */
        uint64_t left;         /* contents of the current entry not read yet */
        unsigned padding;      /* zeros after them */
        unsigned headers;
};

/* `stream` must outlive the reader. */
void tar_init(struct tar *tar, struct stream *stream);

/* 1: *ret_entry is the next entry. 0: a proper end. -1: malformed, cut off, or over a bound. */
int tar_next(struct tar *tar, struct tar_entry *ret_entry, struct err *err);

/* Contents of the current entry: how many bytes came (0: all were read), or -1. */
ssize_t tar_read(struct tar *tar, void *buffer, size_t size, struct err *err);
