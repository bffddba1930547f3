/* One message with descriptors over a SEQPACKET socket. Slots without a descriptor (-1) travel as holes, so that both
 * sides can number their descriptors by an enum. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { FD_PASSING_FDS_MAX = 128 };

/* Sends the bytes and the descriptors (borrowed). 0 or -errno; `flags` as of sendmsg. */
int fd_passing_send(int socket_fd, const void *bytes, size_t size, const int *fds, size_t n_fds, int flags);

/* Receives at most `room` bytes and `n_fds` slots, close-on-exec and owned by the caller; slots that were not sent
 * are -1. The size of what came, -ENODATA when the other side is gone, -EPROTO when it does not fit, -errno. Nothing
 * is kept open on failure. */
ssize_t fd_passing_receive(int socket_fd, void *bytes, size_t room, int *ret_fds, size_t n_fds, int flags);

/* From now on this socket accepts no file descriptors (SO_PASSRIGHTS, Linux 6.16); what is sent with some is refused
 * at the sender. An older kernel cannot: for sockets whose other end is trusted, where it is a second line. */
void fd_passing_refuse(int socket_fd);
