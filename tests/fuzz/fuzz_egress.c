/* A request to the proxy of boxes: no crash, the same end of the head however the bytes are cut, and what is passed on
 * is one request, to the host that was judged, that reads the same again. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egress/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition) {
        if (!condition)
                abort();
}

static long scan_in_pieces(const char *bytes, size_t size) {
        struct refusal refusal;
        size_t scanned = 0;
        long head = 0;
        for (size_t n = 1; n <= size && head == 0; n++)
                head = request_scan(bytes, n, &scanned, &refusal);
        return head;
}

/* What the server gets, said to a proxy again, means the same. */
static void check_head(const struct request *request) {
        struct refusal refusal;
        struct request again;
        char shown[EGRESS_SHOWN_ROOM];
        size_t scanned = 0;
        const char *path = memchr(request->head, ' ', request->head_size);
        must(request->head_size < REQUEST_HEAD_MAX + 1024 && path);
        if (request->head_size + sizeof(shown) + 16 > REQUEST_HEAD_MAX)
                return;
        char *text = NULL;
        int size = asprintf(&text, "%.*s http://%s%.*s", (int) (path - request->head), request->head,
                            egress_host_show(&request->host, request->port, shown),
                            (int) (request->head + request->head_size - path - 1), path + 1);
        must(size > 0 && request_scan(text, (size_t) size, &scanned, &refusal) == size);
        if (request_parse(text, (size_t) size, &again, &refusal) < 0) {
                must(refusal.status == 431); /* the few headers of our own were too many */
                free(text);
                return;
        }
        must(!again.is_connect && again.port == request->port && again.body_size == request->body_size);
        must(strcmp(again.host.name, request->host.name) == 0 && again.host.is_address == request->host.is_address);
        must(again.head_size == request->head_size && memcmp(again.head, request->head, again.head_size) == 0);
        request_release(&again);
        free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const char *bytes = (const char *) data;
        struct refusal refusal = { 0 };
        struct request request;
        size_t scanned = 0;
        long head = request_scan(bytes, size, &scanned, &refusal);
        must(head == scan_in_pieces(bytes, size));
        must(head <= (long) size && (head >= 0 || refusal.status >= 400));
        if (head <= 0)
                return 0;
        if (request_parse(bytes, (size_t) head, &request, &refusal) < 0) {
                must(refusal.status >= 400 && *refusal.reason);
                for (const char *at = refusal.reason; *at; at++)
                        must(*at >= ' ' && *at <= '~');
                return 0;
        }
        must(request.port > 0 && (request.head != NULL) == !request.is_connect);
        if (request.head)
                check_head(&request);
        request_release(&request);
        return 0;
}
