/* Engines with Docker's HTTP API. */
#pragma once

#include "engine/engine.h"

extern const struct engine engine_docker, engine_podman;
