#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "tap.h"
#include "tests/support/message_io.h"

static const struct {
        const char *what;
        enum message_side side;
        int expected;
        unsigned char header[MESSAGE_HEADER_SIZE];
} headers[] = {
        { "a request of a client", MESSAGE_FROM_CLIENT, 1, { 0, 0, 0, 0, MESSAGE_REQUEST, 0, 1, 0 } },
        { "the reserved byte must be zero", MESSAGE_FROM_CLIENT, -EPROTO, { 0, 0, 0, 0, MESSAGE_REQUEST, 1, 1, 0 } },
        { "type 0", MESSAGE_FROM_CLIENT, -EPROTO, { 0, 0, 0, 0, 0, 0, 1, 0 } },
        { "type 8", MESSAGE_FROM_DAEMON, -EPROTO, { 0, 0, 0, 0, 8, 0, 1, 0 } },
        { "type 255", MESSAGE_FROM_DAEMON, -EPROTO, { 0, 0, 0, 0, 255, 0, 1, 0 } },
        { "a client sends no answer", MESSAGE_FROM_CLIENT, -EPROTO, { 0, 0, 0, 0, MESSAGE_ANSWER, 0, 1, 0 } },
        { "the daemon sends no request", MESSAGE_FROM_DAEMON, -EPROTO, { 0, 0, 0, 0, MESSAGE_REQUEST, 0, 1, 0 } },
        { "END is empty", MESSAGE_FROM_CLIENT, -EPROTO, { 1, 0, 0, 0, MESSAGE_END, 0, 1, 0 } },
        { "1 MiB of DATA waits for its bytes", MESSAGE_FROM_CLIENT, 0, { 0, 0, 16, 0, MESSAGE_DATA, 0, 1, 0 } },
        { "one byte more is refused before it comes",
          MESSAGE_FROM_CLIENT,
          -EPROTO,
          { 1, 0, 16, 0, MESSAGE_DATA, 0, 1, 0 } },
        { "4 GiB is refused", MESSAGE_FROM_DAEMON, -EPROTO, { 255, 255, 255, 255, MESSAGE_ANSWER, 0, 1, 0 } },
};

static void test_headers(void) {
        for (size_t i = 0; i < ELEMENTS(headers); i++) {
                struct message_parser parser = message_parser_make(headers[i].side);
                struct message message;
                long n = message_io_feed(&parser, headers[i].header, MESSAGE_HEADER_SIZE);
                ok(n == MESSAGE_HEADER_SIZE && message_parser_next(&parser, &message) == headers[i].expected, "%s",
                   headers[i].what);
                if (headers[i].expected < 0)
                        ok(message_io_feed(&parser, "x", 1) == -EPROTO, "and nothing is taken after it");
                ok(parser.room <= 128 << 10, "no memory for what was only announced");
                message_parser_release(&parser);
        }
}

/* Three messages, a byte at a time: each appears exactly when its last byte is there. */
static void test_pieces(void) {
        struct message_queue queue = message_queue_make(1000);
        int ends[2];
        ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "a pair of sockets");
        ok(message_queue_put(&queue, MESSAGE_ANSWER, 7, "{}", 2) == 0 &&
                   message_queue_put(&queue, MESSAGE_END, 65535, NULL, 0) == 0 &&
                   message_io_put_output(&queue, MESSAGE_ERR, 300, 0x01020304, "abc", 3) == 0,
           "three messages are put");
        ok(message_queue_size(&queue) == 3 * MESSAGE_HEADER_SIZE + 2 + 4 + 3, "their bytes are counted");
        ok(message_queue_flush(&queue, ends[0]) == 0 && message_queue_size(&queue) == 0, "and sent");
        char bytes[100];
        ssize_t size = read(ends[1], bytes, sizeof(bytes));
        ok(size == 33, "together");

        struct message_parser parser = message_parser_make(MESSAGE_FROM_DAEMON);
        struct message got[4] = { 0 };
        int at[4] = { 0 }, n = 0;
        char tail[3] = "";
        for (int i = 0; i < size && n < 4; i++) {
                if (message_io_feed(&parser, bytes + i, 1) != 1)
                        break;
                while (message_parser_next(&parser, &got[n]) == 1) {
                        if (n == 2)
                                memcpy(tail, got[n].bytes + 4, 3);
                        at[n++] = i;
                }
        }
        ok(n == 3 && at[0] == 9 && at[1] == 17 && at[2] == 32, "each is there with its last byte");
        ok(got[0].type == MESSAGE_ANSWER && got[0].request == 7 && got[0].size == 2, "the first");
        ok(got[1].type == MESSAGE_END && got[1].request == 65535 && got[1].size == 0, "the second");
        uint32_t number = 0;
        const char *text = NULL;
        size_t length = 0;
        ok(got[2].request == 300 && message_get_output(&got[2], &number, &text, &length) && number == 0x01020304 &&
                   length == 3 && memcmp(tail, "abc", 3) == 0,
           "the third, with its event number");
        ok(message_parser_is_between(&parser), "the stream may end here");
        ok(!message_get_output(&(struct message) { .bytes = "abc", .size = 3 }, &number, &text, &length),
           "output without a number is recognised");
        message_parser_release(&parser);
        (void) close(ends[0]);
        (void) close(ends[1]);
}

