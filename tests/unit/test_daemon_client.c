/* The client against a small server of our own, in a child process: one connection, then it ends. Started as
 * "… serve --background --socket PATH" this program plays the daemon that a client starts. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "client/daemon_client.h"
#include "client/socket_place.h"
#include "tap.h"
#include "tests/support/message_io.h"

static char place_dir[] = "/tmp/glovebox-test-client-XXXXXX";

/* ---- the server ---- */

struct server {
        int fd;
        const char *version;
        uint16_t waiting; /* the request that waits for an interrupt */
        size_t n_data;    /* bytes of DATA, and their sum */
        unsigned sum;
};

static void answer(struct server *server, uint16_t request, const char *json) {
        if (message_send(server->fd, MESSAGE_ANSWER, request, json, strlen(json)) < 0)
                _exit(1);
}

static void send_output(struct server *server, enum message_type type, uint16_t request, uint32_t number,
                        const char *text) {
        struct message_queue queue = message_queue_make(1000);
        if (message_io_put_output(&queue, type, request, number, text, strlen(text)) < 0 ||
            message_queue_flush(&queue, server->fd) != 0)
                _exit(1);
}

static void stream(struct server *server, uint16_t request) {
        static const char event[] = "{\"event\":\"display\",\"number\":3}";
        answer(server, (uint16_t) (request + 100), "{\"ok\":true,\"whose\":\"somebody else's\"}");
        send_output(server, MESSAGE_OUT, request, 1, "one ");
        send_output(server, MESSAGE_ERR, request, 2, "two ");
        if (message_send(server->fd, MESSAGE_EVENT, request, event, strlen(event)) < 0)
                _exit(1);
        send_output(server, MESSAGE_OUT, request, 4, "four");
        answer(server, request, "{\"ok\":true,\"status\":\"ok\"}");
}

static void serve_request(struct server *server, const struct message *message) {
        json_t *json = json_loadb(message->bytes, message->size, 0, NULL);
        const char *op = json_string_value(json_object_get(json, "op"));
        char text[200];
        if (!op)
                _exit(1);
        if (strcmp(op, "ping") == 0) {
                (void) snprintf(text, sizeof(text), "{\"ok\":true,\"version\":\"%s\",\"pid\":1}", server->version);
                answer(server, message->request, text);
        } else if (strcmp(op, "stream") == 0)
                stream(server, message->request);
        else if (strcmp(op, "fail") == 0)
                answer(server, message->request,
                       "{\"ok\":false,\"error\":{\"code\":\"not_found\",\"message\":\"no session x; make it\"}}");
        else if (strcmp(op, "hang_up") == 0)
                _exit(0);
        else if (strcmp(op, "garbage") == 0)
                (void) !write(server->fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
        else if (strcmp(op, "no_object") == 0)
                answer(server, message->request, "[1]");
        else if (strcmp(op, "wait") == 0)
                server->waiting = message->request;
        else if (strcmp(op, "session.interrupt") == 0) {
                answer(server, message->request, "{\"ok\":true,\"interrupted\":true}");
                answer(server, server->waiting, "{\"ok\":true,\"status\":\"interrupted\"}");
        } /* "silence" and "count": nothing now */
        json_decref(json);
}

_Noreturn static void serve(int listen_fd, const char *version) {
        (void) alarm(120); /* a test that hangs leaves no process behind */
        struct server server = { .fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC), .version = version };
        struct message_parser parser = message_parser_make(MESSAGE_FROM_CLIENT);
        struct message message;
        while (message_receive(server.fd, &parser, &message) == 1) {
                if (message.type == MESSAGE_REQUEST)
                        serve_request(&server, &message);
                else if (message.type == MESSAGE_DATA) {
                        server.n_data += message.size;
                        for (size_t i = 0; i < message.size; i++)
                                server.sum = server.sum * 31 + (unsigned char) message.bytes[i];
                } else {
                        char text[100];
                        (void) snprintf(text, sizeof(text), "{\"ok\":true,\"size\":%zu,\"sum\":%u}", server.n_data,
                                        server.sum);
                        answer(&server, message.request, text);
                }
        }
        _exit(0);
}

static int listen_at(const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 || listen(fd, 5) < 0) {
                perror("listen_at");
                exit(1);
        }
        return fd;
}

/* What `glovebox serve --background --socket PATH` does, as far as a client sees it. */
static int play_serve(const char *path) {
        if (strstr(path, "refused")) {
                (void) fprintf(stderr, "glovebox: the disk is full; make room\n");
                return 125;
        }
        int fd = listen_at(path);
        if (fork() == 0) {
                int null_fd = open("/dev/null", O_RDWR);
                for (int standard = 0; standard < 3; standard++)
                        (void) dup2(null_fd, standard);
                serve(fd, GLOVEBOX_VERSION);
        }
        return 0;
}

