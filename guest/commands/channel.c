#include "channel.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

enum { REQUESTS_FD = 3, REPLIES_FD = 4, HEADER = 8, PIECE_HEAD = 12, REQUEST_MAX = 32 << 20 };

bool channel_open(void) {
        return fcntl(REQUESTS_FD, F_SETFD, FD_CLOEXEC) == 0 && fcntl(REPLIES_FD, F_SETFD, FD_CLOEXEC) == 0;
}

static int receive_one(struct channel_frame *ret_frame) {
        unsigned char header[HEADER];
        uint32_t size;
        int code = fd_read_exactly(REQUESTS_FD, header, sizeof(header));
        if (code < 0)
                return code == -ENODATA ? 0 : -1;
        memcpy(&size, header, sizeof(size));
        size = le32toh(size);
        if (size > REQUEST_MAX || header[5] || header[6] || header[7])
                return -1;
        char *payload = malloc((size_t) size + 1);
        if (!payload || (size > 0 && fd_read_exactly(REQUESTS_FD, payload, size) < 0)) {
                free(payload);
                return -1;
        }
        *ret_frame = (struct channel_frame) { header[4], payload, size };
        return 1;
}

static uint32_t channel_number_at(const char *at) {
        uint32_t number;
        memcpy(&number, at, sizeof(number));
        return le32toh(number);
}

/* Adds a piece to *whole. A first piece starts over: the last host may have died in between. 1: complete. */
static int add_piece(const struct channel_frame *piece, struct channel_frame *whole, size_t *got) {
        if (piece->size < PIECE_HEAD)
                return -1;
        uint32_t size = channel_number_at(piece->payload), offset = channel_number_at(piece->payload + 4);
        size_t more = piece->size - PIECE_HEAD;
        if (offset == 0) {
                free(whole->payload);
                *whole = (struct channel_frame) { (uint8_t) channel_number_at(piece->payload + 8), NULL, size };
                *got = 0;
                if (size > REQUEST_MAX || !(whole->payload = malloc((size_t) size + 1)))
                        return -1;
        }
        if (!whole->payload || offset != *got || size != whole->size || more > whole->size - *got)
                return -1;
        memcpy(whole->payload + *got, piece->payload + PIECE_HEAD, more);
        *got += more;
        return *got == whole->size;
}

int channel_receive(struct channel_frame *ret_frame) {
        struct channel_frame whole = { 0 };
        size_t got = 0;
        for (;;) {
                struct channel_frame frame;
                int code = receive_one(&frame);
                if (code == 1 && frame.type != CHANNEL_PIECE) {
                        free(whole.payload);
                        *ret_frame = frame;
                        return 1;
                }
                if (code == 1) {
                        code = add_piece(&frame, &whole, &got);
                        free(frame.payload);
                        if (code == 1) {
                                *ret_frame = whole;
                                return 1;
                        }
                        if (code == 0)
                                continue;
                }
                free(whole.payload);
                return code;
        }
}

void channel_send(enum channel_type type, const void *payload, size_t size) {
        unsigned char header[HEADER] = { 0 };
        uint32_t size_le = htole32((uint32_t) size);
        memcpy(header, &size_le, sizeof(size_le));
        header[4] = (unsigned char) type;
        if (fd_write_all(REPLIES_FD, header, sizeof(header)) == 0 && size > 0)
                (void) fd_write_all(REPLIES_FD, payload, size);
}

void channel_send_json(enum channel_type type, json_t *payload) {
        char *text = payload ? json_dumps(payload, JSON_COMPACT) : NULL;
        if (text)
                channel_send(type, text, strlen(text));
        free(text);
        json_decref(payload);
}