/* A peer that never reads: what waits is bounded, and what was put arrives unbroken once it reads. */
static void test_bounded_queue(void) {
        enum { MAX = 4 << 20, PIECE = 100000 };
        struct message_queue queue = message_queue_make(MAX);
        int ends[2];
        ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "a pair of sockets");
        char *piece = malloc(PIECE);
        int code = 0;
        uint32_t n_put = 0;
        while (code == 0 && n_put < 1000) {
                memset(piece, 'a' + (int) (n_put % 26), PIECE);
                code = message_io_put_output(&queue, MESSAGE_OUT, 1, n_put, piece, PIECE);
                if (code == 0 && message_queue_flush(&queue, ends[0]) < 0)
                        break;
                n_put += code == 0;
        }
        ok(code == -ENOBUFS && message_queue_size(&queue) <= MAX, "the bound holds");
        size_t before = message_queue_size(&queue);
        ok(message_queue_put(&queue, MESSAGE_ANSWER, 1, piece, PIECE) == -ENOBUFS &&
                   message_queue_size(&queue) == before,
           "what is refused changes nothing");
        ok(message_queue_put(&queue, MESSAGE_END, 1, "x", 1) == -E2BIG, "END cannot carry a byte");
        ok(message_queue_put(&queue, MESSAGE_DATA, 1, NULL, MESSAGE_DATA_MAX + 1) == -E2BIG, "nor DATA too many");

        struct message_parser parser = message_parser_make(MESSAGE_FROM_DAEMON);
        struct message message;
        uint32_t n_got = 0, number;
        bool intact = true;
        while (n_got < n_put) {
                if (message_queue_flush(&queue, ends[0]) < 0 || message_receive(ends[1], &parser, &message) != 1)
                        break;
                const char *bytes;
                size_t size;
                intact = intact && message_get_output(&message, &number, &bytes, &size) && number == n_got &&
                         size == PIECE && bytes[0] == (char) ('a' + n_got % 26) && bytes[PIECE - 1] == bytes[0];
                n_got++;
        }
        ok(n_got == n_put && intact, "all that was put arrives, in order");
        (void) close(ends[0]);
        ok(message_receive(ends[1], &parser, &message) == 0, "then the stream ends cleanly");
        ok(parser.room <= 4 * PIECE + (128 << 10), "the parser holds no more than a message and a step");
        message_parser_release(&parser);
        message_queue_release(&queue);
        free(piece);
        (void) close(ends[1]);
}

static void test_gone(void) {
        int ends[2];
        ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "a pair of sockets");
        ok(message_send(ends[0], MESSAGE_REQUEST, 1, "{\"op\":\"ping\"}", 13) == 0, "a request is sent");
        ok(write(ends[0], "\1\0\0", 3) == 3, "and half a header");
        (void) close(ends[0]);
        struct message_parser parser = message_parser_make(MESSAGE_FROM_CLIENT);
        struct message message;
        ok(message_receive(ends[1], &parser, &message) == 1 && message.size == 13, "the request arrives");
        ok(message_receive(ends[1], &parser, &message) == -EPROTO, "a stream that ends within a message is broken");
        struct message_queue queue = message_queue_make(100);
        ok(message_queue_put(&queue, MESSAGE_END, 1, NULL, 0) == 0 && message_queue_flush(&queue, ends[1]) == -EPIPE,
           "sending to who is gone is an error and no signal");
        message_queue_release(&queue);
        ok(message_queue_size(&queue) == 0, "released");
        ok(message_send(ends[1], MESSAGE_DATA, 1, NULL, MESSAGE_DATA_MAX + 1) == -E2BIG, "too large to send");
        message_parser_release(&parser);
        (void) close(ends[1]);
}

