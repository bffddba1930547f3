/* Files of a session's workspace, and its artifacts. All of it may be written by hostile code: store/workspace.h
 * resolves paths beneath the workspace, and no function here opens a path itself. */
#include "daemon/file_operation.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "daemon/operation.h"
#include "daemon/remote.h"
#include "session/caller.h"
#include "session/caller_job.h"
#include "session/remote_place.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "session/session_config.h"
#include "store/workspace.h"

/* Standard input of a run (cli/input_feed.h) goes through the kernel's directory, which its code can reach. */
static int open_directory_of(const struct session *session, bool is_input, struct err *err) {
        const struct remote_place place = remote_place_of(session);
        if (session->is_remote)
                return err_set(err, ERR_UNSUPPORTED,
                               "the files of session %s are at %.200s, and this cannot be done with them from "
                               "here: read and write them one by one",
                               session->row.name, remote_place_words(session->manager, &place));
        int fd = is_input ? session_open_kernel_directory(session) : session_open_workspace(session);
        return fd < 0 ? err_sys(err, -fd, "opening the workspace of %s", session->row.name) : fd;
}

int file_operation_open_workspace(struct caller *caller, const struct file_request *request,
                                  char ret_relative[static 4096], struct session **ret_session, struct err *err) {
        bool created;
        struct session *session = request->creates ? session_config_find_or_create(caller, request->session,
                                                                                   request->options, &created, err)
                                                   : caller_find_session(caller, request->session, err);
        if (!session)
                return -1;
        if (!request->path)
                return err_set(err, ERR_USAGE, "\"path\" must be given, as text");
        if (workspace_check_path(request->path, ret_relative, err) < 0)
                return -1;
        if (ret_session)
                *ret_session = session;
        return open_directory_of(session, request->is_input, err);
}

/* ---- looking ---- */

int operation_file_open(struct caller *caller, const struct file_request *request, struct open_file *ret_file,
                        struct err *err) {
        caller_begin(caller, "file.read", request->session);
        _cleanup_fd_ int workspace = file_operation_open_workspace(caller, request, ret_file->path, NULL, err);
        if (workspace < 0)
                return -1;
        ret_file->fd =
                workspace_open(workspace, ret_file->path, request->no_links ? WORKSPACE_NO_LINKS : WORKSPACE_FOLLOW,
                               &ret_file->status, err);
        if (ret_file->fd < 0)
                return -1;
        return 0;
}

/* ---- lists ---- */

struct list_job {
        file_list_writer *write;
        const char *relative; /* below the directory that is open */
        const char *path; /* that the writer gets */
};

static int write_list(int directory_fd, const void *context, struct json_writer *text, struct err *err) {
        const struct list_job *job = context;
        bool is_cut;
        json_t *entries = workspace_list(directory_fd, job->relative, WORKSPACE_LIST_MAX, &is_cut, err);
        if (!entries)
                return -1;
        job->write(entries, is_cut, job->path, text);
        json_decref(entries);
        return text->failed ? err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY) : 0;
}

/* Code in the box chooses the number of files. */
static int answer_list(struct caller *caller, int directory_fd, const struct list_job *job, struct err *err) {
        _cleanup_json_writer_ struct json_writer text = { 0 };
        if (!workspace_lists_short(directory_fd, job->relative))
                return caller_job_start(caller, directory_fd, write_list, job, err);
        if (write_list(directory_fd, job, &text, err) < 0)
                return -1;
        caller_answer_text(caller, text.bytes, text.size, NULL);
        return 0;
}

int open_file_list(struct caller *caller, const struct open_file *directory, file_list_writer *write, struct err *err) {
        const struct list_job job = { write, ".", directory->path };
        return answer_list(caller, directory->fd, &job, err);
}

int operation_file_list(struct caller *caller, const struct file_request *request, file_list_writer *write,
                        struct err *err) {
        char relative[4096];
        caller_begin(caller, "file.list", request->session);
        _cleanup_fd_ int workspace = file_operation_open_workspace(caller, request, relative, NULL, err);
        const struct list_job job = { write, relative, relative };
        return workspace < 0 ? -1 : answer_list(caller, workspace, &job, err);
}

static int stat_open(struct caller *caller, const struct file_request *request, json_t **ret_entry, struct err *err) {
        struct open_file file;
        if (operation_file_open(caller, request, &file, err) < 0)
                return -1;
        fd_close(&file.fd);
        *ret_entry = workspace_describe_open(file.path, &file.status, err);
        return *ret_entry ? 0 : -1;
}

