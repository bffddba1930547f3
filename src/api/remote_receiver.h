/* A file that is written to a sandbox of another Glovebox: as daemon/file_receiver.h for one of this host, but its
 * answer comes later. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct caller;
struct remote_receiver;
struct session;

struct remote_receiver_events {
        void (*room)(void *context); /* go on */
        void (*done)(void *context, const struct err *err); /* a file was written, or (err) was not */
};

/* Begins a file of at most `max` bytes. -1: nothing to drop. */
int remote_receiver_begin(const struct caller *caller, struct session *session, const char *relative, uint64_t max,
                          const struct remote_receiver_events *events, void *context,
                          struct remote_receiver **ret_receiver, struct err *err);

/* 1: wait for `room`. */
int remote_receiver_piece(struct remote_receiver *receiver, const char *bytes, size_t size, struct err *err);
int remote_receiver_finish(struct remote_receiver *receiver, struct err *err);

/* After `done`. */
const char *remote_receiver_path(const struct remote_receiver *receiver);
uint64_t remote_receiver_size(const struct remote_receiver *receiver);
bool remote_receiver_is_created(const struct remote_receiver *receiver);

/* NULL is fine. A file that is not complete is not written. */
void remote_receiver_drop(struct remote_receiver *receiver);
