#include "image/import.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/units.h"
#include "image/archive.h"
#include "image/image.h"
#include "image/interrupt.h"
#include "image/record.h"
#include "image/rootfs.h"
#include "image/store.h"
#include "image/unpack.h"

/* A nameless file in the work directory, for what cannot be read twice. */
static int open_spool(const struct store_work *work, struct err *err) {
        int fd = openat(work->fd, "spool", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 || unlinkat(work->fd, "spool", 0) < 0)
                return err_sys(err, errno, "cannot make a temporary file");
        return fd;
}

static int spool_append(int fd, const void *bytes, size_t size, struct err *err) {
        if (interrupt_pending())
                return interrupt_error(err);
        int code = fd_write_all(fd, bytes, size);
        return code < 0 ? err_sys(err, -code, "cannot keep a copy of the archive") : 0;
}

static int spool_input(int from_fd, int to_fd, uint64_t max_bytes, uint64_t *ret_size, struct err *err) {
        char buffer[1 << 16], most[32];
        uint64_t size = 0;
        for (;;) {
                ssize_t n = interrupt_pending() ? 0 : read(from_fd, buffer, sizeof(buffer));
                if (interrupt_pending())
                        return interrupt_error(err);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(err, errno, "cannot read the archive");
                if (n == 0)
                        break;
                size += (uint64_t) n;
                if (size > max_bytes)
                        return err_set(err, ERR_LIMIT, "the archive is larger than %s; raise --max-size",
                                       units_format_bytes(max_bytes, most));
                if (spool_append(to_fd, buffer, (size_t) n, err) < 0)
                        return -1;
        }
        *ret_size = size;
        return 0;
}

static int spool_decompressed(int from_fd, uint64_t from_size, int to_fd, uint64_t max_bytes, uint64_t *ret_size,
                              struct err *err) {
        _cleanup_(stream_free) struct stream *stream = NULL;
        if (stream_open_file(from_fd, 0, from_size, max_bytes, &stream, err) < 0)
                return -1;
        for (;;) {
                char buffer[1 << 16];
                ssize_t n = stream_read(stream, buffer, sizeof(buffer), err);
                if (n < 0 || (n > 0 && spool_append(to_fd, buffer, (size_t) n, err) < 0))
                        return -1;
                if (n == 0)
                        break;
        }
        *ret_size = stream_position(stream);
        return 0;
}

/* An unpacked root file system or OCI layout: packed by this host's tar, then read like any archive. */
static int import_open_directory(const struct store_work *work, int directory_fd, const char *file, uint64_t max_bytes,
                                 int *ret_fd, uint64_t *ret_size, struct err *err) {
        int pipe_fds[2];
        if (pipe2(pipe_fds, O_CLOEXEC) < 0)
                return err_sys(err, errno, "cannot make a pipe");
        _cleanup_fd_ int read_fd = pipe_fds[0], write_fd = pipe_fds[1], spool_fd = open_spool(work, err);
        if (spool_fd < 0)
                return -1;
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, write_fd, 1);
        posix_spawn_file_actions_addfchdir_np(&actions, directory_fd);
        static const char *const argv[] = { "tar", "--create", "--numeric-owner", "--one-file-system", ".", NULL };
        pid_t pid;
        int code = posix_spawnp(&pid, "tar", &actions, NULL, (char *const *) (uintptr_t) argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        if (code != 0)
                return err_sys(err, code, "cannot run tar, which packs directories");
        fd_close(&write_fd);
        code = spool_input(read_fd, spool_fd, max_bytes, ret_size, err);
        fd_close(&read_fd);
        int status = 0;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        if (code < 0)
                return -1;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return err_set(err, ERR_SYSTEM, "tar could not pack %.500s: see its message above", file);
        *ret_fd = take_fd(&spool_fd);
        return 0;
}

