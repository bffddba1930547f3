/* Which engine makes the boxes of a session: chosen when the session is made, and kept in its options. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "engine/engine.h"
#include "store/registry.h"

struct session_manager;

/* As the options of a row say; "" and "" for native. */
struct session_engine {
        char name[ENGINE_NAME_MAX], runtime[ENGINE_RUNTIME_MAX];
};
struct session_engine session_engine_of(const struct registry_session *row);
bool session_engine_is_native(const struct registry_session *row);

/* Chooses by "engine" and "isolation" of a request, or by the daemon's options. Adds what another engine than native
 * needs to know to `kept`, and gives the row an image if it named none. Refuses rather than weakens. */
int session_engine_choose(const struct session_manager *manager, json_t *json, struct registry_session *row,
                          json_t *kept, struct err *err);

/* Adds the engine of this row to the options of another. */
void session_engine_keep(const struct registry_session *row, json_t *options);

/* The options of a row that asks for nothing, as text. */
void session_engine_plain_options(const struct session_manager *manager, char *ret_text, size_t room);