int operation_file_stat(struct caller *caller, const struct file_request *request, json_t **ret_entry,
                        struct err *err) {
        char relative[4096];
        caller_begin(caller, "file.stat", request->session);
        if (request->follows)
                return stat_open(caller, request, ret_entry, err);
        _cleanup_fd_ int workspace = file_operation_open_workspace(caller, request, relative, NULL, err);
        if (workspace < 0)
                return -1;
        *ret_entry = workspace_stat(workspace, relative, err);
        return *ret_entry ? 0 : -1;
}

/* ---- changing ---- */

int operation_file_make_directory(struct caller *caller, const struct file_request *request, char ret_path[static 4096],
                                  struct err *err) {
        caller_begin(caller, "file.mkdir", request->session);
        _cleanup_fd_ int workspace = file_operation_open_workspace(caller, request, ret_path, NULL, err);
        return workspace < 0 ? -1 : workspace_make_directories(workspace, ret_path, err);
}

int operation_file_move(struct caller *caller, const struct file_request *request, char ret_path[static 4096],
                        struct err *err) {
        char from[4096];
        caller_begin(caller, "file.move", request->session);
        _cleanup_fd_ int workspace = file_operation_open_workspace(caller, request, from, NULL, err);
        if (workspace < 0)
                return -1;
        if (!request->to)
                return err_set(err, ERR_USAGE, "\"to\" must be given, as text");
        return workspace_check_path(request->to, ret_path, err) < 0 ? -1
                                                                    : workspace_move(workspace, from, ret_path, err);
}

static int remove_tree_in_child(int workspace_fd, const void *relative, struct json_writer *answer, struct err *err) {
        json_writer_put_literal(answer, "{}");
        return workspace_remove(workspace_fd, relative, true, err);
}

/* Its depth and size are unknown, and code in the box may be adding to it: a child removes
 * it. */
int operation_file_remove(struct caller *caller, const struct file_request *request, struct err *err) {
        char relative[4096];
        caller_begin(caller, "file.remove", request->session);
        struct session *remote = remote_find(caller, request->session);
        if (remote && request->path)
                return remote_pass_new(
                        caller, remote, "file.remove",
                        json_pack("{s:s, s:b}", "path", request->path, "recursive", (int) request->recursive), err);
        _cleanup_fd_ int workspace = file_operation_open_workspace(caller, request, relative, NULL, err);
        if (workspace < 0)
                return -1;
        if (request->recursive)
                return caller_job_start(caller, workspace, remove_tree_in_child, relative, err);
        if (workspace_remove(workspace, relative, false, err) < 0)
                return -1;
        caller_answer(caller, json_object());
        return 0;
}

/* ---- artifacts ---- */

struct artifact_job {
        artifact_list_writer *write;
        const char *place; /* the workspace on the host; "": not reported */
        const char *context;
};

static int write_artifacts(struct artifact_list *list, const struct artifact_job *job, struct json_writer *text,
                           struct err *err) {
        if (*job->place && artifact_locate(list, job->place, err) < 0)
                return -1;
        job->write(list, job->context, text);
        return text->failed ? err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY) : 0;
}

static int list_artifacts_in_child(int workspace_fd, const void *context, struct json_writer *text, struct err *err) {
        struct artifact_list list = { 0 };
        return artifact_scan(workspace_fd, &list, err) < 0 ? -1 : write_artifacts(&list, context, text, err);
}

int operation_artifact_list(struct caller *caller, const char *name, artifact_list_writer *write, const char *context,
                            bool is_located, struct err *err) {
        caller_begin(caller, "artifact.list", name);
        const struct session *session = caller_find_session(caller, name, err);
        _cleanup_fd_ int workspace = session ? open_directory_of(session, false, err) : -1;
        if (workspace < 0)
                return -1;
        struct artifact_list list = { 0 };
        const struct artifact_job job = { write, is_located && caller_is_operator(caller) ? session->workspace : "",
                                          context };
        if (!artifact_scan_few(workspace, &list))
                return caller_job_start(caller, workspace, list_artifacts_in_child, &job, err);
        _cleanup_json_writer_ struct json_writer text = { 0 };
        int code = write_artifacts(&list, &job, &text, err);
        artifact_list_release(&list);
        if (code == 0)
                caller_answer_text(caller, text.bytes, text.size, NULL);
        return code;
}

int operation_artifact_scan(struct caller *caller, const char *name, artifact_listed *done, struct err *err) {
        caller_begin(caller, "artifact.list", name);
        const struct session *session = caller_find_session(caller, name, err);
        int workspace = session ? open_directory_of(session, false, err) : -1;
        return workspace < 0 ? -1 : artifact_listing_get(caller, workspace, done, err);
}