/* The archive as a regular file that can be read as often as needed. */
static int open_archive(const struct store_work *work, const char *file, uint64_t max_bytes, int *ret_fd,
                        uint64_t *ret_size, struct err *err) {
        bool standard_input = strcmp(file, "-") == 0;
        _cleanup_fd_ int fd =
                standard_input ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(file, O_RDONLY | O_NOCTTY | O_CLOEXEC);
        struct stat st;
        if (fd < 0 && errno == ENOENT)
                return err_set(err, ERR_USAGE, "there is no file %.500s", file);
        if (fd < 0 || fstat(fd, &st) < 0)
                return err_sys(err, errno, "cannot open %.500s", standard_input ? "standard input" : file);
        if (S_ISDIR(st.st_mode))
                return import_open_directory(work, fd, file, max_bytes, ret_fd, ret_size, err);
        if (S_ISREG(st.st_mode) && !standard_input) { /* a part of redirected input may have been read already */
                *ret_size = (uint64_t) st.st_size;
                *ret_fd = take_fd(&fd);
                return 0;
        }
        _cleanup_fd_ int spool_fd = open_spool(work, err);
        if (spool_fd < 0 || spool_input(fd, spool_fd, max_bytes, ret_size, err) < 0)
                return -1;
        *ret_fd = take_fd(&spool_fd);
        return 0;
}

static int unpack_layers(struct unpack *unpack, const struct archive *archive, struct err *err) {
        for (size_t i = 0; i < archive->n_layers; i++) {
                _cleanup_(stream_free) struct stream *whiteouts = NULL, *entries = NULL;
                if (i > 0 && (archive_open_member(archive, archive->layers[i], &whiteouts, err) < 0 ||
                              unpack_whiteouts(unpack, whiteouts, err) < 0))
                        return err_prefix(err, "layer %zu", i + 1);
                if (archive_open_member(archive, archive->layers[i], &entries, err) < 0 ||
                    unpack_entries(unpack, entries, true, err) < 0)
                        return err_prefix(err, "layer %zu", i + 1);
        }
        return 0;
}

static int unpack_archive(struct unpack *unpack, const struct archive *archive, struct err *err) {
        if (archive->kind != ARCHIVE_ROOTFS)
                return unpack_layers(unpack, archive, err);
        _cleanup_(stream_free) struct stream *stream = NULL;
        if (stream_open_file(archive->fd, 0, archive->size, archive->max_bytes, &stream, err) < 0)
                return -1;
        return unpack_entries(unpack, stream, false, err);
}

static json_t *import_describe(const char *name, const char *file, const struct archive *archive,
                               const struct import_result *result) {
        const json_t *config = json_object_get(archive->config, "config");
        json_t *json =
                json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:s}", "name", name, "kind", result->kind,
                          "source", strcmp(file, "-") == 0 ? "standard input" : file, "reference", archive->reference,
                          "created", (json_int_t) time(NULL), "entries", (json_int_t) result->entries, "bytes",
                          (json_int_t) result->bytes, "skipped", (json_int_t) result->skipped, "architecture",
                          result->architecture, "python", result->python, "shell", result->shell);
        static const char *const kept[] = { "Env", "Entrypoint", "Cmd", "WorkingDir", "User" };
        json_t *about = json_object();
        for (size_t i = 0; json && i < ELEMENTS(kept); i++) {
                json_t *value = json_object_get(config, kept[i]);
                if (value)
                        json_object_set(about, kept[i], value);
        }
        if (json)
                json_object_set_new(json, "config", about);
        else
                json_decref(about);
        return json;
}

