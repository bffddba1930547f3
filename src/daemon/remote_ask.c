#include "daemon/remote_ask.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/remote.h"
#include "daemon/remote_request.h"
#include "session/caller.h"
#include "session/manager.h"
#include "session/session.h"

struct remote_ask {
        struct caller caller; /* the first member: the caller of the request to the remote */
        const struct remote_ask_events *events;
        void *context;
        char owner[128];
        bool is_beginning, is_held;
        struct err err; /* of what failed while it was begun */
};

static void ask_end(struct remote_ask *ask, const char *text, size_t size, const struct err *err) {
        const struct remote_ask_events *events = ask->events;
        void *context = ask->context;
        if (ask->is_beginning) { /* only a refusal can come so early */
                ask->err = *err;
                ask->events = NULL;
                return;
        }
        free(ask);
        events->done(context, text, size, err);
}

static void remote_ask_on_answer(struct caller *caller, const char *text, size_t size, json_t *json) {
        (void) json;
        ask_end((struct remote_ask *) caller, text, size, NULL);
}

static void remote_ask_on_refuse(struct caller *caller, const struct err *err) {
        const struct err copy = *err;
        ask_end((struct remote_ask *) caller, NULL, 0, &copy);
}

static void remote_ask_on_data(struct caller *caller, const char *bytes, size_t size) {
        struct remote_ask *ask = (struct remote_ask *) caller;
        if (ask->events->data && !ask->events->data(ask->context, bytes, size))
                ask->is_held = true;
}

static void remote_ask_on_room(struct caller *caller) {
        const struct remote_ask *ask = (const struct remote_ask *) caller;
        if (ask->events->room && !ask->is_beginning)
                ask->events->room(ask->context);
}

static bool remote_ask_wants_more(const struct caller *caller) {
        return !((const struct remote_ask *) caller)->is_held;
}

static const struct caller_type caller_type = { .answer = remote_ask_on_answer,
                                                .refuse = remote_ask_on_refuse,
                                                .data = remote_ask_on_data,
                                                .room = remote_ask_on_room,
                                                .wants_more = remote_ask_wants_more };

static struct remote_ask *ask_make(const struct caller *behalf, const struct remote_ask_events *events, void *context) {
        struct remote_ask *ask = calloc(1, sizeof(*ask));
        if (!ask)
                return NULL;
        (void) strncpy(ask->owner, behalf->owner, sizeof(ask->owner) - 1);
        ask->events = events;
        ask->context = context;
        ask->is_beginning = true;
        ask->caller =
                (struct caller) { .type = &caller_type, .manager = behalf->manager, .owner = ask->owner, .cursor = 1 };
        return ask;
}

/* `code` is the result of passing it on. */
static int ask_begun(struct remote_ask *ask, int code, struct remote_ask **ret_ask, struct err *err) {
        ask->is_beginning = false;
        if (code == 0 && ask->events) {
                *ret_ask = ask;
                return 0;
        }
        if (code == 0)
                *err = ask->err;
        free(ask);
        return -1;
}

int remote_ask_begin(const struct caller *behalf, struct session *session, const char *op, json_t *fields,
                     const struct remote_ask_events *events, void *context, struct remote_ask **ret_ask,
                     struct err *err) {
        struct remote_ask *ask = ask_make(behalf, events, context);
        if (!ask) {
                json_decref(fields);
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        return ask_begun(ask, remote_pass_new(&ask->caller, session, op, fields, err), ret_ask, err);
}

int remote_ask_make(const struct caller *behalf, struct session *session, const struct remote_ask_events *events,
                    void *context, struct remote_ask **ret_ask, struct err *err) {
        if (session->remote.is_made_there)
                return 1;
        struct remote_ask *ask = ask_make(behalf, events, context);
        if (!ask)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        return ask_begun(ask, remote_create(&ask->caller, session, false, err), ret_ask, err);
}

int remote_ask_send(struct remote_ask *ask, const char *bytes, size_t size, struct err *err) {
        return remote_request_send(&ask->caller, bytes, size, err);
}

int remote_ask_send_end(struct remote_ask *ask, struct err *err) {
        return remote_request_send_end(&ask->caller, err);
}

void remote_ask_feed(struct remote_ask *ask) {
        ask->is_held = false;
        caller_feed(&ask->caller);
}

void remote_ask_drop(struct remote_ask *ask) {
        if (!ask)
                return;
        caller_leave(&ask->caller);
        free(ask);
}
