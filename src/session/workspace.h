/* Files of a workspace, handled by the host. The directory is filled by hostile code: a path is resolved once, beneath
 * the workspace, by openat2, and everything after that goes by descriptor. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* A caller's path ("data/x.csv", "/workspace/data/x.csv", also with /session, /sandbox, /work) as one relative to the
 * workspace; "." for the workspace itself. ERR_REFUSED for anything that is not below it. */
int workspace_check_path(const char *path, char ret_relative[static 4096], struct err *err);

/* Opens a regular file for reading. Links that stay inside are followed; FIFOs, sockets and devices are refused. */
int workspace_open_file(int workspace_fd, const char *relative, uint64_t *ret_size, struct err *err);

/* A new file under a hidden name beside its destination; workspace_finish_file puts it in place at once, or
 * workspace_drop_file forgets it. Parents are made. */
struct workspace_file {
        int fd, parent_fd;
        char temporary[64], name[256];
};
int workspace_create_file(int workspace_fd, const char *relative, struct workspace_file *ret_file, struct err *err);
int workspace_finish_file(struct workspace_file *file, struct err *err);
void workspace_drop_file(struct workspace_file *file);

/* {"path", "type" (file, directory, link, other), "size", "modified"} */
json_t *workspace_stat(int workspace_fd, const char *relative, struct err *err);

/* The same for each entry of a directory, sorted by name, at most 10,000. */
json_t *workspace_list(int workspace_fd, const char *relative, struct err *err);

int workspace_make_directory(int workspace_fd, const char *relative, struct err *err);
int workspace_move(int workspace_fd, const char *from, const char *to, struct err *err);

/* A file, a link, or with `recursive` a whole directory. */
int workspace_remove(int workspace_fd, const char *relative, bool recursive, struct err *err);
