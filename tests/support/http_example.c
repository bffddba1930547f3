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

struct exchange {
        struct http_request *request;
        uint64_t received, to_send, pieces;
        bool is_paced;
        struct multipart *multipart;
        char text[2000];
        struct loop_timer *timer;
};

static void forget(struct exchange *exchange) {
        loop_timer_drop(&exchange->timer);
        multipart_close(exchange->multipart);
        free(exchange);
}

static void on_gone(void *context) {
        n_gone++;
        forget(context);
}

static void answer_text(struct exchange *exchange, const char *text) {
        (void) http_respond(exchange->request, 200, "text/plain", text, strlen(text));
        forget(exchange);
}

/* ---- /count: how long was the body? /slow: the same, but it is taken only in small bites ---- */

static void on_counted(void *context, const char *bytes, size_t size) {
        struct exchange *exchange = context;
        (void) bytes;
        exchange->received += size;
}

static void on_count_end(void *context) {
        struct exchange *exchange = context;
        char text[64];
        (void) snprintf(text, sizeof(text), "%llu\n", (unsigned long long) exchange->received);
        answer_text(exchange, text);
}

static const struct http_events count_events = { .on_body = on_counted,
                                                 .on_body_end = on_count_end,
                                                 .on_gone = on_gone };

static void on_bite_time(void *context) {
        struct exchange *exchange = context;
        exchange->timer = NULL;
        http_resume_body(exchange->request);
}

static void on_bite(void *context, const char *bytes, size_t size) {
        struct exchange *exchange = context;
        on_counted(context, bytes, size);
        http_pause_body(exchange->request);
        exchange->timer = loop_timer(loop, loop_now_ms() + 5, on_bite_time, exchange);
}

static const struct http_events slow_events = { .on_body = on_bite, .on_body_end = on_count_end, .on_gone = on_gone };

static void count(struct exchange *exchange, const struct http_pairs *query) {
        (void) query;
        http_attend(exchange->request, &count_events, exchange);
}

static void slow(struct exchange *exchange, const struct http_pairs *query) {
        (void) query;
        http_attend(exchange->request, &slow_events, exchange);
}

/* ---- /stream?size=N: so many bytes, in chunks or (length=1) of a known length ---- */

static void send_more(void *context) {
        static const char piece[16384] = { 'x' };
        struct exchange *exchange = context;
        while (exchange->to_send > 0) {
                size_t size = exchange->to_send < sizeof(piece) ? (size_t) exchange->to_send : sizeof(piece);
                int code = http_stream_write(exchange->request, piece, size);
                if (code < 0)
                        break;
                exchange->to_send -= size;
                exchange->pieces++;
                if (code == 1)
                        return;
        }
        if (exchange->to_send > 0)
                http_stream_abort(exchange->request);
        else
                http_stream_end(exchange->request);
        forget(exchange);
}

static const struct http_events stream_events = { .on_drained = send_more, .on_gone = on_gone };

static void stream(struct exchange *exchange, const struct http_pairs *query) {
        const char *size = http_query_find(query, "size");
        exchange->to_send = size ? strtoull(size, NULL, 10) : 0;
        http_attend(exchange->request, &stream_events, exchange);
        int64_t length = http_query_find(query, "length") ? (int64_t) exchange->to_send : HTTP_CHUNKED;
        if (http_stream_begin(exchange->request, 200, "application/octet-stream", length) < 0)
                abort();
        send_more(exchange);
}

/* ---- /hold: never answered, /tick: a line now and then, /broken: a stream that ends before its end ---- */

static void on_held_gone(void *context) {
        n_holding--;
        on_gone(context);
}

static void hold(struct exchange *exchange, const struct http_pairs *query) {
        static const struct http_events events = { .on_gone = on_held_gone };
        (void) query;
        n_holding++;
        http_attend(exchange->request, &events, exchange);
}

static void on_tick(void *context) {
        struct exchange *exchange = context;
        exchange->timer = NULL;
        (void) http_stream_write(exchange->request, "tick\n", 5);
        if (--exchange->to_send > 0) {
                exchange->timer = loop_timer(loop, loop_now_ms() + 20, on_tick, exchange);
                return;
        }
        http_stream_end(exchange->request);
        forget(exchange);
}

