#include "engine/unix_http.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
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

/* 0, or -ETIMEDOUT after the deadline. */
static int wait_for_event(int fd, short events, uint64_t deadline_ms) {
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

static int send_http_bytes(int fd, const char *text, size_t size, uint64_t deadline_ms) {
        while (size > 0) {
                ssize_t n = send(fd, text, size, MSG_NOSIGNAL);
                if (n < 0 && errno != EAGAIN && errno != EINTR)
                        return -errno;
                if (n < 0) {
                        int code = wait_for_event(fd, POLLOUT, deadline_ms);
                        if (code < 0)
                                return code;
                        continue;
                }
                text += n;
                size -= (size_t) n;
        }
        return 0;
}

/* Reads to the end of the stream, at most UNIX_HTTP_ANSWER_MAX bytes with the head. */
static int receive_to_end(int fd, uint64_t deadline_ms, char **ret_bytes, size_t *ret_size) {
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
                int code = n < 0 ? wait_for_event(fd, POLLIN, deadline_ms) : 0;
                if (code < 0)
                        return code;
                size += n > 0 ? (size_t) n : 0;
        }
        bytes[size] = '\0';
        *ret_size = size;
        *ret_bytes = take_ptr(bytes);
        return 0;
}

int unix_http_read_head(const char *bytes, size_t size, size_t *ret_head, int *ret_status, struct err *err) {
        int status = 0;
        const char *end = memmem(bytes, size, "\r\n\r\n", 4);
        *ret_head = 0;
        if (!end && size < UNIX_HTTP_HEAD_MAX && !memchr(bytes, '\0', size))
                return 0;
        if (!end || sscanf(bytes, "HTTP/1.%*1[01] %3d", &status) != 1 || status < 100)
                return err_set(err, ERR_PROTOCOL, "the server there does not speak HTTP");
        *ret_head = (size_t) (end - bytes) + 4;
        *ret_status = status;
        return 0;
}

/* Takes ownership of `bytes`. */
static int parse_answer(char *bytes, size_t size, struct unix_http_answer *ret_answer, struct err *err) {
        size_t head = 0;
        int status = 0, code = unix_http_read_head(bytes, size, &head, &status, err);
        if (code == 0 && head == 0)
                code = err_set(err, ERR_PROTOCOL, "the server there does not speak HTTP");
        if (code < 0) {
                free(bytes);
                return -1;
        }
        memmove(bytes, bytes + head, size - head + 1);
        *ret_answer = (struct unix_http_answer) { .status = status, .body = bytes, .size = size - head };
        return 0;
}

static int send_http_request(int fd, const char *method, const char *path, const char *type, const char *body,
                             size_t size, uint64_t deadline_ms) {
        _cleanup_free_ char *head = NULL;
        int length =
                asprintf(&head, "%s %s HTTP/1.0\r\nHost: engine\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n",
                         method, path, type, size);
        if (length < 0) {
                head = NULL;
                return -ENOMEM;
        }
        int code = send_http_bytes(fd, head, (size_t) length, deadline_ms);
        return code == 0 && size > 0 ? send_http_bytes(fd, body, size, deadline_ms) : code;
}

static int explain_transport(int code, const char *socket_path, struct err *err) {
        if (code == -ETIMEDOUT)
                return err_set(err, ERR_TIMEOUT, "no answer from %.200s in time: is the server there stuck?",
                               socket_path);
        return err_sys(err, -code, "talking to %.200s", socket_path);
}

int unix_http(const char *socket_path, const char *method, const char *path, const char *body, uint64_t deadline_ms,
              struct unix_http_answer *ret_answer, struct err *err) {
        _cleanup_fd_ int fd = open_connection(socket_path, err);
        size_t size = 0;
        char *bytes = NULL;
        if (fd < 0)
                return -1;
        int code = send_http_request(fd, method, path, "application/json", body, body ? strlen(body) : 0, deadline_ms);
        if (code == 0)
                code = receive_to_end(fd, deadline_ms, &bytes, &size);
        return code < 0 ? explain_transport(code, socket_path, err) : parse_answer(bytes, size, ret_answer, err);
}

/* Reads the next bytes into `to`. Returns their number, 0 at the end, or -errno. */
static ssize_t receive_some(int fd, char *to, size_t room, uint64_t deadline_ms) {
        for (;;) {
                ssize_t n = recv(fd, to, room, 0);
                if (n >= 0)
                        return n;
                int code = errno == EAGAIN || errno == EINTR ? wait_for_event(fd, POLLIN, deadline_ms) : -errno;
                if (code < 0)
                        return code;
        }
}

int unix_http_post(const struct unix_http_upload *upload, int *ret_status, struct err *err) {
        _cleanup_fd_ int fd = open_connection(upload->socket_path, err);
        _cleanup_free_ char *buffer = malloc(UNIX_HTTP_HEAD_MAX + 1);
        size_t used = 0;
        bool has_head = false;
        if (fd < 0)
                return -1;
        if (!buffer)
                return err_set(err, ERR_SYSTEM, "out of memory");
        ssize_t n = send_http_request(fd, "POST", upload->path, upload->type, upload->body, upload->size,
                                      upload->deadline_ms);
        while (n >= 0) {
                size_t head = 0;
                n = receive_some(fd, buffer + used, UNIX_HTTP_HEAD_MAX - used, upload->deadline_ms);
                if (n <= 0)
                        break;
                used += (size_t) n;
                buffer[used] = '\0';
                if (!has_head && unix_http_read_head(buffer, used, &head, ret_status, err) < 0)
                        return -1;
                has_head |= head > 0;
                if (!has_head)
                        continue;
                upload->on_bytes(upload->context, buffer + head, used - head);
                used = 0;
        }
        if (n < 0)
                return explain_transport((int) n, upload->socket_path, err);
        return has_head ? 0 : err_set(err, ERR_PROTOCOL, "the server there does not speak HTTP");
}
