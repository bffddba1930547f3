#include "api/sending.h"

#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"

struct sending {
        struct api_request *api_request;
        struct sending_source *source;
};

static void sending_free(void *context) {
        struct sending *sending = context;
        sending->source->close(sending->source);
        api_request_free(sending->api_request);
        free(sending);
}

/* A source that fails, or ends short of what was announced, ends the connection: so the client sees it. */
static void sending_feed(void *context) {
        static char piece[SENDING_PIECE]; /* one thread, one user at a time */
        struct sending *sending = context;
        struct http_request *request = sending->api_request->request;
        ssize_t n;
        int code = 0;
        do {
                n = sending->source->read(sending->source, piece);
                if (n > 0)
                        code = http_stream_write(request, piece, (size_t) n);
        } while (n > 0 && code == 0);
        if (code > 0)
                return; /* until it is drained */
        if (n == 0)
                http_stream_end(request);
        else
                http_stream_abort(request);
        sending_free(sending);
}

static const struct http_events events = { .on_drained = sending_feed, .on_gone = sending_free };

void sending_begin(struct api_request *api_request, struct sending_source *source, int status, const char *type,
                   int64_t length) {
        struct http_request *request = api_request->request;
        struct sending *sending = malloc(sizeof(*sending));
        if (!sending || http_stream_begin(request, status, type, length) < 0) {
                free(sending);
                source->close(source);
                api_request_problem(api_request, 503, "busy", "the service is out of memory", "try again in a moment");
                return;
        }
        *sending = (struct sending) { api_request, source };
        if (strcmp(http_method(request), "HEAD") == 0) {
                http_stream_end(request);
                sending_free(sending);
                return;
        }
        http_attend(request, &events, sending);
        sending_feed(sending);
}
