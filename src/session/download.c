#include "session/download.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/client.h"

enum { CHUNK = 512 << 10 };

static void drop(struct client *client, struct download *download) {
        for (struct download **at = &client->downloads; *at; at = &(*at)->next) {
                if (*at == download) {
                        *at = download->next;
                        break;
                }
        }
        fd_close(&download->fd);
        free(download);
}

/* False when it is done. */
static bool feed_one(struct client *client, struct download *download) {
        static char chunk[CHUNK]; /* one thread, one user at a time */
        while (client_wants_more(client)) {
                uint64_t left = download->end - download->at;
                ssize_t n = left ? pread(download->fd, chunk, left < CHUNK ? left : CHUNK, (off_t) download->at) : 0;
                if (n < 0) {
                        struct err err;
                        (void) err_sys(&err, errno, "reading the file");
                        client_refuse(client, download->request, &err);
                        return false;
                }
                if (n == 0) { /* the end, or the file has shrunk: what was sent is what was there */
                        client_send(client, MESSAGE_END, download->request, "", 0);
                        client_answer(client, download->request, json_pack("{s:I}", "size", (json_int_t) download->at));
                        return false;
                }
                client_send(client, MESSAGE_DATA, download->request, chunk, (size_t) n);
                download->at += (uint64_t) n;
        }
        return true;
}

int download_begin(struct client *client, uint16_t request, int fd, uint64_t offset, uint64_t size) {
        struct download *download = malloc(sizeof(*download));
        if (!download) {
                fd_close(&fd);
                return -1;
        }
        *download = (struct download) { client->downloads, request, fd, offset, offset + size };
        client->downloads = download;
        download_feed(client);
        return 0;
}

void download_feed(struct client *client) {
        for (struct download *download = client->downloads, *next; download; download = next) {
                next = download->next;
                if (!feed_one(client, download))
                        drop(client, download);
        }
}

void download_free_all(struct client *client) {
        while (client->downloads)
                drop(client, client->downloads);
}
