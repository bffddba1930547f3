/* Builds the standard image of boxes (images/Dockerfile) with an engine that has Docker's API. It blocks for
 * minutes: for the command line only. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

#define IMAGE_BUILD_TAG "glovebox:latest"

struct image_build_order {
        const char *engine;       /* "docker" or "podman" */
        const char *tag;          /* the name of the image */
        const char *base;         /* "": the one in the Dockerfile */
        const char *network;      /* of the build steps; "": the engine's default */
        const char *requirements; /* the text of a requirements file */
        size_t requirements_size;
        const char *certificates; /* a file of certificates for the index of pip; "": none */
        void (*report)(void *context, const char *line); /* the engine's output, without control characters */
        void *context;
};

struct image_build_result {
        char id[80];
        uint64_t bytes;
};

int image_build(const struct engine_settings *settings, const struct image_build_order *order,
                struct image_build_result *ret_result, struct err *err);
