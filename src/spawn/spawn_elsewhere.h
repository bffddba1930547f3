/* A box of another engine with a kernel in it. Runs in a process of its own, a child of the maker: an engine that is
 * slow or hangs delays its own callers only. */
#pragma once

#include "spawn/maker.h"

/* From the request to the reply; on failure nothing is left. May take as long as the engine's deadlines. */
int spawn_elsewhere(const struct maker_settings *settings, const struct maker_request *request,
                    struct maker_reply *reply, struct err *err);
