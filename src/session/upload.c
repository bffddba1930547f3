#include "session/upload.h"

#include <stdlib.h>

#include "session/client.h"

int upload_begin(struct client *client, struct upload *upload, struct err *err) {
        size_t n = 0;
        for (struct upload *u = client->uploads; u; u = u->next) {
                n++;
                if (u->request == upload->request)
                        return err_set(err, ERR_PROTOCOL, "request %u still receives data", upload->request);
        }
        if (n >= UPLOADS_MAX)
                return err_set(err, ERR_LIMIT, "at most %d uploads at once on one connection", UPLOADS_MAX);
        upload->next = client->uploads;
        client->uploads = upload;
        return 0;
}

void upload_free(struct client *client, struct upload *upload) {
        for (struct upload **at = &client->uploads; *at; at = &(*at)->next) {
                if (*at == upload) {
                        *at = upload->next;
                        break;
                }
        }
        if (upload->abandon)
                upload->abandon(upload);
        json_decref(upload->json);
        free(upload);
}

void upload_receive(struct client *client, const struct message *message) {
        struct upload *upload = client->uploads;
        while (upload && upload->request != message->request)
                upload = upload->next;
        if (!upload)
                return; /* its request was refused while data was on the way */
        struct err err;
        if (message->type == MESSAGE_END) {
                upload->finish(upload, client);
                upload_free(client, upload);
        } else if (message->size > upload->max - upload->size) {
                (void) err_set(&err, ERR_LIMIT, "more than %zu bytes", upload->max);
                client_refuse(client, upload->request, &err);
                upload_free(client, upload);
        } else {
                upload->size += message->size;
                if (upload->piece(upload, client, message->bytes, message->size, &err) < 0) {
                        client_refuse(client, upload->request, &err);
                        upload_free(client, upload);
                }
        }
}
