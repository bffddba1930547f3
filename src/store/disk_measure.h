/* Measures a directory tree that hostile code may change meanwhile: it follows no link, enters no other file system,
 * and the limit of the tree bounds the work. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct disk_amount {
        uint64_t bytes; /* as blocks on the disk: holes do not count, and a file with several names counts once */
        uint64_t files; /* entries of all kinds */
        bool is_cut;    /* larger than `max`, or not measurable: directories nested without end */
};

struct disk_counters;

/* Counts trees, and files without a name, into one amount. Stops early after `max_files` entries. NULL: out of
 * memory. */
struct disk_counters *disk_counters_make(uint64_t max_files);
void disk_counters_free(struct disk_counters *counters);

/* Adds everything below the directory; the descriptor is borrowed. */
void disk_counters_add_tree(struct disk_counters *counters, int dir_fd);

/* A removed file occupies space while it is open: adds those on this file system that processes have open, as far as
 * /proc/PID/fd shows. Adds at most a few thousand. */
void disk_counters_add_removed(struct disk_counters *counters, int dir_fd, const int *pids, size_t n_pids);

struct disk_amount disk_counters_amount(const struct disk_counters *counters);