static void tick(struct exchange *exchange, const struct http_pairs *query) {
        const char *n = http_query_find(query, "n");
        exchange->to_send = n ? strtoull(n, NULL, 10) : 3;
        http_attend(exchange->request, &stream_events, exchange);
        (void) http_stream_begin(exchange->request, 200, "text/plain", HTTP_CHUNKED);
        exchange->timer = loop_timer(loop, loop_now_ms() + 20, on_tick, exchange);
}

static void broken(struct exchange *exchange, const struct http_pairs *query) {
        (void) query;
        (void) http_stream_begin(exchange->request, 200, "text/plain", HTTP_CHUNKED);
        (void) http_stream_write(exchange->request, "half", 4);
        http_stream_abort(exchange->request);
        forget(exchange);
}

/* ---- /form: says which parts came, and how long they were ---- */

static int on_part(void *context, const struct multipart_part *part, struct err *err) {
        struct exchange *exchange = context;
        (void) err;
        size_t used = strlen(exchange->text);
        (void) snprintf(exchange->text + used, sizeof(exchange->text) - used, "%s %s ", part->name,
                        part->file_name ? part->file_name : "-");
        exchange->received = 0;
        return 0;
}

static int on_part_data(void *context, const char *bytes, size_t size, struct err *err) {
        (void) err;
        on_counted(context, bytes, size);
        return 0;
}

static int on_part_end(void *context, struct err *err) {
        struct exchange *exchange = context;
        (void) err;
        size_t used = strlen(exchange->text);
        (void) snprintf(exchange->text + used, sizeof(exchange->text) - used, "%llu\n",
                        (unsigned long long) exchange->received);
        return 0;
}

static void on_form_data(void *context, const char *bytes, size_t size) {
        struct exchange *exchange = context;
        struct err err;
        if (multipart_feed(exchange->multipart, bytes, size, &err) < 0) {
                http_problem_err(exchange->request, &err);
                forget(exchange);
        }
}

static void on_form_end(void *context) {
        struct exchange *exchange = context;
        struct err err;
        if (multipart_finish(exchange->multipart, &err) == 0) {
                answer_text(exchange, exchange->text);
                return;
        }
        http_problem_err(exchange->request, &err);
        forget(exchange);
}

static void form(struct exchange *exchange, const struct http_pairs *query) {
        static const struct multipart_events parts = { on_part, on_part_data, on_part_end };
        static const struct http_events events = { .on_body = on_form_data,
                                                   .on_body_end = on_form_end,
                                                   .on_gone = on_gone };
        struct err err;
        (void) query;
        if (multipart_open(http_header(exchange->request, "Content-Type"), &parts, exchange, &exchange->multipart,
                           &err) < 0) {
                http_problem_err(exchange->request, &err);
                forget(exchange);
                return;
        }
        http_attend(exchange->request, &events, exchange);
}

/* ---- /echo: a body of at most 1000 bytes, whole; /ping, /stats ---- */

static void on_echo(void *context, struct http_request *request, const char *bytes, size_t size) {
        if (request)
                (void) http_respond(request, 200, "application/octet-stream", bytes, size);
        else
                n_gone++;
        forget(context);
}

static void echo(struct exchange *exchange, const struct http_pairs *query) {
        (void) query;
        if (http_collect_body(exchange->request, 1000, on_echo, exchange) < 0)
                forget(exchange);
}

static void ping(struct exchange *exchange, const struct http_pairs *query) {
        (void) query;
        answer_text(exchange, "pong\n");
}

static void stats(struct exchange *exchange, const struct http_pairs *query) {
        const struct http_counters *c = http_server_counters(server);
        char text[512];
        (void) query;
        (void) snprintf(text, sizeof(text),
                        "{\"open\":%llu,\"accepted\":%llu,\"turned_away\":%llu,\"requests\":%llu,\"refused\":%llu,"
                        "\"timeouts\":%llu,\"gone\":%u,\"holding\":%u}\n",
                        (unsigned long long) c->open, (unsigned long long) c->accepted,
                        (unsigned long long) c->turned_away, (unsigned long long) c->requests,
                        (unsigned long long) c->refused, (unsigned long long) c->timeouts, n_gone, n_holding);
        answer_text(exchange, text);
}

static void on_drained(void *context) {
        (void) context;
        loop_stop(loop);
}

/* ---- the rest ---- */

static const struct {
        const char *path;
        void (*run)(struct exchange *exchange, const struct http_pairs *query);
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
                struct exchange *exchange = calloc(1, sizeof(*exchange));
                if (!exchange)
                        abort();
                exchange->request = request;
                paths[i].run(exchange, &query);
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
