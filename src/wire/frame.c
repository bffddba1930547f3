#include "wire/frame.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/memory.h"

/* ---- sending ---- */

static bool writer_make_room(struct frame_writer *writer, size_t size) {
        if (writer->size + size <= writer->room)
                return true;
        size_t room = writer->room ? writer->room : 512;
        while (room < writer->size + size)
                room *= 2;
        char *grown = realloc(writer->bytes, room);
        if (!grown)
                return false;
        writer->bytes = grown;
        writer->room = room;
        return true;
}

static void frame_put(struct frame_writer *writer, const void *bytes, size_t size) {
        if (writer->failed)
                return;
        if (size > FRAME_PAYLOAD_MAX - writer->size || !writer_make_room(writer, size)) {
                writer->failed = true;
                return;
        }
        memcpy(writer->bytes + writer->size, bytes, size);
        writer->size += size;
}

void frame_put_u32(struct frame_writer *writer, uint32_t value) {
        value = htole32(value);
        frame_put(writer, &value, sizeof(value));
}

void frame_put_u64(struct frame_writer *writer, uint64_t value) {
        value = htole64(value);
        frame_put(writer, &value, sizeof(value));
}

void frame_put_text(struct frame_writer *writer, const char *text) {
        size_t size = strlen(text);
        if (size > FRAME_PAYLOAD_MAX) {
                writer->failed = true;
                return;
        }
        frame_put_u32(writer, (uint32_t) size);
        frame_put(writer, text, size);
}

void frame_put_texts(struct frame_writer *writer, char *const *texts) {
        uint32_t count = 0;
        while (texts && texts[count])
                count++;
        if (count > FRAME_TEXTS_MAX)
                writer->failed = true;
        frame_put_u32(writer, count);
        for (uint32_t i = 0; i < count; i++)
                frame_put_text(writer, texts[i]);
}

void frame_put_fields(struct frame_writer *writer, const struct frame_writer *fields) {
        if (fields->failed)
                writer->failed = true;
        else if (fields->size > 0)
                frame_put(writer, fields->bytes, fields->size);
}

char *frame_begin_bytes(struct frame_writer *writer, size_t max) {
        frame_put_u32(writer, 0);
        if (writer->failed || max > FRAME_PAYLOAD_MAX - writer->size || !writer_make_room(writer, max)) {
                writer->failed = true;
                return NULL;
        }
        writer->size += max;
        return writer->bytes + writer->size - max;
}

void frame_end_bytes(struct frame_writer *writer, size_t max, size_t size) {
        if (writer->failed)
                return;
        uint32_t size_le = htole32((uint32_t) size);
        writer->size -= max - size;
        memcpy(writer->bytes + writer->size - size - sizeof(size_le), &size_le, sizeof(size_le));
}

void frame_writer_release(struct frame_writer *writer) {
        free(writer->bytes);
        *writer = (struct frame_writer) { 0 };
}

void frame_make_header(unsigned char ret_header[static FRAME_HEADER_SIZE], enum frame_type type, uint32_t id,
                       size_t size) {
        uint32_t size_le = htole32((uint32_t) size), id_le = htole32(id);
        uint16_t type_le = htole16((uint16_t) type);
        memset(ret_header, 0, FRAME_HEADER_SIZE);
        memcpy(ret_header, &size_le, 4);
        memcpy(ret_header + 4, &type_le, 2);
        memcpy(ret_header + 8, &id_le, 4);
}

