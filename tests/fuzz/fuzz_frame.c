/* Untrusted bytes as frames. However they are cut into pieces the same frames come out; each is within its bounds; its
 * fields read in any order stay inside it; and what was read, written again, is what was there. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { INPUT_MAX = 64 << 10 }; /* fits into a socket, so that nothing here waits */

static void must(int condition) {
        if (!condition)
                abort();
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t size) {
        for (size_t i = 0; i < size; i++)
                hash = (hash ^ ((const uint8_t *) bytes)[i]) * 0x100000001b3;
        return hash;
}

/* Reads fields as the id says, four bits for each, and writes them again. */
static void read_fields(const struct frame *frame) {
        struct frame_reader reader = frame_read(frame);
        struct frame_writer again = { 0 };
        uint32_t order = frame->id, number;
        uint64_t large;
        const char *bytes;
        size_t size, read = 0;
        bool good = true;
        for (int field = 0; field < 8 && good; field++, order >>= 4) {
                char *text = NULL, **texts = NULL, *room;
                switch (order & 15) {
                case 0:
                        if ((good = frame_get_u32(&reader, &number)))
                                frame_put_u32(&again, number);
                        break;
                case 1:
                        if ((good = frame_get_u64(&reader, &large)))
                                frame_put_u64(&again, large);
                        break;
                case 2:
                        if ((good = frame_get_text(&reader, &text)))
                                frame_put_text(&again, text);
                        free(text);
                        break;
                case 3:
                        if ((good = frame_get_texts(&reader, &texts)))
                                frame_put_texts(&again, texts);
                        frame_free_texts(texts);
                        break;
                default:
                        if ((good = frame_get_bytes(&reader, &bytes, &size)) &&
                            (room = frame_begin_bytes(&again, size + 3)) != NULL) {
                                memcpy(room, bytes, size);
                                frame_end_bytes(&again, size + 3, size);
                        }
                }
                must(reader.at <= reader.end && reader.end == frame->payload + frame->size);
                read = good ? (size_t) (reader.at - frame->payload) : read;
        }
        must(again.failed || (again.size == read && memcmp(again.bytes ? again.bytes : "", frame->payload, read) == 0));
        frame_writer_release(&again);
}

/* Feeds the bytes in pieces; returns a sum of all frames and of how it ended. */
static uint64_t receive_all(const uint8_t *bytes, size_t size, size_t piece) {
        int ends[2];
        must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        struct frame_inbox inbox = { 0 };
        struct frame frame;
        uint64_t hash = 0xcbf29ce484222325;
        int code = 0;
        while (code >= 0) {
                size_t now = size < piece ? size : piece;
                if (now == 0)
                        must(shutdown(ends[0], SHUT_WR) == 0);
                else
                        must(write(ends[0], bytes, now) == (ssize_t) now);
                bytes += now;
                size -= now;
                while ((code = frame_inbox_receive(&inbox, ends[1], MSG_DONTWAIT, &frame)) == 1) {
                        must(frame.size <= FRAME_PAYLOAD_MAX && frame.n_fds == 0 && frame.payload[frame.size] == '\0');
                        hash = mix(hash, &frame.type, sizeof(frame.type));
                        hash = mix(hash, &frame.id, sizeof(frame.id));
                        hash = mix(hash, frame.payload, frame.size);
                        read_fields(&frame);
                        frame_release(&frame);
                }
        }
        must(code == -ENODATA || code == -EPROTO);
        must(inbox.header_size == 0 && inbox.frame.payload == NULL);
        close(ends[0]);
        close(ends[1]);
        return mix(hash, &code, sizeof(code));
}

/* The first byte says how long a piece is. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
        if (size < 1 || size > INPUT_MAX)
                return 0;
        size_t piece = (size_t) bytes[0] + 1;
        must(receive_all(bytes + 1, size - 1, size) == receive_all(bytes + 1, size - 1, piece));
        return 0;
}
