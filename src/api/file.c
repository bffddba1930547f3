/* Files of a sandbox. All files may have been written by hostile code, and every path comes from a client:
 * store/workspace.h resolves paths beneath the workspace, and no function here opens a path itself. */
#include "api/file.h"

#include <string.h>

#include "api/api_request.h"
#include "api/body_upload.h"
#include "api/file_download.h"
#include "api/remote_file.h"
#include "api/routes.h"
#include "api/sandbox.h"
#include "api/service.h"
#include "base/fd.h"
#include "daemon/operation.h"
#include "http/query.h"
#include "http/text.h"
#include "store/workspace.h"

/* ---- the question ---- */

struct question {
        char path[4096], target[4096]; /* below the workspace; "": not given */
        bool is_directory, is_recursive, is_stat, is_existing;
        bool is_plain; /* of the path: no slash at the end */
};

static int take_flag(const char *name, const char *value, bool *ret_flag, struct err *err) {
        *ret_flag = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
        return *ret_flag || strcmp(value, "false") == 0 || strcmp(value, "0") == 0
                       ? 0
                       : err_set(err, ERR_USAGE, "%s must be true or false", name);
}

static int take_pair(struct question *question, const struct http_pair *pair, struct err *err) {
        if (strcmp(pair->name, "path") == 0) {
                size_t size = strlen(pair->value);
                question->is_plain = size > 0 && pair->value[size - 1] != '/';
                return workspace_check_path(pair->value, question->path, err);
        }
        if (strcmp(pair->name, "move_to") == 0)
                return workspace_check_path(pair->value, question->target, err);
        if (strcmp(pair->name, "mkdir") == 0)
                return take_flag("mkdir", pair->value, &question->is_directory, err);
        if (strcmp(pair->name, "create") == 0) {
                bool is_created;
                int code = take_flag("create", pair->value, &is_created, err);
                question->is_existing = code == 0 && !is_created;
                return code;
        }
        if (strcmp(pair->name, "stat") == 0)
                return take_flag("stat", pair->value, &question->is_stat, err);
        if (strcmp(pair->name, "recursive") == 0)
                return take_flag("recursive", pair->value, &question->is_recursive, err);
        return err_set(err, ERR_USAGE, "there is no parameter \"%.60s\" here; /docs lists them",
                       pair->name); /* a misspelled word must not mean something else */
}

static int read_question(const struct api_request *api_request, struct question *ret_question, struct err *err) {
        struct http_pairs pairs;
        int code = 0;
        *ret_question = (struct question) { 0 };
        if (http_query_parse(http_query(api_request->request), &pairs, err) < 0)
                return -1;
        for (size_t i = 0; i < pairs.n && code == 0; i++)
                code = take_pair(ret_question, &pairs.pairs[i], err);
        http_query_free(&pairs);
        return code;
}

int file_check_name(const char *relative, struct err *err) {
        if (strchr(relative, '\\') || strchr(relative, '\t') || !http_is_value(relative, strlen(relative)))
                return err_set(err, ERR_USAGE, "a new file's name must not hold a backslash or a control character");
        return 0;
}

static struct file_request request_of(const struct api_request *api_request, const struct question *question) {
        return (struct file_request) { .session = api_request_user(api_request),
                                       .path = *question->path ? question->path : ".",
                                       .to = question->target,
                                       .recursive = question->is_recursive };
}

/* "/workspace/data/x.csv": as the answers name it. */
static json_t *describe_path(const char *relative) {
        bool is_root = strcmp(relative, ".") == 0;
        return json_sprintf("/workspace%s%s", is_root ? "" : "/", is_root ? "" : relative);
}

/* ---- read ---- */

static void write_directory(json_t *entries, bool is_cut, const char *path, struct json_writer *text) {
        size_t i;
        json_t *entry;
        json_array_foreach (entries, i, entry) {
                json_object_set(entry, "name", json_object_get(entry, "path"));
                json_object_del(entry, "path");
        }
        json_t *answer = json_pack("{s:o, s:s, s:O, s:b}", "path", describe_path(path), "type", "directory", "entries",
                                   entries, "cut", (int) is_cut);
        json_writer_put_value(text, answer);
        json_decref(answer);
}

static void answer_directory(struct api_request *api_request, struct open_file *directory) {
        struct err err;
        api_request_attend(api_request);
        int code = open_file_list(&api_request->caller, directory, write_directory, &err);
        fd_close(&directory->fd);
        api_request_settle(api_request, code, &err);
}

/* Describes the entry at the path; a link is described as a link. */
static void answer_stat(struct api_request *api_request, const struct file_request *request) {
        json_t *entry;
        struct err err;
        if (operation_file_stat(&api_request->caller, request, &entry, &err) < 0)
                api_request_refuse(api_request, &err);
        else
                api_request_answer(api_request, 200, entry);
}

