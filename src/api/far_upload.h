/* A file that is written to a sandbox of another Glovebox: as daemon/file_receiver.h for one of this host, but its
 * answer comes later. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct caller;
struct far_upload;
struct session;

struct far_upload_events {
        void (*room)(void *context); /* go on */
        void (*done)(void *context, const struct err *err); /* a file was written, or (err) was not */
};

/* Begins a file of at most `max` bytes. -1: nothing to drop. */
int far_upload_begin(const struct caller *caller, struct session *session, const char *relative, uint64_t max,
                     const struct far_upload_events *events, void *context, struct far_upload **ret_upload,
                     struct err *err);

/* 1: wait for `room`. */
int far_upload_piece(struct far_upload *upload, const char *bytes, size_t size, struct err *err);
int far_upload_finish(struct far_upload *upload, struct err *err);

/* After `done`. */
const char *far_upload_path(const struct far_upload *upload);
uint64_t far_upload_size(const struct far_upload *upload);
bool far_upload_is_created(const struct far_upload *upload);

/* NULL is fine. A file that is not complete is not written. */
void far_upload_drop(struct far_upload *upload);
