/* A file of the data directory that holds nothing but room: for the daemon's own writes on a full disk.
 *
 * When a write of the daemon's finds no room, the file is emptied and the write is tried again. So results, ends and
 * the registry can be written, and a daemon starts, on a disk that is full. From then on the reserve is in use, and new
 * runs and sessions are refused, until there is space again and the file can be made anew. What a session needs to end
 * its run is reserved in its journal besides (journal_room.c): no other file can take that space. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* At the start of a daemon: makes the file, or empties it when the disk is full already. */
void disk_reserve_open(const char *data_dir);

/* There was no room. True when there is some now: the write is worth another attempt. */
bool disk_reserve_use(void);

/* Now and then: makes the file again when there is space. */
void disk_reserve_restore(void);

/* ERR_NO_SPACE while it is in use: for what would need more room. */
int disk_reserve_check(struct err *err);

struct disk_reserve_state {
        bool is_in_use;
        uint64_t reserve_bytes; /* that it has now */
        uint64_t free_bytes;    /* of the file system, for us */
};
void disk_reserve_look(struct disk_reserve_state *ret_state);
