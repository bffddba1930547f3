#include "store/artifact.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "store/tenant_file.h"

enum { FEW_BYTES = 64 << 10 }; /* of a directory that is read on the spot */

static const struct {
        const char *suffix, *mime;
} mimes[] = {
        { ".png", "image/png" },
        { ".jpg", "image/jpeg" },
        { ".jpeg", "image/jpeg" },
        { ".gif", "image/gif" },
        { ".svg", "image/svg+xml" },
        { ".webp", "image/webp" },
        { ".pdf", "application/pdf" },
        { ".csv", "text/csv" },
        { ".tsv", "text/tab-separated-values" },
        { ".txt", "text/plain" },
        { ".log", "text/plain" },
        { ".md", "text/markdown" },
        { ".html", "text/html" },
        { ".htm", "text/html" },
        { ".json", "application/json" },
        { ".jsonl", "application/x-ndjson" },
        { ".xml", "application/xml" },
        { ".py", "text/x-python" },
        { ".ipynb", "application/x-ipynb+json" },
        { ".parquet", "application/vnd.apache.parquet" },
        { ".arrow", "application/vnd.apache.arrow.file" },
        { ".zip", "application/zip" },
        { ".gz", "application/gzip" },
        { ".tar", "application/x-tar" },
        { ".yaml", "application/yaml" },
        { ".yml", "application/yaml" },
        { ".xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" },
        { ".docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document" },
        { ".sdf", "chemical/x-mdl-sdfile" },
        { ".mp4", "video/mp4" },
        { ".wav", "audio/wav" },
        { ".npy", "application/x-npy" },
};

const char *artifact_mime(const char *path) {
        const char *dot = strrchr(path, '.');
        for (size_t i = 0; dot && i < ELEMENTS(mimes); i++)
                if (strcasecmp(dot, mimes[i].suffix) == 0)
                        return mimes[i].mime;
        return "application/octet-stream";
}

static void artifact_release(struct artifact *artifact) {
        free(artifact->path);
        free(artifact->host_path);
}

void artifact_list_release(struct artifact_list *list) {
        for (size_t i = 0; i < list->count; i++)
                artifact_release(&list->items[i]);
        free(list->items);
        *list = (struct artifact_list) { 0 };
}

static int by_path(const void *a, const void *b) {
        return strcmp(((const struct artifact *) a)->path, ((const struct artifact *) b)->path);
}

/* ---- looking ---- */

static int note_file(struct artifact_list *list, const char *path, const struct stat *status) {
        size_t size = strlen(path);
        if (list->count == ARTIFACT_COUNT_MAX || size > ARTIFACT_PATHS_MAX - list->path_bytes) {
                list->cut = true;
                return 0;
        }
        if ((list->count & (list->count - 1)) == 0) { /* grows at powers of two */
                size_t room = list->count ? list->count * 2 : 1;
                struct artifact *grown = realloc(list->items, room * sizeof(*grown));
                if (!grown)
                        return -ENOMEM;
                list->items = grown;
        }
        char *copy = strdup(path);
        if (!copy)
                return -ENOMEM;
        list->path_bytes += size;
        list->items[list->count++] = (struct artifact) {
                .path = copy,
                .size = (uint64_t) status->st_size,
                .inode = status->st_ino,
                .changed_ns = (uint64_t) status->st_ctim.tv_sec * 1000000000u + (uint64_t) status->st_ctim.tv_nsec,
        };
        return 0;
}

/* One directory that lies too deep must not hide the files beside it. */
static bool is_full(const struct artifact_list *list) {
        return list->cut && (list->count == ARTIFACT_COUNT_MAX || list->visited >= list->visits_max ||
                             list->path_bytes > ARTIFACT_PATHS_MAX - ARTIFACT_PATH_MAX);
}

static int scan_directory(struct artifact_list *list, int parent_fd, const char *name, const char *path, int depth);

