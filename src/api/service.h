/* The service: the daemon's operations over HTTP.
 *
 * The server reads the head of a request (src/http), the gate checks it (gate.h), the table finds its route (route.h,
 * routes.c), and the route makes an api_request of it (api_request.h), which calls the same operations as the daemon's
 * own socket. */
#pragma once

#include <stdint.h>

#include "api/key.h"
#include "api/quota.h"
#include "http/http.h"
#include "session/serve_options.h"

enum { SERVICE_NAMES_MAX = 16 };

/* The operator's settings. Texts are borrowed until the service is freed. */
struct service_settings {
        const char *host;      /* an address or "localhost"; NULL: no TCP */
        uint16_t port;         /* 0: any */
        struct api_key key;    /* of SANDBOX_API_KEY, or without a name */
        const char *names;     /* "a.example.org,b.example.org": other names of this host, or NULL */
        uint64_t sandboxes_max; /* of all keys together */
        struct quota quota;    /* of a key that has none of its own */
        uint64_t upload_max;   /* bytes of one file */
};

struct service {
        struct daemon *daemon;
        struct session_manager *manager; /* of the daemon */
        const struct service_settings *settings;
        struct http_server *server;
        char unix_path[108]; /* "": none */
        char keys_path[4200];
        struct api_keys keys;
        struct quota_table uses;
        uint64_t keys_looked_ms; /* when the file of keys was last checked, ... */
        int64_t keys_changed_ns; /* ... and when it had been changed */
        struct api_request *api_requests; /* under way */
        struct mcp_request *mcp_requests; /* those of them that are calls of MCP */
        char *description;          /* openapi.json, after the first request */
        struct loop_timer *beat;
        struct {
                uint64_t requests, unauthorized, turned_away, runs, streams;
        } counted;
        uint64_t started_ms;
};

extern const struct serve_front service_front; /* its settings are struct service_settings */

/* How many sandboxes there are, of one owner or (NULL) of all. */
unsigned service_count_sandboxes(const struct service *service, const char *owner);
