/* Operations on files of a session's workspace, and its artifacts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/helper_job.h"
#include "daemon/download.h"
#include "daemon/operation.h"
#include "daemon/upload.h"
#include "session/caller.h"
#include "session/caller_job.h"
#include "session/session.h"
#include "store/artifact.h"
#include "store/workspace.h"

/* The workspace and the path below it that a request names. The caller closes the descriptor. */
static int open_named(struct caller *caller, json_t *json, const char *key, char ret_relative[static 4096],
                      struct session **ret_session, struct err *err) {
        struct session *session = operation_session(caller, json, err);
        const char *path = session ? operation_text(json, key, err) : NULL;
        if (!path || workspace_check_path(path, ret_relative, err) < 0)
                return -1;
        int fd = session_open_workspace(session);
        if (fd < 0)
                return err_sys(err, -fd, "opening the workspace of %s", session->row.name);
        if (ret_session)
                *ret_session = session;
        return fd;
}

static int read_file(struct caller *caller, json_t *json, struct err *err) {
        char relative[4096];
        _cleanup_fd_ int workspace = open_named(caller, json, "path", relative, NULL, err);
        if (workspace < 0)
                return -1;
        uint64_t size;
        int fd = workspace_open_file(workspace, relative, &size, err);
        if (fd < 0)
                return -1;
        json_int_t offset = json_integer_value(json_object_get(json, "offset"));
        json_t *wanted = json_object_get(json, "size");
        if (offset < 0 || (wanted && json_integer_value(wanted) < 0) || (uint64_t) offset > size) {
                fd_close(&fd);
                return err_set(err, ERR_USAGE, "offset and size must lie within the file, which has %llu bytes",
                               (unsigned long long) size);
        }
        uint64_t left = size - (uint64_t) offset;
        if (wanted && (uint64_t) json_integer_value(wanted) < left)
                left = (uint64_t) json_integer_value(wanted);
        return download_begin(caller, fd, (uint64_t) offset, left, err);
}

/* ---- writing ---- */

struct file_upload {
        struct upload upload;
        struct session_manager *manager;
        char session_id[27];
        uint64_t admitted; /* counted in the session, unless the file is finished */
        struct workspace_file file;
};

static int on_piece(struct upload *upload, const char *bytes, size_t size, struct err *err) {
        struct session_manager *manager = upload->caller->manager;
        struct file_upload *file = (struct file_upload *) upload;
        if (disk_admit(manager, session_find(manager, "", file->session_id), size, err) < 0)
                return -1;
        file->admitted += size;
        int code = fd_write_all(file->file.fd, bytes, size);
        return code < 0 ? err_sys(err, -code, "writing the file") : 0;
}

/* "sync": true. The disk may take its time, so a child of ours waits for it. */
struct durable_write {
        struct caller *caller; /* NULL when it has gone */
        struct workspace_file file;
        size_t size;
};

static int write_durably(const int *fds, int out_fd, void *context) {
        struct durable_write *durable = context;
        struct err err = { 0 };
        durable->file.fd = fds[0];
        durable->file.workspace_fd = fds[1];
        (void) workspace_finish_file_durably(&durable->file, &err);
        return fd_write_all(out_fd, &err, sizeof(err));
}

static void on_written(void *context, const char *bytes, size_t size) {
        struct durable_write *durable = context;
        struct err err;
        struct caller *caller = durable->caller;
        (void) err_set(&err, ERR_SYSTEM, "the file may not have been written: the process that did it died; try again");
        if (size == sizeof(err))
                memcpy(&err, bytes, sizeof(err));
        workspace_drop_file(&durable->file); /* our side of it; a name that it had has gone */
        if (caller && err.code != ERR_NONE)
                caller_refuse(caller, &err);
        else if (caller)
                caller_answer(caller, json_pack("{s:I}", "size", (json_int_t) durable->size));
        free(durable);
}

static void finish_durably(struct file_upload *upload) {
        struct caller *caller = upload->upload.caller;
        struct durable_write *durable = calloc(1, sizeof(*durable));
        struct err err;
        (void) err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (durable) {
                *durable = (struct durable_write) { caller, upload->file, upload->upload.size };
                const struct helper_job_order order = { .fds = { durable->file.fd, durable->file.workspace_fd }, .n_fds = 2,
                                                    .work = write_durably, .done = on_written, .context = durable,
                                                    manager_job_of(caller->manager, caller->owner) };
                if (helper_job_start(caller->manager->loop, &order, &err)) {
                        caller->held_by = &durable->caller;
                        upload->file = (struct workspace_file) { .fd = -1, .workspace_fd = -1 };
                        return;
                }
        }
        free(durable);
        caller_refuse(caller, &err);
}

static void on_finish(struct upload *upload) {
        struct err err;
        ((struct file_upload *) upload)->admitted = 0;
        if (json_is_true(json_object_get(upload->json, "sync")))
                finish_durably((struct file_upload *) upload);
        else if (workspace_finish_file(&((struct file_upload *) upload)->file, &err) < 0)
                caller_refuse(upload->caller, &err);
        else
                caller_answer(upload->caller, json_pack("{s:I}", "size", (json_int_t) upload->size));
}

static void on_abandon(struct upload *upload) {
        struct file_upload *file = (struct file_upload *) upload;
        /* The caller may be gone by now. */
        struct session *session = file->admitted ? session_find(file->manager, "", file->session_id) : NULL;
        if (session)
                disk_give_back(session, file->admitted);
        workspace_drop_file(&file->file);
}

