/* Messages as tests send and receive them. */
#pragma once

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "tests/support/memory_file.h"
#include "wire/message.h"

/* Gives bytes to the parser until it has no room for more. Returns how many it took, or -errno. */
static inline long message_io_feed(struct message_parser *parser, const void *bytes, size_t size) {
        int fd = memory_file(bytes, size);
        long taken = 0, n;
        while ((n = message_parser_read(parser, fd)) > 0)
                taken += n;
        (void) close(fd);
        return n < 0 && n != -ENOBUFS ? n : taken;
}

/* Queues OUT or ERR. */
static inline int message_io_put_output(struct message_queue *queue, enum message_type type, uint16_t request,
                                        uint32_t number, const void *bytes, size_t size) {
        uint32_t number_le = htole32(number);
        char *payload = malloc(sizeof(number_le) + size);
        if (!payload)
                abort();
        memcpy(payload, &number_le, sizeof(number_le));
        memcpy(payload + sizeof(number_le), bytes, size);
        int code = message_queue_put(queue, type, request, payload, sizeof(number_le) + size);
        free(payload);
        return code;
}
