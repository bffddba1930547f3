/* Passes on what a caller writes to a file at the remote. */
#include <stdlib.h>

#include "daemon/remote_request.h"
#include "daemon/remote_request_state.h"
#include "daemon/socket_client.h"

/* ---- of a client of the daemon's socket ---- */

static int remote_upload_on_piece(struct upload *upload, const char *bytes, size_t size, struct err *err) {
        struct remote_request *request = ((struct remote_upload *) upload)->request;
        if (!request)
                return 0;
        int code =
                message_queue_send(&request->queue, request->fd, MESSAGE_DATA, REMOTE_REQUEST_NUMBER, 0, bytes, size);
        if (code < 0) {
                request->upload = NULL;
                request->caller = NULL;
                remote_request_free(request, false);
                ((struct remote_upload *) upload)->request = NULL;
                return err_set(err, ERR_GONE, "the connection to the remote broke: send the file again");
        }
        remote_request_watch(request);
        if (message_queue_size(&request->queue) >= REMOTE_REQUEST_QUEUE_HIGH)
                client_hold(client_request_of(upload->caller)->client, true);
        return 0;
}

static void on_pieces_end(struct upload *upload) {
        struct remote_request *request = ((struct remote_upload *) upload)->request;
        if (!request)
                return;
        request->upload = NULL;
        ((struct remote_upload *) upload)->request = NULL;
        client_hold(client_request_of(upload->caller)->client, false);
        if (request->fd >= 0)
                (void) message_queue_send(&request->queue, request->fd, MESSAGE_END, REMOTE_REQUEST_NUMBER, 0, "", 0);
        remote_request_watch(request);
}

/* Also called if the client disconnects; on_leave then ends its request. */
static void on_abandoned(struct upload *upload) {
        struct remote_request *request = ((struct remote_upload *) upload)->request;
        if (request)
                request->upload = NULL;
}

int remote_upload_expect(struct remote_request *request, struct err *err) {
        struct remote_upload *upload = calloc(1, sizeof(*upload));
        if (!upload)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        upload->upload = (struct upload) { .caller = request->caller,
                                           .piece = remote_upload_on_piece,
                                           .finish = on_pieces_end,
                                           .abandon = on_abandoned };
        upload->request = request;
        if (upload_begin(&upload->upload, err) < 0)
                return -1;
        request->upload = upload;
        return 0;
}

void remote_upload_drop(struct remote_request *request) {
        struct remote_upload *upload = request->upload;
        request->upload = NULL;
        if (!upload)
                return;
        struct client *client = client_request_of(upload->upload.caller)->client;
        upload->request = NULL;
        client_hold(client, false);
        upload_free(client, &upload->upload);
}

/* ---- of a caller without messages ---- */

static int send_piece(struct caller *caller, enum message_type type, const char *bytes, size_t size, struct err *err) {
        struct remote_request *request = remote_request_of(caller);
        int code = 0;
        if (!request || request->fd < 0)
                return err_set(err, ERR_GONE, "the connection to the remote broke: send the file again");
        do {
                size_t n = size < MESSAGE_DATA_MAX ? size : MESSAGE_DATA_MAX;
                code = message_queue_send(&request->queue, request->fd, type, REMOTE_REQUEST_NUMBER, 0, bytes, n);
                bytes += n;
                size -= n;
        } while (size > 0 && code >= 0);
        if (code < 0)
                return err_set(err, ERR_GONE, "the connection to the remote broke: send the file again");
        remote_request_watch(request);
        return message_queue_size(&request->queue) >= REMOTE_REQUEST_QUEUE_HIGH ? 1 : 0;
}

int remote_request_send(struct caller *caller, const char *bytes, size_t size, struct err *err) {
        return size == 0 ? 0 : send_piece(caller, MESSAGE_DATA, bytes, size, err);
}

int remote_request_send_end(struct caller *caller, struct err *err) {
        return send_piece(caller, MESSAGE_END, "", 0, err) < 0 ? -1 : 0;
}
