/* Messages between the maker and a nursery: orders over a SEQPACKET socket (base/fd_passing.h passes the descriptors),
 * answers over a pipe. The nursery runs code of an image, so the maker checks everything that it sends, and takes no
 * descriptor from it: closing one can block for as long as its creator chose. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "box/limits.h"

enum { NURSERY_SOCKET_FD = 3, NURSERY_ANSWER_FD = 4, NURSERY_LIBRARY_FD = 5 };
enum { NURSERY_TEXTS_MAX = 64 << 10, NURSERY_NAMES_MAX = 400 };

/* Descriptors of an order. */
enum nursery_fd {
        NURSERY_AGENT, /* pidfd of the box's agent, whose namespaces the kernel joins */
        NURSERY_STDIN,
        NURSERY_STDOUT,
        NURSERY_STDERR,
        NURSERY_REQUESTS, /* pipes */
        NURSERY_REPLIES,
        NURSERY_VERDICT, /* a pipe: the kernel writes a struct err when it is sealed */
        NURSERY_GO,      /* a pipe: and waits for one byte */
        NURSERY_GROUPS, /* up to four files to write "0" to: the box's control groups */
        NURSERY_FDS = NURSERY_GROUPS + 4,
};

/* Fork a kernel into this box. Only the used part of `texts` is sent. */
struct nursery_order {
        struct limits limits;
        bool has_memory_cgroup, has_pids_cgroup;
        bool is_awaited; /* a caller waits for this kernel: it does no work in advance */
        bool mounts_follow; /* box/late_mounts.h: Landlock and the last filter follow before its first request */
        uint32_t n_writable, n_environment, texts_size;
        char texts[NURSERY_TEXTS_MAX]; /* directories that may be written, then the environment; each ends with NUL */
};

/* The answer to an order; or the one report that a nursery sends by itself: that it is ready, or never will be. */
struct nursery_answer {
        int32_t code; /* 0 or -errno */
        int32_t pid;  /* of the kernel, as the supervisor sees it */
        bool ready;
        uint32_t n_preloaded;
        char failed[NURSERY_NAMES_MAX]; /* modules that could not be imported, or threads if not ready: a,b,c */
};
