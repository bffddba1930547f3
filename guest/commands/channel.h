/* The kernel's ends of two pipes: requests on descriptor 3, replies on 4 (docs/KERNEL-PROTOCOL.md). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum channel_type {
        CHANNEL_EXECUTE = 1,
        CHANNEL_PING = 2,
        CHANNEL_PIECE = 8,
        CHANNEL_READY = 128,
        CHANNEL_RESULT = 129,
        CHANNEL_DISPLAY = 130,
        CHANNEL_PONG = 131,
        CHANNEL_ANSWER = 132,
        CHANNEL_REPEATED = 133,
};

struct channel_frame {
        uint8_t type;
        char *payload; /* of the caller, who frees it */
        size_t size;
};

/* Keeps both from the commands. */
bool channel_open(void);

/* Waits for the next request, put together of its pieces. 1; 0 when the host has closed the pipe; -1 after a protocol
 * error. */
int channel_receive(struct channel_frame *ret_frame);

/* Failures are ignored: if the host has closed the pipe, the next receive ends the process. */
void channel_send(enum channel_type type, const void *payload, size_t size);

/* Takes the reference. */
void channel_send_json(enum channel_type type, json_t *payload);
