/* Where the Glovebox of a session is that is not here: the remote, or an instance of the session's own. */
#pragma once

#include <stdbool.h>

#include "engine/instance.h"
#include "store/registry.h"

struct session;
struct session_manager;

struct remote_place {
        bool is_instance;
        bool is_ephemeral; /* an instance for one run: it goes with it */
        struct instance_order order; /* of an instance; "" as its name is the remote */
};

/* Of a session that another Glovebox serves; of one that is to have such a row. */
struct remote_place remote_place_of(const struct session *session);
struct remote_place remote_place_of_row(const struct session *session, const struct registry_session *row);

/* Of an ephemeral run with such a row; in an instance it is known by the run's id. */
struct remote_place remote_place_for_run(const struct session_manager *manager, const struct registry_session *row,
                                         const char *run_id);

/* Has this instance a session or a run here? */
bool remote_place_is_known(struct session_manager *manager, const char *instance);

/* Its name for people. */
const char *remote_place_words(const struct session_manager *manager, const struct remote_place *place);

/* The instance of a session that is removed goes, too. Nothing waits for it; what fails is swept up later. */
void remote_place_remove(const struct remote_place *place);
