/* A small server on src/http, for tests/api: each path shows one thing that handlers do. Prints its port, then serves
 * until its standard input ends. Arguments: name=number for the options, unix=PATH. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/memory.h"
#include "http/http.h"
#include "http/multipart.h"
#include "http/query.h"

static struct loop *loop;
static struct http_server *server;
static unsigned n_gone, n_holding;

struct api_request {
        struct http_request *request;
        uint64_t received, to_send, pieces;
        bool is_paced;
        struct multipart *multipart;
        char text[2000];
        struct loop_timer *timer;
};

static void forget(struct api_request *api_request) {
        loop_timer_drop(&api_request->timer);
        multipart_close(api_request->multipart);
        free(api_request);
}

static void on_gone(void *context) {
        n_gone++;
        forget(context);
}

static void answer_text(struct api_request *api_request, const char *text) {
        (void) http_respond(api_request->request, 200, "text/plain", text, strlen(text));
        forget(api_request);
}

/* ---- /count: how long was the body? /slow: the same, but it is taken only in small bites ---- */

static void on_counted(void *context, const char *bytes, size_t size) {
        struct api_request *api_request = context;
        (void) bytes;
        api_request->received += size;
}

static void on_count_end(void *context) {
        struct api_request *api_request = context;
        char text[64];
        (void) snprintf(text, sizeof(text), "%llu\n", (unsigned long long) api_request->received);
        answer_text(api_request, text);
}

static const struct http_events count_events = { .on_body = on_counted,
                                                 .on_body_end = on_count_end,
                                                 .on_gone = on_gone };

static const struct http_events slow_events, pause_events = { .on_gone = on_gone };

static void on_bite_time(void *context) {
        struct api_request *api_request = context;
        api_request->timer = NULL;
        http_attend(api_request->request, &slow_events, api_request);
}

static void on_bite(void *context, const char *bytes, size_t size) {
        struct api_request *api_request = context;
        on_counted(context, bytes, size);
        http_attend(api_request->request, &pause_events, api_request);
        api_request->timer = loop_timer(loop, loop_now_ms() + 5, on_bite_time, api_request);
}

static const struct http_events slow_events = { .on_body = on_bite, .on_body_end = on_count_end, .on_gone = on_gone };

static void count(struct api_request *api_request, const struct http_pairs *query) {
        (void) query;
        http_attend(api_request->request, &count_events, api_request);
}

static void slow(struct api_request *api_request, const struct http_pairs *query) {
        (void) query;
        http_attend(api_request->request, &slow_events, api_request);
}

/* ---- /stream?size=N: so many bytes, in chunks or (length=1) of a known length ---- */

static void send_more(void *context) {
        static const char piece[16384] = { 'x' };
        struct api_request *api_request = context;
        while (api_request->to_send > 0) {
                size_t size = api_request->to_send < sizeof(piece) ? (size_t) api_request->to_send : sizeof(piece);
                int code = http_stream_write(api_request->request, piece, size);
                if (code < 0)
                        break;
                api_request->to_send -= size;
                api_request->pieces++;
                if (code == 1)
                        return;
        }
        if (api_request->to_send > 0)
                http_stream_abort(api_request->request);
        else
                http_stream_end(api_request->request);
        forget(api_request);
}

static const struct http_events stream_events = { .on_drained = send_more, .on_gone = on_gone };

static void stream(struct api_request *api_request, const struct http_pairs *query) {
        const char *size = http_query_find(query, "size");
        api_request->to_send = size ? strtoull(size, NULL, 10) : 0;
        http_attend(api_request->request, &stream_events, api_request);
        int64_t length = http_query_find(query, "length") ? (int64_t) api_request->to_send : HTTP_CHUNKED;
        if (http_stream_begin(api_request->request, 200, "application/octet-stream", length) < 0)
                abort();
        send_more(api_request);
}

/* ---- /hold: never answered, /tick: a line now and then, /broken: a stream that ends before its end ---- */

static void on_held_gone(void *context) {
        n_holding--;
        on_gone(context);
}

