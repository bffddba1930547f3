/* The bytes of a zip archive (APPNOTE 6.3) whose files are written one after another, in the order of a list. Each
 * entry has its sizes behind its data, so a file may turn out shorter than expected. Nothing is compressed, which would keep
 * the loop busy: the data are stored blocks of deflate, whose end a reader finds without seeking. Only the table of
 * contents is held in memory.
 *
 * Each function writes to `bytes`, which has ZIP_FORMAT_UNIT_MAX of room, and returns how many bytes it wrote. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct artifact;
struct artifact_list;
struct zip_format;

enum {
        ZIP_FORMAT_BLOCK_MAX = 65535, /* of deflate */
        ZIP_FORMAT_UNIT_MAX = 66 << 10,
};

/* Takes the list, in any case. NULL: out of memory. */
struct zip_format *zip_format_new(struct artifact_list *list);
void zip_format_free(struct zip_format *format);

/* The next file, to be begun or skipped. NULL: there are no more. */
const struct artifact *zip_format_next(const struct zip_format *format);
void zip_format_skip(struct zip_format *format);

/* Its head. It must not have more than `size` bytes. */
size_t zip_format_begin(struct zip_format *format, uint64_t size, time_t modified, char *bytes);

/* At most ZIP_FORMAT_BLOCK_MAX bytes of it; `data` may lie within `bytes`. */
size_t zip_format_block(struct zip_format *format, const char *data, size_t size, char *bytes);

/* Its end. */
size_t zip_format_end(struct zip_format *format, char *bytes);

/* After the last file: the table of contents, called until it returns 0. */
size_t zip_format_finish(struct zip_format *format, char *bytes);
