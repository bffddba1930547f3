/* A file that is written to a session's workspace through any front end: begin, pieces, then finish or abandon. The
 * file is invisible until it is finished; then it appears whole. Each piece is charged to the session's disk limit
 * first, and given back if the file is not finished. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "store/workspace.h"

struct caller;
struct file_request;
struct session_manager;

struct file_receiver {
        struct session_manager *manager; /* NULL: there is nothing to abandon */
        char session_id[27];
        uint64_t max, size; /* how large it may become, and is */
        struct workspace_file file;
        char *path;    /* below the workspace */
        bool is_finished;
        bool replaced; /* after it was finished: it replaced something */
};

/* `max_bytes` (0: none) bounds the file besides the session's disk limit. -1: there is nothing to abandon. The request
 * is recorded as file.write when the caller is answered. */
int file_receiver_begin(struct caller *caller, const struct file_request *request, uint64_t max_bytes,
                        struct file_receiver *ret_receiver, struct err *err);

/* The bytes that the file may still have, for a sender that knows the size in advance. */
int file_receiver_check_size(const struct file_receiver *receiver, uint64_t size, struct err *err);

/* After -1 only file_receiver_abandon is called. ERR_LIMIT: it is too large. */
int file_receiver_piece(struct file_receiver *receiver, const char *bytes, size_t size, struct err *err);

/* Gives the file its name. Call file_receiver_abandon afterwards all the same. */
int file_receiver_finish(struct file_receiver *receiver, struct err *err);

/* Finishes it, and answers the caller with {"size"} when the file and its name are on the disk: a helper job waits for
 * that. -1: not answered, and no file was made. */
int file_receiver_finish_durably(struct file_receiver *receiver, struct caller *caller, struct err *err);

/* Releases it, and gives back its bytes unless it was finished. Always the last call. */
void file_receiver_abandon(struct file_receiver *receiver);
