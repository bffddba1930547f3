/* Every maximum of the agent. Together they bound the memory that the host or the box can make it use. */
#pragma once

#include "wire/frame.h"

enum {
        CHILDREN_MAX = 256,            /* processes that the host started and whose end was not reported */
        STREAM_WINDOW = 256 << 10,     /* bytes of OUTPUT that the host has not acknowledged, of one process */
        STREAM_INPUT_MAX = 256 << 10,  /* bytes of INPUT that the process has not taken */
        STREAM_CHUNK = 60 << 10,       /* bytes in one OUTPUT; with its fields in one block of 64 KiB */
        LINK_FULL = 2 << 20,           /* bytes queued for the host; above it, nothing is read that adds more */
        FILE_READ_MAX = FRAME_PAYLOAD_MAX - 64,
        FILE_LIST_MAX = 1024,          /* entries in one answer */
        WRITES_MAX = 16,
        WATCHES_MAX = 64,
        REMOVALS_MAX = 4,
        REMOVAL_TURN = 256,            /* entries before other work has a turn */
        POLLS_MAX = 4 + 3 * CHILDREN_MAX,
};

/* Begins the name of a file that is still being written. */
#define WRITE_PREFIX ".glovebox-write-"
