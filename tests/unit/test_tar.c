/* The tar reader and the streams below it, on archives made here byte by byte. */
#include <stdint.h>
#include <zlib.h>
#include <zstd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "image/tar.h"
#include "tap.h"
#include "tests/support/memory_file.h"

enum { BLOCK = 512, ROOM = 64 * 1024 };

struct maker {
        unsigned char bytes[ROOM];
        size_t size;
};

static void seal(unsigned char *header) {
        unsigned sum = 0;
        memset(header + 148, ' ', 8);
        for (size_t i = 0; i < BLOCK; i++)
                sum += header[i];
        char text[8];
        snprintf(text, sizeof(text), "%06o", sum);
        memcpy(header + 148, text, 7);
}

/* Returns the header, so that a test can damage it and seal it again. */
static unsigned char *add(struct maker *maker, char type, const char *name, const char *link, const char *data,
                          size_t size) {
        unsigned char *header = maker->bytes + maker->size;
        char text[16];
        memset(header, 0, BLOCK);
        memcpy(header, name, strnlen(name, 100));
        memcpy(header + 100, "0004755", 8);
        snprintf(text, sizeof(text), "%011o", (unsigned) size);
        memcpy(header + 124, text, 12);
        memcpy(header + 136, "00000000144", 12);
        header[156] = (unsigned char) type;
        memcpy(header + 157, link, strnlen(link, 100));
        memcpy(header + 257, "ustar\00000", 8);
        seal(header);
        maker->size += BLOCK;
        if (data) {
                size_t padded = (size + BLOCK - 1) / BLOCK * BLOCK;
                memset(maker->bytes + maker->size, 0, padded);
                memcpy(maker->bytes + maker->size, data, size);
                maker->size += padded;
        }
        return header;
}

static unsigned char *add_pax(struct maker *maker, char type, const char *record) {
        return add(maker, type, "pax", "", record, strlen(record));
}

static void end(struct maker *maker) {
        memset(maker->bytes + maker->size, 0, 2 * BLOCK);
        maker->size += 2 * BLOCK;
}

static struct tar_entry entry;
static struct err err;

/* Reads everything; the last entry stays in `entry`. Returns how many came, or -1. */
static int read_bytes(const void *bytes, size_t size, uint64_t max) {
        _cleanup_(stream_free) struct stream *stream = NULL;
        struct tar tar;
        int n = 0, more;
        err = (struct err) { 0 };
        _cleanup_fd_ int fd = memory_file(bytes, size);
        if (stream_open_file(fd, 0, size, max, &stream, &err) < 0)
                return -1;
        tar_init(&tar, stream);
        while ((more = tar_next(&tar, &entry, &err)) > 0)
                n++;
        return more < 0 ? -1 : n;
}

static int read_all(const struct maker *maker) {
        return read_bytes(maker->bytes, maker->size, 1 << 20);
}

static struct maker maker;

static void begin(void) {
        memset(&maker, 0, sizeof(maker));
}

static void test_entries(void) {
        begin();
        add(&maker, '0', "a/b.txt", "", "hello", 5);
        add(&maker, '5', "dir/", "", NULL, 0);
        add(&maker, '2', "link", "a/b.txt", NULL, 0);
        end(&maker);
        ok(read_all(&maker) == 3 && entry.type == TAR_SYMLINK, "three entries are read");
        is_text(entry.link, "a/b.txt", "a link's target is read");
        ok(entry.mode == 04755 && entry.mtime == 100, "mode and time are read as written");

        _cleanup_(stream_free) struct stream *stream = NULL;
        struct tar tar;
        char bytes[16] = "";
        _cleanup_fd_ int fd = memory_file(maker.bytes, maker.size);
        ok(stream_open_file(fd, 0, maker.size, 1 << 20, &stream, &err) == 0, "the archive opens");
        tar_init(&tar, stream);
        ok(tar_next(&tar, &entry, &err) == 1 && entry.size == 5 && entry.offset == BLOCK, "the first entry is a file");
        ok(tar_read(&tar, bytes, sizeof(bytes), &err) == 5 && strcmp(bytes, "hello") == 0, "its contents are read");
        ok(tar_read(&tar, bytes, sizeof(bytes), &err) == 0, "and no more than its contents");
}

