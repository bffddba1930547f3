/* The contents of an archive file: a root file system, or layers and documents as docker save and OCI tools write them.
 * The members of a layered archive are found by offset, so that each can be read on its own, in any order. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "image/bounds.h"
#include "image/stream.h"

enum archive_kind { ARCHIVE_ROOTFS, ARCHIVE_DOCKER, ARCHIVE_OCI };

struct archive_member {
        char *name; /* clean; unique: a later one of the same name replaces the earlier */
        char *link; /* clean target of a link, or NULL: old docker links layers that are alike */
        uint64_t offset, size;
};

struct archive {
        int fd; /* borrowed */
        uint64_t size, max_bytes;
        bool compressed;
        enum archive_kind kind;
        struct archive_member *members; /* sorted by name; none for a root file system */
        size_t n_members;
        const struct archive_member *layers[BOUND_LAYERS]; /* lowest first, into members */
        size_t n_layers;
        json_t *config; /* the image's configuration document, or NULL */
        char reference[256]; /* "name:tag" as the archive says, or "" */
};

/* Reads the archive once from end to end. `fd` must be a regular file and stays the caller's. For a layered archive
 * that is compressed as a whole only kind and `compressed` are set: decompress it to a file, then scan that. */
int archive_scan(int fd, uint64_t size, uint64_t max_bytes, struct archive *ret_archive, struct err *err);
void archive_close(struct archive *archive);

/* NULL when there is no such member. Links are followed, a few times. */
const struct archive_member *archive_find(const struct archive *archive, const char *name);

int archive_open_member(const struct archive *archive, const struct archive_member *member, struct stream **ret_stream,
                        struct err *err);

const char *archive_kind_name(enum archive_kind kind);
