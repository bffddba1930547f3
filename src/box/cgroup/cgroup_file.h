/* The small files of a control group: one open, one read or write, one close; relative to a directory, without stdio,
 * since a box's start pays for each of them. Return 0 (or the value described) or -errno. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The kernel takes a value only whole, so it is written with one call. */
int cgroup_file_write(int dir_fd, const char *file, const char *text);

/* Reads at most size-1 bytes and ends them with NUL; returns how many. A longer file is cut. */
int cgroup_file_read(int dir_fd, const char *file, char *ret_text, size_t size);

/* A file that holds one number, and a file of "key number" lines. */
int cgroup_file_read_number(int dir_fd, const char *file, uint64_t *ret_number);
int cgroup_file_read_key(int dir_fd, const char *file, const char *key, uint64_t *ret_number);

/* Opens a directory. */
int cgroup_file_open_dir(int dir_fd, const char *path);
