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
        char *payload; /* freed by the caller */
        size_t size;
};

/* Opens both ends, so that commands do not inherit them. */
bool channel_open(void);

/* Waits for the next whole request. 1: there is one; 0: the host has closed the pipe; -1: the data are malformed. */
int channel_receive(struct channel_frame *ret_frame);

/* Ignores errors: if the host is gone, the next channel_receive returns 0. */
void channel_send(enum channel_type type, const void *payload, size_t size);

/* Takes the reference. */
void channel_send_json(enum channel_type type, json_t *payload);
