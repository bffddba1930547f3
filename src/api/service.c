#include "api/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "api/gate.h"
#include "api/mcp.h"
#include "api/routes.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "session/session.h"

enum { BEAT_MS = 5000 };

unsigned service_count_sandboxes(const struct service *service, const char *owner) {
        unsigned n = 0;
        for (const struct session *session = service->manager->sessions; session; session = session->next)
                if (*session->row.owner && !session->ephemeral && !session_is_going(session) &&
                    (!owner || strcmp(session->row.owner, owner) == 0))
                        n++;
        return n;
}

/* ---- a request ---- */

static void refuse_route(struct http_request *request, const char *allow, const struct err *err) {
        if (!allow[0]) {
                http_problem_err(request, err);
                return;
        }
        (void) http_add_header(request, "Allow", allow);
        http_problem(request, 405, "method_not_allowed", err->message, NULL);
}

static void service_handle_request(void *context, struct http_request *request) {
        struct service *service = context;
        struct visitor visitor = { 0 };
        struct api_match match;
        char allow[API_ALLOW_SIZE];
        struct err err;
        service->counted.requests++;
        if (service->manager->options->verbose)
                daemon_log("%s %s %s", http_peer(request)->address, http_method(request), http_path(request));
        if (!gate_admits_origin(service, request))
                return;
        if (api_route_find(&api_routes, http_method(request), http_path(request), &match, allow, &err) < 0) {
                refuse_route(request, allow, &err);
                return;
        }
        if (!match.route->is_open && !gate_admits_visitor(service, request, &visitor))
                return;
        struct api_request *api_request = api_request_open(service, request, &match, &visitor);
        if (api_request)
                match.route->run(api_request);
}

/* ---- start and end ---- */

/* Beside the daemon's own socket: "…/glovebox.sock" and "…/glovebox-api.sock". */
static void place_socket(struct service *service) {
        const char *path = service->manager->options->socket_path;
        size_t size = strlen(path);
        if (size > 5 && strcmp(path + size - 5, ".sock") == 0)
                size -= 5;
        if (size + sizeof("-api.sock") <= sizeof(service->unix_path))
                (void) snprintf(service->unix_path, sizeof(service->unix_path), "%.*s-api.sock", (int) size, path);
        else
                daemon_log("no API on a UNIX socket: the path %s is too long for another beside it", path);
}

static void on_beat(void *context) {
        struct service *service = context;
        service->beat = loop_timer(service->manager->loop, loop_now_ms() + BEAT_MS, on_beat, service);
        api_request_beat_all(service);
}

static int check_settings(const struct service *service, struct err *err) {
        if (service->settings->host && service->keys.n == 0)
                return err_set(err, ERR_REFUSED,
                               "the service needs a key before it listens on %s, also on loopback: every program and "
                               "web page on this machine could use it; make one with `glovebox serve --new-key NAME`, "
                               "or set SANDBOX_API_KEY",
                               service->settings->host);
        return 0;
}

static void close_service(void *front) {
        struct service *service = front;
        if (!service)
                return;
        loop_timer_drop(&service->beat);
        http_server_close(service->server);
        mcp_drop_all(service);
        while (service->api_requests) { /* those that wait for a run without a client */
                caller_leave(&service->api_requests->caller);
                api_request_free(service->api_requests);
        }
        quota_table_release(&service->uses);
        free(service->description);
        free(service);
}

static int open_service(struct daemon *daemon, const void *settings, void **ret_front, struct err *err) {
        struct service *service = calloc(1, sizeof(*service));
        if (!service)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        service->daemon = daemon;
        service->manager = &daemon->manager;
        service->settings = settings;
        service->started_ms = loop_now_ms();
        (void) snprintf(service->keys_path, sizeof(service->keys_path), "%s/keys", daemon->manager.data_dir);
        daemon->manager.shares.rows[SHARE_SANDBOXES].total = service->settings->sandboxes_max;
        if (daemon->manager.shares.rows[SHARE_RUNS].total < service->settings->quota.runs)
                daemon->manager.shares.rows[SHARE_RUNS].total = service->settings->quota.runs;
        place_socket(service);
        if (!service->settings->host && !*service->unix_path) {
                close_service(service);
                return 0; /* it has no address to listen on */
        }
        const struct http_options options = { .tcp_host = service->settings->host,
                                              .tcp_port = service->settings->port,
                                              .unix_path = *service->unix_path ? service->unix_path : NULL };
        const struct http_handler handler = { .handle = service_handle_request,
                                              .has_room = api_request_has_room,
                                              .context = service };
        if (gate_load_keys(service, err) < 0 || check_settings(service, err) < 0 ||
            http_server_open(daemon->manager.loop, &options, &handler, &service->server, err) < 0) {
                close_service(service);
                return -1;
        }
        on_beat(service);
        if (service->settings->host) {
                (void) snprintf(daemon->front_address, sizeof(daemon->front_address), "http://%s:%u",
                                service->settings->host, http_server_port(service->server));
                daemon_log("the API is at %s", daemon->front_address);
        }
        *ret_front = service;
        return 0;
}

static void drain_service(void *front, void (*on_drained)(void *context), void *context) {
        struct service *service = front;
        http_server_drain(service->server, on_drained, context);
}

const struct serve_front service_front = { open_service, drain_service, close_service };
