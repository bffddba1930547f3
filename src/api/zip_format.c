#include "api/zip_format.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "store/artifact.h"

enum {
        NAME_ROOM = 3 * ARTIFACT_PATH_MAX, /* each byte may become an escape */
        BLOCK_HEAD = 5,
        MADE_BY_UNIX = 3 << 8,
        VERSION_PLAIN = 20,
        VERSION_64 = 45,
        FLAGS = 1 << 3 | 1 << 11, /* sizes behind the data; names are UTF-8 */
        METHOD_DEFLATE = 8,
        EXTRA_64 = 1,
        MODE_REGULAR = 0100644,
};
static const uint32_t none_32 = UINT32_MAX; /* "see the 64-bit field" */

/* Larger sizes and offsets are written in 64 bits. Current readers know that, and tests need no gigabytes. */
static const uint64_t large = 64 << 20;

struct entry {
        uint64_t offset, size, packed;
        uint32_t crc, time;
        bool is_there, is_large; /* a mark of sizes in 64 bits */
};

struct zip_format {
        struct artifact_list list;
        struct entry *entries;
        size_t at;       /* the entry that is written */
        uint64_t offset; /* in the archive */
        uint64_t directory_offset, n_listed;
        enum { ZIP_FORMAT_FILES, ZIP_FORMAT_DIRECTORY, ZIP_FORMAT_OVER } step;
};

struct zip_format *zip_format_new(struct artifact_list *list) {
        struct zip_format *format = calloc(1, sizeof(*format));
        struct entry *entries = calloc(list->count ? list->count : 1, sizeof(*entries));
        if (!format || !entries) {
                artifact_list_release(list);
                free(format);
                free(entries);
                return NULL;
        }
        *format = (struct zip_format) { .list = *list, .entries = entries };
        *list = (struct artifact_list) { 0 };
        return format;
}

void zip_format_free(struct zip_format *format) {
        if (!format)
                return;
        artifact_list_release(&format->list);
        free(format->entries);
        free(format);
}

/* ---- bytes ---- */

static char *zip_put(char *to, uint64_t value, int n_bytes) {
        for (; n_bytes > 0; n_bytes--, value >>= 8)
                *to++ = (char) (value & 0xff);
        return to;
}

static uint32_t low_32(uint64_t value) {
        return value < none_32 ? (uint32_t) value : none_32;
}

/* In the form of MS-DOS: from 1980 to 2107. */
static uint32_t dos_time(time_t when) {
        struct tm tm = { .tm_year = 80, .tm_mday = 1 };
        if (!gmtime_r(&when, &tm) || tm.tm_year < 80 || tm.tm_year > 207)
                tm = (struct tm) { .tm_year = 80, .tm_mday = 1 };
        return (uint32_t) ((tm.tm_year - 80) << 25 | (tm.tm_mon + 1) << 21 | tm.tm_mday << 16 | tm.tm_hour << 11 |
                           tm.tm_min << 5 | tm.tm_sec / 2);
}

/* The path with escaped backslashes, which separate names on other systems. */
static size_t put_name(char *to, const char *path) {
        static const char digits[] = "0123456789ABCDEF";
        char *start = to;
        for (; *path; path++) {
                unsigned char c = (unsigned char) *path;
                if (c >= 0x20 && c != 0x7f && c != '\\') {
                        *to++ = *path;
                        continue;
                }
                *to++ = '%';
                *to++ = digits[c >> 4];
                *to++ = digits[c & 15];
        }
        return (size_t) (to - start);
}

/* ---- a file ---- */

static size_t put_local_head(const struct entry *entry, const char *path, char *bytes) {
        char name[NAME_ROOM];
        size_t size = put_name(name, path);
        char *to = zip_put(bytes, 0x04034b50, 4);
        to = zip_put(to, entry->is_large ? VERSION_64 : VERSION_PLAIN, 2);
        to = zip_put(to, FLAGS, 2);
        to = zip_put(to, METHOD_DEFLATE, 2);
        to = zip_put(to, entry->time, 4);
        to = zip_put(to, 0, 4);
        to = zip_put(to, entry->is_large ? none_32 : 0, 4);
        to = zip_put(to, entry->is_large ? none_32 : 0, 4);
        to = zip_put(to, size, 2);
        to = zip_put(to, entry->is_large ? 20 : 0, 2);
        memcpy(to, name, size);
        to += size;
        if (entry->is_large) {
                to = zip_put(zip_put(to, EXTRA_64, 2), 16, 2);
                to = zip_put(zip_put(to, 0, 8), 0, 8);
        }
        return (size_t) (to - bytes);
}

const struct artifact *zip_format_next(const struct zip_format *format) {
        bool is_left = format->step == ZIP_FORMAT_FILES && format->at < format->list.count;
        return is_left ? &format->list.items[format->at] : NULL;
}

void zip_format_skip(struct zip_format *format) {
        format->at++;
}

