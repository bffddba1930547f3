/* Artifacts: the files that a run created or changed under artifacts/ of its workspace.
 *
 * The host reads a directory that hostile code fills. Every step is by descriptor and follows no link; only regular
 * files count; names, depth, number and bytes are bounded; nothing here can hang on a FIFO or leave the directory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json_writer.h"

enum {
        ARTIFACT_COUNT_MAX = 10000,
        ARTIFACT_VISITS_MAX = 100000,
        ARTIFACT_FEW = 256, /* entries that the daemon may read itself */
        ARTIFACT_DEPTH_MAX = 32,
        ARTIFACT_PATH_MAX = 4096,
        ARTIFACT_PATHS_MAX = 1 << 20, /* bytes of all paths together */
};

struct artifact {
        char *path; /* relative to the workspace: "artifacts/plot.png" */
        char *host_path;
        uint64_t size;
        /* shows whether it changed */
        uint64_t inode, changed_ns;
};

struct artifact_list {
        struct artifact *items;
        size_t count;
        size_t path_bytes;
        size_t visited, visits_max; /* entries of any kind: visited, and the limit */
        bool cut; /* there were more than may be listed, or deeper ones, or some could not be copied */
};

void artifact_list_release(struct artifact_list *list);

/* Everything under artifacts/ of the workspace, sorted by path. A workspace without that directory has none. */
int artifact_scan(int workspace_fd, struct artifact_list *ret_list, struct err *err);

/* The same if there are few entries; false, and no list, if there are more, or the number is unknown. */
bool artifact_scan_few(int workspace_fd, struct artifact_list *ret_list);

/* Keeps only those that were changed at or after that time. */
void artifact_keep_since(struct artifact_list *list, uint64_t since_ns);

/* Keeps in `after` only those that are missing in `before` or differ there. */
void artifact_keep_changed(struct artifact_list *after, const struct artifact_list *before);

/* Sets host_path of each: <workspace_path>/<path>. */
int artifact_locate(struct artifact_list *list, const char *workspace_path, struct err *err);

/* Copies each into <out_dir>/<path without "artifacts/">, which is made; host_path is set. Files of the same name are
 * replaced. At most max_bytes in all: what does not fit is dropped from the list and `cut` is set. When out_dir cannot
 * be written, nothing is left in it. */
int artifact_copy_out(int workspace_fd, struct artifact_list *list, const char *out_dir, uint64_t max_bytes,
                      struct err *err);

struct artifact_form {
        bool hides_host;       /* host_path is null */
        uint64_t contents_max; /* "content", too, in base64, of files with at most this many bytes together; */
        int contents_fd;       /* the workspace that they are read from */
};

/* [{"path" (in the box), "host_path", "size", "mime"}]. Names that are not UTF-8 are left out. `form` NULL: a plain
 * list. A content is null if it does not fit, or the file is gone. */
void artifact_list_write_json(const struct artifact_list *list, const struct artifact_form *form,
                              struct json_writer *text);

/* From a child process to its parent, without host paths. 0 or -errno. */
void artifact_list_pack(const struct artifact_list *list, struct json_writer *bytes);
int artifact_list_unpack(const char *bytes, size_t size, struct artifact_list *ret_list);

/* "image/png", by the end of the name; "application/octet-stream" when unknown. */
const char *artifact_mime(const char *path);
