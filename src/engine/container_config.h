/* A container's limits, mounts and restrictions, as the JSON of docker's and podman's API. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "engine/engine.h"

#define CONTAINER_OWNER_LABEL "glovebox.owner"

struct container_service {
        const char *name, *socket;
        const char *start_command; /* for messages */
        const char *inspect_prefix; /* the API prefix for inspecting a container */
        bool is_rootless; /* it runs as the user of the daemon */
};

/* The body of the request that creates the container. A new reference. */
json_t *container_config(const struct container_service *service, const struct engine_order *order);