static int write_file(struct caller *caller, json_t *json, struct err *err) {
        char relative[4096];
        struct session *session = NULL;
        _cleanup_fd_ int workspace = open_named(caller, json, "path", relative, &session, err);
        if (workspace < 0)
                return -1;
        if (disk_admit(caller->manager, session, 0, err) < 0)
                return -1;
        struct file_upload *upload = calloc(1, sizeof(*upload));
        if (!upload)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        upload->manager = caller->manager;
        (void) snprintf(upload->session_id, sizeof(upload->session_id), "%s", session->row.id);
        if (workspace_create_file(workspace, relative, &upload->file, err) < 0) {
                free(upload);
                return -1;
        }
        upload->upload = (struct upload) { .caller = caller, .max = session->row.limits.disk_bytes, .piece = on_piece,
                                           .finish = on_finish, .abandon = on_abandon, .json = json_incref(json) };
        if (upload_begin(&upload->upload, err) < 0) {
                workspace_drop_file(&upload->file);
                json_decref(json);
                free(upload);
                return -1;
        }
        return 0;
}

/* ---- the rest ---- */

static int list_files(struct caller *caller, json_t *json, struct err *err) {
        char relative[4096];
        _cleanup_fd_ int workspace = open_named(caller, json, "path", relative, NULL, err);
        json_t *entries = workspace < 0 ? NULL : workspace_list(workspace, relative, NULL, err);
        if (!entries)
                return -1;
        caller_answer(caller, json_pack("{s:o}", "entries", entries));
        return 0;
}

static int stat_file(struct caller *caller, json_t *json, struct err *err) {
        char relative[4096];
        _cleanup_fd_ int workspace = open_named(caller, json, "path", relative, NULL, err);
        json_t *entry = workspace < 0 ? NULL : workspace_stat(workspace, relative, err);
        if (!entry)
                return -1;
        caller_answer(caller, entry);
        return 0;
}

static int remove_many(int workspace_fd, const char *relative, struct json_writer *answer, struct err *err) {
        json_writer_put_literal(answer, "{}");
        return workspace_remove(workspace_fd, relative, true, err);
}

/* How deep it is and how much is in it is known to nobody: a child removes it. */
static int remove_file(struct caller *caller, json_t *json, struct err *err) {
        char relative[4096];
        _cleanup_fd_ int workspace = open_named(caller, json, "path", relative, NULL, err);
        if (workspace < 0)
                return -1;
        if (json_is_true(json_object_get(json, "recursive")))
                return caller_job_start(caller, workspace, CALLER_JOB_LONG, remove_many, relative, err);
        if (workspace_remove(workspace, relative, false, err) < 0)
                return -1;
        caller_answer(caller, json_object());
        return 0;
}

static int make_directory(struct caller *caller, json_t *json, struct err *err) {
        char relative[4096];
        _cleanup_fd_ int workspace = open_named(caller, json, "path", relative, NULL, err);
        if (workspace < 0 || workspace_make_directories(workspace, relative, err) < 0)
                return -1;
        caller_answer(caller, json_object());
        return 0;
}

static int move_file(struct caller *caller, json_t *json, struct err *err) {
        char from[4096], to[4096];
        _cleanup_fd_ int workspace = open_named(caller, json, "path", from, NULL, err);
        const char *target = workspace < 0 ? NULL : operation_text(json, "to", err);
        if (!target || workspace_check_path(target, to, err) < 0 || workspace_move(workspace, from, to, err) < 0)
                return -1;
        caller_answer(caller, json_object());
        return 0;
}

static void write_artifacts(struct artifact_list *list, struct json_writer *text) {
        json_writer_put_literal(text, "{\"artifacts\":");
        artifact_list_write_json(list, text);
        json_writer_put_literal(text, ",\"cut\":");
        json_writer_put_bool(text, list->cut);
        json_writer_put_literal(text, "}");
}

/* `workspace` is where it is on the host, or "" for whoever need not know. */
static int list_many(int workspace_fd, const char *workspace, struct json_writer *text, struct err *err) {
        struct artifact_list list = { 0 };
        if (artifact_scan(workspace_fd, &list, err) < 0 || (*workspace && artifact_locate(&list, workspace, err) < 0))
                return -1;
        write_artifacts(&list, text);
        return 0;
}

static int list_artifacts(struct caller *caller, json_t *json, struct err *err) {
        struct session *session = operation_session(caller, json, err);
        _cleanup_fd_ int workspace = session ? session_open_workspace(session) : -1;
        if (!session)
                return -1;
        if (workspace < 0)
                return err_sys(err, -workspace, "opening the workspace of %s", session->row.name);
        struct artifact_list list = { 0 };
        const char *place = caller_is_operator(caller) ? session->workspace : "";
        if (!artifact_scan_few(workspace, &list))
                return caller_job_start(caller, workspace, CALLER_JOB_SHORT, list_many, place, err);
        _cleanup_json_writer_ struct json_writer text = { 0 };
        if (*place && artifact_locate(&list, place, NULL) < 0)
                text.failed = true;
        write_artifacts(&list, &text);
        artifact_list_release(&list);
        if (text.failed)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        caller_answer_text(caller, text.bytes, text.size, NULL);
        return 0;
}

const struct operation operations_file[] = {
        { "file.read", read_file },    { "file.write", write_file },     { "file.list", list_files },
        { "file.stat", stat_file },    { "file.remove", remove_file },   { "file.mkdir", make_directory },
        { "file.move", move_file },    { "artifact.list", list_artifacts }, { NULL, NULL },
};
