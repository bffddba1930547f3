/* A request that still receives DATA: code that follows, or a file being written. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "wire/message.h"

struct caller;
struct client;

struct upload {
        struct upload *next;
        struct caller *caller; /* a client's request */
        int (*piece)(struct upload *upload, const char *bytes, size_t size, struct err *err); /* bounds what comes */
        void (*finish)(struct upload *upload);  /* all is there: answers */
        void (*abandon)(struct upload *upload); /* always the last call: releases everything */
        json_t *json; /* the request, owned */
};

enum { UPLOADS_MAX = 16 };

/* Takes the upload (allocated with calloc), even if it fails. ERR_UNSUPPORTED: the caller's protocol has no DATA. */
int upload_begin(struct upload *upload, struct err *err);

/* DATA or END from the client. */
void upload_receive(struct client *client, const struct message *message);

/* Removes and frees it. */
void upload_free(struct client *client, struct upload *upload);