/* ---- the client ---- */

struct fixture {
        struct socket_place place;
        pid_t server;
};

static struct fixture begin(const char *version) {
        struct fixture fixture = { 0 };
        static int count;
        (void) snprintf(fixture.place.path, sizeof(fixture.place.path), "%s/%d.sock", place_dir, count++);
        (void) snprintf(fixture.place.address, sizeof(fixture.place.address), "%.100s", fixture.place.path);
        int fd = listen_at(fixture.place.path); /* before the fork: the client may connect at once */
        (void) fflush(NULL);
        fixture.server = fork();
        if (fixture.server == 0)
                serve(fd, version);
        (void) close(fd);
        return fixture;
}

static void end(struct fixture *fixture, struct daemon_client *client) {
        daemon_client_close(client);
        (void) waitpid(fixture->server, NULL, 0);
        (void) unlink(fixture->place.path);
}

static void test_connecting(void) {
        char path[100];
        struct daemon_client client;
        struct err err = { 0 };
        (void) snprintf(path, sizeof(path), "%s/x.sock", place_dir);
        ok(daemon_client_connect(path, &client, &err) < 0 && err.code == ERR_NOT_FOUND, "no socket");
        ok(strstr(err.message, path) && strstr(err.message, "glovebox serve"), "says where it looked and what to do");
        (void) close(listen_at(path));
        ok(daemon_client_connect(path, &client, &err) < 0 && err.code == ERR_GONE, "a socket that is left over");
        ok(strstr(err.message, "left over") != NULL, "says so");
        (void) unlink(path);
        (void) close(open(path, O_CREAT | O_WRONLY, 0600));
        ok(daemon_client_connect(path, &client, &err) < 0 && err.code == ERR_EXISTS, "a file that is no socket");
        (void) unlink(path);
}

static void test_version(void) {
        struct daemon_client client = DAEMON_CLIENT_NONE;
        struct err err = { 0 };
        struct fixture fixture = begin(GLOVEBOX_VERSION);
        ok(daemon_client_open(&fixture.place, 0, &client, &err) == 0, "a daemon of our version");
        _cleanup_fd_ int pidfd = daemon_client_pidfd(&client);
        ok(pidfd >= 0, "the process that listens is known");
        end(&fixture, &client);
        fixture = begin("0.0.1");
        client = DAEMON_CLIENT_NONE;
        ok(daemon_client_open(&fixture.place, 0, &client, &err) < 0 && err.code == ERR_UNSUPPORTED &&
                   strstr(err.message, "0.0.1") && strstr(err.message, "glovebox stop"),
           "another version is refused, with what to do");
        end(&fixture, &client);
        fixture = begin("0.0.1");
        client = DAEMON_CLIENT_NONE;
        ok(daemon_client_open(&fixture.place, DAEMON_ANY_VERSION, &client, &err) == 0, "unless any will do");
        end(&fixture, &client);
}

struct seen {
        char text[100];
        size_t events;
        int leave;
        struct daemon_client *client;
        int wake_fd;
};

static int see_output(void *context, enum message_type type, const char *bytes, size_t size) {
        struct seen *seen = context;
        size_t used = strlen(seen->text);
        (void) snprintf(seen->text + used, sizeof(seen->text) - used, "%c:%.*s", type == MESSAGE_OUT ? 'o' : 'e',
                        (int) size, bytes);
        return seen->leave;
}

static int see_event(void *context, const json_t *event) {
        struct seen *seen = context;
        seen->events += json_integer_value(json_object_get(event, "number")) == 3;
        return 0;
}

/* One request of this operation, on a server of its own. */
static int call(const char *operation, struct daemon_request *request, json_t **ret_answer, struct err *err) {
        struct fixture fixture = begin(GLOVEBOX_VERSION);
        struct daemon_client client = DAEMON_CLIENT_NONE;
        request->body = json_pack("{s:s}", "op", operation);
        int code = daemon_client_connect(fixture.place.path, &client, err);
        if (request->calls.context)
                ((struct seen *) request->calls.context)->client = &client;
        if (code == 0)
                code = daemon_client_call(&client, request, ret_answer, err);
        json_decref(request->body);
        end(&fixture, &client);
        return code;
}

