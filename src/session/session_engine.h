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
        bool is_instance; /* in an instance with a Glovebox of its own (engine/instance.h) */
};
struct session_engine session_engine_of(const struct registry_session *row);
bool session_engine_is_native(const struct registry_session *row);

/* Chooses the daemon's engine at its start. A forced engine that is not available is an error. */
int session_engine_settle(struct session_manager *manager, struct err *err);

/* True if another Glovebox serves this session: the remote, or the one in its instance. */
bool session_engine_is_remote(const struct registry_session *row);

/* Resolves "engine" and "isolation" of a request with these options (NULL: none). Refuses rather than weakens. */
int session_engine_read(const struct session_manager *manager, json_t *json, struct session_engine *ret_engine,
                        struct err *err);

/* Limits of the row's engine, for those that a request did not ask for. */
void session_engine_set_limits(const struct session_manager *manager, json_t *asked, struct registry_session *row);

/* Chooses by "engine" and "isolation" of a request, or by the daemon's options. Adds the options of an engine other
 * than native to `kept`, and sets the row's image if it has none. Refuses rather than weakens. */
int session_engine_choose(const struct session_manager *manager, json_t *json, struct registry_session *row,
                          json_t *kept, struct err *err);

/* For the remote: what a request asks for, without the standards of this daemon. */
void session_engine_keep_asked(json_t *json, json_t *kept);

/* Adds the engine of this row to the options of another. */
void session_engine_keep(const struct registry_session *row, json_t *options);

/* The options of a row that asks for nothing, as text. */
void session_engine_plain_options(const struct session_manager *manager, char *ret_text, size_t room);
