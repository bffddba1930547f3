#include "wire/message.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"

enum {
        NUMBER_SIZE = 4,
        READ_STEP = 64 << 10,  /* what one read asks for beside the rest of the message that has begun */
        BLOCK_SIZE = 16 << 10, /* small messages share a block, so that many of them leave with one system call */
        PARTS_MAX = 64,
};

static const struct {
        size_t payload_max;
        bool of_client, of_daemon;
} types[MESSAGE_TYPES] = {
        [MESSAGE_REQUEST] = { MESSAGE_REQUEST_MAX, true, false },
        [MESSAGE_DATA] = { MESSAGE_DATA_MAX, true, true },
        [MESSAGE_END] = { 0, true, true },
        [MESSAGE_OUT] = { NUMBER_SIZE + MESSAGE_OUTPUT_MAX, false, true },
        [MESSAGE_ERR] = { NUMBER_SIZE + MESSAGE_OUTPUT_MAX, false, true },
        [MESSAGE_EVENT] = { MESSAGE_ANSWER_MAX, false, true },
        [MESSAGE_ANSWER] = { MESSAGE_ANSWER_MAX, false, true },
};

size_t message_payload_max(enum message_type type) {
        return type < MESSAGE_TYPES ? types[type].payload_max : 0;
}

bool message_get_output(const struct message *message, uint32_t *ret_number, const char **ret_bytes, size_t *ret_size) {
        uint32_t number;
        if (message->size < sizeof(number))
                return false;
        memcpy(&number, message->bytes, sizeof(number));
        *ret_number = le32toh(number);
        *ret_bytes = message->bytes + sizeof(number);
        *ret_size = message->size - sizeof(number);
        return true;
}

/* ---- headers ---- */

static void header_write(unsigned char header[static MESSAGE_HEADER_SIZE], enum message_type type, uint16_t request,
                         size_t size) {
        uint32_t size_le = htole32((uint32_t) size);
        uint16_t request_le = htole16(request);
        memcpy(header, &size_le, 4);
        header[4] = (unsigned char) type;
        header[5] = 0;
        memcpy(header + 6, &request_le, 2);
}

/* False for what this side may not send. */
static bool header_read(enum message_side side, const char *header, struct message *ret_message) {
        uint32_t size;
        uint16_t request;
        memcpy(&size, header, 4);
        memcpy(&request, header + 6, 2);
        size = le32toh(size);
        unsigned type = (unsigned char) header[4];
        if (header[5] != 0 || type >= MESSAGE_TYPES || size > types[type].payload_max)
                return false;
        if (!(side == MESSAGE_FROM_CLIENT ? types[type].of_client : types[type].of_daemon))
                return false;
        *ret_message = (struct message) { .type = (enum message_type) type, .request = le16toh(request), .size = size };
        return true;
}

/* ---- receiving ---- */

void message_parser_release(struct message_parser *parser) {
        bool in_pieces = parser->in_pieces;
        free(parser->bytes);
        *parser = message_parser_make(parser->side);
        parser->in_pieces = in_pieces;
}

bool message_parser_is_between(const struct message_parser *parser) {
        return parser->size == 0 && parser->data_left == 0 && !parser->failed;
}

/* How many bytes may come in now: the rest of the message that has begun, and one step. 0 when one is complete and
 * waits to be taken and a step is there already. */
static size_t parser_read_size(struct message_parser *parser) {
        size_t wanted = READ_STEP;
        struct message message;
        if (parser->data_left == 0 && parser->size >= MESSAGE_HEADER_SIZE &&
            header_read(parser->side, parser->bytes + parser->start, &message) &&
            !(parser->in_pieces && message.type == MESSAGE_DATA))
                wanted += MESSAGE_HEADER_SIZE + message.size;
        return parser->size < wanted ? wanted - parser->size : 0;
}

