#include "api/far_upload.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/remote_ask.h"

struct far_upload {
        struct remote_ask *ask; /* NULL: it is over */
        const struct far_upload_events *events;
        void *context;
        uint64_t size, max;
        bool is_created;
        char path[4096];
};

static void far_upload_on_room(void *context) {
        struct far_upload *upload = context;
        upload->events->room(upload->context);
}

static void far_upload_on_done(void *context, const char *text, size_t size, const struct err *err) {
        struct far_upload *upload = context;
        json_t *answer = text ? json_loadb(text, size, 0, NULL) : NULL;
        upload->ask = NULL;
        upload->is_created = !json_is_false(json_object_get(answer, "created"));
        json_decref(answer);
        upload->events->done(upload->context, text ? NULL : err);
}

static const struct remote_ask_events ask_events = { .room = far_upload_on_room, .done = far_upload_on_done };

int far_upload_begin(const struct caller *caller, struct session *session, const char *relative, uint64_t max,
                     const struct far_upload_events *events, void *context, struct far_upload **ret_upload,
                     struct err *err) {
        struct far_upload *upload = calloc(1, sizeof(*upload));
        if (!upload)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        upload->events = events;
        upload->context = context;
        upload->max = max;
        (void) snprintf(upload->path, sizeof(upload->path), "%s", relative);
        if (remote_ask_begin(caller, session, "file.write", json_pack("{s:s}", "path", relative), &ask_events, upload,
                             &upload->ask, err) < 0) {
                free(upload);
                return -1;
        }
        *ret_upload = upload;
        return 0;
}

int far_upload_piece(struct far_upload *upload, const char *bytes, size_t size, struct err *err) {
        if (size > upload->max - upload->size)
                return err_set(err, ERR_LIMIT, "the file is larger than %llu bytes, which is the most it may have",
                               (unsigned long long) upload->max);
        if (!upload->ask)
                return err_set(err, ERR_GONE, "the connection to the remote broke: send the file again");
        upload->size += size;
        return remote_ask_send(upload->ask, bytes, size, err);
}

int far_upload_finish(struct far_upload *upload, struct err *err) {
        return upload->ask ? remote_ask_send_end(upload->ask, err) : 0;
}

const char *far_upload_path(const struct far_upload *upload) {
        return upload->path;
}

uint64_t far_upload_size(const struct far_upload *upload) {
        return upload->size;
}

bool far_upload_is_created(const struct far_upload *upload) {
        return upload->is_created;
}

void far_upload_drop(struct far_upload *upload) {
        if (!upload)
                return;
        remote_ask_drop(upload->ask);
        free(upload);
}
