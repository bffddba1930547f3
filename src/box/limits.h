/* The limits of one box: all defaults, and all bounds of what callers may request. */
#pragma once

#include <sched.h>
#include <stdint.h>

struct limits {
        uint64_t memory_bytes;
        uint64_t cpu_thousandths; /* 1000 = one processor */
        uint64_t pids;
        uint64_t timeout_ms;
        uint64_t tmp_bytes;   /* /tmp */
        uint64_t disk_bytes; /* /workspace, unless it is a directory of the caller's, and the largest file anywhere */
        uint64_t disk_files;
};

#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* The least memory of a box. A kernel that has run nothing needs 9 MiB on the native engine, forked or started anew, and
 * dies below that; the rest is for another Python and for the first variables. */
#define LIMITS_MEMORY_MIN_MIB 16
#define LIMITS_MEMORY_MIN (LIMITS_MEMORY_MIN_MIB * MIB)
#define LIMITS_MEMORY_MAX (1024 * GIB)
#define LIMITS_TEXT_(number) #number
#define LIMITS_TEXT(number) LIMITS_TEXT_(number)
#define LIMITS_MEMORY_MIN_TEXT LIMITS_TEXT(LIMITS_MEMORY_MIN_MIB) "m"

#define LIMITS_DEFAULT                                                                                                 \
        ((struct limits) { .memory_bytes = 512 * MIB,                                                                  \
                           .cpu_thousandths = 1000,                                                                    \
                           .pids = 50,                                                                                 \
                           .timeout_ms = 60000,                                                                        \
                           .tmp_bytes = 100 * MIB,                                                                     \
                           .disk_bytes = 1 * GIB,                                                                      \
                           .disk_files = 100000 })

static inline uint64_t limits_processors(const struct limits *limits) {
        return (limits->cpu_thousandths + 999) / 1000;
}

/* The number of processors that code in the box sees: libraries start as many threads. More than the host has make
 * them slower, and some libraries (OpenBLAS) hang if the limit of processes refuses a thread. */
static inline uint64_t limits_visible_processors(const struct limits *limits) {
        uint64_t wanted = limits_processors(limits), most = limits->pids > 3 ? limits->pids / 2 : 1;
        cpu_set_t host;
        if (sched_getaffinity(0, sizeof(host), &host) == 0 && (uint64_t) CPU_COUNT(&host) < most)
                most = (uint64_t) CPU_COUNT(&host);
        return wanted < most ? wanted : most;
}

enum { LIMITS_TMP_FILES = 100000, LIMITS_SHM_MIB = 64 };