static void test_names(void) {
        char long_name[301], record[400];
        memset(long_name, 'n', 300);
        long_name[300] = '\0';
        begin();
        add(&maker, 'L', "././@LongLink", "", long_name, 301);
        add(&maker, '0', "short", "", NULL, 0);
        end(&maker);
        ok(read_all(&maker) == 1 && strcmp(entry.path, long_name) == 0, "GNU long names are read");

        begin();
        add_pax(&maker, 'x', "20 path=by/pax/name\n18 linkpath=elsewhe\n11 size=700\n");
        add(&maker, '0', "short", "", NULL, 0);
        maker.size += 2 * BLOCK;
        add(&maker, '0', "next", "", NULL, 0);
        end(&maker);
        ok(read_all(&maker) == -1, "a record whose length does not fit is refused");

        begin();
        snprintf(record, sizeof(record), "20 path=by/pax/name\n13 size=1024\n");
        add_pax(&maker, 'x', record);
        add(&maker, '0', "short", "", NULL, 0);
        maker.size += 2 * BLOCK;
        add(&maker, '0', "next", "", NULL, 0);
        end(&maker);
        ok(read_all(&maker) == 2 && strcmp(entry.path, "next") == 0, "a pax size moves to the right place");

        begin();
        add(&maker, 'L', "././@LongLink", "", "gnu", 4);
        add_pax(&maker, 'x', "12 path=pax\n");
        add(&maker, '0', "short", "", NULL, 0);
        end(&maker);
        ok(read_all(&maker) == 1 && strcmp(entry.path, "pax") == 0, "pax wins over a GNU long name");

        begin();
        unsigned char *header = add(&maker, '0', "name", "", NULL, 0);
        memcpy(header + 345, "some/prefix", 11);
        seal(header);
        end(&maker);
        ok(read_all(&maker) == 1 && strcmp(entry.path, "some/prefix/name") == 0, "ustar's prefix is read");
}

/* Each row: damage to the header of one file, which must be refused. */
static void test_malformed(void) {
        static const struct {
                const char *what;
                size_t offset;
                const char *bytes;
                size_t size;
        } damages[] = {
                { "a size that is no number", 124, "zzzzzzzzzzz", 11 },
                { "a negative size", 124, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12 },
                { "a size beyond 63 bits", 124, "\x80\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", 12 },
                { "a size beyond the file", 124, "\x80\x00\x00\x00\x0f\xff\xff\xff\xff\xff\xff\xff", 12 },
                { "no name", 0, "\0\0\0\0\0\0\0\0", 8 },
                { "an unknown type", 156, "q", 1 },
                { "a sparse file", 156, "S", 1 },
                { "a volume", 156, "M", 1 },
                { "a mode that is no number", 100, "rwxr-xr", 7 },
                { "no magic", 257, "xstar", 5 },
                { "a hard link without target", 156, "1", 1 },
        };
        for (size_t i = 0; i < ELEMENTS(damages); i++) {
                begin();
                unsigned char *header = add(&maker, '0', "file", "", NULL, 0);
                memcpy(header + damages[i].offset, damages[i].bytes, damages[i].size);
                seal(header);
                end(&maker);
                ok(read_all(&maker) < 0 && *err.message, "%s is refused", damages[i].what);
        }
        begin();
        unsigned char *header = add(&maker, '0', "file", "", NULL, 0);
        header[0] = 'F';
        end(&maker);
        ok(read_all(&maker) < 0, "a wrong checksum is refused");
        begin();
        add(&maker, '2', "link", "target", "contents", 8);
        end(&maker);
        ok(read_all(&maker) < 0, "a link with contents is refused");
        begin();
        add(&maker, '0', "file", "", "0123456789", 10);
        ok(read_all(&maker) < 0, "an archive without an end is cut off");
        ok(read_bytes(maker.bytes, BLOCK + 5, 1 << 20) < 0, "one that ends within a file is cut off");
        ok(read_bytes(maker.bytes, 100, 1 << 20) < 0, "less than a block is no archive");
        ok(read_bytes(maker.bytes, 0, 1 << 20) < 0, "nothing is no archive");
        ok(read_bytes("PK\x03\x04 and so on, a zip", 21, 1 << 20) < 0 && strstr(err.message, "zip"),
           "a zip is called a zip");
}

