#include "link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "bounds.h"

static struct {
        int fd;
        bool broken;
        struct frame_inbox inbox;
        char *queue; /* bytes from start on wait for the host */
        size_t start, size, room;
} host_link;

void link_open(int socket_fd) {
        host_link.fd = socket_fd;
}

void link_release(void) {
        frame_inbox_release(&host_link.inbox);
        free(host_link.queue);
        memset(&host_link, 0, sizeof(host_link));
}

static void link_enqueue(const void *bytes, size_t size) {
        if (host_link.start + host_link.size + size > host_link.room && host_link.start > 0) {
                memmove(host_link.queue, host_link.queue + host_link.start, host_link.size);
                host_link.start = 0;
        }
        if (host_link.size + size > host_link.room) {
                size_t room = host_link.room ? host_link.room : 4096;
                while (room < host_link.size + size)
                        room *= 2;
                char *grown = realloc(host_link.queue, room);
                if (!grown) {
                        host_link.broken = true;
                        return;
                }
                host_link.queue = grown;
                host_link.room = room;
        }
        memcpy(host_link.queue + host_link.start + host_link.size, bytes, size);
        host_link.size += size;
}

/* How many bytes the host took. */
static size_t send_parts(struct iovec *parts, size_t n_parts) {
        struct msghdr message = { .msg_iov = parts, .msg_iovlen = n_parts };
        ssize_t n;
        do
                n = sendmsg(host_link.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno != EAGAIN)
                host_link.broken = true;
        return n < 0 ? 0 : (size_t) n;
}

void link_send(enum frame_type type, uint32_t id, const struct frame_writer *payload) {
        if (payload && payload->failed)
                host_link.broken = true;
        if (host_link.broken)
                return;
        size_t size = payload ? payload->size : 0;
        unsigned char header[FRAME_HEADER_SIZE];
        frame_make_header(header, type, id, size);
        struct iovec parts[2] = { { header, sizeof(header) }, { payload ? payload->bytes : NULL, size } };
        size_t taken = host_link.size ? 0 : send_parts(parts, 2);
        for (size_t i = 0; i < 2; i++) {
                size_t skipped = taken < parts[i].iov_len ? taken : parts[i].iov_len;
                taken -= skipped;
                if (parts[i].iov_len > skipped)
                        link_enqueue((char *) parts[i].iov_base + skipped, parts[i].iov_len - skipped);
        }
}

void link_send_failed(uint32_t id, int code, const char *step) {
        struct frame_writer payload = { 0 };
        frame_put_u32(&payload, (uint32_t) -code);
        frame_put_text(&payload, step);
        link_send(FRAME_FAILED, id, &payload);
        frame_writer_release(&payload);
}

int link_receive(struct frame *ret_frame) {
        return frame_inbox_receive(&host_link.inbox, host_link.fd, MSG_DONTWAIT, ret_frame);
}

void link_flush(void) {
        if (host_link.size == 0)
                return;
        struct iovec part = { host_link.queue + host_link.start, host_link.size };
        size_t taken = send_parts(&part, 1);
        host_link.start += taken;
        host_link.size -= taken;
        if (host_link.size > 0)
                return;
        /* A burst is over: a megabyte for the next one would be held for the life of the box. */
        free(host_link.queue);
        host_link.queue = NULL;
        host_link.start = host_link.room = 0;
}

bool link_has_queue(void) {
        return host_link.size > 0;
}

bool link_is_full(void) {
        return host_link.size >= LINK_FULL;
}

bool link_is_broken(void) {
        return host_link.broken;
}