static int scan_entry(struct artifact_list *list, int dir_fd, const char *name, const char *path, int depth) {
        char below[ARTIFACT_PATH_MAX];
        int length = snprintf(below, sizeof(below), "%s/%s", path, name);
        struct stat status;
        if (length < 0 || (size_t) length >= sizeof(below) || fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
                return 0;
        if (S_ISREG(status.st_mode))
                return note_file(list, below, &status);
        if (!S_ISDIR(status.st_mode))
                return 0;
        if (depth < ARTIFACT_DEPTH_MAX)
                return scan_directory(list, dir_fd, name, below, depth + 1);
        list->cut = true;
        return 0;
}

static int scan_directory(struct artifact_list *list, int parent_fd, const char *name, const char *path, int depth) {
        int fd = tenant_file_open_directory(parent_fd, name, O_RDONLY);
        if (fd < 0) /* gone, unreadable, or not a directory any more: not an artifact */
                return 0;
        struct stat own;
        if (list->visits_max == ARTIFACT_FEW && fstat(fd, &own) == 0 && own.st_size > FEW_BYTES) {
                list->visited = list->visits_max; /* the directory is large, or was, and takes long to read */
                list->cut = true;
        }
        DIR *directory = fdopendir(fd);
        if (!directory) {
                (void) close(fd);
                return -ENOMEM;
        }
        int code = 0;
        struct dirent *entry;
        while (code == 0 && !is_full(list) && (entry = dir_next(directory))) {
                if (++list->visited >= list->visits_max) /* directories, links and pipes are not free to look at */
                        list->cut = true;
                code = scan_entry(list, dirfd(directory), entry->d_name, path, depth);
        }
        (void) closedir(directory);
        return code;
}

static int scan_within(int workspace_fd, size_t visits_max, struct artifact_list *ret_list, struct err *err) {
        struct artifact_list list = { .visits_max = visits_max };
        int code = scan_directory(&list, workspace_fd, "artifacts", "artifacts", 1);
        if (code < 0) {
                artifact_list_release(&list);
                return err_sys(err, -code, "looking for artifacts");
        }
        if (list.count)
                qsort(list.items, list.count, sizeof(*list.items), by_path);
        *ret_list = list;
        return 0;
}

int artifact_scan(int workspace_fd, struct artifact_list *ret_list, struct err *err) {
        return scan_within(workspace_fd, ARTIFACT_VISITS_MAX, ret_list, err);
}

bool artifact_scan_few(int workspace_fd, struct artifact_list *ret_list) {
        struct artifact_list list = { 0 };
        if (scan_within(workspace_fd, ARTIFACT_FEW, &list, NULL) < 0 || list.visited >= ARTIFACT_FEW) {
                artifact_list_release(&list);
                return false;
        }
        *ret_list = list;
        return true;
}

void artifact_keep_since(struct artifact_list *list, uint64_t since_ns) {
        size_t kept = 0;
        for (size_t i = 0; i < list->count; i++)
                if (list->items[i].changed_ns < since_ns)
                        artifact_release(&list->items[i]);
                else
                        list->items[kept++] = list->items[i];
        list->count = kept;
}

void artifact_keep_changed(struct artifact_list *after, const struct artifact_list *before) {
        size_t kept = 0;
        for (size_t i = 0; i < after->count; i++) {
                const struct artifact *old = before->count ? bsearch(&after->items[i], before->items, before->count,
                                                                     sizeof(*before->items), by_path)
                                                           : NULL;
                if (old && old->inode == after->items[i].inode && old->size == after->items[i].size &&
                    old->changed_ns == after->items[i].changed_ns)
                        artifact_release(&after->items[i]);
                else
                        after->items[kept++] = after->items[i];
        }
        after->count = kept;
}

int artifact_locate(struct artifact_list *list, const char *workspace_path, struct err *err) {
        for (size_t i = 0; i < list->count; i++)
                if (asprintf(&list->items[i].host_path, "%s/%s", workspace_path, list->items[i].path) < 0)
                        return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        return 0;
}

static void artifact_put_text(struct json_writer *text, const char *value) {
        json_writer_put_string(text, value, strlen(value));
}

/* Adds the present content of a file, if it fits into the room. */
static void put_content(const struct artifact *artifact, int workspace_fd, uint64_t *room, struct json_writer *text) {
        struct stat status;
        _cleanup_fd_ int fd = tenant_file_open(workspace_fd, artifact->path, O_RDONLY, &status);
        size_t size = fd >= 0 && (uint64_t) status.st_size <= *room ? (size_t) status.st_size : 0;
        bool fits = fd >= 0 && (uint64_t) status.st_size == size;
        _cleanup_free_ char *bytes = fits ? malloc(size + 1) : NULL;
        json_writer_put_literal(text, ",\"content\":");
        if (!bytes || fd_read_exactly(fd, bytes, size) < 0) {
                json_writer_put_literal(text, "null");
                return;
        }
        *room -= size;
        json_writer_put_literal(text, "\"");
        base64_put(text, bytes, size);
        json_writer_put_literal(text, "\"");
}

void artifact_list_write_json(const struct artifact_list *list, const struct artifact_form *form,
                              struct json_writer *text) {
        uint64_t room = form ? form->contents_max : 0;
        bool is_first = true;
        json_writer_put_literal(text, "[");
        for (size_t i = 0; i < list->count; i++) {
                const struct artifact *artifact = &list->items[i];
                char path[4200];
                int length = snprintf(path, sizeof(path), "/workspace/%s", artifact->path);
                if (!utf8_is_valid(path, (size_t) length))
                        continue;
                if (!is_first)
                        json_writer_put_literal(text, ",");
                is_first = false;
                json_writer_put_literal(text, "{\"path\":");
                artifact_put_text(text, path);
                json_writer_put_literal(text, ",\"host_path\":");
                if (artifact->host_path && !(form && form->hides_host))
                        artifact_put_text(text, artifact->host_path);
                else
                        json_writer_put_literal(text, "null");
                json_writer_put_literal(text, ",\"size\":");
                json_writer_put_number(text, (int64_t) artifact->size);
                json_writer_put_literal(text, ",\"mime\":");
                artifact_put_text(text, artifact_mime(path));
                if (form && form->contents_max)
                        put_content(artifact, form->contents_fd, &room, text);
                json_writer_put_literal(text, "}");
        }
        json_writer_put_literal(text, "]");
}

/* ---- from one process to another ---- */

/* Before each path, which ends with NUL. */
struct passed {
        uint64_t size, inode, changed_ns;
};

void artifact_list_pack(const struct artifact_list *list, struct json_writer *bytes) {
        json_writer_put(bytes, list->cut ? "c" : "-", 1);
        for (size_t i = 0; i < list->count; i++) {
                const struct artifact *artifact = &list->items[i];
                const struct passed passed = { artifact->size, artifact->inode, artifact->changed_ns };
                json_writer_put(bytes, (const char *) &passed, sizeof(passed));
                json_writer_put(bytes, artifact->path, strlen(artifact->path) + 1);
        }
}

int artifact_list_unpack(const char *bytes, size_t size, struct artifact_list *ret_list) {
        struct artifact_list list = { .cut = size > 0 && bytes[0] == 'c' };
        const char *at = bytes + 1, *end = bytes + size;
        int code = size > 0 ? 0 : -EPROTO;
        while (code == 0 && at < end) {
                struct passed passed;
                if ((size_t) (end - at) <= sizeof(passed) || end[-1] != '\0') {
                        code = -EPROTO;
                        break;
                }
                memcpy(&passed, at, sizeof(passed));
                at += sizeof(passed);
                const struct stat status = { .st_size = (off_t) passed.size, .st_ino = passed.inode };
                code = note_file(&list, at, &status);
                if (code == 0 && list.count > 0)
                        list.items[list.count - 1].changed_ns = passed.changed_ns;
                at += strlen(at) + 1;
        }
        if (code < 0)
                artifact_list_release(&list);
        else
                *ret_list = list;
        return code;
}

/* ---- copying ---- */

static int artifact_make_parents(int out_fd, const char *path) {
        char copy[4096];
        (void) snprintf(copy, sizeof(copy), "%s", path);
        for (char *slash = strchr(copy, '/'); slash; slash = strchr(slash + 1, '/')) {
                *slash = '\0';
                if (mkdirat(out_fd, copy, 0755) < 0 && errno != EEXIST)
                        return -errno;
                *slash = '/';
        }
        return 0;
}

/* Opens the directory that `to` is to be made in; never through a link. */
static int artifact_open_parent(int out_fd, const char *to, const char **ret_name) {
        char directory[4096];
        const char *slash = strrchr(to, '/');
        *ret_name = slash ? slash + 1 : to;
        (void) snprintf(directory, sizeof(directory), "%.*s", slash ? (int) (slash - to) : 1, slash ? to : ".");
        return tenant_file_open_directory(out_fd, directory, O_PATH);
}

/* A new file; one of that name from an earlier run is replaced. */
static int create_file(int parent_fd, const char *name) {
        for (int attempt = 0; attempt < 2; attempt++) {
                int fd = tenant_file_open(parent_fd, name, O_WRONLY | O_CREAT | O_EXCL, NULL);
                if (fd != -EEXIST)
                        return fd;
                if (unlinkat(parent_fd, name, 0) < 0)
                        return -errno;
        }
        return -EEXIST;
}

/* Only the data: a hole costs its writer nothing, and must not cost the host its disk. */
static int copy_data(int source, int target, off_t size) {
        off_t at = 0;
        while (at < size && (at = lseek(source, at, SEEK_DATA)) >= 0) {
                off_t end = lseek(source, at, SEEK_HOLE);
                if (end < 0 || end > size)
                        end = size;
                if (lseek(target, at, SEEK_SET) < 0)
                        return -errno;
                while (at < end) {
                        ssize_t n = sendfile(target, source, &at, (size_t) (end - at));
                        if (n < 0 && errno != EINTR)
                                return -errno;
                        if (n == 0)
                                return -ENODATA; /* another process shortened it meanwhile */
                }
        }
        return ftruncate(target, size) < 0 ? -errno : 0;
}

/* Copies the file's present contents, which may differ from those when it was listed; if it is no regular file any
 * more, it is skipped. */
static int artifact_copy_file(int workspace_fd, const char *from, int out_fd, const char *to, uint64_t max_bytes,
                              uint64_t *ret_size) {
        struct stat status;
        _cleanup_fd_ int source = tenant_file_open(workspace_fd, from, O_RDONLY, &status);
        if (source < 0)
                return source;
        if ((uint64_t) status.st_size > max_bytes)
                return -EFBIG;
        int code = artifact_make_parents(out_fd, to);
        if (code < 0)
                return code;
        const char *name;
        _cleanup_fd_ int parent = artifact_open_parent(out_fd, to, &name);
        _cleanup_fd_ int target = parent < 0 ? parent : create_file(parent, name);
        if (target < 0)
                return target;
        code = copy_data(source, target, status.st_size);
        if (code < 0)
                (void) unlinkat(parent, name, 0);
        else
                *ret_size = (uint64_t) status.st_size;
        return code;
}

/* A copy that failed leaves nothing: neither the files that fitted nor the directories made for them. */
static void undo_copies(int out_fd, const struct artifact_list *list, size_t n_copied) {
        for (size_t i = 0; i < n_copied; i++) {
                char path[4096];
                (void) snprintf(path, sizeof(path), "%s", list->items[i].path + strlen("artifacts/"));
                (void) unlinkat(out_fd, path, 0);
                for (char *slash = strrchr(path, '/'); slash; slash = strrchr(path, '/')) {
                        *slash = '\0';
                        if (unlinkat(out_fd, path, AT_REMOVEDIR) < 0)
                                break;
                }
        }
}

int artifact_copy_out(int workspace_fd, struct artifact_list *list, const char *out_dir, uint64_t max_bytes,
                      struct err *err) {
        if (list->count == 0)
                return 0;
        bool made = mkdir(out_dir, 0755) == 0;
        if (!made && errno != EEXIST)
                return err_sys(err, errno, "making %s for the artifacts", out_dir);
        _cleanup_fd_ int out_fd = open(out_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (out_fd < 0 || faccessat(out_fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
                return err_sys(err, errno, "copying the artifacts to %s", out_dir);
        size_t kept = 0;
        uint64_t room = max_bytes;
        for (size_t i = 0; i < list->count; i++) {
                struct artifact *artifact = &list->items[i];
                const char *to = artifact->path + strlen("artifacts/");
                uint64_t size = 0;
                int code = artifact_copy_file(workspace_fd, artifact->path, out_fd, to, room, &size);
                if (code == -ENOSPC || code == -EDQUOT || code == -EIO) {
                        (void) err_sys(err, -code, "copying artifact %s to %s", artifact->path, out_dir);
                        undo_copies(out_fd, list, kept);
                        if (made)
                                (void) rmdir(out_dir);
                        /* The list still owns all of its entries: the dropped ones lie behind the kept ones. */
                        for (; i < list->count; i++)
                                list->items[kept++] = list->items[i];
                        list->count = kept;
                        return -1;
                }
                if (code < 0 || asprintf(&artifact->host_path, "%s/%s", out_dir, to) < 0) {
                        artifact->host_path = NULL;
                        artifact_release(artifact);
                        list->cut = true;
                        continue;
                }
                artifact->size = size;
                room -= size;
                list->items[kept++] = *artifact;
        }
        list->count = kept;
        return 0;
}