static void hold(struct api_request *api_request, const struct http_pairs *query) {
        static const struct http_events events = { .on_gone = on_held_gone };
        (void) query;
        n_holding++;
        http_attend(api_request->request, &events, api_request);
}

static void on_tick(void *context) {
        struct api_request *api_request = context;
        api_request->timer = NULL;
        (void) http_stream_write(api_request->request, "tick\n", 5);
        if (--api_request->to_send > 0) {
                api_request->timer = loop_timer(loop, loop_now_ms() + 20, on_tick, api_request);
                return;
        }
        http_stream_end(api_request->request);
        forget(api_request);
}

static void tick(struct api_request *api_request, const struct http_pairs *query) {
        const char *n = http_query_find(query, "n");
        api_request->to_send = n ? strtoull(n, NULL, 10) : 3;
        http_attend(api_request->request, &stream_events, api_request);
        (void) http_stream_begin(api_request->request, 200, "text/plain", HTTP_CHUNKED);
        api_request->timer = loop_timer(loop, loop_now_ms() + 20, on_tick, api_request);
}

static void broken(struct api_request *api_request, const struct http_pairs *query) {
        (void) query;
        (void) http_stream_begin(api_request->request, 200, "text/plain", HTTP_CHUNKED);
        (void) http_stream_write(api_request->request, "half", 4);
        http_stream_abort(api_request->request);
        forget(api_request);
}

/* ---- /form: says which parts came, and how long they were ---- */

static int on_part(void *context, const struct multipart_part *part, struct err *err) {
        struct api_request *api_request = context;
        (void) err;
        size_t used = strlen(api_request->text);
        (void) snprintf(api_request->text + used, sizeof(api_request->text) - used, "%s %s ", part->name,
                        part->file_name ? part->file_name : "-");
        api_request->received = 0;
        return 0;
}

static int on_part_data(void *context, const char *bytes, size_t size, struct err *err) {
        (void) err;
        on_counted(context, bytes, size);
        return 0;
}

static int on_part_end(void *context, struct err *err) {
        struct api_request *api_request = context;
        (void) err;
        size_t used = strlen(api_request->text);
        (void) snprintf(api_request->text + used, sizeof(api_request->text) - used, "%llu\n",
                        (unsigned long long) api_request->received);
        return 0;
}

static void on_form_data(void *context, const char *bytes, size_t size) {
        struct api_request *api_request = context;
        struct err err;
        if (multipart_feed(api_request->multipart, bytes, size, &err) < 0) {
                http_problem_err(api_request->request, &err);
                forget(api_request);
        }
}

static void on_form_end(void *context) {
        struct api_request *api_request = context;
        struct err err;
        if (multipart_finish(api_request->multipart, &err) == 0) {
                answer_text(api_request, api_request->text);
                return;
        }
        http_problem_err(api_request->request, &err);
        forget(api_request);
}

static void form(struct api_request *api_request, const struct http_pairs *query) {
        static const struct multipart_events parts = { on_part, on_part_data, on_part_end };
        static const struct http_events events = { .on_body = on_form_data,
                                                   .on_body_end = on_form_end,
                                                   .on_gone = on_gone };
        struct err err;
        (void) query;
        if (multipart_open(http_header(api_request->request, "Content-Type"), &parts, api_request,
                           &api_request->multipart, &err) < 0) {
                http_problem_err(api_request->request, &err);
                forget(api_request);
                return;
        }
        http_attend(api_request->request, &events, api_request);
}

/* ---- /echo: a body of at most 1000 bytes, whole; /ping, /stats ---- */

static void on_echo(void *context, struct http_request *request, const char *bytes, size_t size) {
        if (request)
                (void) http_respond(request, 200, "application/octet-stream", bytes, size);
        else
                n_gone++;
        forget(context);
}

static void echo(struct api_request *api_request, const struct http_pairs *query) {
        (void) query;
        if (http_collect_body(api_request->request, 1000, on_echo, api_request) < 0)
                forget(api_request);
}