static void test_extended(void) {
        static const char *const records[] = { "12 path=pax",
                                               "999 path=pax\n",
                                               "0 path=pax\n",
                                               "-1 path=pax\n",
                                               " path=pax\n",
                                               "7 path\n",
                                               "5 =a\n",
                                               "8 path=\n",
                                               "12 size=abc\n",
                                               "29 size=99999999999999999999\n",
                                               "22 GNU.sparse.major=1\n",
                                               "x" };
        for (size_t i = 0; i < ELEMENTS(records); i++) {
                begin();
                add_pax(&maker, 'x', records[i]);
                add(&maker, '0', "file", "", NULL, 0);
                end(&maker);
                ok(read_all(&maker) < 0, "broken record %zu is refused", i);
        }
        begin();
        add_pax(&maker, 'g', "12 path=pax\n");
        add(&maker, '0', "file", "", NULL, 0);
        end(&maker);
        ok(read_all(&maker) < 0, "a path for all entries is refused");
        begin();
        add_pax(&maker, 'g', "19 comment=anything\n");
        end(&maker);
        ok(read_all(&maker) < 0, "a global record of a wrong length is refused");
        begin();
        add_pax(&maker, 'g', "20 comment=anything\n");
        add(&maker, '0', "file", "", NULL, 0);
        end(&maker);
        ok(read_all(&maker) == 1, "a global comment, as git writes it, is passed over");
        begin();
        add_pax(&maker, 'x', "12 path=pax\n");
        end(&maker);
        ok(read_all(&maker) < 0, "an extended header that describes nothing is refused");
        begin();
        unsigned char *header = add(&maker, 'x', "pax", "", NULL, 0);
        memcpy(header + 124, "77777777777", 11);
        seal(header);
        end(&maker);
        ok(read_all(&maker) < 0, "a giant extended header is refused before it is read");
}

static size_t gzip(const void *from, size_t size, unsigned char *to, size_t room) {
        z_stream z = { 0 };
        deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
        z.next_in = (Bytef *) from;
        z.avail_in = (unsigned) size;
        z.next_out = to;
        z.avail_out = (unsigned) room;
        (void) deflate(&z, Z_FINISH);
        size_t made = room - z.avail_out;
        deflateEnd(&z);
        return made;
}

static void test_compressed(void) {
        static unsigned char packed[ROOM];
        begin();
        add(&maker, '0', "one", "", "hello", 5);
        add(&maker, '0', "two", "", "hello", 5);
        end(&maker);
        size_t size = gzip(maker.bytes, maker.size, packed, ROOM);
        ok(read_bytes(packed, size, 1 << 20) == 2, "gzip is read");
        ok(read_bytes(packed, size / 2, 1 << 20) < 0, "gzip cut off is refused");
        ok(read_bytes(packed, size, 600) < 0 && err.code == ERR_LIMIT, "gzip over the bound is refused");
        size_t first = gzip(maker.bytes, 700, packed, ROOM);
        size_t both = first + gzip(maker.bytes + 700, maker.size - 700, packed + first, ROOM - first);
        ok(read_bytes(packed, both, 1 << 20) == 2, "gzip of two members is read as one");
        packed[both] = packed[both + 1] = 0;
        ok(read_bytes(packed, both + 2, 1 << 20) == 2, "zeros after gzip are padding");
        size = gzip(maker.bytes, maker.size, packed, ROOM);
        packed[size / 2] ^= 0xff;
        ok(read_bytes(packed, size, 1 << 20) < 0, "damaged gzip is refused");

        size = ZSTD_compress(packed, ROOM, maker.bytes, maker.size, 3);
        ok(read_bytes(packed, size, 1 << 20) == 2, "zstd is read");
        ok(read_bytes(packed, size - 8, 1 << 20) < 0, "zstd cut off is refused");
        ok(read_bytes(packed, size, 600) < 0 && err.code == ERR_LIMIT, "zstd over the bound is refused");
}

/* 512 MiB of zeros in a few kilobytes of zstd. */
static void test_bomb(void) {
        const size_t size = 512u << 20, room = 1 << 20;
        _cleanup_free_ unsigned char *zeros = calloc(1, size), *packed = malloc(room);
        if (!zeros || !packed) {
                ok(1, "a bomb is refused # SKIP no memory for it");
                return;
        }
        begin();
        unsigned char *header = add(&maker, '0', "zeros", "", NULL, 0);
        memcpy(header + 124, "03777770000", 11); /* a little less than 512 MiB */
        seal(header);
        memcpy(zeros, header, BLOCK);
        size_t made = ZSTD_compress(packed, room, zeros, size, 1);
        ok(!ZSTD_isError(made) && made < (1 << 18), "the bomb is small");
        ok(read_bytes(packed, made, 1ull << 40) < 0 && err.code == ERR_LIMIT && strstr(err.message, "bomb"),
           "what grows a thousand times is refused");
}

int main(void) {
        test_entries();
        test_names();
        test_malformed();
        test_extended();
        test_compressed();
        test_bomb();
        return done_testing();
}
