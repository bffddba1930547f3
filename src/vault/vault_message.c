#include "vault/vault_message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/fd.h"

union control {
        char bytes[CMSG_SPACE(sizeof(int) * VAULT_FDS_MAX)];
        struct cmsghdr align;
};

void vault_message_close_fds(int *fds, size_t n_fds) {
        for (size_t i = 0; i < n_fds; i++)
                fd_close(&fds[i]);
}

int vault_message_send(int fd, const struct vault_message *message, const int *fds, size_t n_fds, int flags) {
        struct iovec part = { .iov_base = (void *) (uintptr_t) message,
                              .iov_len = offsetof(struct vault_message, note) + message->note_size };
        struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
        union control control = { 0 };
        if (n_fds > 0) {
                header.msg_control = control.bytes;
                header.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
                struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
                rights->cmsg_level = SOL_SOCKET;
                rights->cmsg_type = SCM_RIGHTS;
                rights->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
                memcpy(CMSG_DATA(rights), fds, sizeof(int) * n_fds);
        }
        ssize_t n;
        do
                n = sendmsg(fd, &header, flags | MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : 0;
}

static size_t vault_message_collect_fds(struct msghdr *header, int fds[static VAULT_FDS_MAX]) {
        size_t n_fds = 0;
        for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
                if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
                        continue;
                size_t n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                for (size_t i = 0; i < n; i++) {
                        int fd;
                        memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
                        if (n_fds < VAULT_FDS_MAX)
                                fds[n_fds++] = fd;
                        else
                                fd_close(&fd);
                }
        }
        return n_fds;
}

static int vault_message_is_valid(const struct vault_message *message, size_t size) {
        size_t fixed = offsetof(struct vault_message, note);
        return size >= fixed && message->mark == VAULT_MARK && message->note_size <= VAULT_NOTE_MAX &&
               size == fixed + message->note_size && memchr(message->name, '\0', sizeof(message->name));
}

int vault_message_receive(int fd, struct vault_message *ret_message, int ret_fds[static VAULT_FDS_MAX],
                          size_t *ret_n_fds, int flags) {
        struct iovec part = { .iov_base = ret_message, .iov_len = sizeof(*ret_message) };
        union control control = { 0 };
        struct msghdr header = {
                .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)
        };
        ssize_t n;
        do
                n = recvmsg(fd, &header, flags | MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (n <= 0)
                return n < 0 ? -errno : 0;
        size_t n_fds = vault_message_collect_fds(&header, ret_fds);
        int code = header.msg_flags & MSG_CTRUNC                                                      ? -EMFILE
                   : header.msg_flags & MSG_TRUNC || !vault_message_is_valid(ret_message, (size_t) n) ? -EBADMSG
                                                                                                      : 1;
        if (code < 0)
                vault_message_close_fds(ret_fds, n_fds);
        else
                *ret_n_fds = n_fds;
        return code;
}
