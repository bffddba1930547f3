/* A file of the data directory that reserves space for the daemon's own writes on a full disk.
 *
 * When a write of the daemon fails for lack of space, the file is emptied and the write is retried. So results, ends
 * and the registry can be written, and a daemon starts, on a disk that is full. From then on the reserve is in use, and
 * new runs and sessions are refused, until there is space again and the file can be made anew. The space that a session
 * needs to end its run is reserved in its journal besides (journal_room.c): no other file can take that space. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Call it when the daemon starts: creates the file, or empties it if the disk is full already. */
void disk_reserve_open(const char *data_dir);

/* Call it when a write found no space. True if the reserve was released: retry the write. */
bool disk_reserve_use(void);

/* Call it periodically: creates the file again if there is space. */
void disk_reserve_restore(void);

/* ERR_NO_SPACE while it is in use: for operations that need more space. */
int disk_reserve_check(struct err *err);

struct disk_reserve_state {
        bool is_in_use;
        uint64_t reserve_bytes; /* that it has now */
        uint64_t free_bytes;    /* of the file system, for us */
};
void disk_reserve_look(struct disk_reserve_state *ret_state);
