#include "daemon/download.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/fd.h"
#include "base/loop.h"
#include "daemon/socket_client.h"
#include "store/workspace.h"

enum {
        CHUNK = 256 << 10, /* small enough to stay in a core's cache between the file and the socket */
        FEED_US = 2000, /* then others have a turn: a file may be endless, and its reader as fast as the daemon */
};

static void download_drop(struct client *client, struct download *download) {
        for (struct download **at = &client->downloads; *at; at = &(*at)->next) {
                if (*at == download) {
                        *at = download->next;
                        break;
                }
        }
        fd_close(&download->fd);
        free(download);
}

/* False at its end; the answer was not sent yet. */
static bool download_feed_one(struct client *client, struct download *download, uint64_t until_us,
                              struct err *ret_err) {
        static char chunk[CHUNK]; /* one thread, one user at a time */
        uint16_t number = client_request_of(download->caller)->number;
        while (client_wants_more(client)) {
                uint64_t left = download->end - download->at;
                ssize_t n = left ? workspace_read(download->fd, chunk, left < CHUNK ? left : CHUNK, download->at) : 0;
                if (n < 0) {
                        (void) err_sys(ret_err, (int) -n, "reading the file");
                        return false;
                }
                if (n == 0) { /* the end, or the file has shrunk: what was sent is what was there */
                        client_send(client, MESSAGE_END, number, "", 0);
                        return false;
                }
                client_send(client, MESSAGE_DATA, number, chunk, (size_t) n);
                download->at += (uint64_t) n;
                if (loop_now_us() >= until_us) {
                        client_feed_later(client);
                        break;
                }
        }
        return true;
}

int download_begin(struct caller *caller, int fd, uint64_t offset, uint64_t size, struct err *err) {
        struct client_request *request = client_request_of(caller);
        struct download *download = request ? malloc(sizeof(*download)) : NULL;
        if (!download) {
                fd_close(&fd);
                return request ? err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY)
                               : err_set(err, ERR_UNSUPPORTED, "data cannot be sent on this connection");
        }
        struct client *client = request->client;
        *download = (struct download) { client->downloads, caller, fd, offset, offset + size };
        client->downloads = download;
        download_feed(client);
        return 0;
}

void download_feed(struct client *client) {
        uint64_t until_us = loop_now_us() + FEED_US;
        for (struct download *download = client->downloads, *next; download; download = next) {
                next = download->next;
                struct err err = { 0 };
                if (download_feed_one(client, download, until_us, &err))
                        continue;
                struct caller *caller = download->caller;
                uint64_t at = download->at;
                download_drop(client, download);
                if (err.code != ERR_NONE)
                        caller_refuse(caller, &err);
                else
                        caller_answer(caller, json_pack("{s:I}", "size", (json_int_t) at));
        }
}

void download_free_all(struct client *client) {
        while (client->downloads)
                download_drop(client, client->downloads);
}
