#include "api/remote_receiver.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/remote_ask.h"

struct remote_receiver {
        struct remote_ask *ask; /* NULL: it is over */
        const struct remote_receiver_events *events;
        void *context;
        uint64_t size, max;
        bool is_created;
        char path[4096];
};

static void remote_receiver_on_room(void *context) {
        struct remote_receiver *receiver = context;
        receiver->events->room(receiver->context);
}

static void remote_receiver_on_done(void *context, const char *text, size_t size, const struct err *err) {
        struct remote_receiver *receiver = context;
        json_t *answer = text ? json_loadb(text, size, 0, NULL) : NULL;
        receiver->ask = NULL;
        receiver->is_created = !json_is_false(json_object_get(answer, "created"));
        json_decref(answer);
        receiver->events->done(receiver->context, text ? NULL : err);
}

static const struct remote_ask_events ask_events = { .room = remote_receiver_on_room, .done = remote_receiver_on_done };

int remote_receiver_begin(const struct caller *caller, struct session *session, const char *relative, uint64_t max,
                          const struct remote_receiver_events *events, void *context,
                          struct remote_receiver **ret_receiver, struct err *err) {
        struct remote_receiver *receiver = calloc(1, sizeof(*receiver));
        if (!receiver)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        receiver->events = events;
        receiver->context = context;
        receiver->max = max;
        (void) snprintf(receiver->path, sizeof(receiver->path), "%s", relative);
        if (remote_ask_begin(caller, session, "file.write", json_pack("{s:s}", "path", relative), &ask_events, receiver,
                             &receiver->ask, err) < 0) {
                free(receiver);
                return -1;
        }
        *ret_receiver = receiver;
        return 0;
}

int remote_receiver_piece(struct remote_receiver *receiver, const char *bytes, size_t size, struct err *err) {
        if (size > receiver->max - receiver->size)
                return err_set(err, ERR_LIMIT, "the file is larger than %llu bytes, which is the most it may have",
                               (unsigned long long) receiver->max);
        if (!receiver->ask)
                return err_set(err, ERR_GONE, "the connection to the remote broke: send the file again");
        receiver->size += size;
        return remote_ask_send(receiver->ask, bytes, size, err);
}

int remote_receiver_finish(struct remote_receiver *receiver, struct err *err) {
        return receiver->ask ? remote_ask_send_end(receiver->ask, err) : 0;
}

const char *remote_receiver_path(const struct remote_receiver *receiver) {
        return receiver->path;
}

uint64_t remote_receiver_size(const struct remote_receiver *receiver) {
        return receiver->size;
}

bool remote_receiver_is_created(const struct remote_receiver *receiver) {
        return receiver->is_created;
}

void remote_receiver_drop(struct remote_receiver *receiver) {
        if (!receiver)
                return;
        remote_ask_drop(receiver->ask);
        free(receiver);
}