int frame_send(int socket_fd, enum frame_type type, uint32_t id, const struct frame_writer *payload, const int *fds,
               size_t n_fds) {
        if (payload && payload->failed)
                return -E2BIG;
        if (n_fds > FRAME_FDS_MAX)
                return -EINVAL;
        size_t size = payload ? payload->size : 0;
        unsigned char header[FRAME_HEADER_SIZE];
        frame_make_header(header, type, id, size);
        struct iovec parts[2] = { { header, sizeof(header) }, { payload ? payload->bytes : NULL, size } };
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int) * FRAME_FDS_MAX)];
        } control = { 0 };
        struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
        if (n_fds) {
                message.msg_control = control.bytes;
                message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
                struct cmsghdr *head = CMSG_FIRSTHDR(&message);
                head->cmsg_level = SOL_SOCKET;
                head->cmsg_type = SCM_RIGHTS;
                head->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
                memcpy(CMSG_DATA(head), fds, sizeof(int) * n_fds);
        }
        size_t left = sizeof(header) + size;
        while (left > 0) {
                ssize_t n = sendmsg(socket_fd, &message, MSG_NOSIGNAL);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                left -= (size_t) n;
                message.msg_control = NULL; /* descriptors travel with the first byte, once */
                message.msg_controllen = 0;
                for (size_t i = 0; i < 2 && n > 0; i++) {
                        size_t step = (size_t) n < parts[i].iov_len ? (size_t) n : parts[i].iov_len;
                        parts[i].iov_base = (char *) parts[i].iov_base + step;
                        parts[i].iov_len -= step;
                        n -= (ssize_t) step;
                }
        }
        return 0;
}

/* ---- receiving ---- */

void frame_release(struct frame *frame) {
        for (size_t i = 0; i < frame->n_fds; i++)
                fd_close(&frame->fds[i]);
        free(frame->payload);
        *frame = (struct frame) { 0 };
}

static void keep_descriptors(struct msghdr *message, struct frame *frame) {
        for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
                if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
                        continue;
                size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                for (size_t i = 0; i < count; i++) {
                        int fd;
                        memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
                        if (frame->n_fds < FRAME_FDS_MAX)
                                frame->fds[frame->n_fds++] = fd;
                        else
                                (void) close(fd);
                }
        }
}

/* One recvmsg; descriptors travel with a frame's first bytes, and are not wanted anywhere else. */
static ssize_t frame_receive_bytes(int socket_fd, int flags, void *bytes, size_t size, struct frame *with_descriptors) {
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int) * FRAME_FDS_MAX)];
        } control;
        struct iovec part = { bytes, size };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
        if (with_descriptors) {
                message.msg_control = control.bytes;
                message.msg_controllen = sizeof(control.bytes);
        }
        ssize_t n;
        do
                n = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC | flags);
        while (n < 0 && errno == EINTR);
        if (n > 0 && with_descriptors)
                keep_descriptors(&message, with_descriptors);
        return n < 0 ? -errno : n;
}

static int frame_read_header(struct frame_inbox *inbox) {
        struct frame *frame = &inbox->frame;
        uint16_t zero;
        memcpy(&frame->size, inbox->header, 4);
        memcpy(&frame->type, inbox->header + 4, 2);
        memcpy(&zero, inbox->header + 6, 2);
        memcpy(&frame->id, inbox->header + 8, 4);
        frame->size = le32toh(frame->size);
        frame->type = le16toh(frame->type);
        frame->id = le32toh(frame->id);
        if (zero != 0 || frame->size > FRAME_PAYLOAD_MAX)
                return -EPROTO;
        frame->payload = malloc((size_t) frame->size + 1);
        if (!frame->payload)
                return -ENOMEM;
        frame->payload[frame->size] = '\0';
        return 0;
}