static int import_fill(struct store_work *work, const char *name, const char *file, const struct archive *archive,
                       uint64_t max_bytes, struct import_result *result, struct err *err) {
        if (mkdirat(work->fd, "rootfs", 0755) < 0)
                return err_sys(err, errno, "cannot make the image's directory");
        _cleanup_fd_ int root_fd = openat(work->fd, "rootfs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (root_fd < 0)
                return err_sys(err, errno, "cannot open the image's directory");
        _cleanup_(unpack_close) struct unpack unpack;
        unpack_init(&unpack, root_fd, max_bytes, BOUND_ENTRIES);
        if (unpack_archive(&unpack, archive, err) < 0)
                return -1;
        result->entries = unpack.entries;
        result->bytes = unpack.bytes;
        result->skipped = unpack.skipped;
        result->lost_env = image_count_lost_env(json_object_get(json_object_get(archive->config, "config"), "Env"));
        (void) snprintf(result->kind, sizeof(result->kind), "%s", archive_kind_name(archive->kind));
        (void) snprintf(result->architecture, sizeof(result->architecture), "%.31s",
                        record_string(archive->config, "architecture"));
        rootfs_find_programs(root_fd, json_object_get(json_object_get(archive->config, "config"), "Env"),
                             result->python, result->shell);
        struct image probe = { 0 };
        int code = rootfs_show(root_fd, &probe, err); /* an image that cannot be shown is refused now, not at a run */
        image_close(&probe);
        if (code < 0)
                return -1;
        _cleanup_json_ json_t *record = import_describe(name, file, archive, result);
        if (!record)
                return err_set(err, ERR_USAGE, "the archive's name is not valid UTF-8; rename the file");
        return record_write(work->fd, "image.json", record, err);
}

static int import_into(struct store_work *work, const char *name, const char *file, uint64_t max_bytes,
                       struct import_result *result, struct err *err) {
        _cleanup_fd_ int fd = -1, spool_fd = -1;
        uint64_t size = 0;
        _cleanup_(archive_close) struct archive archive = { 0 };
        /* Headers come on top of contents: leave room for a million of them. */
        uint64_t max_stream = max_bytes + (uint64_t) BOUND_ENTRIES * 4096;
        if (open_archive(work, file, max_stream, &fd, &size, err) < 0 ||
            archive_scan(fd, size, max_stream, &archive, err) < 0)
                return -1;
        if (archive.kind != ARCHIVE_ROOTFS && archive.compressed) {
                archive_close(&archive);
                spool_fd = open_spool(work, err);
                if (spool_fd < 0 || spool_decompressed(fd, size, spool_fd, max_stream, &size, err) < 0 ||
                    archive_scan(spool_fd, size, max_stream, &archive, err) < 0)
                        return -1;
                if (archive.compressed)
                        return err_set(err, ERR_UNSUPPORTED, "the archive is compressed twice; decompress it by hand");
        }
        if (import_fill(work, name, file, &archive, max_bytes, result, err) < 0)
                return -1;
        return interrupt_pending() ? interrupt_error(err) : store_publish(work, name, err);
}

int import_image(const char *data_dir, const char *name, const char *file, uint64_t max_bytes,
                 struct import_result *ret_result, struct err *err) {
        _cleanup_fd_ int images_fd = -1;
        struct import_result result = { 0 };
        if (image_check_name(name, err) < 0)
                return -1;
        if (strcmp(name, IMAGE_HOST) == 0)
                return err_set(err, ERR_USAGE, "\"host\" is this machine's own image; choose another name");
        if (store_open(data_dir, &images_fd, err) < 0)
                return -1;
        struct stat st;
        if (fstatat(images_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return err_set(err, ERR_EXISTS,
                               "there is an image \"%s\" already; remove it first (glovebox image rm %s) or choose "
                               "another name",
                               name, name);
        mode_t mask = umask(022); /* the box's user must be able to read what is unpacked */
        interrupt_begin();
        struct store_work work = { .fd = -1 };
        int code = store_begin(images_fd, &work, err);
        if (code == 0)
                code = import_into(&work, name, file, max_bytes, &result, err);
        store_end(&work);
        interrupt_end();
        (void) umask(mask);
        if (code == 0)
                *ret_result = result;
        return code;
}