/* Feeding more than a parser holds: it takes a part, and the rest after its messages were taken. */
static void test_appetite(void) {
        enum { COUNT = 50000 };
        size_t size = (size_t) COUNT * MESSAGE_HEADER_SIZE, at = 0, n = 0, most = 0;
        unsigned char *bytes = calloc(1, size);
        for (size_t i = 0; i < COUNT; i++)
                bytes[i * MESSAGE_HEADER_SIZE + 4] = MESSAGE_END;
        struct message_parser parser = message_parser_make(MESSAGE_FROM_CLIENT);
        struct message message;
        while (at < size) {
                long taken = message_io_feed(&parser, bytes + at, size - at);
                if (taken <= 0)
                        break;
                at += (size_t) taken;
                most = parser.room > most ? parser.room : most;
                while (message_parser_next(&parser, &message) == 1)
                        n++;
        }
        ok(n == COUNT && at == size, "every message of a long row");
        ok(most <= 256 << 10, "in bounded memory");
        message_parser_release(&parser);
        free(bytes);
}

/* A parser that need not hold DATA whole: its bytes come as they arrive, also straight from the socket. */
static void test_data_in_pieces(void) {
        enum { SIZE = 300000 };
        int ends[2];
        ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "a pair of sockets");
        char *content = malloc(SIZE), *room = malloc(SIZE);
        for (size_t i = 0; i < SIZE; i++)
                content[i] = (char) (i * 7 + i / 256);
        struct message_queue queue = message_queue_make(1 << 20);
        struct message_parser parser = message_parser_make(MESSAGE_FROM_CLIENT);
        message_parser_take_pieces(&parser);
        ok(message_queue_send(&queue, ends[0], MESSAGE_DATA, 9, 0, content, SIZE) == 1,
           "more than a socket takes at once");
        ok(message_queue_size(&queue) > 0 && message_queue_size(&queue) < SIZE, "only the rest waits");
        ok(message_queue_send(&queue, ends[0], MESSAGE_END, 9, 0, NULL, 0) == 1, "the next one waits behind it");
        size_t got = 0, straight = 0;
        bool same = true, ended = false;
        for (int turn = 0; turn < 1000 && !ended; turn++) {
                struct message message;
                int code = message_parser_read_piece(&parser, ends[1], room, SIZE, &message);
                straight += code == 1 ? message.size : 0;
                if (code == 0 && message_parser_read(&parser, ends[1]) > 0)
                        code = message_parser_next(&parser, &message);
                for (; code == 1 && !ended; code = message_parser_next(&parser, &message)) {
                        ended = message.type == MESSAGE_END;
                        same = same && message.request == 9 && got + message.size <= SIZE &&
                               memcmp(content + got, message.bytes, message.size) == 0;
                        got += message.size;
                }
                (void) message_queue_flush(&queue, ends[0]);
        }
        ok(same && got == SIZE && ended, "all bytes come, in order, before END");
        ok(straight > SIZE / 2, "most of them never were in the parser");
        ok(parser.room <= 128 << 10 && message_parser_is_between(&parser), "which holds little, and nothing now");
        ok(message_queue_send(&queue, ends[0], MESSAGE_OUT, 1, 5, "abc", 3) == 0, "output has its number");
        ok(read(ends[1], room, SIZE) == 15 && memcmp(room + 8, "\5\0\0\0abc", 7) == 0, "before its bytes");
        ok(message_queue_send_joined(&queue, ends[0], MESSAGE_ANSWER, 1, "{\"ok\":true,", 11, "\"a\":1}", 6) == 0,
           "a payload in two parts");
        ok(read(ends[1], room, SIZE) == 25 && memcmp(room + 8, "{\"ok\":true,\"a\":1}", 17) == 0, "is one message");
        message_parser_release(&parser);
        message_queue_release(&queue);
        free(content);
        free(room);
        (void) close(ends[0]);
        (void) close(ends[1]);
}

int main(void) {
        test_data_in_pieces();
        test_headers();
        test_pieces();
        test_bounded_queue();
        test_gone();
        test_appetite();
        return done_testing();
}
