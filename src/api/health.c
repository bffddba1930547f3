/* Routes about the service itself. */
#include <string.h>

#include "api/api_request.h"
#include "api/routes.h"
#include "api/service.h"
#include "session/session.h"

void health_show(struct api_request *api_request) {
        const struct service *service = api_request->service;
        json_t *capacity = json_pack("{s:I, s:I}", "sandboxes", (json_int_t) service_count_sandboxes(service, NULL),
                                     "sandboxes_max", (json_int_t) service->settings->sandboxes_max);
        json_t *engine = json_pack("{s:s, s:s}", "name", service->manager->engine.name, "status", "ok");
        api_request_answer(api_request, 200,
                           json_pack("{s:s, s:s, s:[o], s:o, s:I}", "status", "ok", "version", GLOVEBOX_VERSION,
                                     "engines", engine, "capacity", capacity, "uptime_ms",
                                     (json_int_t) (loop_now_ms() - service->started_ms)));
}

static int describe_health(struct service *service, struct err *err) {
        json_t *description = NULL;
        if (api_route_describe(&api_routes, "Glovebox", GLOVEBOX_VERSION, &description, err) < 0)
                return -1;
        service->description = json_dumps(description, JSON_COMPACT);
        json_decref(description);
        return service->description ? 0 : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
}

/* Written once: it needs no key, so it may be requested often. */
void health_describe(struct api_request *api_request) {
        struct service *service = api_request->service;
        struct err err;
        if (!service->description && describe_health(service, &err) < 0)
                api_request_refuse(api_request, &err);
        else
                api_request_answer_bytes(api_request, 200, "application/json", service->description,
                                         strlen(service->description));
}
