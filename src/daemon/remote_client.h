/* Blocking requests to the remote, for a child of the daemon that makes many of them (a move, a sweep). */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "wire/message.h"

struct remote_client {
        int fd; /* borrowed */
        struct message_parser parser;
};

/* Over a connection of session/remote_link.h. */
struct remote_client remote_client_make(int fd);

/* Asks, and waits for the answer (a new reference). DATA that comes before it goes to `piece`, which may be NULL. */
typedef int remote_client_piece(void *context, const char *bytes, size_t size, struct err *err);
int remote_client_ask(struct remote_client *remote, json_t *request, remote_client_piece *piece, void *context,
                      json_t **ret_answer, struct err *err);

/* The same for a request that a file follows. Takes the reference to the request. */
int remote_client_send_file(struct remote_client *remote, json_t *request, int file_fd, struct err *err);