int frame_inbox_receive(struct frame_inbox *inbox, int socket_fd, int flags, struct frame *ret_frame) {
        struct frame *frame = &inbox->frame;
        int code = 0;
        while (code == 0 && (inbox->header_size < FRAME_HEADER_SIZE || inbox->payload_size < frame->size)) {
                bool in_header = inbox->header_size < FRAME_HEADER_SIZE;
                ssize_t n = in_header ? frame_receive_bytes(socket_fd, flags, inbox->header + inbox->header_size,
                                                            FRAME_HEADER_SIZE - inbox->header_size, frame)
                                      : frame_receive_bytes(socket_fd, flags, frame->payload + inbox->payload_size,
                                                            frame->size - inbox->payload_size, NULL);
                if (n == -EAGAIN)
                        return 0;
                if (n <= 0)
                        code = n < 0 ? (int) n : inbox->header_size ? -EPROTO : -ENODATA;
                else if (!in_header)
                        inbox->payload_size += (size_t) n;
                else if ((inbox->header_size += (size_t) n) == FRAME_HEADER_SIZE)
                        code = frame_read_header(inbox);
        }
        if (code < 0) {
                frame_inbox_release(inbox);
                return code;
        }
        *ret_frame = *frame;
        *inbox = (struct frame_inbox) { 0 };
        return 1;
}

void frame_inbox_release(struct frame_inbox *inbox) {
        frame_release(&inbox->frame);
        *inbox = (struct frame_inbox) { 0 };
}

int frame_receive(int socket_fd, struct frame *ret_frame) {
        struct frame_inbox inbox = { 0 };
        int code = frame_inbox_receive(&inbox, socket_fd, 0, ret_frame);
        if (code == 0) { /* not a blocking socket, or it has a time limit */
                frame_inbox_release(&inbox);
                return -EAGAIN;
        }
        return code < 0 ? code : 0;
}

/* ---- fields ---- */

static bool frame_get(struct frame_reader *reader, void *bytes, size_t size) {
        if (size > (size_t) (reader->end - reader->at)) {
                reader->at = reader->end; /* nothing after a field that did not fit can be trusted */
                return false;
        }
        memcpy(bytes, reader->at, size);
        reader->at += size;
        return true;
}

bool frame_get_u32(struct frame_reader *reader, uint32_t *ret_value) {
        uint32_t value;
        if (!frame_get(reader, &value, sizeof(value)))
                return false;
        *ret_value = le32toh(value);
        return true;
}

bool frame_get_u64(struct frame_reader *reader, uint64_t *ret_value) {
        uint64_t value;
        if (!frame_get(reader, &value, sizeof(value)))
                return false;
        *ret_value = le64toh(value);
        return true;
}

bool frame_get_text(struct frame_reader *reader, char **ret_text) {
        uint32_t size;
        if (!frame_get_u32(reader, &size) || size > (size_t) (reader->end - reader->at) ||
            memchr(reader->at, '\0', size)) {
                reader->at = reader->end;
                return false;
        }
        char *text = malloc((size_t) size + 1);
        if (!text)
                return false;
        memcpy(text, reader->at, size);
        text[size] = '\0';
        reader->at += size;
        *ret_text = text;
        return true;
}

bool frame_get_bytes(struct frame_reader *reader, const char **ret_bytes, size_t *ret_size) {
        uint32_t size;
        if (!frame_get_u32(reader, &size) || size > (size_t) (reader->end - reader->at)) {
                reader->at = reader->end;
                return false;
        }
        *ret_bytes = reader->at;
        *ret_size = size;
        reader->at += size;
        return true;
}

void frame_free_texts(char **texts) {
        for (size_t i = 0; texts && texts[i]; i++)
                free(texts[i]);
        free(texts);
}

bool frame_get_texts(struct frame_reader *reader, char ***ret_texts) {
        uint32_t count;
        if (!frame_get_u32(reader, &count) || count > FRAME_TEXTS_MAX ||
            count > (size_t) (reader->end - reader->at) / sizeof(uint32_t)) { /* each has its length */
                reader->at = reader->end;
                return false;
        }
        char **texts = calloc((size_t) count + 1, sizeof(*texts));
        if (!texts)
                return false;
        for (uint32_t i = 0; i < count; i++) {
                if (!frame_get_text(reader, &texts[i])) {
                        frame_free_texts(texts);
                        return false;
                }
        }
        *ret_texts = texts;
        return true;
}
