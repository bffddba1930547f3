#include "daemon/upload.h"

#include <stdlib.h>

#include "daemon/socket_client.h"

static void upload_release(struct upload *upload) {
        if (upload->abandon)
                upload->abandon(upload);
        json_decref(upload->json);
        free(upload);
}

int upload_begin(struct upload *upload, struct err *err) {
        struct client_request *request = client_request_of(upload->caller);
        size_t n = 0;
        for (struct upload *other = request ? request->client->uploads : NULL; other; other = other->next)
                n++;
        if (!request || n >= UPLOADS_MAX) {
                upload_release(upload);
                return request ? err_set(err, ERR_LIMIT, "at most %d uploads at once on one connection", UPLOADS_MAX)
                               : err_set(err, ERR_UNSUPPORTED,
                                         "data cannot follow on this connection; put it into the request");
        }
        upload->next = request->client->uploads;
        request->client->uploads = upload;
        return 0;
}

void upload_free(struct client *client, struct upload *upload) {
        for (struct upload **at = &client->uploads; *at; at = &(*at)->next) {
                if (*at == upload) {
                        *at = upload->next;
                        break;
                }
        }
        upload_release(upload);
}

void upload_receive(struct client *client, const struct message *message) {
        struct upload *upload = client->uploads;
        while (upload && client_request_of(upload->caller)->number != message->request)
                upload = upload->next;
        if (!upload)
                return; /* its request was refused while data was on the way */
        struct err err = { 0 };
        if (message->type == MESSAGE_END)
                upload->finish(upload);
        else if (upload->piece(upload, message->bytes, message->size, &err) == 0)
                return;
        struct caller *caller = upload->caller;
        upload_free(client, upload);
        if (err.code != ERR_NONE)
                caller_refuse(caller, &err);
}
