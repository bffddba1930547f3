/* Builds the standard image of boxes (images/Dockerfile) with an engine that has Docker's API. Waits for minutes: for
 * the command line. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

#define IMAGE_BUILD_TAG "glovebox:latest"

struct image_build_order {
        const char *engine;       /* "docker" or "podman" */
        const char *tag;          /* the name of the image */
        const char *base;         /* "": as the Dockerfile says */
        const char *network;      /* of its steps; "": the engine's own */
        const char *requirements; /* the text of a requirements file */
        size_t requirements_size;
        const char *certificates; /* a file of certificates that pip is to trust for its index; "": none */
        void (*report)(void *context, const char *line); /* what the engine says, without its control characters */
        void *context;
};

struct image_build_result {
        char id[80];
        uint64_t bytes;
};

int image_build(const struct engine_settings *settings, const struct image_build_order *order,
                struct image_build_result *ret_result, struct err *err);
