#include "api/zip.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/fd.h"
#include "base/utf8.h"
#include "store/artifact.h"
#include "store/workspace.h"

enum {
        NAME_ROOM = 3 * ARTIFACT_PATH_MAX, /* each byte may become an escape */
        BLOCK_MAX = 65535,                 /* of deflate */
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
        bool is_there, is_large; /* the latter: its sizes are written in 64 bits */
};

struct zip {
        int workspace_fd, file_fd;
        struct artifact_list list;
        struct entry *entries;
        size_t at;       /* the entry that is on */
        uint64_t offset; /* in the archive */
        uint64_t left;   /* of the file that is on */
        uint64_t directory_offset, n_listed;
        enum { ZIP_FILES, ZIP_DATA, ZIP_DIRECTORY, ZIP_END, ZIP_OVER } step;
};

struct zip *zip_open(int workspace_fd, struct artifact_list *list) {
        struct zip *zip = calloc(1, sizeof(*zip));
        struct entry *entries = calloc(list->count ? list->count : 1, sizeof(*entries));
        if (!zip || !entries) {
                artifact_list_release(list);
                fd_close(&workspace_fd);
                free(zip);
                free(entries);
                return NULL;
        }
        *zip = (struct zip) { .workspace_fd = workspace_fd, .file_fd = -1, .list = *list, .entries = entries };
        *list = (struct artifact_list) { 0 };
        return zip;
}

void zip_close(struct zip *zip) {
        fd_close(&zip->file_fd);
        fd_close(&zip->workspace_fd);
        artifact_list_release(&zip->list);
        free(zip->entries);
        free(zip);
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

/* In the form of MS-DOS, which knows 1980 to 2107. */
static uint32_t dos_time(time_t when) {
        struct tm tm = { .tm_year = 80, .tm_mday = 1 };
        if (!gmtime_r(&when, &tm) || tm.tm_year < 80 || tm.tm_year > 207)
                tm = (struct tm) { .tm_year = 80, .tm_mday = 1 };
        return (uint32_t) ((tm.tm_year - 80) << 25 | (tm.tm_mon + 1) << 21 | tm.tm_mday << 16 | tm.tm_hour << 11 |
                           tm.tm_min << 5 | tm.tm_sec / 2);
}

/* The path with what means something else elsewhere escaped: a backslash separates names on other systems. */
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

/* Opens the next file that is still one, and writes its head. 0: it is not; the one after it is next. */
static ssize_t begin_file(struct zip *zip, char *bytes) {
        const char *path = zip->list.items[zip->at].path;
        struct entry *entry = &zip->entries[zip->at];
        struct stat status;
        fd_close(&zip->file_fd);
        if (!utf8_is_valid(path, strlen(path)))
                return 0;
        zip->file_fd = workspace_open(zip->workspace_fd, path, WORKSPACE_NO_LINKS, &status, NULL);
        if (zip->file_fd < 0 || !S_ISREG(status.st_mode))
                return 0;
        zip->left = (uint64_t) status.st_size;
        *entry = (struct entry) { .offset = zip->offset,
                                  .crc = (uint32_t) crc32(0, NULL, 0),
                                  .time = dos_time(status.st_mtim.tv_sec),
                                  .is_there = true,
                                  .is_large = zip->left >= large };
        zip->step = ZIP_DATA;
        return (ssize_t) put_local_head(entry, path, bytes);
}

/* One block; the last one is empty and is followed by what the file was. */
static ssize_t put_block(struct zip *zip, char *bytes) {
        struct entry *entry = &zip->entries[zip->at];
        size_t wanted = zip->left < BLOCK_MAX ? (size_t) zip->left : BLOCK_MAX;
        ssize_t n = wanted ? pread(zip->file_fd, bytes + BLOCK_HEAD, wanted, (off_t) entry->size) : 0;
        if (n < 0)
                return -errno;
        char *to = zip_put(zip_put(zip_put(bytes, n == 0, 1), (uint64_t) n, 2), ~(uint64_t) n, 2) + n;
        entry->crc = (uint32_t) crc32(entry->crc, (const Bytef *) bytes + BLOCK_HEAD, (uInt) n);
        entry->size += (uint64_t) n;
        entry->packed += (uint64_t) n + BLOCK_HEAD;
        zip->left = (size_t) n == wanted ? zip->left - wanted : 0; /* shortened: that was all, else blocks are full */
        if (n > 0)
                return to - bytes;
        int width = entry->is_large ? 8 : 4;
        to = zip_put(zip_put(to, 0x08074b50, 4), entry->crc, 4);
        to = zip_put(zip_put(to, entry->packed, width), entry->size, width);
        fd_close(&zip->file_fd);
        zip->at++;
        zip->step = ZIP_FILES;
        return to - bytes;
}

/* ---- the table of contents ---- */

static ssize_t put_listing(struct zip *zip, char *bytes) {
        const struct entry *entry = &zip->entries[zip->at];
        char name[NAME_ROOM];
        if (!entry->is_there)
                return 0;
        size_t size = put_name(name, zip->list.items[zip->at].path);
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
        zip->n_listed++;
        return to - bytes;
}

static ssize_t put_end(struct zip *zip, char *bytes) {
        uint64_t size = zip->offset - zip->directory_offset, n = zip->n_listed;
        char *to = bytes;
        if (n >= UINT16_MAX || size >= large || zip->directory_offset >= large) {
                to = zip_put(zip_put(to, 0x06064b50, 4), 44, 8);
                to = zip_put(zip_put(to, MADE_BY_UNIX | VERSION_64, 2), VERSION_64, 2);
                to = zip_put(zip_put(to, 0, 4), 0, 4);
                to = zip_put(zip_put(to, n, 8), n, 8);
                to = zip_put(zip_put(to, size, 8), zip->directory_offset, 8);
                to = zip_put(zip_put(to, 0x07064b50, 4), 0, 4);
                to = zip_put(zip_put(to, zip->offset, 8), 1, 4);
        }
        uint64_t short_n = n < UINT16_MAX ? n : UINT16_MAX;
        to = zip_put(zip_put(to, 0x06054b50, 4), 0, 4);
        to = zip_put(zip_put(to, short_n, 2), short_n, 2);
        to = zip_put(zip_put(to, low_32(size), 4), low_32(zip->directory_offset), 4);
        to = zip_put(to, 0, 2);
        zip->step = ZIP_OVER;
        return to - bytes;
}

/* ---- the archive ---- */

static ssize_t make_unit(struct zip *zip, char *bytes) {
        ssize_t n = 0;
        switch (zip->step) {
        case ZIP_FILES:
                if (zip->at == zip->list.count) {
                        zip->step = ZIP_DIRECTORY;
                        zip->at = 0;
                        zip->directory_offset = zip->offset;
                } else if ((n = begin_file(zip, bytes)) == 0)
                        zip->at++;
                return n;
        case ZIP_DATA:
                return put_block(zip, bytes);
        case ZIP_DIRECTORY:
                if (zip->at == zip->list.count)
                        zip->step = ZIP_END;
                else {
                        n = put_listing(zip, bytes);
                        zip->at++;
                }
                return n;
        case ZIP_END:
                return put_end(zip, bytes);
        default:
                return 0;
        }
}

ssize_t zip_read(struct zip *zip, char *bytes, size_t room) {
        size_t used = 0;
        while (zip->step != ZIP_OVER && room - used >= ZIP_UNIT_MAX) {
                ssize_t n = make_unit(zip, bytes + used);
                if (n < 0)
                        return n;
                used += (size_t) n;
                zip->offset += (uint64_t) n;
        }
        return (ssize_t) used;
}
