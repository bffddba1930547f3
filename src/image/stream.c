#include "image/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/memory.h"
#include "base/units.h"
#include "image/bounds.h"

enum { CHUNK = 1 << 16 };

enum codec { CODEC_NONE, CODEC_GZIP, CODEC_ZSTD };

struct stream {
        enum codec codec;
        int fd;           /* borrowed */
        uint64_t at, end; /* of the source */
        uint64_t begin;
        uint64_t out, max_out;
        bool at_boundary; /* the compressed data may end here: a member or frame is complete */
        bool finished;
        z_stream inflate;
        ZSTD_DStream *zstd;
        ZSTD_inBuffer zstd_in;
        unsigned char chunk[CHUNK];
};

static const struct {
        const char *magic;
        size_t size;
        const char *name;
        const char *advice;
} refused[] = {
        { "\xfd"
          "7zXZ",
          5, "xz", "unxz" },
        { "BZh", 3, "bzip2", "bunzip2" },
        { "\x04\x22\x4d\x18", 4, "lz4", "unlz4" },
        { "PK\x03\x04", 4, "zip", "unzip" },
};

/* Raw bytes of the source. Returns how many came (0: the end), or -1. */
static ssize_t source_read(struct stream *stream, void *buffer, size_t size, struct err *err) {
        if (size > stream->end - stream->at)
                size = (size_t) (stream->end - stream->at);
        if (size == 0)
                return 0;
        ssize_t n;
        do
                n = pread(stream->fd, buffer, size, (off_t) stream->at);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return err_sys(err, errno, "cannot read the archive");
        if (n == 0)
                return err_set(err, ERR_PROTOCOL, "the archive became shorter while it was read");
        stream->at += (uint64_t) n;
        return n;
}

static int stream_detect_format(struct stream *stream, struct err *err) {
        unsigned char magic[8] = { 0 };
        ssize_t n = source_read(stream, magic, sizeof(magic), err);
        if (n < 0)
                return -1;
        stream->at = stream->begin;
        for (size_t i = 0; i < ELEMENTS(refused); i++)
                if ((size_t) n >= refused[i].size && memcmp(magic, refused[i].magic, refused[i].size) == 0)
                        return err_set(err, ERR_UNSUPPORTED,
                                       "the archive is compressed with %s, and only gzip and zstd are read here; "
                                       "decompress it first with %s",
                                       refused[i].name, refused[i].advice);
        if (n >= 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
                if (inflateInit2(&stream->inflate, 15 + 16) != Z_OK)
                        return err_sys(err, ENOMEM, "cannot start zlib");
                stream->codec = CODEC_GZIP;
        } else if (n >= 4 && memcmp(magic, "\x28\xb5\x2f\xfd", 4) == 0) {
                stream->zstd = ZSTD_createDStream();
                if (!stream->zstd)
                        return err_sys(err, ENOMEM, "cannot start zstd");
                stream->codec = CODEC_ZSTD;
        }
        return 0;
}

int stream_open_file(int fd, uint64_t offset, uint64_t size, uint64_t max_bytes, struct stream **ret_stream,
                     struct err *err) {
        uint64_t end;
        if (__builtin_add_overflow(offset, size, &end) || end > INT64_MAX)
                return err_set(err, ERR_PROTOCOL, "the archive claims impossible sizes");
        _cleanup_(stream_free) struct stream *stream = calloc(1, sizeof(*stream));
        if (!stream)
                return err_sys(err, ENOMEM, "cannot read the archive");
        stream->fd = fd;
        stream->begin = stream->at = offset;
        stream->end = end;
        stream->max_out = max_bytes;
        if (stream_detect_format(stream, err) < 0)
                return -1;
        *ret_stream = take_ptr(stream);
        return 0;
}

/* Some tools pad a gzip file with zeros; anything but another member after a complete one is padding. */
static bool gzip_goes_on(struct stream *stream) {
        return stream->inflate.avail_in >= 2 && stream->inflate.next_in[0] == 0x1f &&
               stream->inflate.next_in[1] == 0x8b;
}

/* Brings more compressed bytes; moves what is left to the front, so that a member's two magic bytes are seen whole. */
static int gzip_fill(struct stream *stream, struct err *err) {
        size_t left = stream->inflate.avail_in;
        memmove(stream->chunk, stream->inflate.next_in, left);
        ssize_t n = source_read(stream, stream->chunk + left, CHUNK - left, err);
        if (n < 0)
                return -1;
        stream->inflate.next_in = stream->chunk;
        stream->inflate.avail_in = (unsigned) (left + (size_t) n);
        return n > 0;
}

