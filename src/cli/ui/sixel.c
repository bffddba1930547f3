#include "cli/ui/sixel.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/memory.h"

enum { SIDE_MAX = 4096, LEVELS = 6, COLOURS = LEVELS * LEVELS * LEVELS, BAND = 6 };

/* ---- PNG ---- */

struct picture {
        uint32_t width, height;
        unsigned channels; /* 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA */
        uint8_t *rows;     /* each with its filter byte before it */
        size_t row_size;   /* without that byte */
};

static uint32_t read_u32(const uint8_t *at) {
        return (uint32_t) at[0] << 24 | (uint32_t) at[1] << 16 | (uint32_t) at[2] << 8 | at[3];
}

static bool sixel_read_header(const uint8_t *data, struct picture *picture) {
        static const unsigned channels[] = { [0] = 1, [2] = 3, [4] = 2, [6] = 4 };
        picture->width = read_u32(data);
        picture->height = read_u32(data + 4);
        uint8_t kind = data[9];
        if (picture->width == 0 || picture->height == 0 || picture->width > SIDE_MAX || picture->height > SIDE_MAX ||
            data[8] != 8 || kind > 6 || !channels[kind] || data[10] || data[11] || data[12])
                return false;
        picture->channels = channels[kind];
        picture->row_size = (size_t) picture->width * picture->channels;
        picture->rows = malloc((picture->row_size + 1) * picture->height);
        return picture->rows != NULL;
}

/* All IDAT chunks are one stream; what they hold is exactly the rows. */
static bool inflate_rows(const uint8_t *png, size_t size, struct picture *picture) {
        z_stream stream = { 0 };
        size_t room = (picture->row_size + 1) * picture->height;
        int code = Z_OK;
        if (inflateInit(&stream) != Z_OK)
                return false;
        stream.next_out = picture->rows;
        stream.avail_out = (uInt) room;
        for (size_t at = 8; at + 12 <= size && code == Z_OK;) {
                uint32_t length = read_u32(png + at);
                if (length > size - at - 12)
                        break;
                if (memcmp(png + at + 4, "IDAT", 4) == 0) {
                        stream.next_in = (Bytef *) (uintptr_t) (png + at + 8);
                        stream.avail_in = length;
                        code = inflate(&stream, Z_NO_FLUSH);
                }
                at += 12 + (size_t) length;
        }
        bool good = stream.avail_out == 0 && (code == Z_STREAM_END || code == Z_OK || code == Z_BUF_ERROR);
        (void) inflateEnd(&stream);
        return good;
}

static uint8_t paeth(int left, int up, int corner) {
        int guess = left + up - corner, a = abs(guess - left), b = abs(guess - up), c = abs(guess - corner);
        return (uint8_t) (a <= b && a <= c ? left : b <= c ? up : corner);
}

static bool unfilter(struct picture *picture) {
        unsigned step = picture->channels;
        for (uint32_t y = 0; y < picture->height; y++) {
                uint8_t *row = picture->rows + y * (picture->row_size + 1), filter = row[0];
                const uint8_t *above = y ? row - picture->row_size : NULL;
                if (filter > 4)
                        return false;
                row++;
                for (size_t x = 0; x < picture->row_size; x++) {
                        int left = x >= step ? row[x - step] : 0, up = above ? above[x] : 0;
                        int corner = above && x >= step ? above[x - step] : 0;
                        const int add[] = { 0, left, up, (left + up) / 2, paeth(left, up, corner) };
                        row[x] = (uint8_t) (row[x] + add[filter]);
                }
        }
        return true;
}

/* ---- sixels ---- */

/* The colour of a pixel in a cube of six levels, on white. */
static unsigned colour_of(const struct picture *picture, uint32_t x, uint32_t y) {
        const uint8_t *pixel = picture->rows + y * (picture->row_size + 1) + 1 + (size_t) x * picture->channels;
        bool grey = picture->channels < 3;
        unsigned alpha = picture->channels % 2 ? 255 : pixel[picture->channels - 1], colour = 0;
        for (unsigned i = 0; i < 3; i++) {
                unsigned value = (pixel[grey ? 0 : i] * alpha + 255 * (255 - alpha)) / 255;
                colour = colour * LEVELS + (value * (LEVELS - 1) + 127) / 255;
        }
        return colour;
}

/* One colour of a band of six rows, runs shortened. Nothing is written where the band has none of it. */
static void put_colour(FILE *file, const uint8_t *colours, uint32_t width, unsigned rows, unsigned colour) {
        bool found = false;
        for (size_t i = 0; i < (size_t) width * rows && !found; i++)
                found = colours[i] == colour;
        if (!found)
                return;
        (void) fprintf(file, "#%u", colour);
        for (uint32_t x = 0, run = 0, last = 0; x <= width; x++) {
                uint32_t bits = 0;
                for (unsigned y = 0; x < width && y < rows; y++)
                        bits |= (uint32_t) (colours[(size_t) y * width + x] == colour) << y;
                if (x < width && (x == 0 || bits == last)) {
                        run++;
                } else {
                        if (run > 3)
                                (void) fprintf(file, "!%u%c", run, (int) (63 + last));
                        else
                                for (; run > 0; run--)
                                        (void) fputc((int) (63 + last), file);
                        run = 1;
                }
                last = bits;
        }
        (void) fputc('$', file);
}

static void put_picture(FILE *file, const struct picture *picture, uint8_t *band) {
        (void) fprintf(file, "\033Pq\"1;1;%u;%u", picture->width, picture->height);
        for (unsigned i = 0; i < COLOURS; i++)
                (void) fprintf(file, "#%u;2;%u;%u;%u", i, i / (LEVELS * LEVELS) * 20, i / LEVELS % LEVELS * 20,
                               i % LEVELS * 20);
        for (uint32_t top = 0; top < picture->height; top += BAND) {
                unsigned rows = picture->height - top < BAND ? picture->height - top : BAND;
                for (unsigned y = 0; y < rows; y++)
                        for (uint32_t x = 0; x < picture->width; x++)
                                band[(size_t) y * picture->width + x] = (uint8_t) colour_of(picture, x, top + y);
                for (unsigned colour = 0; colour < COLOURS; colour++)
                        put_colour(file, band, picture->width, rows, colour);
                (void) fputc('-', file);
        }
        (void) fputs("\033\\", file);
}

char *sixel_from_png(const uint8_t *png, size_t size) {
        static const uint8_t mark[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
        struct picture picture = { 0 };
        char *text = NULL;
        size_t text_size = 0;
        if (size < 33 || memcmp(png, mark, sizeof(mark)) != 0 || memcmp(png + 12, "IHDR", 4) != 0 ||
            read_u32(png + 8) != 13 || !sixel_read_header(png + 16, &picture))
                return NULL;
        _cleanup_free_ uint8_t *rows = picture.rows, *band = malloc((size_t) picture.width * BAND);
        if (!band || !inflate_rows(png, size, &picture) || !unfilter(&picture))
                return NULL;
        FILE *file = open_memstream(&text, &text_size);
        if (!file)
                return NULL;
        put_picture(file, &picture, band);
        (void) rows;
        if (fclose(file) == 0)
                return text;
        free(text);
        return NULL;
}
