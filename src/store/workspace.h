/* Files of a workspace, handled by the host. Hostile code fills the directory: a path is resolved once, beneath the
 * workspace, by openat2, and all further access is by descriptor. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

/* A caller's path ("data/x.csv", "/workspace/data/x.csv", also with /session, /sandbox, /work) as one relative to the
 * workspace; "." for the workspace itself. ERR_REFUSED for anything that is not below it. */
int workspace_check_path(const char *path, char ret_relative[static 4096], struct err *err);

/* Opens a regular file or a directory for reading; FIFOs, sockets and devices are refused before they are opened, as
 * that alone may do something. Links that stay inside are followed, or refused as all are. */
enum workspace_links { WORKSPACE_FOLLOW, WORKSPACE_NO_LINKS };
int workspace_open(int workspace_fd, const char *relative, enum workspace_links links, struct stat *ret_status,
                   struct err *err);

/* Reads of a file that workspace_open opened, in pieces. Returns the number of bytes, or -errno. */
ssize_t workspace_read(int fd, void *bytes, size_t size, uint64_t at);

/* A new file, invisible (where the file system can do that; under a hidden name otherwise) until workspace_finish_file
 * makes its parents and puts it in place at once; or workspace_drop_file forgets it, and nothing was there. Foreseeable
 * failures are reported at once. */
struct workspace_file {
        int fd, workspace_fd; /* the latter is its own */
        char temporary[64];   /* "": it has no name yet */
        char *relative;
        bool replaced; /* after it was finished: it replaced something */
        uint64_t replaced_bytes; /* on the disk, of a plain file with no other name */
};
int workspace_create_file(int workspace_fd, const char *relative, struct workspace_file *ret_file, struct err *err);
int workspace_finish_file(struct workspace_file *file, struct err *err); /* releases it, in any case */

/* The same, but waits until the file and its name are on the disk. */
int workspace_finish_file_durably(struct workspace_file *file, struct err *err);

void workspace_drop_file(struct workspace_file *file);                   /* also of one that is gone already */

/* {"path", "type" (file, directory, link, other), "size", "modified"} */
json_t *workspace_stat(int workspace_fd, const char *relative, struct err *err);

/* A tag that changes whenever the file does. It is made of the change time, which code cannot set, unlike the
 * modification time. Clocks of file systems tick every few milliseconds, so a file that was changed a moment ago has no
 * tag (""). */
enum { WORKSPACE_TAG_SIZE = 2 + 32 + 1 };
void workspace_tag(const struct stat *status, char ret_tag[static WORKSPACE_TAG_SIZE]);

/* As workspace_stat, for an open file, with its "tag". */
json_t *workspace_describe_open(const char *relative, const struct stat *status, struct err *err);

/* The same for each entry of a directory, sorted by name: at most 10,000, and 1 MiB of names. ret_cut, unless it is
 * NULL, says whether there are more. */
enum { WORKSPACE_LIST_MAX = 10000 };
json_t *workspace_list(int workspace_fd, const char *relative, size_t max, bool *ret_cut, struct err *err);

/* True if listing it is quick; otherwise a child should do it. Also true if it cannot be listed. */
bool workspace_lists_short(int workspace_fd, const char *relative);

/* An existing entry of any kind is fine. */
int workspace_make_directory(int workspace_fd, const char *relative, struct err *err);
/* The same, with its parents; something there that is no directory is an error. */
int workspace_make_directories(int workspace_fd, const char *relative, struct err *err);
int workspace_move(int workspace_fd, const char *from, const char *to, struct err *err);

/* A file, a link, or with `recursive` a whole directory. With `budget`, no more than so many entries of a directory:
 * then 1 says that there may be more, and that it is worth while to call again. */
int workspace_remove(int workspace_fd, const char *relative, bool recursive, struct err *err);
