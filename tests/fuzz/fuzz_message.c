/* Untrusted bytes as messages: the first byte chooses the side and how the rest is cut into pieces. However it is cut,
 * the same messages come out; each is one that its side may send, and what the parser holds stays bounded. A parser
 * that hands DATA out in pieces gives the same bytes to the same requests. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/message_io.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

struct sum {
        uint64_t hash;
        int last;     /* what the parser answered in the end */
        bool between; /* the bytes ended where a message does */
};

static void add(struct sum *sum, const void *bytes, size_t size) {
        for (size_t i = 0; i < size; i++)
                sum->hash = (sum->hash ^ ((const uint8_t *) bytes)[i]) * 0x100000001b3;
}

static void check(enum message_side side, const struct message *message) {
        if (message->size > message_payload_max(message->type))
                abort();
        bool of_client =
                message->type == MESSAGE_REQUEST || message->type == MESSAGE_DATA || message->type == MESSAGE_END;
        if (side == MESSAGE_FROM_CLIENT ? !of_client : message->type == MESSAGE_REQUEST)
                abort();
}

/* DATA counts by its bytes and whose they are: where one message ends and the next begins means nothing. */
static void add_message(struct sum *sum, const struct message *message) {
        if (message->type != MESSAGE_DATA) {
                add(sum, &message->type, sizeof(message->type));
                add(sum, &message->request, sizeof(message->request));
                add(sum, message->bytes, message->size);
                return;
        }
        for (size_t i = 0; i < message->size; i++) {
                add(sum, &message->request, sizeof(message->request));
                add(sum, message->bytes + i, 1);
        }
}

static struct sum parse(enum message_side side, const uint8_t *bytes, size_t size, size_t piece, bool in_pieces) {
        struct sum sum = { .hash = 0xcbf29ce484222325 };
        struct message_parser parser = message_parser_make(side);
        if (in_pieces)
                message_parser_take_pieces(&parser);
        while (size > 0 && sum.last >= 0) {
                long taken = message_io_feed(&parser, bytes, size < piece ? size : piece);
                if (taken <= 0)
                        abort(); /* the messages were taken, so there is room; a broken parser is left below */
                bytes += taken;
                size -= (size_t) taken;
                struct message message;
                while ((sum.last = message_parser_next(&parser, &message)) == 1) {
                        check(side, &message);
                        add_message(&sum, &message);
                }
                if (parser.room > MESSAGE_ANSWER_MAX + (256 << 10))
                        abort();
        }
        sum.between = message_parser_is_between(&parser);
        message_parser_release(&parser);
        return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
        if (size < 1)
                return 0;
        enum message_side side = bytes[0] & 1 ? MESSAGE_FROM_CLIENT : MESSAGE_FROM_DAEMON;
        size_t piece = (size_t) (bytes[0] >> 1) + 1;
        struct sum whole = parse(side, bytes + 1, size - 1, size, false);
        struct sum cut = parse(side, bytes + 1, size - 1, piece, false);
        struct sum pieces = parse(side, bytes + 1, size - 1, piece, true);
        if (whole.hash != cut.hash || whole.last != cut.last || whole.between != cut.between)
                abort();
        if (whole.last != pieces.last || whole.between != pieces.between)
                abort();
        if ((whole.between || whole.last < 0) && whole.hash != pieces.hash)
                abort();
        return 0;
}
