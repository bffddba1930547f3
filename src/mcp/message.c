#include "mcp/message.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/json_bounds.h"

int mcp_error_set(struct mcp_error *error, int code, int status, const char *format, ...) {
        va_list arguments;
        va_start(arguments, format);
        error->code = code;
        error->status = status;
        error->data = NULL;
        (void) vsnprintf(error->message, sizeof(error->message), format, arguments);
        va_end(arguments);
        return -1;
}

/* Checks the members of every JSON-RPC message. */
static int check_envelope(json_t *json, struct mcp_error *error) {
        const char *version = json_string_value(json_object_get(json, "jsonrpc"));
        const json_t *id = json_object_get(json, "id");
        if (json_is_array(json))
                return mcp_error_set(error, MCP_INVALID_REQUEST, 400,
                                     "batches are not supported: send one message at a time");
        if (!json_is_object(json) || !version || strcmp(version, "2.0") != 0)
                return mcp_error_set(error, MCP_INVALID_REQUEST, 400,
                                     "a message must be an object with \"jsonrpc\": \"2.0\"");
        if (id && !json_is_string(id) && !json_is_integer(id))
                return mcp_error_set(error, MCP_INVALID_REQUEST, 400, "\"id\" must be a text or a whole number");
        return 0;
}

static int read_message(json_t *json, struct mcp_message *message, struct mcp_error *error) {
        if (check_envelope(json, error) < 0)
                return -1;
        json_t *method = json_object_get(json, "method"), *params = json_object_get(json, "params");
        message->id = json_object_get(json, "id");
        if (!method && (json_object_get(json, "result") || json_object_get(json, "error"))) {
                message->kind = MCP_RESPONSE;
                return 0;
        }
        if (!json_is_string(method))
                return mcp_error_set(error, MCP_INVALID_REQUEST, 400, "\"method\" must be given, as text");
        if (params && !json_is_object(params))
                return mcp_error_set(error, MCP_INVALID_PARAMS, 400, "\"params\" must be an object");
        message->kind = message->id ? MCP_REQUEST : MCP_NOTIFICATION;
        message->method = json_string_value(method);
        message->params = params;
        message->meta = json_object_get(params, "_meta");
        if (message->meta && !json_is_object(message->meta))
                return mcp_error_set(error, MCP_INVALID_PARAMS, 400, "\"_meta\" must be an object");
        return 0;
}

int mcp_message_parse(const char *bytes, size_t size, json_t **ret_json, struct mcp_message *ret_message,
                      struct mcp_error *error) {
        json_error_t where = { .text = "it nests too deeply, or holds too many small things" };
        *ret_message = (struct mcp_message) { .era = MCP_LEGACY };
        *ret_json = json_is_bounded(bytes, size) ? json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &where) : NULL;
        if (!*ret_json)
                return mcp_error_set(error, MCP_PARSE_ERROR, 400, "the message is not JSON: %s", where.text);
        return read_message(*ret_json, ret_message, error);
}

/* ---- eras ---- */

static int refuse_version(struct mcp_error *error, const char *requested) {
        (void) mcp_error_set(error, MCP_UNSUPPORTED_VERSION, 400,
                             "protocol version \"%.40s\" is not supported; use " MCP_MODERN_VERSION, requested);
        error->data = json_pack("{s:[s,s,s], s:s}", "supported", MCP_MODERN_VERSION, MCP_LEGACY_VERSION,
                                MCP_OLDEST_VERSION, "requested", requested);
        return -1;
}

static bool is_modern(const struct mcp_message *message, const char *header_version) {
        return json_object_get(message->meta, MCP_META "protocolVersion") ||
               (message->method && strcmp(message->method, "server/discover") == 0) ||
               (header_version && strcmp(header_version, MCP_MODERN_VERSION) == 0);
}

int mcp_message_check_era(struct mcp_message *message, const char *header_version, struct mcp_error *error) {
        json_t *version = json_object_get(message->meta, MCP_META "protocolVersion");
        json_t *capabilities = json_object_get(message->meta, MCP_META "clientCapabilities");
        message->era = is_modern(message, header_version) ? MCP_MODERN : MCP_LEGACY;
        if (message->era == MCP_LEGACY || message->kind != MCP_REQUEST)
                return 0;
        if (!json_is_string(version))
                return mcp_error_set(error, MCP_INVALID_PARAMS, 400,
                                     "params._meta must have \"" MCP_META "protocolVersion\", a text");
        if (strcmp(json_string_value(version), MCP_MODERN_VERSION) != 0)
                return refuse_version(error, json_string_value(version));
        if (!json_is_object(capabilities))
                return mcp_error_set(error, MCP_INVALID_PARAMS, 400,
                                     "params._meta must have \"" MCP_META "clientCapabilities\", an object");
        return 0;
}

const json_t *mcp_message_capability(const struct mcp_message *message, const char *name) {
        return json_object_get(json_object_get(message->meta, MCP_META "clientCapabilities"), name);
}

char *mcp_error_text(const json_t *id, struct mcp_error *error) {
        json_t *body = json_pack("{s:i, s:s}", "code", error->code, "message", error->message);
        json_t *json = json_pack("{s:s}", "jsonrpc", "2.0");
        if (error->data)
                json_object_set_new(body, "data", error->data);
        error->data = NULL;
        if (id)
                json_object_set(json, "id", (json_t *) (uintptr_t) id);
        json_object_set_new(json, "error", body);
        char *text = json_dumps(json, JSON_COMPACT);
        json_decref(json);
        return text;
}
