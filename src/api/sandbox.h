/* Sandboxes, as other rows need them. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct api_request;

/* May this user_id have a sandbox, as far as quotas go? One that exists may. */
bool sandbox_has_room(const struct api_request *api_request, const char *user_id, struct err *err);

/* The same for a visitor without an api_request; an operator is none. */
struct service;
struct visitor;
bool sandbox_owner_has_room(const struct service *service, const struct visitor *visitor, const char *user_id,
                            struct err *err);
