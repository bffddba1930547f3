/* Checks of a request before it reaches a route: host, origin, key, rate. */
#pragma once

#include <stdbool.h>

#include "api/key.h"
#include "api/route.h"
#include "api/service.h"

/* The client of a request. */
struct visitor {
        char owner[API_KEY_NAME_MAX + 1]; /* a key's name; "": the operator, on the UNIX socket */
        struct quota_use *use;            /* NULL for the operator, who has no quota */
};

/* Checks Host and Origin: refuses pages of other sites, and other names that resolve to this host. False: it was
 * answered. */
bool gate_admits_origin(const struct service *service, struct http_request *request);

/* Finds the key of a request. False: there is no valid one, and the request has been answered. */
bool gate_admits_visitor(struct service *service, struct http_request *request, struct visitor *ret_visitor);

/* Reads the keys: the file, and the one of the settings. */
int gate_load_keys(struct service *service, struct err *err);

/* For long connections: true if the key of this name still has this digest. */
bool gate_knows_key(struct service *service, const char *name, const uint8_t digest[static SHA256_SIZE]);
void gate_copy_digest(const struct service *service, const char *name, uint8_t ret_digest[static SHA256_SIZE]);