/* One step of decompression: returns how many bytes came out (0: call again, or `finished`), or -1. */
static ssize_t gzip_step(struct stream *stream, void *buffer, size_t size, struct err *err) {
        z_stream *z = &stream->inflate;
        if (z->avail_in < 2) {
                if (!z->next_in)
                        z->next_in = stream->chunk;
                int more = gzip_fill(stream, err);
                if (more < 0)
                        return -1;
                if (more == 0 && stream->at_boundary) {
                        stream->finished = true;
                        return 0;
                }
        }
        if (stream->at_boundary) {
                if (!gzip_goes_on(stream)) {
                        stream->finished = true;
                        return 0;
                }
                inflateReset(z);
                stream->at_boundary = false;
        }
        z->next_out = buffer;
        z->avail_out = (unsigned) size;
        int code = inflate(z, Z_NO_FLUSH);
        if (code == Z_STREAM_END)
                stream->at_boundary = true;
        else if (code == Z_BUF_ERROR) /* nothing left to put in, and nothing waiting inside to come out */
                return err_set(err, ERR_PROTOCOL, "the gzip data is cut off; fetch or make the file again");
        else if (code != Z_OK)
                return err_set(err, ERR_PROTOCOL, "the gzip data is damaged (%s); fetch or make the file again",
                               z->msg ? z->msg : "unreadable");
        return (ssize_t) (size - z->avail_out);
}

static ssize_t zstd_step(struct stream *stream, void *buffer, size_t size, struct err *err) {
        ZSTD_inBuffer *in = &stream->zstd_in;
        bool ended = false;
        if (in->pos == in->size) {
                ssize_t n = source_read(stream, stream->chunk, CHUNK, err);
                if (n < 0)
                        return -1;
                *in = (ZSTD_inBuffer) { .src = stream->chunk, .size = (size_t) n };
                ended = n == 0;
        }
        if (ended && stream->at_boundary) {
                stream->finished = true;
                return 0;
        }
        ZSTD_outBuffer to = { .dst = buffer, .size = size };
        size_t code = ZSTD_decompressStream(stream->zstd, &to, in);
        if (ZSTD_isError(code))
                return err_set(err, ERR_PROTOCOL, "the zstd data is damaged (%s); fetch or make the file again",
                               ZSTD_getErrorName(code));
        stream->at_boundary = code == 0;
        /* With no input left, output may still be waiting inside; when nothing comes out either, it is cut off. */
        if (ended && to.pos == 0 && !stream->at_boundary)
                return err_set(err, ERR_PROTOCOL, "the zstd data is cut off; fetch or make the file again");
        return (ssize_t) to.pos;
}

static int check_growth(struct stream *stream, struct err *err) {
        char most[32];
        if (stream->out > stream->max_out)
                return err_set(err, ERR_LIMIT,
                               "the archive unpacks to more than %s; raise --max-size if you trust where it comes from",
                               units_format_bytes(stream->max_out, most));
        uint64_t in = stream->at - stream->begin;
        if (stream->codec != CODEC_NONE && stream->out > BOUND_RATIO_FREE &&
            (stream->out - BOUND_RATIO_FREE) / BOUND_RATIO > in)
                return err_set(err, ERR_LIMIT,
                               "the archive grows more than %d times when decompressed, as a decompression bomb does; "
                               "decompress it by hand if you trust it, and import the tar",
                               BOUND_RATIO);
        return 0;
}

ssize_t stream_read(struct stream *stream, void *buffer, size_t size, struct err *err) {
        size_t done = 0;
        while (done < size && !stream->finished) {
                void *to = (char *) buffer + done;
                ssize_t n;
                switch (stream->codec) {
                case CODEC_GZIP:
                        n = gzip_step(stream, to, size - done, err);
                        break;
                case CODEC_ZSTD:
                        n = zstd_step(stream, to, size - done, err);
                        break;
                case CODEC_NONE:
                default:
                        n = source_read(stream, to, size - done, err);
                        stream->finished = n == 0;
                }
                if (n < 0)
                        return -1;
                done += (size_t) n;
                stream->out += (uint64_t) n;
                if (check_growth(stream, err) < 0)
                        return -1;
        }
        return (ssize_t) done;
}

int stream_skip(struct stream *stream, uint64_t size, struct err *err) {
        static const char cut[] = "the archive is cut off in the middle of an entry; fetch or make the file again";
        if (stream->codec == CODEC_NONE) {
                if (size > stream->end - stream->at)
                        return err_set(err, ERR_PROTOCOL, "%s", cut);
                stream->at += size;
                stream->out += size;
                return check_growth(stream, err);
        }
        char scratch[4096];
        while (size > 0) {
                size_t want = size < sizeof(scratch) ? (size_t) size : sizeof(scratch);
                ssize_t n = stream_read(stream, scratch, want, err);
                if (n < 0)
                        return -1;
                if ((size_t) n < want)
                        return err_set(err, ERR_PROTOCOL, "%s", cut);
                size -= want;
        }
        return 0;
}

uint64_t stream_position(const struct stream *stream) {
        return stream->out;
}

bool stream_is_compressed(const struct stream *stream) {
        return stream->codec != CODEC_NONE;
}

void stream_free(struct stream **stream) {
        if (!*stream)
                return;
        if ((*stream)->codec == CODEC_GZIP)
                inflateEnd(&(*stream)->inflate);
        ZSTD_freeDStream((*stream)->zstd);
        free(*stream);
        *stream = NULL;
}