size_t zip_format_begin(struct zip_format *format, uint64_t size, time_t modified, char *bytes) {
        struct entry *entry = &format->entries[format->at];
        *entry = (struct entry) { .offset = format->offset,
                                  .crc = (uint32_t) crc32(0, NULL, 0),
                                  .time = dos_time(modified),
                                  .is_there = true,
                                  .is_large = size >= large };
        size_t used = put_local_head(entry, format->list.items[format->at].path, bytes);
        format->offset += used;
        return used;
}

static char *put_block_head(bool is_last, size_t size, char *to) {
        return zip_put(zip_put(zip_put(to, is_last, 1), size, 2), ~(uint64_t) size, 2);
}

size_t zip_format_block(struct zip_format *format, const char *data, size_t size, char *bytes) {
        struct entry *entry = &format->entries[format->at];
        memmove(bytes + BLOCK_HEAD, data, size);
        (void) put_block_head(false, size, bytes);
        entry->crc = (uint32_t) crc32(entry->crc, (const Bytef *) bytes + BLOCK_HEAD, (uInt) size);
        entry->size += size;
        entry->packed += size + BLOCK_HEAD;
        format->offset += size + BLOCK_HEAD;
        return size + BLOCK_HEAD;
}

size_t zip_format_end(struct zip_format *format, char *bytes) {
        struct entry *entry = &format->entries[format->at];
        int width = entry->is_large ? 8 : 4;
        entry->packed += BLOCK_HEAD;
        char *to = put_block_head(true, 0, bytes);
        to = zip_put(zip_put(to, 0x08074b50, 4), entry->crc, 4);
        to = zip_put(zip_put(to, entry->packed, width), entry->size, width);
        format->offset += (size_t) (to - bytes);
        format->at++;
        return (size_t) (to - bytes);
}

/* ---- the table of contents ---- */

static size_t put_listing(struct zip_format *format, char *bytes) {
        const struct entry *entry = &format->entries[format->at];
        char name[NAME_ROOM];
        if (!entry->is_there)
                return 0;
        size_t size = put_name(name, format->list.items[format->at].path);
        bool is_large = entry->is_large || entry->offset >= large;
        char *to = zip_put(bytes, 0x02014b50, 4);
        to = zip_put(to, MADE_BY_UNIX | VERSION_64, 2);
        to = zip_put(to, is_large ? VERSION_64 : VERSION_PLAIN, 2);
        to = zip_put(to, FLAGS, 2);
        to = zip_put(to, METHOD_DEFLATE, 2);
        to = zip_put(to, entry->time, 4);
        to = zip_put(to, entry->crc, 4);
        to = zip_put(to, is_large ? none_32 : entry->packed, 4);
        to = zip_put(to, is_large ? none_32 : entry->size, 4);
        to = zip_put(to, size, 2);
        to = zip_put(to, is_large ? 28 : 0, 2);
        to = zip_put(to, 0, 6); /* comment, disk, internal attributes */
        to = zip_put(to, (uint64_t) MODE_REGULAR << 16, 4);
        to = zip_put(to, is_large ? none_32 : entry->offset, 4);
        memcpy(to, name, size);
        to += size;
        if (is_large) {
                to = zip_put(zip_put(to, EXTRA_64, 2), 24, 2);
                to = zip_put(zip_put(zip_put(to, entry->size, 8), entry->packed, 8), entry->offset, 8);
        }
        format->n_listed++;
        return (size_t) (to - bytes);
}

static size_t put_end(struct zip_format *format, char *bytes) {
        uint64_t size = format->offset - format->directory_offset, n = format->n_listed;
        char *to = bytes;
        if (n >= UINT16_MAX || size >= large || format->directory_offset >= large) {
                to = zip_put(zip_put(to, 0x06064b50, 4), 44, 8);
                to = zip_put(zip_put(to, MADE_BY_UNIX | VERSION_64, 2), VERSION_64, 2);
                to = zip_put(zip_put(to, 0, 4), 0, 4);
                to = zip_put(zip_put(to, n, 8), n, 8);
                to = zip_put(zip_put(to, size, 8), format->directory_offset, 8);
                to = zip_put(zip_put(to, 0x07064b50, 4), 0, 4);
                to = zip_put(zip_put(to, format->offset, 8), 1, 4);
        }
        uint64_t short_n = n < UINT16_MAX ? n : UINT16_MAX;
        to = zip_put(zip_put(to, 0x06054b50, 4), 0, 4);
        to = zip_put(zip_put(to, short_n, 2), short_n, 2);
        to = zip_put(zip_put(to, low_32(size), 4), low_32(format->directory_offset), 4);
        to = zip_put(to, 0, 2);
        format->step = ZIP_FORMAT_OVER;
        return (size_t) (to - bytes);
}

size_t zip_format_finish(struct zip_format *format, char *bytes) {
        size_t n = 0;
        if (format->step == ZIP_FORMAT_FILES) {
                format->step = ZIP_FORMAT_DIRECTORY;
                format->directory_offset = format->offset;
                format->at = 0;
        }
        while (format->step == ZIP_FORMAT_DIRECTORY && n == 0) {
                n = format->at < format->list.count ? put_listing(format, bytes) : put_end(format, bytes);
                format->at++;
        }
        format->offset += n;
        return n;
}