static void test_calls(void) {
        struct seen seen = { 0 };
        struct daemon_request request = { .calls = { .output = see_output, .event = see_event, .context = &seen } };
        json_t *got = NULL;
        struct err err = { 0 };
        ok(call("stream", &request, &got, &err) == DAEMON_CALL_ANSWERED, "a call with a stream: %s", err.message);
        is_text(seen.text, "o:one e:two o:four", "output in order, split");
        ok(seen.events == 1, "the event");
        ok(json_object_get(got, "status") && !json_object_get(got, "whose"), "the answer is ours");
        json_decref(got);
        seen = (struct seen) { .leave = 1 };
        ok(call("stream", &request, &got, &err) == DAEMON_CALL_LEFT, "a callback may end it");
        is_text(seen.text, "o:one ", "at once");

        request = (struct daemon_request) { 0 };
        ok(call("fail", &request, &got, &err) < 0 && err.code == ERR_NOT_FOUND, "the daemon's error keeps its code");
        is_text(err.message, "no session x; make it", "and its words");
        ok(call("hang_up", &request, &got, &err) < 0 && err.code == ERR_GONE, "a daemon that hangs up");
        ok(call("garbage", &request, &got, &err) < 0 && err.code == ERR_PROTOCOL, "one that speaks something else");
        ok(call("no_object", &request, &got, &err) < 0 && err.code == ERR_PROTOCOL, "an answer that is no object");
        request.timeout_ms = 50;
        ok(call("silence", &request, &got, &err) < 0 && err.code == ERR_TIMEOUT, "one that does not answer in time");
}

static unsigned sum_of(const char *bytes, size_t size) {
        unsigned sum = 0;
        for (size_t i = 0; i < size; i++)
                sum = sum * 31 + (unsigned char) bytes[i];
        return sum;
}

static void test_data(void) {
        enum { SIZE = 3000000 };
        char *bytes = malloc(SIZE);
        for (size_t i = 0; i < SIZE; i++)
                bytes[i] = (char) (i * 7 + i / 1000);
        struct daemon_request request = { .follows = bytes, .follows_size = SIZE };
        json_t *got = NULL;
        struct err err = { 0 };
        ok(call("count", &request, &got, &err) == 0 && json_integer_value(json_object_get(got, "size")) == SIZE &&
                   json_integer_value(json_object_get(got, "sum")) == sum_of(bytes, SIZE),
           "what follows a request arrives whole");
        json_decref(got);
        request.follows_size = 0;
        ok(call("count", &request, &got, &err) == 0 && json_integer_value(json_object_get(got, "size")) == 0,
           "and may be empty");
        json_decref(got);
        free(bytes);

        int ends[2];
        ok(pipe2(ends, O_CLOEXEC) == 0 && write(ends[1], "hello", 5) == 5, "five bytes in a pipe");
        (void) close(ends[1]);
        request = (struct daemon_request) { .with_input = true, .input_fd = ends[0] };
        ok(call("count", &request, &got, &err) == 0 && json_integer_value(json_object_get(got, "size")) == 5,
           "an input is passed on to its end");
        json_decref(got);
        (void) close(ends[0]);
}

static int take_wake(void *context) {
        struct seen *seen = context;
        char byte;
        (void) !read(seen->wake_fd, &byte, 1);
        seen->events++;
        json_t *body = json_pack("{s:s, s:s}", "op", "session.interrupt", "session", "x");
        int code = daemon_client_post(seen->client, body, NULL);
        json_decref(body);
        return code;
}

static void test_wake(void) {
        int ends[2];
        ok(pipe2(ends, O_CLOEXEC) == 0 && write(ends[1], "", 1) == 1, "somebody wakes us");
        struct seen seen = { .wake_fd = ends[0] };
        struct daemon_request request = { .wake_fd = ends[0], .calls = { .wake = take_wake, .context = &seen } };
        json_t *got = NULL;
        struct err err = { 0 };
        ok(call("wait", &request, &got, &err) == 0 && seen.events == 1, "a request may be sent beside the call");
        is_text(json_string_value(json_object_get(got, "status")), "interrupted", "and the call goes on to its answer");
        json_decref(got);
        (void) close(ends[0]);
        (void) close(ends[1]);
}

static void test_start(void) {
        struct socket_place place = { 0 };
        struct daemon_client client = DAEMON_CLIENT_NONE;
        struct err err = { 0 };
        (void) snprintf(place.path, sizeof(place.path), "%s/refused.sock", place_dir);
        (void) snprintf(place.address, sizeof(place.address), "%.100s", place.path);
        ok(daemon_client_open(&place, DAEMON_START, &client, &err) < 0, "a daemon that cannot be started");
        is_text(err.message, "the daemon could not be started: the disk is full; make room", "says why");
        (void) snprintf(place.path, sizeof(place.path), "%s/started.sock", place_dir);
        (void) snprintf(place.address, sizeof(place.address), "%.100s", place.path);
        ok(daemon_client_open(&place, 0, &client, &err) < 0 && err.code == ERR_NOT_FOUND, "not started unasked");
        ok(daemon_client_open(&place, DAEMON_START, &client, &err) == 0, "started when asked to: %s", err.message);
        daemon_client_close(&client);
        (void) unlink(place.path);
}

/* ---- where the socket is ---- */

