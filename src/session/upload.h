/* A request that still receives DATA: code that follows, or a file being written. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/message.h"

struct client;

struct upload {
        struct upload *next;
        uint16_t request;
        size_t max, size;
        /* Each piece, then once at the end (bytes NULL) or when the client went away (bytes NULL, gone). */
        int (*piece)(struct upload *upload, struct client *client, const char *bytes, size_t size, struct err *err);
        void (*finish)(struct upload *upload, struct client *client);
        void (*abandon)(struct upload *upload);
        json_t *json; /* the request, owned */
        void *context;
};

enum { UPLOADS_MAX = 16 };

/* Takes the upload (allocated with calloc). */
int upload_begin(struct client *client, struct upload *upload, struct err *err);

/* DATA or END from the client. */
void upload_receive(struct client *client, const struct message *message);

/* Removes and frees it; abandon is called when it had not finished. */
void upload_free(struct client *client, struct upload *upload);
