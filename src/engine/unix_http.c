#include "engine/unix_http.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/memory.h"

void unix_http_release(struct unix_http_answer *answer) {
        free(answer->body);
        *answer = (struct unix_http_answer) { 0 };
}

/* -ETIMEDOUT when the deadline has passed. */
static int wait_for(int fd, short events, uint64_t deadline_ms) {
        for (;;) {
                uint64_t now_ms = loop_now_ms();
                if (now_ms >= deadline_ms)
                        return -ETIMEDOUT;
                struct pollfd polled = { .fd = fd, .events = events };
                int n = poll(&polled, 1, (int) (deadline_ms - now_ms < 60000 ? deadline_ms - now_ms : 60000));
                if (n > 0)
                        return 0;
                if (n < 0 && errno != EINTR)
                        return -errno;
        }
}

static int open_connection(const char *path, struct err *err) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        if (strlen(path) >= sizeof(address.sun_path))
                return err_set(err, ERR_USAGE, "%.200s is too long for the path of a socket", path);
        (void) strcpy(address.sun_path, path);
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return err_sys(err, errno, "making a socket");
        if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0) {
                if (errno == EACCES)
                        return err_set(err, ERR_PERMISSION,
                                       "%.200s may not be used by this user: add the user to the "
                                       "group of the socket, or run as root",
                                       path);
                return err_set(err, errno == EAGAIN ? ERR_TIMEOUT : ERR_GONE, "no answer at %.200s (%s)", path,
                               strerror(errno));
        }
        return take_fd(&fd);
}

static int send_text(int fd, const char *text, size_t size, uint64_t deadline_ms) {
        while (size > 0) {
                ssize_t n = send(fd, text, size, MSG_NOSIGNAL);
                if (n < 0 && errno != EAGAIN && errno != EINTR)
                        return -errno;
                if (n < 0) {
                        int code = wait_for(fd, POLLOUT, deadline_ms);
                        if (code < 0)
                                return code;
                        continue;
                }
                text += n;
                size -= (size_t) n;
        }
        return 0;
}

/* Up to the end of the stream, bounded. */
static int receive_all(int fd, uint64_t deadline_ms, char **ret_bytes, size_t *ret_size) {
        _cleanup_free_ char *bytes = NULL;
        size_t size = 0, room = 0;
        for (;;) {
                if (size + 1 >= room) {
                        room = room ? 2 * room : 16384;
                        char *grown = room > UNIX_HTTP_ANSWER_MAX ? NULL : realloc(bytes, room);
                        if (!grown)
                                return -EMSGSIZE;
                        bytes = grown;
                }
                ssize_t n = recv(fd, bytes + size, room - size - 1, 0);
                if (n == 0)
                        break;
                if (n < 0 && errno != EAGAIN && errno != EINTR)
                        return -errno;
                int code = n < 0 ? wait_for(fd, POLLIN, deadline_ms) : 0;
                if (code < 0)
                        return code;
                size += n > 0 ? (size_t) n : 0;
        }
        bytes[size] = '\0';
        *ret_size = size;
        *ret_bytes = take_ptr(bytes);
        return 0;
}

static int take_apart(char *bytes, size_t size, struct unix_http_answer *ret_answer, struct err *err) {
        int status = 0;
        char *end = strstr(bytes, "\r\n\r\n");
        if (!end || sscanf(bytes, "HTTP/1.%*1[01] %3d", &status) != 1 || status < 100) {
                free(bytes);
                return err_set(err, ERR_PROTOCOL, "what answers there does not speak HTTP");
        }
        size_t head = (size_t) (end - bytes) + 4;
        memmove(bytes, bytes + head, size - head + 1);
        *ret_answer = (struct unix_http_answer) { .status = status, .body = bytes, .size = size - head };
        return 0;
}

int unix_http(const char *socket_path, const char *method, const char *path, const char *body, uint64_t deadline_ms,
              struct unix_http_answer *ret_answer, struct err *err) {
        _cleanup_fd_ int fd = open_connection(socket_path, err);
        _cleanup_free_ char *head = NULL;
        size_t body_size = body ? strlen(body) : 0, size = 0;
        char *bytes = NULL;
        if (fd < 0)
                return -1;
        int length = asprintf(&head,
                              "%s %s HTTP/1.0\r\nHost: engine\r\nContent-Type: application/json\r\n"
                              "Content-Length: %zu\r\n\r\n",
                              method, path, body_size);
        if (length < 0) {
                head = NULL;
                return err_set(err, ERR_SYSTEM, "out of memory");
        }
        int code = send_text(fd, head, (size_t) length, deadline_ms);
        if (code == 0 && body)
                code = send_text(fd, body, body_size, deadline_ms);
        if (code == 0)
                code = receive_all(fd, deadline_ms, &bytes, &size);
        if (code == -ETIMEDOUT)
                return err_set(err, ERR_TIMEOUT, "no answer from %.200s in time: is what listens there stuck?",
                               socket_path);
        if (code < 0)
                return err_sys(err, -code, "talking to %.200s", socket_path);
        return take_apart(bytes, size, ret_answer, err);
}
