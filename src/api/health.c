/* What the service says about itself. */
#include <string.h>

#include "api/exchange.h"
#include "api/routes.h"
#include "api/service.h"
#include "session/session.h"

void health_show(struct exchange *exchange) {
        const struct service *service = exchange->service;
        json_t *capacity = json_pack("{s:I, s:I}", "sandboxes", (json_int_t) service_count_sandboxes(service, NULL),
                                     "sandboxes_max", (json_int_t) service->settings->sandboxes_max);
        json_t *engine = json_pack("{s:s, s:s}", "name", "native", "status", "ok");
        exchange_answer(exchange, 200,
                        json_pack("{s:s, s:s, s:[o], s:o, s:I}", "status", "ok", "version", GLOVEBOX_VERSION, "engines",
                                  engine, "capacity", capacity, "uptime_ms",
                                  (json_int_t) (loop_now_ms() - service->started_ms)));
}

static int describe(struct service *service, struct err *err) {
        json_t *description = NULL;
        if (api_route_describe(&api_routes, "Glovebox", GLOVEBOX_VERSION, &description, err) < 0)
                return -1;
        service->description = json_dumps(description, JSON_COMPACT);
        json_decref(description);
        return service->description ? 0 : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
}

/* Written once: anybody may ask for it, as often as they like. */
void health_describe(struct exchange *exchange) {
        struct service *service = exchange->service;
        struct err err;
        if (!service->description && describe(service, &err) < 0)
                exchange_refuse(exchange, &err);
        else
                exchange_answer_bytes(exchange, 200, "application/json", service->description,
                                      strlen(service->description));
}
