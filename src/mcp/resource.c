#include "mcp/resource.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "http/text.h"
#include "mcp/ask.h"
#include "mcp/fixture.h"
#include "mcp/server.h"
#include "mcp/tool.h"
#include "store/artifact.h"

static const char scheme[] = "glovebox://";
enum { URI_MAX = 16 << 10 };

char *resource_make_uri(const char *sandbox, const char *relative) {
        _cleanup_free_ char *encoded = http_encode(relative, true);
        char *uri = NULL;
        if (!encoded || asprintf(&uri, "%s%s/%s", scheme, sandbox, encoded) < 0)
                return NULL;
        return uri;
}

/* Artifacts are linked from results; there may be any number of them, so they are not listed here. */
void resource_list(struct mcp_call *call, const struct mcp_message *message) {
        _cleanup_json_writer_ struct json_writer members = { 0 };
        if (!server_check_cursor(call, message))
                return;
        json_writer_put_literal(&members, "\"resources\":[");
        if (call->peer->has_fixtures)
                fixture_put_resources(&members);
        json_writer_put_literal(&members, "]");
        server_put_caching(call, &members, 0, false);
        mcp_call_result(call, &members, NULL);
}

void resource_list_templates(struct mcp_call *call, const struct mcp_message *message) {
        _cleanup_json_writer_ struct json_writer members = { 0 };
        if (!server_check_cursor(call, message))
                return;
        json_writer_put_literal(
                &members, "\"resourceTemplates\":[{\"uriTemplate\":\"glovebox://{sandbox}/{+path}\",\"name\":\"file\","
                          "\"title\":\"File of a sandbox\",\"description\":\"A file below /workspace of a sandbox, "
                          "such as artifacts/plot.png\"}");
        if (call->peer->has_fixtures)
                fixture_put_templates(&members);
        json_writer_put_literal(&members, "]");
        server_put_caching(call, &members, 60000, false);
        mcp_call_result(call, &members, NULL);
}

/* ---- read ---- */

/* The session's name and the path below its workspace. Segments of the client's URI are decoded once. */
static int resource_parse_uri(struct mcp_call *call, const char *uri, char ret_name[static TOOL_NAME_ROOM],
                              char ret_path[static 4096], struct err *err) {
        char handle[sizeof(call->sandbox)], path[URI_MAX + 1];
        size_t size = strlen(uri), n;
        if (size > URI_MAX || strncmp(uri, scheme, strlen(scheme)) != 0)
                return err_set(err, ERR_NOT_FOUND,
                               "there is no such resource; those there are look like "
                               "glovebox://default/artifacts/plot.png");
        const char *at = uri + strlen(scheme), *slash = strchr(at, '/');
        if (!slash || slash == at || (size_t) (slash - at) >= sizeof(handle))
                return err_set(err, ERR_NOT_FOUND, "the URI names no file: glovebox://SANDBOX/PATH");
        memcpy(handle, at, (size_t) (slash - at));
        handle[slash - at] = '\0';
        if (http_decode(slash + 1, strlen(slash + 1), false, path, &n) < 0 || n == 0 || n >= 4096)
                return err_set(err, ERR_NOT_FOUND,
                               "the path of the URI is empty, too long, or not percent-encoded UTF-8");
        memcpy(ret_path, path, n + 1);
        return tool_name_sandbox(call, handle, ret_name, err);
}

static void answer_bytes(struct mcp_call *call, const char *uri, const char *bytes, size_t size, const char *mime) {
        _cleanup_json_writer_ struct json_writer members = { 0 };
        json_writer_put_literal(&members, "\"contents\":[{\"uri\":");
        json_writer_put_string(&members, uri, strlen(uri));
        json_writer_put_literal(&members, ",\"mimeType\":");
        json_writer_put_string(&members, mime, strlen(mime));
        if (utf8_is_valid(bytes, size) && !memchr(bytes, '\0', size)) {
                json_writer_put_literal(&members, ",\"text\":");
                json_writer_put_string(&members, bytes, size);
        } else {
                json_writer_put_literal(&members, ",\"blob\":\"");
                base64_put(&members, bytes, size);
                json_writer_put_literal(&members, "\"");
        }
        json_writer_put_literal(&members, "}]");
        server_put_caching(call, &members, 0, false);
        mcp_call_result(call, &members, NULL);
}

static char *read_whole(int fd, size_t size, struct err *err) {
        char *bytes = malloc(size + 1);
        if (bytes && fd_read_at(fd, bytes, size, 0) == (ssize_t) size)
                return bytes;
        (void) (bytes ? err_set(err, ERR_GONE, "the file changed while it was read; try again")
                      : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY));
        free(bytes);
        return NULL;
}

static void on_opened(struct mcp_call *call, json_t *arguments, struct ask_file *file, const struct err *err) {
        const char *uri = json_string_value(json_object_get(arguments, "uri"));
        struct err failed;
        _cleanup_free_ char *bytes = NULL;
        if (file && !S_ISREG(file->status.st_mode))
                (void) err_set(&failed, ERR_NOT_FOUND, "%.200s is no file", file->relative);
        else if (file && file->status.st_size > MCP_RESOURCE_MAX)
                (void) err_set(&failed, ERR_LIMIT,
                               "the file has %lld bytes, and a resource at most %d; read parts of it with run_shell",
                               (long long) file->status.st_size, MCP_RESOURCE_MAX);
        else if (file)
                bytes = read_whole(file->fd, (size_t) file->status.st_size, &failed);
        if (bytes)
                answer_bytes(call, uri, bytes, (size_t) file->status.st_size, artifact_mime(file->relative));
        else
                mcp_call_refuse(call, file ? &failed : err);
}

void resource_read(struct mcp_call *call, const struct mcp_message *message) {
        const char *uri = json_string_value(json_object_get(message->params, "uri"));
        char name[TOOL_NAME_ROOM], path[4096];
        struct mcp_error error;
        struct err err;
        if (!uri) {
                (void) mcp_error_set(&error, MCP_INVALID_PARAMS, 200, "\"uri\" must be given, as text");
                mcp_call_fail(call, &error);
                return;
        }
        if (call->peer->has_fixtures && fixture_read_resource(call, uri))
                return;
        call->is_resource = true;
        call->context = uri;
        if (resource_parse_uri(call, uri, name, path, &err) < 0)
                mcp_call_refuse(call, &err);
        else
                ask_open(call, name, path, message->params, on_opened);
}
