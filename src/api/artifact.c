/* Artifacts of a sandbox: the list, one of them, all of them. */
#include "session/artifact.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/exchange.h"
#include "api/file.h"
#include "api/routes.h"
#include "api/sending.h"
#include "api/service.h"
#include "api/serving.h"
#include "api/zip.h"
#include "base/fd.h"
#include "base/memory.h"
#include "http/query.h"
#include "http/text.h"

enum { ZIPS_MAX = 8 }; /* of one owner at a time: each holds the names of what it packs */

/* ---- the list ---- */

/* Names that are not UTF-8 cannot be told in JSON, and are left out. */
static json_t *describe(const char *user, const struct artifact *artifact) {
        char path[ARTIFACT_PATH_MAX + 16];
        _cleanup_free_ char *encoded = http_encode(artifact->path, true);
        _cleanup_free_ char *url = NULL;
        if (!encoded || asprintf(&url, "/sandbox/%s/artifacts/download?path=%s", user, encoded) < 0) {
                url = NULL;
                return NULL;
        }
        (void) snprintf(path, sizeof(path), "/workspace/%s", artifact->path);
        return json_pack("{s:s, s:I, s:s, s:s}", "path", path, "size", (json_int_t) artifact->size, "mime",
                         artifact_mime(path), "url", url);
}

void artifacts_list(struct exchange *exchange) {
        struct err err;
        struct artifact_list list = { 0 };
        _cleanup_free_ char *user = http_encode(exchange_user(exchange), false);
        _cleanup_fd_ int workspace = file_open_workspace(exchange, &err);
        if (workspace < 0 || artifact_scan(workspace, &list, &err) < 0) {
                exchange_refuse(exchange, &err);
                return;
        }
        json_t *array = json_array(), *item;
        for (size_t i = 0; user && i < list.count; i++)
                if ((item = describe(user, &list.items[i])))
                        json_array_append_new(array, item);
        bool is_cut = list.cut;
        artifact_list_release(&list);
        exchange_answer(exchange, 200, json_pack("{s:o, s:b}", "artifacts", array, "cut", (int) is_cut));
}

/* ---- one ---- */

static int read_path(const struct exchange *exchange, char ret_relative[static 4096], struct err *err) {
        static const char below[] = "artifacts/";
        struct http_pairs pairs;
        if (http_query_parse(http_query(exchange->request), &pairs, err) < 0)
                return -1;
        const char *path = http_query_find(&pairs, "path");
        int code = path ? workspace_check_path(path, ret_relative, err)
                        : err_set(err, ERR_USAGE, "say which: ?path=artifacts/plot.png");
        http_query_free(&pairs);
        if (code == 0 && strncmp(ret_relative, below, strlen(below)) != 0)
                return err_set(err, ERR_REFUSED, "only what is below artifacts/ is an artifact; other files are at "
                               "/sandbox/{user_id}/file");
        return code;
}

void artifacts_download(struct exchange *exchange) {
        char relative[4096];
        struct err err;
        struct stat status;
        _cleanup_fd_ int workspace =
                read_path(exchange, relative, &err) < 0 ? -1 : file_open_workspace(exchange, &err);
        _cleanup_fd_ int fd =
                workspace < 0 ? -1 : workspace_open(workspace, relative, WORKSPACE_NO_LINKS, &status, &err);
        if (fd >= 0 && S_ISREG(status.st_mode)) {
                serving_begin(exchange, take_fd(&fd), &status, strrchr(relative, '/') + 1);
                return;
        }
        if (fd >= 0)
                (void) err_set(&err, ERR_USAGE, "%.200s is a directory; …/artifacts/zip has all of them", relative);
        exchange_refuse(exchange, &err);
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

static size_t count_zips(const struct exchange *exchange) {
        size_t n = 0;
        for (const struct exchange *other = exchange->service->exchanges; other; other = other->next)
                n += other->match.route == exchange->match.route &&
                     strcmp(other->visitor.owner, exchange->visitor.owner) == 0;
        return n;
}

static struct zip_source *open_zip(const struct exchange *exchange, struct err *err) {
        struct artifact_list list = { 0 };
        _cleanup_fd_ int workspace = file_open_workspace(exchange, err);
        if (workspace < 0 || artifact_scan(workspace, &list, err) < 0)
                return NULL;
        struct zip *zip = zip_open(take_fd(&workspace), &list);
        struct zip_source *source = zip ? malloc(sizeof(*source)) : NULL;
        if (source)
                *source = (struct zip_source) { { read_zip, close_zip }, zip };
        else
                (void) err_set(err, ERR_SYSTEM, "out of memory");
        if (zip && !source)
                zip_close(zip);
        return source;
}

void artifacts_zip(struct exchange *exchange) {
        char name[API_PARAMETER_SIZE_MAX + 32];
        struct err err;
        if (count_zips(exchange) > ZIPS_MAX) {
                exchange_problem(exchange, 429, "limit", "this key has as many archives under way as it may",
                                 "wait for one of them to be sent");
                return;
        }
        struct zip_source *source = open_zip(exchange, &err);
        if (!source) {
                exchange_refuse(exchange, &err);
                return;
        }
        (void) snprintf(name, sizeof(name), "%s-artifacts.zip", exchange_user(exchange));
        (void) serving_name(exchange, name);
        sending_begin(exchange, &source->source, 200, "application/zip", HTTP_CHUNKED);
}
