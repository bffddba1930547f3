#include "image/tar.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { BLOCK = 512 };

/* POSIX.1-1988 ustar, as it lies in the file. */
struct header {
        char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[6],
                version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a tar header is one block");

/* The contents of the extended headers before an entry. */
struct extension {
        bool has_path, has_link, has_size;
        bool pax_path, pax_link; /* pax wins over GNU long names, whatever their order */
        uint64_t size;
};

static int tar_malformed(struct err *err, const char *what) {
        return err_set(err, ERR_PROTOCOL, "the tar archive is malformed: %s; fetch or make the file again", what);
}

/* Octal digits between optional spaces and NULs, or GNU's base 256. Negative base 256 gives *ret_negative. */
static bool tar_parse_number(const char *field, size_t size, uint64_t *ret_value, bool *ret_negative) {
        const unsigned char *bytes = (const unsigned char *) field;
        uint64_t value = 0;
        *ret_negative = false;
        if (bytes[0] & 0x80) {
                *ret_negative = bytes[0] & 0x40;
                if (*ret_negative) {
                        *ret_value = 0;
                        return true;
                }
                value = bytes[0] & 0x3f;
                for (size_t i = 1; i < size; i++) {
                        if (value >> 55)
                                return false;
                        value = value << 8 | bytes[i];
                }
                *ret_value = value;
                return true;
        }
        size_t i = 0;
        while (i < size && field[i] == ' ')
                i++;
        for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
                value = value << 3 | (uint64_t) (field[i] - '0'); /* 12 digits at most: no overflow */
        for (; i < size; i++)
                if (field[i] != ' ' && field[i] != '\0')
                        return false;
        *ret_value = value;
        return true;
}

/* Some ancient writers summed signed characters; both sums are accepted, as every other reader does. */
static bool checksum_holds(const struct header *header) {
        uint64_t stated;
        bool negative;
        if (!tar_parse_number(header->checksum, sizeof(header->checksum), &stated, &negative) || negative)
                return false;
        const char *bytes = (const char *) header;
        const size_t from = offsetof(struct header, checksum), to = from + sizeof(header->checksum);
        int64_t plain = 0, with_sign = 0;
        for (size_t i = 0; i < BLOCK; i++) {
                char byte = i >= from && i < to ? ' ' : bytes[i];
                plain += (unsigned char) byte;
                with_sign += (signed char) byte;
        }
        return (int64_t) stated == plain || (int64_t) stated == with_sign;
}

static bool block_is_zero(const struct header *header) {
        static const struct header zero;
        return memcmp(header, &zero, sizeof(zero)) == 0;
}

void tar_init(struct tar *tar, struct stream *stream) {
        *tar = (struct tar) { .stream = stream };
}

/* Contents and padding of a header that describes others, NUL-terminated; the caller frees it. */
static char *read_extended_header(struct tar *tar, uint64_t size, uint64_t max, struct err *err) {
        if (size > max) {
                tar_malformed(err, "an extended header is too long");
                return NULL;
        }
        size_t padded = (size_t) (size + BLOCK - 1) / BLOCK * BLOCK;
        _cleanup_free_ char *bytes = malloc(padded + 1);
        if (!bytes) {
                err_sys(err, ENOMEM, "cannot read the archive");
                return NULL;
        }
        ssize_t n = stream_read(tar->stream, bytes, padded, err);
        if (n < 0)
                return NULL;
        if ((size_t) n < padded) {
                tar_malformed(err, "it is cut off in an extended header");
                return NULL;
        }
        bytes[size] = '\0';
        return take_ptr(bytes);
}

static int copy_path(char to[static BOUND_PATH + 1], const char *from, size_t size, struct err *err) {
        if (size == 0 || size > BOUND_PATH || memchr(from, '\0', size))
                return tar_malformed(err, "a path is empty, too long or holds a NUL byte");
        memcpy(to, from, size);
        to[size] = '\0';
        return 0;
}

static int read_long_name(struct tar *tar, uint64_t size, char to[static BOUND_PATH + 1], struct err *err) {
        _cleanup_free_ char *bytes = read_extended_header(tar, size, BOUND_PATH + 1, err);
        return bytes ? copy_path(to, bytes, strnlen(bytes, (size_t) size), err) : -1;
}

static int parse_decimal(const char *digits, size_t size, uint64_t *ret_value) {
        uint64_t value = 0;
        if (size == 0 || size > 18)
                return -EINVAL;
        for (size_t i = 0; i < size; i++) {
                if (digits[i] < '0' || digits[i] > '9')
                        return -EINVAL;
                value = value * 10 + (uint64_t) (digits[i] - '0');
        }
        *ret_value = value;
        return 0;
}

static bool key_is(const char *key, size_t size, const char *name) {
        return size == strlen(name) && memcmp(key, name, size) == 0;
}

static int apply_pax_record(const char *key, size_t key_size, const char *value, size_t value_size, bool global,
                            struct tar_entry *entry, struct extension *extension, struct err *err) {
        bool path = key_is(key, key_size, "path"), link = key_is(key, key_size, "linkpath");
        bool size = key_is(key, key_size, "size");
        if (key_size >= 11 && memcmp(key, "GNU.sparse.", 11) == 0)
                return err_set(err, ERR_UNSUPPORTED, "the archive holds sparse files; make it without tar's --sparse");
        if (!path && !link && !size)
                return 0;
        if (global)
                return tar_malformed(err, "a global header gives all entries one path or size");
        if (path) {
                extension->has_path = extension->pax_path = true;
                return copy_path(entry->path, value, value_size, err);
        }
        if (link) {
                extension->has_link = extension->pax_link = true;
                return copy_path(entry->link, value, value_size, err);
        }
        extension->has_size = true;
        return parse_decimal(value, value_size, &extension->size) < 0 ? tar_malformed(err, "a size is not a number")
                                                                      : 0;
}

/* Records are "LENGTH KEY=VALUE\n", where LENGTH counts the whole record. */
static int read_pax(struct tar *tar, uint64_t size, bool global, struct tar_entry *entry, struct extension *extension,
                    struct err *err) {
        _cleanup_free_ char *bytes = read_extended_header(tar, size, BOUND_PAX, err);
        if (!bytes)
                return -1;
        for (const char *at = bytes, *end = bytes + size; at < end;) {
                const char *space = memchr(at, ' ', (size_t) (end - at));
                uint64_t length;
                if (!space || parse_decimal(at, (size_t) (space - at), &length) < 0 || length > (size_t) (end - at) ||
                    at + length < space + 3 || at[length - 1] != '\n')
                        return tar_malformed(err, "an extended header's record is broken");
                const char *key = space + 1, *last = at + length - 1;
                const char *equals = memchr(key, '=', (size_t) (last - key));
                if (!equals || equals == key)
                        return tar_malformed(err, "an extended header's record has no key");
                if (apply_pax_record(key, (size_t) (equals - key), equals + 1, (size_t) (last - equals - 1), global,
                                     entry, extension, err) < 0)
                        return -1;
                at += length;
        }
        return 0;
}

/* The next block that is a header: 1, or 0 at the end of the archive. */
static int tar_read_header(struct tar *tar, struct header *ret_header, uint64_t *ret_size, struct err *err) {
        ssize_t n = stream_read(tar->stream, ret_header, BLOCK, err);
        if (n < 0)
                return -1;
        if (n < BLOCK && tar->headers == 0)
                return err_set(err, ERR_PROTOCOL, "this is not a tar archive: it is %s",
                               n == 0 ? "empty" : "too short");
        if (n < BLOCK)
                return tar_malformed(err, "it is cut off");
        if (block_is_zero(ret_header))
                return 0;
        bool ustar = memcmp(ret_header->magic, "ustar", 5) == 0 && checksum_holds(ret_header);
        if (!ustar && tar->headers == 0)
                return err_set(err, ERR_PROTOCOL,
                               "this is not a tar archive; give what docker save, docker export or tar wrote");
        if (!ustar)
                return tar_malformed(err, "a header is damaged");
        if (++tar->headers > BOUND_HEADERS)
                return err_set(err, ERR_LIMIT, "the archive has more than %d headers", BOUND_HEADERS);
        bool negative;
        if (!tar_parse_number(ret_header->size, sizeof(ret_header->size), ret_size, &negative) || negative ||
            *ret_size > INT64_MAX - BLOCK)
                return tar_malformed(err, "a size is not a number");
        return 1;
}

static int type_of(char flag, const char *path, enum tar_type *ret_type, struct err *err) {
        size_t length = strlen(path);
        switch (flag) {
        case '0':
        case '\0':
        case '7': /* "contiguous": an ordinary file everywhere */
                *ret_type = length > 0 && path[length - 1] == '/' ? TAR_DIRECTORY : TAR_FILE;
                return 0;
        case '1':
                *ret_type = TAR_HARDLINK;
                return 0;
        case '2':
                *ret_type = TAR_SYMLINK;
                return 0;
        case '3':
        case '4':
        case '6':
                *ret_type = TAR_SPECIAL;
                return 0;
        case '5':
                *ret_type = TAR_DIRECTORY;
                return 0;
        case 'S':
                return err_set(err, ERR_UNSUPPORTED, "the archive holds sparse files; make it without tar's --sparse");
        default:
                return err_set(err, ERR_UNSUPPORTED, "the archive holds an entry of the unknown type 0x%02x",
                               (unsigned) (unsigned char) flag);
        }
}

static int copy_fields(const struct header *header, const struct extension *extension, struct tar_entry *entry,
                       struct err *err) {
        size_t name = strnlen(header->name, sizeof(header->name));
        size_t link = strnlen(header->link, sizeof(header->link));
        /* GNU's old format ("ustar  ") keeps times where ustar keeps the prefix. */
        size_t prefix = header->magic[5] == '\0' ? strnlen(header->prefix, sizeof(header->prefix)) : 0;
        if (!extension->has_path) {
                char *to = entry->path;
                if (name == 0)
                        return tar_malformed(err, "an entry has no name");
                if (prefix > 0) {
                        memcpy(to, header->prefix, prefix);
                        to[prefix] = '/';
                        to += prefix + 1;
                }
                memcpy(to, header->name, name);
                to[name] = '\0';
        }
        if (!extension->has_link) {
                memcpy(entry->link, header->link, link);
                entry->link[link] = '\0';
        }
        uint64_t mode, mtime;
        bool negative;
        if (!tar_parse_number(header->mode, sizeof(header->mode), &mode, &negative) || negative)
                return tar_malformed(err, "a mode is not a number");
        if (!tar_parse_number(header->mtime, sizeof(header->mtime), &mtime, &negative) || mtime > INT64_MAX)
                return tar_malformed(err, "a time is not a number");
        entry->mode = (mode_t) (mode & 07777);
        entry->mtime = (int64_t) mtime;
        return 0;
}

static int finish_entry(struct tar *tar, const struct header *header, uint64_t size, const struct extension *extension,
                        struct tar_entry *entry, struct err *err) {
        if (copy_fields(header, extension, entry, err) < 0 || type_of(header->type, entry->path, &entry->type, err) < 0)
                return -1;
        entry->size = extension->has_size ? extension->size : size;
        entry->offset = stream_position(tar->stream);
        bool is_link = entry->type == TAR_SYMLINK || entry->type == TAR_HARDLINK;
        if (is_link && entry->link[0] == '\0')
                return tar_malformed(err, "a link has no target");
        if (entry->type != TAR_FILE && entry->size > 0) /* readers disagree whether contents follow: refuse */
                return tar_malformed(err, "a link, directory or device claims to have contents");
        if (!is_link)
                entry->link[0] = '\0';
        tar->left = entry->size;
        tar->padding = (unsigned) ((BLOCK - entry->size % BLOCK) % BLOCK);
        return 1;
}

/* A header that describes the entry after it. 1: it was one; 0: it is an entry itself; -1. */
static int apply_extension(struct tar *tar, char type, uint64_t size, struct tar_entry *entry,
                           struct extension *extension, struct err *err) {
        char ignored[BOUND_PATH + 1];
        int code;
        switch (type) {
        case 'L':
                code = read_long_name(tar, size, extension->pax_path ? ignored : entry->path, err);
                extension->has_path = true;
                break;
        case 'K':
                code = read_long_name(tar, size, extension->pax_link ? ignored : entry->link, err);
                extension->has_link = true;
                break;
        case 'x':
        case 'g':
                code = read_pax(tar, size, type == 'g', entry, extension, err);
                break;
        default:
                return 0;
        }
        return code < 0 ? -1 : 1;
}

int tar_next(struct tar *tar, struct tar_entry *ret_entry, struct err *err) {
        if (stream_skip(tar->stream, tar->left + tar->padding, err) < 0)
                return -1;
        tar->left = tar->padding = 0;
        struct extension extension = { 0 };
        for (bool extended = false;; extended = true) {
                struct header header;
                uint64_t size = 0;
                int more = tar_read_header(tar, &header, &size, err);
                if (more < 0)
                        return -1;
                if (more == 0)
                        return extended && (extension.has_path || extension.has_link || extension.has_size)
                                       ? tar_malformed(err, "it ends after an extended header")
                                       : 0;
                int is_extension = apply_extension(tar, header.type, size, ret_entry, &extension, err);
                if (is_extension < 0)
                        return -1;
                if (!is_extension)
                        return finish_entry(tar, &header, size, &extension, ret_entry, err);
        }
}

ssize_t tar_read(struct tar *tar, void *buffer, size_t size, struct err *err) {
        if (size > tar->left)
                size = (size_t) tar->left;
        ssize_t n = stream_read(tar->stream, buffer, size, err);
        if (n >= 0 && (size_t) n < size)
                return tar_malformed(err, "it is cut off in the middle of a file");
        if (n > 0)
                tar->left -= (uint64_t) n;
        return n;
}
