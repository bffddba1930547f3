/* Files of a sandbox. Everything in there was put there by hostile code, and every path comes from a stranger: paths
 * are resolved beneath the workspace by store/workspace.h, and nothing here touches one by itself. */
#include "api/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "api/receiving.h"
#include "api/routes.h"
#include "api/sandbox.h"
#include "api/service.h"
#include "api/serving.h"
#include "base/fd.h"
#include "http/query.h"
#include "http/text.h"
#include "session/caller_job.h"
#include "session/session.h"
#include "session/session_config.h"
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
                       : err_set(err, ERR_USAGE, "%s is true or false", name);
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
        return err_set(err, ERR_USAGE, "there is no \"%.60s\" to be asked for here; /docs lists what there is",
                       pair->name); /* misspelled, it must not mean something else */
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

int file_open_workspace(const struct api_request *api_request, struct err *err) {
        const struct session *session = session_find(api_request->service->manager, api_request->visitor.owner,
                                                     api_request_user(api_request));
        if (!session)
                return err_set(err, ERR_NOT_FOUND, "there is no sandbox \"%.100s\"; make it with create, or run "
                               "something in it", api_request_user(api_request));
        int fd = session_open_workspace(session);
        return fd < 0 ? err_sys(err, -fd, "opening the files of the sandbox") : fd;
}

/* ---- read ---- */

static int list_directory(struct api_request *api_request, int directory_fd, const char *relative, struct err *err) {
        char path[4200];
        bool is_cut = false;
        size_t i;
        json_t *entry, *entries = workspace_list(directory_fd, ".", &is_cut, err);
        if (!entries)
                return -1;
        json_array_foreach(entries, i, entry) {
                json_object_set(entry, "name", json_object_get(entry, "path"));
                json_object_del(entry, "path");
        }
        bool is_root = strcmp(relative, ".") == 0;
        (void) snprintf(path, sizeof(path), "/workspace%s%s", is_root ? "" : "/", is_root ? "" : relative);
        api_request_answer(api_request, 200, json_pack("{s:s, s:s, s:o, s:b}", "path", path, "type", "directory", "entries",
                                                 entries, "cut", (int) is_cut));
        return 0;
}

int file_show(struct api_request *api_request, int workspace_fd, const char *relative, enum workspace_links links,
              struct err *err) {
        struct stat status;
        _cleanup_fd_ int fd = workspace_open(workspace_fd, relative, links, &status, err);
        if (fd < 0)
                return -1;
        if (S_ISDIR(status.st_mode))
                return list_directory(api_request, fd, relative, err);
        const char *slash = strrchr(relative, '/');
        serving_begin(api_request, take_fd(&fd), &status, slash ? slash + 1 : relative);
        return 0;
}

/* What is at the path, without its content; a link is told as a link. */
static int describe(struct api_request *api_request, int workspace_fd, const char *relative, struct err *err) {
        json_t *entry = workspace_stat(workspace_fd, relative, err);
        if (!entry)
                return -1;
        api_request_answer(api_request, 200, entry);
        return 0;
}

void file_read(struct api_request *api_request) {
        struct question question;
        struct err err;
        _cleanup_fd_ int workspace =
                read_question(api_request, &question, &err) < 0 ? -1 : file_open_workspace(api_request, &err);
        const char *path = *question.path ? question.path : ".";
        if (workspace >= 0 && question.is_stat) {
                if (describe(api_request, workspace, path, &err) < 0)
                        api_request_refuse(api_request, &err);
                return;
        }
        if (workspace < 0 || file_show(api_request, workspace, path, WORKSPACE_FOLLOW, &err) < 0)
                api_request_refuse(api_request, &err);
}

/* ---- write ---- */

static struct session *find_or_create(struct api_request *api_request, bool is_existing, struct err *err) {
        bool is_created;
        struct session *found = session_find(api_request->service->manager, api_request->visitor.owner,
                                             api_request_user(api_request));
        if (is_existing && !found)
                (void) err_set(err, ERR_NOT_FOUND, "there is no sandbox \"%.100s\"; make it with create",
                               api_request_user(api_request));
        if (is_existing || found)
                return found;
        if (!sandbox_has_room(api_request, api_request_user(api_request), err))
                return NULL;
        json_t *json = json_pack("{s:s}", "session", api_request_user(api_request));
        struct session *session = session_config_find_or_create(&api_request->caller, json, &is_created, err);
        json_decref(json);
        return session;
}