static void ping(struct api_request *api_request, const struct http_pairs *query) {
        (void) query;
        answer_text(api_request, "pong\n");
}

static void stats(struct api_request *api_request, const struct http_pairs *query) {
        const struct http_counters *c = http_server_counters(server);
        char text[512];
        (void) query;
        (void) snprintf(text, sizeof(text),
                        "{\"open\":%llu,\"accepted\":%llu,\"turned_away\":%llu,\"requests\":%llu,\"refused\":%llu,"
                        "\"timeouts\":%llu,\"gone\":%u,\"holding\":%u}\n",
                        (unsigned long long) c->open, (unsigned long long) c->accepted,
                        (unsigned long long) c->turned_away, (unsigned long long) c->requests,
                        (unsigned long long) c->refused, (unsigned long long) c->timeouts, n_gone, n_holding);
        answer_text(api_request, text);
}

static void on_drained(void *context) {
        (void) context;
        loop_stop(loop);
}

/* ---- the rest ---- */

static const struct {
        const char *path;
        void (*run)(struct api_request *api_request, const struct http_pairs *query);
} paths[] = {
        { "/ping", ping }, { "/count", count },   { "/slow", slow }, { "/stream", stream }, { "/hold", hold },
        { "/tick", tick }, { "/broken", broken }, { "/form", form }, { "/echo", echo },     { "/stats", stats },
};

static void handle(void *context, struct http_request *request) {
        struct http_pairs query;
        struct err err;
        (void) context;
        if (http_query_parse(http_query(request), &query, &err) < 0) {
                http_problem_err(request, &err);
                return;
        }
        for (size_t i = 0; i < ELEMENTS(paths); i++) {
                if (strcmp(http_path(request), paths[i].path) != 0)
                        continue;
                struct api_request *api_request = calloc(1, sizeof(*api_request));
                if (!api_request)
                        abort();
                api_request->request = request;
                paths[i].run(api_request, &query);
                http_query_free(&query);
                return;
        }
        http_query_free(&query);
        http_problem(request, 404, "not_found", "there is no such path", NULL);
}

/* A line on standard input drains; its end stops at once. */
static void on_input(void *context, uint32_t events) {
        char byte;
        (void) context;
        (void) events;
        if (read(STDIN_FILENO, &byte, 1) == 1)
                http_server_drain(server, on_drained, NULL);
        else
                loop_stop(loop);
}

static void take_argument(struct http_options *options, const char *argument) {
        const struct {
                const char *name;
                unsigned *value;
        } numbers[] = {
                { "connections", &options->connections_max },
                { "head_ms", &options->head_ms },
                { "idle_ms", &options->idle_ms },
                { "body_ms", &options->body_window_ms },
                { "body_min", &options->body_window_min },
                { "stall_ms", &options->stall_ms },
                { "linger_ms", &options->linger_ms },
        };
        size_t size = strcspn(argument, "=");
        for (size_t i = 0; i < ELEMENTS(numbers); i++)
                if (strlen(numbers[i].name) == size && strncmp(argument, numbers[i].name, size) == 0 &&
                    argument[size] == '=')
                        *numbers[i].value = (unsigned) atoi(argument + size + 1);
        if (strncmp(argument, "unix=", 5) == 0)
                options->unix_path = argument + 5;
}

int main(int argc, char **argv) {
        struct http_options options = { .tcp_host = "127.0.0.1" };
        struct http_handler handler = { .handle = handle };
        struct err err;
        for (int i = 1; i < argc; i++)
                take_argument(&options, argv[i]);
        if (loop_make(&loop, &err) < 0 || http_server_open(loop, &options, &handler, &server, &err) < 0) {
                fprintf(stderr, "http-example: %s\n", err.message);
                return EXIT_FAILURE;
        }
        printf("%u\n", http_server_port(server));
        fflush(stdout);
        struct loop_watch *input = loop_watch(loop, STDIN_FILENO, EPOLLIN, on_input, NULL);
        int code = loop_run(loop, &err);
        loop_unwatch(&input);
        http_server_close(server);
        loop_free(loop);
        return code < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
