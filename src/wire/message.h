/* Messages between a client and the daemon, as docs/PROTOCOL.md describes them.
 *
 *   u32 size of the payload | u8 type | u8 zero | u16 request | payload
 *
 * Each side treats the other as hostile: a header is checked as soon as its eight bytes have arrived, memory grows with
 * the bytes that have arrived and not with the announced size, and the queue for sending is bounded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum message_type {
        MESSAGE_REQUEST = 1,
        MESSAGE_DATA = 2,
        MESSAGE_END = 3,
        MESSAGE_OUT = 4,
        MESSAGE_ERR = 5,
        MESSAGE_EVENT = 6,
        MESSAGE_ANSWER = 7,
        MESSAGE_TYPES
};

enum {
        MESSAGE_HEADER_SIZE = 8,
        MESSAGE_FDS_MAX = 11, /* that come along with one message */
        MESSAGE_REQUEST_MAX = 1 << 20,
        MESSAGE_DATA_MAX = 1 << 20,
        MESSAGE_OUTPUT_MAX = 1 << 20,  /* bytes of output in one OUT or ERR, beside the event number */
        MESSAGE_ANSWER_MAX = 16 << 20, /* EVENT too: results carry figures and, unless streamed, the output */
};

struct message {
        enum message_type type;
        uint16_t request;
        const char *bytes; /* borrowed from the parser until its next call; no NUL follows */
        size_t size;
};

/* The largest payload that a type may have. */
size_t message_payload_max(enum message_type type);

/* Takes OUT and ERR apart. False when the number is missing. */
bool message_get_output(const struct message *message, uint32_t *ret_number, const char **ret_bytes, size_t *ret_size);

/* ---- receiving, a piece at a time ---- */

enum message_side { MESSAGE_FROM_CLIENT, MESSAGE_FROM_DAEMON }; /* whose messages these are: decides the legal types */

struct message_parser {
        enum message_side side;
        char *bytes;
        size_t start, size, room; /* bytes[start..start+size) is not parsed yet */
        bool failed;
        bool in_pieces; /* see message_parser_take_pieces */
        size_t data_left; /* of the DATA whose pieces are being handed out */
        uint16_t data_request; /* whose it is */
};

static inline struct message_parser message_parser_make(enum message_side side) {
        return (struct message_parser) { .side = side };
}
void message_parser_release(struct message_parser *parser);

/* Takes bytes from a descriptor with one read(). Returns how many, 0 at the end of the stream, -EAGAIN, -ENOBUFS if it
 * is full (then call message_parser_next until it returns 0), -ENOMEM, -EPROTO after a malformed message, or -errno. */
long message_parser_read(struct message_parser *parser, int fd);

/* 1 and the next complete message; 0: more bytes are needed; -EPROTO: malformed, and so is all that follows. */
int message_parser_next(struct message_parser *parser, struct message *ret_message);

/* From now on a DATA message need not be whole: its payload is handed out as it arrives, as several messages of the
 * same request. A receiver that only passes the bytes on needs no memory for a megabyte of them. */
static inline void message_parser_take_pieces(struct message_parser *parser) {
        parser->in_pieces = true;
}

/* Within DATA, when nothing is buffered: reads the next piece into the caller's memory instead of the parser's. 1 and
 * the piece; 0: not within DATA, or bytes are buffered: go on with message_parser_read. -EPIPE at the end of the
 * stream, -EAGAIN, -errno. */
int message_parser_read_piece(struct message_parser *parser, int fd, void *bytes, size_t size,
                              struct message *ret_message);

/* True when the stream may end here: no message has begun. */
bool message_parser_is_between(const struct message_parser *parser);

/* ---- sending without ever blocking ---- */

struct message_block;

struct message_queue {
        size_t max; /* bytes that may wait, headers included */
        size_t size;
        const char *dir; /* for files without a name, borrowed; NULL: all of it is in memory */
        struct message_block *first, *last;
};

/* All queues with a `dir` together hold so much in memory; what exceeds it goes to files. */
enum { MESSAGE_QUEUES_MEMORY_MAX = 4 << 20 };

static inline struct message_queue message_queue_make(size_t max) {
        return (struct message_queue) { .max = max };
}
void message_queue_release(struct message_queue *queue);

/* Copies a message in. -ENOBUFS when it would pass the bound, -E2BIG for a payload that its type cannot have, -ENOMEM;
 * then nothing was put. Any other -errno: its file cannot be written, and the queue is empty now. */
int message_queue_put(struct message_queue *queue, enum message_type type, uint16_t request, const void *bytes,
                      size_t size);

/* Puts a message and sends it: what the socket takes at once is never copied, only the rest is put into the queue. As
 * with message_queue_flush, 1 means that something waits. `number` counts for OUT and ERR alone. */
int message_queue_send(struct message_queue *queue, int socket_fd, enum message_type type, uint16_t request,
                       uint32_t number, const void *bytes, size_t size);

/* The same for a payload in two parts. */
int message_queue_send_joined(struct message_queue *queue, int socket_fd, enum message_type type, uint16_t request,
                              const void *lead, size_t n_lead, const void *bytes, size_t size);

/* Sends what the socket takes. 0: all is sent; 1: the rest waits for the socket to become writable; -errno. */
int message_queue_flush(struct message_queue *queue, int socket_fd);

/* Bytes that wait. */
static inline size_t message_queue_size(const struct message_queue *queue) {
        return queue->size;
}

/* ---- for clients: blocking ---- */

/* Sends one message. 0 or -errno (-EPIPE when the daemon is gone, -E2BIG); a signal does not cut it short. */
int message_send(int socket_fd, enum message_type type, uint16_t request, const void *bytes, size_t size);

/* The same with descriptors (borrowed), whole and without waiting, or not at all: -EAGAIN. */
int message_send_fds(int socket_fd, enum message_type type, uint16_t request, const void *bytes, size_t size,
                     const int *fds, size_t n_fds);

/* As message_parser_read, with descriptors: up to *n_fds that come along are taken, and *n_fds says how many did. */
long message_parser_read_fds(struct message_parser *parser, int socket_fd, int *ret_fds, size_t *n_fds);

/* 1 and a message; 0 at a clean end; -EPROTO malformed or cut off; -EINTR when a signal came before the next byte;
 * -errno. */
int message_receive(int socket_fd, struct message_parser *parser, struct message *ret_message);
