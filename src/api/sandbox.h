/* Functions on sandboxes that other routes need. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

struct api_request;

/* Checks that the quotas allow a sandbox for this user_id. One that exists is always allowed. */
bool sandbox_has_room(const struct api_request *api_request, const char *user_id, struct err *err);

/* The same for a visitor without an api_request; the operator has no quota. */
struct service;
struct visitor;
bool sandbox_owner_has_room(const struct service *service, const struct visitor *visitor, const char *user_id,
                            struct err *err);

/* Checks "min_isolation" of an object with options of a sandbox. */
int sandbox_check_isolation(const struct api_request *api_request, json_t *body, struct err *err);