/* Room for at least one more byte and at most `wanted`; doubles, so that memory follows what has really arrived. */
static int parser_make_room(struct message_parser *parser, size_t wanted) {
        if (parser->size == 0 && parser->room > READ_STEP) { /* one large message does not stay for ever */
                free(parser->bytes);
                parser->bytes = NULL;
                parser->room = 0;
        }
        if (parser->start > 0 && parser->size > 0)
                memmove(parser->bytes, parser->bytes + parser->start, parser->size);
        parser->start = 0;
        size_t needed = parser->size + wanted;
        if (needed > READ_STEP && needed > 2 * parser->size)
                needed = 2 * parser->size > READ_STEP ? 2 * parser->size : READ_STEP;
        if (needed <= parser->room)
                return 0;
        char *grown = realloc(parser->bytes, needed);
        if (!grown)
                return -ENOMEM;
        parser->bytes = grown;
        parser->room = needed;
        return 0;
}

/* Ready to take bytes at bytes + size; returns how many, or -errno. */
static long message_prepare(struct message_parser *parser) {
        if (parser->failed)
                return -EPROTO;
        size_t wanted = parser_read_size(parser);
        if (wanted == 0)
                return 0;
        int code = parser_make_room(parser, wanted);
        if (code < 0)
                return code;
        size_t free_bytes = parser->room - parser->size;
        return (long) (free_bytes < wanted ? free_bytes : wanted);
}

long message_parser_read(struct message_parser *parser, int fd) {
        long room = message_prepare(parser);
        if (room <= 0)
                return room < 0 ? room : -ENOBUFS;
        ssize_t n = read(fd, parser->bytes + parser->size, (size_t) room);
        if (n < 0)
                return -errno;
        parser->size += (size_t) n;
        return (long) n;
}

int message_parser_read_piece(struct message_parser *parser, int fd, void *bytes, size_t size,
                              struct message *ret_message) {
        if (parser->failed || parser->data_left == 0 || parser->size > 0)
                return 0;
        ssize_t n = read(fd, bytes, size < parser->data_left ? size : parser->data_left);
        if (n <= 0)
                return n < 0 ? -errno : -EPIPE;
        parser->data_left -= (size_t) n;
        *ret_message = (struct message) { MESSAGE_DATA, parser->data_request, bytes, (size_t) n };
        return 1;
}

/* The buffered bytes of the DATA that has begun. */
static int next_piece(struct message_parser *parser, struct message *ret_message) {
        size_t size = parser->size < parser->data_left ? parser->size : parser->data_left;
        if (size == 0)
                return 0;
        *ret_message = (struct message) { MESSAGE_DATA, parser->data_request, parser->bytes + parser->start, size };
        parser->start += size;
        parser->size -= size;
        parser->data_left -= size;
        return 1;
}

int message_parser_next(struct message_parser *parser, struct message *ret_message) {
        if (parser->failed)
                return -EPROTO;
        if (parser->data_left > 0)
                return next_piece(parser, ret_message);
        if (parser->size < MESSAGE_HEADER_SIZE)
                return 0;
        struct message message;
        if (!header_read(parser->side, parser->bytes + parser->start, &message)) {
                parser->failed = true;
                return -EPROTO;
        }
        if (parser->in_pieces && message.type == MESSAGE_DATA && message.size > 0) {
                parser->start += MESSAGE_HEADER_SIZE;
                parser->size -= MESSAGE_HEADER_SIZE;
                parser->data_left = message.size;
                parser->data_request = message.request;
                return next_piece(parser, ret_message);
        }
        if (parser->size - MESSAGE_HEADER_SIZE < message.size)
                return 0;
        message.bytes = parser->bytes + parser->start + MESSAGE_HEADER_SIZE;
        parser->start += MESSAGE_HEADER_SIZE + message.size;
        parser->size -= MESSAGE_HEADER_SIZE + message.size;
        *ret_message = message;
        return 1;
}

/* ---- the queue ---- */

