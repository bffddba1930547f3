/* Artifacts of a sandbox: the list, one of them, all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "api/file_download.h"
#include "api/remote_file.h"
#include "api/remote_zip.h"
#include "api/routes.h"
#include "api/sending.h"
#include "api/service.h"
#include "api/zip.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "daemon/operation.h"
#include "http/query.h"
#include "http/text.h"
#include "store/workspace.h"

enum { ZIPS_MAX = 8 }; /* of one owner at a time: each holds the names of its files */

/* ---- the list ---- */

/* Names that are not UTF-8 cannot be written as JSON, and are left out. */
static void artifact_describe(const struct artifact *artifact, const char *user, struct json_writer *text) {
        char path[ARTIFACT_PATH_MAX + 16];
        _cleanup_free_ char *encoded = http_encode(artifact->path, true);
        _cleanup_free_ char *url = NULL;
        if (!encoded || asprintf(&url, "/sandbox/%s/artifacts/download?path=%s", user, encoded) < 0) {
                url = NULL;
                text->failed = true;
                return;
        }
        int length = snprintf(path, sizeof(path), "/workspace/%s", artifact->path);
        if (!utf8_is_valid(path, (size_t) length))
                return;
        json_writer_put(text, ",", text->bytes[text->size - 1] == '[' ? 0 : 1);
        json_writer_put_literal(text, "{\"path\":");
        json_writer_put_string(text, path, (size_t) length);
        json_writer_put_literal(text, ",\"size\":");
        json_writer_put_number(text, (int64_t) artifact->size);
        json_writer_put_literal(text, ",\"mime\":");
        json_writer_put_string(text, artifact_mime(path), strlen(artifact_mime(path)));
        json_writer_put_literal(text, ",\"url\":");
        json_writer_put_string(text, url, strlen(url));
        json_writer_put_literal(text, "}");
}

static void write_list(const struct artifact_list *list, const char *user, struct json_writer *text) {
        json_writer_put_literal(text, "{\"artifacts\":[");
        for (size_t i = 0; !text->failed && i < list->count; i++)
                artifact_describe(&list->items[i], user, text);
        json_writer_put_literal(text, "],\"cut\":");
        json_writer_put_bool(text, list->cut);
        json_writer_put_literal(text, "}");
}

void artifacts_list(struct api_request *api_request) {
        struct err err;
        struct session *remote = remote_file_session(api_request, false, &err);
        if (remote) {
                remote_file_list_artifacts(api_request, remote);
                return;
        }
        _cleanup_free_ char *user = http_encode(api_request_user(api_request), false);
        api_request_attend(api_request);
        int code = user ? operation_artifact_list(&api_request->caller, api_request_user(api_request), write_list, user,
                                                  false, &err)
                        : err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        api_request_settle(api_request, code, &err);
}

/* ---- one ---- */

static int read_path(const struct api_request *api_request, char ret_relative[static 4096], struct err *err) {
        static const char below[] = "artifacts/";
        struct http_pairs pairs;
        if (http_query_parse(http_query(api_request->request), &pairs, err) < 0)
                return -1;
        const char *path = http_query_find(&pairs, "path");
        int code = path ? workspace_check_path(path, ret_relative, err)
                        : err_set(err, ERR_USAGE, "say which: ?path=artifacts/plot.png");
        http_query_free(&pairs);
        if (code == 0 && strncmp(ret_relative, below, strlen(below)) != 0)
                return err_set(err, ERR_REFUSED,
                               "only what is below artifacts/ is an artifact; other files are at "
                               "/sandbox/{user_id}/file");
        return code;
}

void artifacts_download(struct api_request *api_request) {
        char relative[4096];
        struct err err;
        struct open_file file;
        const struct file_request request = { .session = api_request_user(api_request),
                                              .path = relative,
                                              .no_links = true };
        struct session *remote = remote_file_session(api_request, false, &err);
        if (remote && read_path(api_request, relative, &err) == 0) {
                remote_file_read(api_request, remote, &request);
                return;
        }
        if (remote || read_path(api_request, relative, &err) < 0 ||
            operation_file_open(&api_request->caller, &request, &file, &err) < 0) {
                api_request_refuse(api_request, &err);
                return;
        }
        if (S_ISREG(file.status.st_mode)) {
                file_download_begin(api_request, file.fd, &file.status, strrchr(relative, '/') + 1);
                return;
        }
        fd_close(&file.fd);
        (void) err_set(&err, ERR_USAGE, "%.200s is a directory; …/artifacts/zip has all of them", relative);
        api_request_refuse(api_request, &err);
}

/* ---- all ---- */

struct zip_source {
        struct sending_source source;
        struct zip *zip;
};

static ssize_t read_zip(struct sending_source *source, char *bytes) {
        return zip_read(((struct zip_source *) source)->zip, bytes, SENDING_PIECE);
}

static void close_zip(struct sending_source *source) {
        zip_close(((struct zip_source *) source)->zip);
        free(source);
}

static size_t count_zips(const struct api_request *api_request) {
        size_t n = 0;
        for (const struct api_request *other = api_request->service->api_requests; other; other = other->next)
                n += other->match.route == api_request->match.route &&
                     strcmp(other->visitor.owner, api_request->visitor.owner) == 0;
        return n;
}

static struct zip_source *open_zip(int workspace_fd, struct artifact_list *list) {
        struct zip *zip = zip_open(workspace_fd, list);
        struct zip_source *source = zip ? malloc(sizeof(*source)) : NULL;
        if (source)
                *source = (struct zip_source) { { read_zip, close_zip }, zip };
        if (zip && !source)
                zip_close(zip);
        return source;
}

/* The list is complete, or failed. */
static void api_artifact_on_listed(struct caller *caller, struct artifact_list *list, int workspace_fd) {
        struct api_request *api_request = (struct api_request *) caller;
        char name[API_PARAMETER_SIZE_MAX + 32];
        struct zip_source *source = list ? open_zip(workspace_fd, list) : NULL;
        if (!source) {
                struct err err;
                (void) err_set(&err, ERR_SYSTEM, "the artifacts cannot be listed");
                api_request_refuse(api_request, &err);
                return;
        }
        (void) snprintf(name, sizeof(name), "%s-artifacts.zip", api_request_user(api_request));
        (void) file_download_name(api_request, name);
        sending_begin(api_request, &source->source, 200, "application/zip", HTTP_CHUNKED);
}

void artifacts_zip(struct api_request *api_request) {
        struct err err;
        if (count_zips(api_request) > ZIPS_MAX) {
                api_request_problem(api_request, 429, "limit", "this key has as many archives under way as it may",
                                    "wait for one of them to be sent");
                return;
        }
        struct session *remote = remote_file_session(api_request, false, &err);
        if (remote) {
                remote_zip_send(api_request, remote);
                return;
        }
        api_request_attend(api_request);
        api_request_settle(api_request,
                           operation_artifact_scan(&api_request->caller, api_request_user(api_request),
                                                   api_artifact_on_listed, &err),
                           &err);
}
