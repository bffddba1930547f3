/* Whatever answers at the socket of docker or podman: no crash, no hang, no growth past the bound, and no name or text
 * that is longer than its place. The first byte says who asks. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/build_output.h"
#include "engine/container.h"
#include "engine/unix_http.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static char socket_path[100];
static const uint8_t *said;
static size_t said_size;

static void read_request(int fd) {
        char bytes[4096];
        size_t size = 0;
        while (size < sizeof(bytes)) {
                ssize_t n = read(fd, bytes + size, sizeof(bytes) - size);
                if (n <= 0)
                        return;
                size += (size_t) n;
                if (memmem(bytes, size, "\r\n\r\n", 4))
                        return;
        }
}

static void *serve(void *context) {
        int listen_fd = *(int *) context;
        for (;;) {
                int fd = accept(listen_fd, NULL, NULL);
                read_request(fd);
                for (size_t at = 0; at < said_size;) {
                        ssize_t n = send(fd, said + at, said_size - at, MSG_NOSIGNAL);
                        if (n <= 0)
                                break;
                        at += (size_t) n;
                }
                (void) close(fd);
        }
        return NULL;
}

static void start_server(void) {
        static int listen_fd;
        static pthread_t thread;
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        (void) snprintf(socket_path, sizeof(socket_path), "/tmp/fuzz-engine-%d.sock", (int) getpid());
        (void) strcpy(address.sun_path, socket_path);
        (void) unlink(socket_path);
        listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (listen_fd < 0 || bind(listen_fd, (const struct sockaddr *) &address, sizeof(address)) < 0 ||
            listen(listen_fd, 16) < 0 || pthread_create(&thread, NULL, serve, &listen_fd) != 0)
                abort();
}

static void check_text(const char *text, size_t room) {
        if (memchr(text, '\0', room) == NULL)
                abort();
}

static void on_remaining(const char *name, void *context) {
        (void) context;
        if (!name)
                abort();
}

/* In pieces, as a stream comes. */
static void feed_build_output(const char *bytes, size_t size) {
        static char line[BUILD_OUTPUT_LINE_MAX];
        struct build_output output = { .line = line };
        for (size_t at = 0; at < size; at += 7)
                build_output_feed(&output, bytes + at, size - at < 7 ? size - at : 7);
        build_output_end(&output);
        check_text(output.last_message, sizeof(output.last_message));
        check_text(output.error, sizeof(output.error));
        for (const char *at = output.last_message; *at; at++)
                if ((unsigned char) *at < ' ')
                        abort();
}

static void read_head(const char *bytes, size_t size) {
        size_t head = 0;
        int status = 0;
        struct err err = { 0 };
        char *copy = malloc(size + 1);
        memcpy(copy, bytes, size);
        copy[size] = '\0';
        if (unix_http_read_head(copy, size, &head, &status, &err) == 0 && head > 0 &&
            (head > size || status < 100 || status > 999))
                abort();
        free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
        struct engine_settings settings = ENGINE_SETTINGS_DEFAULT;
        static struct image image;
        struct err err = { 0 };
        char version[100] = "";
        if (!*socket_path)
                start_server();
        if (size < 1)
                return 0;
        settings.docker_socket = settings.podman_socket = socket_path;
        said = bytes + 1;
        said_size = size - 1;
        const struct engine *engine = bytes[0] & 8 ? &engine_podman : &engine_docker;
        switch (bytes[0] % 5) {
        case 0:
                (void) engine->probe(&settings, version, sizeof(version), &err);
                check_text(version, sizeof(version));
                break;
        case 1:
                memset(&image, 'x', sizeof(image));
                if (engine->inspect_image(&settings, "python:3.12-slim", &image, &err) == 0) {
                        check_text(image.env, sizeof(image.env));
                        check_text(image.python, sizeof(image.python));
                }
                break;
        case 2:
                (void) engine->sweep(&settings, "owner", on_remaining, NULL, &err);
                break;
        case 3:
                feed_build_output((const char *) said, said_size);
                break;
        default:
                read_head((const char *) said, said_size);
        }
        check_text(err.message, sizeof(err.message));
        return 0;
}