/* A directory, or a move: what needs no body. */
static void change(struct api_request *api_request, const struct session *session, const struct question *question) {
        struct err err;
        char path[4200];
        _cleanup_fd_ int workspace = session_open_workspace(session);
        const char *made = question->is_directory ? question->path : question->target;
        int code = workspace < 0 ? err_sys(&err, -workspace, "opening the files of the sandbox")
                   : question->is_directory ? workspace_make_directories(workspace, made, &err)
                                            : workspace_move(workspace, question->path, made, &err);
        if (code < 0) {
                api_request_refuse(api_request, &err);
                return;
        }
        (void) snprintf(path, sizeof(path), "/workspace/%s", made);
        api_request_answer(api_request, question->is_directory ? 201 : 200, json_pack("{s:s}", "path", path));
}

/* Is the request one that makes sense? Before a sandbox is made for it. */
static int check_write(const struct api_request *api_request, const struct question *question, bool is_form,
                       struct err *err) {
        int64_t length = http_content_length(api_request->request);
        bool has_body = !question->is_directory && !question->target[0];
        if ((question->is_directory && question->target[0]) || question->is_recursive ||
            question->is_stat)
                return err_set(err, ERR_USAGE, "mkdir, move_to, recursive and stat do not go together here; see /docs");
        if (!has_body && length != 0)
                return err_set(err, ERR_USAGE, "mkdir and move_to take no body; leave it out");
        if (!question->path[0] && (!is_form || !has_body))
                return err_set(err, ERR_USAGE, "say where to: ?path=data/file.csv");
        if (has_body && !is_form && !question->is_plain)
                return err_set(err, ERR_USAGE, "the path ends with a slash: the file's name is missing");
        if (has_body && !is_form && length > 0 && (uint64_t) length > api_request->service->settings->upload_max)
                return err_set(err, ERR_LIMIT, "the file has %lld bytes, and the service takes %llu at most",
                               (long long) length, (unsigned long long) api_request->service->settings->upload_max);
        return question->target[0] ? file_check_name(question->target, err) : file_check_name(question->path, err);
}

void file_write(struct api_request *api_request) {
        bool is_form = receiving_is_form(api_request);
        struct question question;
        struct err err;
        if (read_question(api_request, &question, &err) < 0 || check_write(api_request, &question, is_form, &err) < 0) {
                if (err.code == ERR_LIMIT)
                        api_request_problem(api_request, 413, "too_large", err.message, NULL);
                else
                        api_request_refuse(api_request, &err);
                return;
        }
        struct session *session = find_or_create(api_request, question.is_existing, &err);
        if (!session)
                api_request_refuse(api_request, &err);
        else if (question.is_directory || question.target[0])
                change(api_request, session, &question);
        else
                receiving_begin(api_request, session, question.path[0] ? question.path : ".");
}

/* ---- remove ---- */

/* In a child: how deep it is and how much is in it is known to nobody, and code in the sandbox may be adding to it. */
static int remove_many(int workspace_fd, const char *relative, struct json_writer *answer, struct err *err) {
        char path[4200];
        (void) snprintf(path, sizeof(path), "/workspace/%s", relative);
        json_writer_put_literal(answer, "{\"path\":");
        json_writer_put_string(answer, path, strlen(path));
        json_writer_put_literal(answer, "}");
        return workspace_remove(workspace_fd, relative, true, err);
}

void file_remove(struct api_request *api_request) {
        struct question question;
        struct err err;
        _cleanup_fd_ int workspace =
                read_question(api_request, &question, &err) < 0 ? -1 : file_open_workspace(api_request, &err);
        int code = workspace < 0 ? -1 : 0;
        if (code == 0 && !question.path[0])
                code = err_set(&err, ERR_USAGE, "say what: ?path=data/file.csv");
        else if (code == 0 && question.is_recursive) {
                api_request_attend(api_request);
                code = caller_job_start(&api_request->caller, workspace, CALLER_JOB_LONG, remove_many, question.path, &err);
        } else if (code == 0 && (code = workspace_remove(workspace, question.path, false, &err)) == 0) {
                char path[4200];
                (void) snprintf(path, sizeof(path), "/workspace/%s", question.path);
                api_request_answer(api_request, 200, json_pack("{s:s}", "path", path));
        }
        if (code < 0)
                api_request_refuse(api_request, &err);
}