struct message_block {
        struct message_block *next;
        size_t start, end, room; /* bytes[start..end) waits, or the same part of the file */
        int fd; /* -1: it is in memory */
        bool is_counted;
        char bytes[];
};

static size_t counted; /* bytes of memory of queues that have a directory */

static void drop_first(struct message_queue *queue) {
        struct message_block *block = queue->first;
        queue->first = block->next;
        if (!queue->first)
                queue->last = NULL;
        if (block->is_counted)
                counted -= block->room;
        fd_close(&block->fd);
        free(block);
}

void message_queue_release(struct message_queue *queue) {
        while (queue->first)
                drop_first(queue);
        queue->size = 0;
}

/* Without a file it is in memory: the bound of the queue counts in any case. */
static struct message_block *block_make(const struct message_queue *queue, size_t size) {
        size_t room = size > BLOCK_SIZE ? size : BLOCK_SIZE;
        bool is_past = queue->dir && counted + room > MESSAGE_QUEUES_MEMORY_MAX;
        int fd = is_past ? open(queue->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
        struct message_block *block = malloc(sizeof(*block) + (fd < 0 ? room : 0));
        if (!block) {
                fd_close(&fd);
                return NULL;
        }
        *block = (struct message_block) { .room = room, .fd = fd, .is_counted = queue->dir && fd < 0 };
        counted += block->is_counted ? room : 0;
        return block;
}

/* The block that takes this many bytes in a row. */
static struct message_block *block_for(struct message_queue *queue, size_t size) {
        struct message_block *last = queue->last;
        if (last && (last->fd >= 0 || last->room - last->end >= size))
                return last;
        struct message_block *block = block_make(queue, size);
        if (!block)
                return NULL;
        if (last)
                last->next = block;
        else
                queue->first = block;
        queue->last = block;
        return block;
}

static int message_append(struct message_block *block, const void *bytes, size_t size) {
        if (size > 0 && block->fd >= 0) {
                int code = fd_write_all(block->fd, bytes, size);
                if (code < 0)
                        return code;
        } else if (size > 0)
                memcpy(block->bytes + block->end, bytes, size);
        block->end += size;
        return 0;
}

/* -errno when this message may not be sent, or not now. */
static int check_put(const struct message_queue *queue, enum message_type type, size_t n_lead, size_t size) {
        size_t payload_max = message_payload_max(type);
        if (type < MESSAGE_REQUEST || type >= MESSAGE_TYPES || size > payload_max || n_lead > payload_max - size)
                return -E2BIG;
        size_t whole = MESSAGE_HEADER_SIZE + n_lead + size;
        return queue->size > queue->max || whole > queue->max - queue->size ? -ENOBUFS : 0;
}

/* Copies bytes in that belong together. */
static int put_parts(struct message_queue *queue, const struct iovec *parts, size_t n_parts) {
        size_t whole = 0;
        for (size_t i = 0; i < n_parts; i++)
                whole += parts[i].iov_len;
        struct message_block *block = block_for(queue, whole);
        if (!block)
                return -ENOMEM;
        for (size_t i = 0; i < n_parts; i++) {
                int code = message_append(block, parts[i].iov_base, parts[i].iov_len);
                if (code < 0) { /* half a message may not leave */
                        message_queue_release(queue);
                        return code;
                }
        }
        queue->size += whole;
        return 0;
}

int message_queue_put(struct message_queue *queue, enum message_type type, uint16_t request, const void *bytes,
                      size_t size) {
        int code = check_put(queue, type, 0, size);
        if (code < 0)
                return code;
        unsigned char header[MESSAGE_HEADER_SIZE];
        header_write(header, type, request, size);
        const struct iovec parts[] = { { header, sizeof(header) }, { (void *) (uintptr_t) bytes, size } };
        return put_parts(queue, parts, 2);
}

static void queue_consume(struct message_queue *queue, size_t sent) {
        queue->size -= sent;
        while (queue->first) {
                struct message_block *block = queue->first;
                size_t step = sent < block->end - block->start ? sent : block->end - block->start;
                block->start += step;
                sent -= step;
                if (block->start < block->end)
                        break;
                drop_first(queue);
        }
}

/* Takes sent bytes off the front of the parts. */
static void message_advance(struct iovec *parts, size_t n_parts, size_t sent) {
        for (size_t i = 0; i < n_parts; i++) {
                size_t step = sent < parts[i].iov_len ? sent : parts[i].iov_len;
                parts[i].iov_base = (char *) parts[i].iov_base + step;
                parts[i].iov_len -= step;
                sent -= step;
        }
}

int message_queue_send_joined(struct message_queue *queue, int socket_fd, enum message_type type, uint16_t request,
                              const void *lead, size_t n_lead, const void *bytes, size_t size) {
        int code = check_put(queue, type, n_lead, size);
        if (code < 0)
                return code;
        enum { PARTS = 3 };
        unsigned char header[MESSAGE_HEADER_SIZE];
        header_write(header, type, request, n_lead + size);
        struct iovec parts[PARTS] = { { header, sizeof(header) },
                                      { (void *) (uintptr_t) lead, n_lead },
                                      { (void *) (uintptr_t) bytes, size } };
        size_t left = sizeof(header) + n_lead + size;
        while (left > 0 && !queue->first) {
                struct msghdr envelope = { .msg_iov = parts, .msg_iovlen = PARTS };
                ssize_t n = sendmsg(socket_fd, &envelope, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno != EAGAIN)
                        return -errno;
                if (n < 0)
                        break;
                left -= (size_t) n;
                message_advance(parts, PARTS, (size_t) n);
        }
        if (left == 0)
                return 0;
        bool waited = queue->first != NULL;
        code = put_parts(queue, parts, PARTS);
        /* Behind others: they may be able to leave by now. */
        return code < 0 ? code : waited ? message_queue_flush(queue, socket_fd) : 1;
}

int message_queue_send(struct message_queue *queue, int socket_fd, enum message_type type, uint16_t request,
                       uint32_t number, const void *bytes, size_t size) {
        uint32_t number_le = htole32(number);
        size_t n_lead = type == MESSAGE_OUT || type == MESSAGE_ERR ? sizeof(number_le) : 0;
        return message_queue_send_joined(queue, socket_fd, type, request, &number_le, n_lead, bytes, size);
}

/* The next bytes to send: the blocks in memory, or a piece of the first one's file. Their number, or -errno. */
static ssize_t next_parts(const struct message_queue *queue, struct iovec *ret_parts) {
        static char piece[READ_STEP]; /* one thread, one user at a time */
        const struct message_block *at = queue->first;
        size_t n = 0;
        if (at->fd >= 0) {
                size_t size = at->end - at->start < sizeof(piece) ? at->end - at->start : sizeof(piece);
                ssize_t got = fd_read_at(at->fd, piece, size, at->start);
                ret_parts[0] = (struct iovec) { piece, size };
                return got < 0 ? got : (size_t) got == size ? 1 : -EIO;
        }
        for (; at && at->fd < 0 && n < PARTS_MAX; at = at->next)
                ret_parts[n++] = (struct iovec) { (char *) at->bytes + at->start, at->end - at->start };
        return (ssize_t) n;
}

int message_queue_flush(struct message_queue *queue, int socket_fd) {
        while (queue->first) {
                struct iovec parts[PARTS_MAX];
                ssize_t n_parts = next_parts(queue, parts);
                if (n_parts < 0)
                        return (int) n_parts;
                struct msghdr envelope = { .msg_iov = parts, .msg_iovlen = (size_t) n_parts };
                /* writev() with the two things it lacks: no SIGPIPE, and no blocking whatever the socket's mode is */
                ssize_t n = sendmsg(socket_fd, &envelope, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return errno == EAGAIN ? 1 : -errno;
                queue_consume(queue, (size_t) n);
        }
        return 0;
}

/* ---- for clients ---- */

int message_send_fds(int socket_fd, enum message_type type, uint16_t request, const void *bytes, size_t size,
                     const int *fds, size_t n_fds) {
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int) * MESSAGE_FDS_MAX)];
        } control = { 0 };
        if (type < MESSAGE_REQUEST || size > message_payload_max(type) || n_fds == 0 || n_fds > MESSAGE_FDS_MAX)
                return -E2BIG;
        unsigned char header[MESSAGE_HEADER_SIZE];
        header_write(header, type, request, size);
        struct iovec parts[2] = { { header, sizeof(header) }, { (void *) (uintptr_t) bytes, size } };
        struct msghdr envelope = { .msg_iov = parts,
                                   .msg_iovlen = 2,
                                   .msg_control = control.bytes,
                                   .msg_controllen = CMSG_SPACE(sizeof(int) * n_fds) };
        struct cmsghdr *head = CMSG_FIRSTHDR(&envelope);
        *head = (struct cmsghdr) { .cmsg_level = SOL_SOCKET,
                                   .cmsg_type = SCM_RIGHTS,
                                   .cmsg_len = CMSG_LEN(sizeof(int) * n_fds) };
        memcpy(CMSG_DATA(head), fds, sizeof(int) * n_fds);
        ssize_t n;
        while ((n = sendmsg(socket_fd, &envelope, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 && errno == EINTR)
                ;
        return n < 0 ? -errno : (size_t) n < sizeof(header) + size ? -EAGAIN : 0;
}

long message_parser_read_fds(struct message_parser *parser, int socket_fd, int *ret_fds, size_t *n_fds) {
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int) * MESSAGE_FDS_MAX)];
        } control;
        size_t n_room = *n_fds;
        *n_fds = 0;
        long room = message_prepare(parser);
        if (room <= 0)
                return room < 0 ? room : -ENOBUFS;
        struct iovec part = { parser->bytes + parser->size, (size_t) room };
        struct msghdr envelope = {
                .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)
        };
        ssize_t n = recvmsg(socket_fd, &envelope, MSG_CMSG_CLOEXEC);
        if (n < 0)
                return -errno;
        const struct cmsghdr *head = envelope.msg_controllen ? CMSG_FIRSTHDR(&envelope) : NULL;
        if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
                int fds[MESSAGE_FDS_MAX];
                size_t n_came = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                memcpy(fds, CMSG_DATA(head), n_came * sizeof(int));
                for (size_t i = 0; i < n_came; i++)
                        if (i < n_room)
                                ret_fds[(*n_fds)++] = fds[i];
                        else
                                (void) close(fds[i]);
        }
        parser->size += (size_t) n;
        return (long) n;
}

int message_send(int socket_fd, enum message_type type, uint16_t request, const void *bytes, size_t size) {
        if (type < MESSAGE_REQUEST || size > message_payload_max(type))
                return -E2BIG;
        unsigned char header[MESSAGE_HEADER_SIZE];
        header_write(header, type, request, size);
        struct iovec parts[2] = { { header, sizeof(header) }, { (void *) (uintptr_t) bytes, size } };
        struct msghdr envelope = { .msg_iov = parts, .msg_iovlen = 2 };
        size_t left = sizeof(header) + size;
        while (left > 0) {
                ssize_t n = sendmsg(socket_fd, &envelope, MSG_NOSIGNAL);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                left -= (size_t) n;
                message_advance(parts, 2, (size_t) n);
        }
        return 0;
}

int message_receive(int socket_fd, struct message_parser *parser, struct message *ret_message) {
        for (;;) {
                int code = message_parser_next(parser, ret_message);
                if (code != 0)
                        return code;
                long n = message_parser_read(parser, socket_fd);
                if (n < 0)
                        return (int) n;
                if (n == 0)
                        return message_parser_is_between(parser) ? 0 : -EPROTO;
        }
}