void file_read(struct api_request *api_request) {
        struct question question;
        struct open_file file;
        struct err err;
        if (read_question(api_request, &question, &err) < 0) {
                api_request_refuse(api_request, &err);
                return;
        }
        const struct file_request request = request_of(api_request, &question);
        struct session *remote = remote_file_session(api_request, false, &err);
        if (remote && question.is_stat)
                remote_file_stat(api_request, remote, &request);
        else if (remote)
                remote_file_read(api_request, remote, &request);
        else if (question.is_stat)
                answer_stat(api_request, &request);
        else if (operation_file_open(&api_request->caller, &request, &file, &err) < 0)
                api_request_refuse(api_request, &err);
        else if (S_ISDIR(file.status.st_mode))
                answer_directory(api_request, &file);
        else {
                const char *slash = strrchr(file.path, '/');
                file_download_begin(api_request, file.fd, &file.status, slash ? slash + 1 : file.path);
        }
}

/* ---- write ---- */

/* Requests without a body: a directory, or a move. */
static void change_tree(struct api_request *api_request, const struct file_request *request, bool is_directory) {
        struct err err;
        char made[4096];
        int code = is_directory ? operation_file_make_directory(&api_request->caller, request, made, &err)
                                : operation_file_move(&api_request->caller, request, made, &err);
        if (code < 0)
                api_request_refuse(api_request, &err);
        else
                api_request_answer(api_request, is_directory ? 201 : 200,
                                   json_pack("{s:o}", "path", describe_path(made)));
}

static int check_length(const struct api_request *api_request, int64_t length, struct err *err) {
        uint64_t max = api_request->service->settings->upload_max;
        if (length <= 0 || (uint64_t) length <= max)
                return 0;
        return err_set(err, ERR_LIMIT, "the file has %lld bytes, and the service takes %llu at most",
                       (long long) length, (unsigned long long) max);
}

/* Checks that the parameters of a request without a body fit together: mkdir or move_to. */
static int check_change(const struct question *question, int64_t length, struct err *err) {
        if (length != 0)
                return err_set(err, ERR_USAGE, "mkdir and move_to take no body; leave it out");
        if (!question->path[0])
                return err_set(err, ERR_USAGE, "the path is missing; add ?path=data/file.csv");
        return file_check_name(question->target[0] ? question->target : question->path, err);
}

/* The same for a file: the body, or a form of files. */
static int check_file(const struct api_request *api_request, const struct question *question, bool is_form,
                      struct err *err) {
        if (!is_form && !question->path[0])
                return err_set(err, ERR_USAGE, "the path is missing; add ?path=data/file.csv");
        if (!is_form && !question->is_plain)
                return err_set(err, ERR_USAGE, "the path ends with a slash: the file's name is missing");
        if (!is_form && check_length(api_request, http_content_length(api_request->request), err) < 0)
                return -1;
        return file_check_name(question->path, err);
}

/* Checks a request before a sandbox is made for it. */
static int check_write(const struct api_request *api_request, const struct question *question, bool is_form,
                       struct err *err) {
        bool is_move = question->target[0] != '\0';
        if ((question->is_directory && is_move) || question->is_recursive || question->is_stat)
                return err_set(err, ERR_USAGE, "mkdir, move_to, recursive and stat do not go together here; see /docs");
        return question->is_directory || is_move
                       ? check_change(question, http_content_length(api_request->request), err)
                       : check_file(api_request, question, is_form, err);
}

void file_write(struct api_request *api_request) {
        bool is_form = body_upload_is_form(api_request);
        struct question question;
        struct err err;
        if (read_question(api_request, &question, &err) < 0 || check_write(api_request, &question, is_form, &err) < 0) {
                if (err.code == ERR_LIMIT)
                        api_request_problem(api_request, 413, "too_large", err.message, NULL);
                else
                        api_request_refuse(api_request, &err);
                return;
        }
        struct file_request request = request_of(api_request, &question);
        request.creates = !question.is_existing;
        if (request.creates && !sandbox_has_room(api_request, request.session, &err)) {
                api_request_refuse(api_request, &err);
                return;
        }
        struct session *remote = remote_file_session(api_request, request.creates, &err);
        if (!remote && err.code != ERR_NONE)
                api_request_refuse(api_request, &err);
        else if (remote && (question.is_directory || question.target[0]))
                remote_file_change(api_request, remote, &request, question.is_directory);
        else if (remote)
                body_upload_begin_remote(api_request, remote, &request);
        else if (question.is_directory || question.target[0])
                change_tree(api_request, &request, question.is_directory);
        else
                body_upload_begin(api_request, &request);
}

/* ---- remove ---- */

static void answer_removed(struct api_request *api_request, const char *answer, size_t size) {
        struct question question;
        struct err err;
        (void) answer;
        (void) size;
        if (read_question(api_request, &question, &err) < 0) /* it was good before */
                api_request_refuse(api_request, &err);
        else
                api_request_answer(api_request, 200, json_pack("{s:o}", "path", describe_path(question.path)));
}

void file_remove(struct api_request *api_request) {
        struct question question;
        struct err err;
        int code = read_question(api_request, &question, &err);
        if (code == 0 && !question.path[0])
                code = err_set(&err, ERR_USAGE, "say what: ?path=data/file.csv");
        if (code == 0) {
                const struct file_request request = request_of(api_request, &question);
                api_request->finish = answer_removed;
                api_request_attend(api_request);
                code = operation_file_remove(&api_request->caller, &request, &err);
        }
        api_request_settle(api_request, code, &err);
}
