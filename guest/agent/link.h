/* The stream to the host. Nothing here blocks: bytes that the host does not take yet are queued. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "wire/frame.h"

void link_open(int socket_fd); /* borrowed */
void link_release(void);

/* Sends or queues a frame; a payload that could not be built is a failure of the link, which then is broken: the host
 * would wait for this frame for ever. */
void link_send(enum frame_type type, uint32_t id, const struct frame_writer *payload);
void link_send_failed(uint32_t id, int code, const char *step);

/* 1 and a frame, 0 for not yet, -errno. */
int link_receive(struct frame *ret_frame);

void link_flush(void);
bool link_has_queue(void);
bool link_is_full(void);   /* read nothing that makes more frames */
bool link_is_broken(void); /* the host is gone: the box ends */
