/* JSON-RPC 2.0 as MCP uses it, and which era of the protocol a message belongs to.
 *
 * The modern era (2026-07-28) has no state: every request names its version in params._meta. The older one (2025-11-25,
 * 2025-06-18) begins with `initialize`; what follows names no version in the message. */
#pragma once

#include <jansson.h>

#define MCP_MODERN_VERSION "2026-07-28"
#define MCP_LEGACY_VERSION "2025-11-25"
#define MCP_OLDEST_VERSION "2025-06-18"
#define MCP_META "io.modelcontextprotocol/"

enum mcp_era { MCP_LEGACY = 1, MCP_MODERN = 2, MCP_BOTH = 3 };

enum mcp_code {
        MCP_PARSE_ERROR = -32700,
        MCP_INVALID_REQUEST = -32600,
        MCP_METHOD_NOT_FOUND = -32601,
        MCP_INVALID_PARAMS = -32602,
        MCP_INTERNAL_ERROR = -32603,
        MCP_RESOURCE_NOT_FOUND = -32002, /* of the older era alone */
        MCP_HEADER_MISMATCH = -32020,
        MCP_MISSING_CAPABILITY = -32021,
        MCP_UNSUPPORTED_VERSION = -32022,
};

struct mcp_error {
        int code, status; /* the status is that of HTTP */
        char message[512];
        json_t *data; /* or NULL; the answer takes the reference */
};

/* Fills the error and returns -1. */
int mcp_error_set(struct mcp_error *error, int code, int status, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

enum mcp_kind { MCP_REQUEST, MCP_NOTIFICATION, MCP_RESPONSE };

/* Borrows from the JSON it was read from. */
struct mcp_message {
        enum mcp_kind kind;
        enum mcp_era era;
        json_t *id;         /* of a request; or NULL */
        const char *method; /* NULL for a response */
        json_t *params;     /* an object, or NULL */
        json_t *meta;       /* params._meta, an object, or NULL */
};

/* Reads bytes, which must be one message. *ret_json is to be freed, also after a failure (it may be NULL). */
int mcp_message_parse(const char *bytes, size_t size, json_t **ret_json, struct mcp_message *ret_message,
                      struct mcp_error *error);

/* Checks the required members of a modern request and sets `ret_message->era`: a version in a header counts if the
 * message has none. */
int mcp_message_check_era(struct mcp_message *message, const char *header_version, struct mcp_error *error);

/* {"jsonrpc":"2.0","id":…,"error":{…}} as a fresh text, or NULL; takes the error's data. id may be NULL. */
char *mcp_error_text(const json_t *id, struct mcp_error *error);

/* One of the capabilities that a modern request's client has, or NULL. */
const json_t *mcp_message_capability(const struct mcp_message *message, const char *name);
