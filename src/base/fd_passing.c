#include "base/fd_passing.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

struct slots {
        uint32_t count;
        uint8_t filled[FD_PASSING_FDS_MAX / 8];
};

union control {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * FD_PASSING_FDS_MAX)];
};

int fd_passing_send(int socket_fd, const void *bytes, size_t size, const int *fds, size_t n_fds, int flags) {
        struct slots slots = { .count = (uint32_t) n_fds };
        int present[FD_PASSING_FDS_MAX];
        size_t n = 0;
        if (n_fds > FD_PASSING_FDS_MAX)
                return -E2BIG;
        for (size_t i = 0; i < n_fds; i++) {
                if (fds[i] < 0)
                        continue;
                slots.filled[i / 8] |= (uint8_t) (1u << (i % 8));
                present[n++] = fds[i];
        }
        struct iovec parts[] = { { &slots, sizeof(slots) }, { (void *) (uintptr_t) bytes, size } };
        struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
        union control control = { 0 };
        if (n > 0) {
                message.msg_control = control.bytes;
                message.msg_controllen = CMSG_SPACE(sizeof(int) * n);
                struct cmsghdr *head = CMSG_FIRSTHDR(&message);
                *head = (struct cmsghdr) { .cmsg_level = SOL_SOCKET,
                                           .cmsg_type = SCM_RIGHTS,
                                           .cmsg_len = CMSG_LEN(sizeof(int) * n) };
                memcpy(CMSG_DATA(head), present, sizeof(int) * n);
        }
        ssize_t sent;
        while ((sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL | flags)) < 0 && errno == EINTR)
                ;
        return sent < 0 ? -errno : 0;
}

/* Puts each received descriptor into its slot; false if the message and its descriptors do not agree. */
static int distribute_fds(const struct slots *slots, const int *came, size_t n_came, int *ret_fds, size_t n_fds) {
        size_t n = 0;
        for (size_t i = 0; i < FD_PASSING_FDS_MAX; i++) {
                if (!(slots->filled[i / 8] & (1u << (i % 8))))
                        continue;
                if (i >= n_fds || n == n_came)
                        return -EPROTO;
                ret_fds[i] = came[n++];
        }
        return n == n_came ? 0 : -EPROTO;
}

ssize_t fd_passing_receive(int socket_fd, void *bytes, size_t room, int *ret_fds, size_t n_fds, int flags) {
        struct slots slots = { 0 };
        union control control;
        struct iovec parts[] = { { &slots, sizeof(slots) }, { bytes, room } };
        struct msghdr message = {
                .msg_iov = parts, .msg_iovlen = 2, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)
        };
        ssize_t size;
        while ((size = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC | flags)) < 0 && errno == EINTR)
                ;
        if (size <= 0)
                return size == 0 ? -ENODATA : -errno;
        int came[FD_PASSING_FDS_MAX];
        size_t n_came = 0;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
                n_came = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                memcpy(came, CMSG_DATA(head), n_came * sizeof(int));
        }
        for (size_t i = 0; i < n_fds; i++)
                ret_fds[i] = -1;
        int code = size < (ssize_t) sizeof(slots) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
                           ? -EPROTO
                           : distribute_fds(&slots, came, n_came, ret_fds, n_fds);
        if (code == 0)
                return size - (ssize_t) sizeof(slots);
        for (size_t i = 0; i < n_came; i++)
                fd_close(&came[i]);
        for (size_t i = 0; i < n_fds; i++)
                ret_fds[i] = -1;
        return code;
}

void fd_passing_refuse(int socket_fd) {
        const int off = 0;
        (void) setsockopt(socket_fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
}
