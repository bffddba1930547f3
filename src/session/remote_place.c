#include "session/remote_place.h"

#include <stdio.h>
#include <string.h>

#include "session/manager.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "session/session_engine.h"
#include "store/reaper.h"

static struct remote_place place_of_row(const struct session_manager *manager, const struct registry_session *row) {
        struct session_engine engine = session_engine_of(row);
        struct remote_place place = { .is_instance = engine.is_instance };
        if (!engine.is_instance)
                return place;
        struct instance_order *order = &place.order;
        memcpy(order->engine, engine.name, sizeof(order->engine));
        (void) snprintf(order->owner, sizeof(order->owner), "%s", manager->data_id);
        (void) snprintf(order->image, sizeof(order->image), "%s", row->image);
        order->limits = row->limits;
        return place;
}

struct remote_place remote_place_of(const struct session *session) {
        return remote_place_of_row(session, &session->row);
}

struct remote_place remote_place_of_row(const struct session *session, const struct registry_session *row) {
        struct remote_place place = place_of_row(session->manager, row);
        if (!place.is_instance)
                return place;
        (void) snprintf(place.order.name, sizeof(place.order.name), "s-%s-%s", session->manager->data_id,
                        session->row.id);
        (void) snprintf(place.order.marker, sizeof(place.order.marker), "%s/instance", session->state_dir);
        return place;
}

struct remote_place remote_place_for_run(const struct session_manager *manager, const struct registry_session *row,
                                         const char *run_id) {
        struct remote_place place = place_of_row(manager, row);
        if (!place.is_instance)
                return place;
        place.is_ephemeral = true;
        (void) snprintf(place.order.name, sizeof(place.order.name), "e-%s-%.32s", manager->data_id, run_id);
        return place;
}

bool remote_place_is_known(struct session_manager *manager, const char *instance) {
        const char *id = strrchr(instance, '-');
        if (!id || instance[0] == 'e') {
                for (size_t i = 0; i < REMOTE_RUNS_MAX; i++)
                        if (strcmp(manager->remote.runs[i], instance) == 0)
                                return true;
                return false;
        }
        const struct session *session = session_find(manager, "", id + 1);
        return session && (session->remote.is_moving_there || remote_place_of(session).is_instance);
}

const char *remote_place_words(const struct session_manager *manager, const struct remote_place *place) {
        return place->is_instance ? place->order.name : manager->options->engines.remote_url;
}

void remote_place_remove(const struct remote_place *place) {
        if (place->is_instance)
                reaper_remove_box(place->order.engine, place->order.name);
}