static void clear_variables(void) {
        static const char *const names[] = { "GLOVEBOX_SOCKET", "GLOVEBOX_DATA_DIR", "SANDBOX_DATA_DIR",
                                             "XDG_RUNTIME_DIR", "WORKSPACE_DIR" };
        for (size_t i = 0; i < ELEMENTS(names); i++)
                (void) unsetenv(names[i]);
}

static const char *chosen(const struct socket_choice *choice, bool search) {
        static struct socket_place place;
        static struct err err;
        return socket_place_choose(choice, search, &place, &err) == 0 ? place.path : err.message;
}

static void test_places(void) {
        char path[200], expected[300], inner[200];
        const struct socket_choice nothing = { 0 };
        clear_variables();
        if (geteuid() == 0)
                (void) snprintf(expected, sizeof(expected), "/run/glovebox/glovebox.sock");
        else
                (void) snprintf(expected, sizeof(expected), "/tmp/glovebox-%u/glovebox.sock", (unsigned) geteuid());
        is_text(chosen(&nothing, false), expected, "the user's own");
        (void) setenv("GLOVEBOX_DATA_DIR", "/some/data", 1);
        is_text(chosen(&nothing, false), "/some/data/glovebox.sock", "a data directory of one's own has its own");
        (void) setenv("GLOVEBOX_SOCKET", "/some/where.sock", 1);
        is_text(chosen(&nothing, true), "/some/where.sock", "$GLOVEBOX_SOCKET");
        const struct socket_choice both = { .socket = "/a", .socket_dir = "/b" };
        ok(strstr(chosen(&both, false), "give one of them") != NULL, "two places contradict each other");
        const struct socket_choice directory = { .socket_dir = "/run/mine" };
        is_text(chosen(&directory, false), "/run/mine/kernel.sock", "--socket-dir");
        const struct socket_choice project = { .project = place_dir };
        (void) snprintf(expected, sizeof(expected), "%s/.sandbox/kernel.sock", place_dir);
        is_text(chosen(&project, false), expected, "--project is stronger than the variable");
        char long_name[200] = "/";
        memset(long_name + 1, 'x', 150);
        const struct socket_choice too_long = { .socket = long_name };
        ok(strstr(chosen(&too_long, false), "--socket-dir") != NULL, "too long a path, and what to do");

        clear_variables();
        (void) snprintf(path, sizeof(path), "%s/.sandbox", place_dir);
        (void) snprintf(inner, sizeof(inner), "%s/inner", place_dir);
        ok(mkdir(path, 0700) == 0 && mkdir(inner, 0700) == 0 && chdir(inner) == 0, "a project and a directory in it");
        ok(strcmp(chosen(&nothing, true), expected) != 0, "a project that never had a daemon is not chosen");
        (void) close(listen_at(expected));
        ok(strcmp(chosen(&nothing, true), expected) != 0, "a socket in the project is not the daemon's");
        struct socket_place place;
        ok(socket_place_choose(&project, false, &place, NULL) == 0 && place.in_runtime_dir &&
                   strncmp(place.address, place_dir, strlen(place_dir)) != 0,
           "that one lies elsewhere: %s", place.address);
        struct err made = { 0 };
        char runtime_dir[SOCKET_PATH_MAX];
        (void) snprintf(runtime_dir, sizeof(runtime_dir), "%s", place.address);
        *strrchr(runtime_dir, '/') = '\0';
        ok(runtime_dir_make(runtime_dir, &made) == 0, "in a directory of our own %s", made.message);
        (void) close(listen_at(place.address));
        is_text(chosen(&nothing, true), expected, "a project with a daemon is chosen, from below it too");
        (void) unlink(place.address);
        ok(strcmp(chosen(&nothing, false), expected) != 0, "but only by those who search");
        ok(strcmp(chosen(&nothing, true), expected) != 0, "and not without its socket");
        const struct socket_choice relative = { .socket = "my.sock" };
        (void) snprintf(expected, sizeof(expected), "%s/my.sock", inner);
        is_text(chosen(&relative, false), expected, "a relative path becomes absolute");
        ok(chdir("/") == 0, "out of it");
        (void) snprintf(expected, sizeof(expected), "%s/kernel.sock", path);
        (void) unlink(expected);
        (void) rmdir(path);
        (void) rmdir(inner);
}

int main(int argc, char **argv) {
        if (argc > 4 && strcmp(argv[1], "serve") == 0)
                return play_serve(argv[4]);
        if (!mkdtemp(place_dir)) {
                perror("mkdtemp");
                return 1;
        }
        test_connecting();
        test_version();
        test_calls();
        test_data();
        test_wake();
        test_start();
        test_places();
        ok(rmdir(place_dir) == 0, "nothing is left");
        return done_testing();
}
