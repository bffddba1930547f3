/* Blocking requests to the remote, for a child of the daemon that makes many of them (a move, a sweep). */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "wire/message.h"

struct far {
        int fd; /* borrowed */
        struct message_parser parser;
};

/* Over a connection of session/remote_link.h. */
struct far far_make(int fd);

/* Asks, and waits for the answer (a new reference). DATA that comes before it goes to `piece`, which may be NULL. */
typedef int far_piece(void *context, const char *bytes, size_t size, struct err *err);
int far_ask(struct far *far, json_t *request, far_piece *piece, void *context, json_t **ret_answer, struct err *err);

/* The same for a request that a file follows. Takes the reference to the request. */
int far_send_file(struct far *far, json_t *request, int file_fd, struct err *err);
