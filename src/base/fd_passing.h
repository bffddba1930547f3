/* One message with descriptors over a SEQPACKET socket. Slots may be empty (-1), so that both sides can number their
 * descriptors by an enum. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

enum { FD_PASSING_FDS_MAX = 128 };

/* Sends the bytes and the descriptors (borrowed). 0 or -errno; `flags` as of sendmsg. */
int fd_passing_send(int socket_fd, const void *bytes, size_t size, const int *fds, size_t n_fds, int flags);

/* Receives at most `room` bytes and `n_fds` slots, close-on-exec and owned by the caller; slots that were not sent are
 * -1. Returns the size of the message; -ENODATA if the other side has closed its end, -EPROTO if the message does not
 * fit, or -errno. On failure no descriptor stays open. */
ssize_t fd_passing_receive(int socket_fd, void *bytes, size_t room, int *ret_fds, size_t n_fds, int flags);

/* From now on this socket accepts no file descriptors (SO_PASSRIGHTS, Linux 6.16): sending some fails at the sender.
 * Older kernels ignore this, so use it only as a second line of defence, on sockets whose other end is trusted. */
void fd_passing_refuse(int socket_fd);
