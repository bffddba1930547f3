/* One request over HTTP on its way through the session layer, and how its answer is written: as one JSON object, as
 * server-sent events, or as lines of JSON.
 *
 * A run does not end because its client disconnects. Then the api_request stays and waits for the run's end, so that
 * quotas count active runs; unless the client requested that the run ends with it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/gate.h"
#include "api/route.h"
#include "http/http.h"
#include "session/caller.h"

enum {
        API_REQUEST_JSON_MAX = 1536 << 10, /* a request's: it is parsed at once, at 12 ms for each MiB */
        API_REQUEST_ANSWER_MAX = 12 << 20,
};

enum api_request_form {
        API_REQUEST_WHOLE,  /* one answer at the end */
        API_REQUEST_EVENTS, /* text/event-stream */
        API_REQUEST_LINES,  /* application/x-ndjson */
};

struct api_request {
        struct caller caller; /* the first: the session layer's end of it */
        struct api_request *next, *previous;
        struct service *service;
        struct http_request *request; /* NULL: the client has left */
        struct visitor visitor;
        struct api_match match;
        enum api_request_form form;
        bool is_run;     /* counts as one */
        bool is_waiting; /* the same, for an answer */
        bool is_begun;   /* the head of a stream was sent */
        bool is_broken;  /* something could not be sent: the stream must not look whole */
        bool is_detached; /* answered when the run was accepted */
        uint64_t number; /* of the last event of the run that was read */
        uint64_t sent_ms; /* when something was last sent */
        struct {
                char bytes[4];
                size_t size;
        } partial[2];    /* the beginning of a character whose end is still to come, of each stream */
        void (*then)(struct api_request *api_request, json_t *body);
        /* Writes an operation's answer; NULL: unchanged, with status 200. The api_request is freed afterwards. */
        void (*finish)(struct api_request *api_request, const char *answer, size_t size);
};

/* Makes an api_request of a request that passed the gate. NULL: it was refused and answered. */
struct api_request *api_request_open(struct service *service, struct http_request *request,
                                     const struct api_match *match, const struct visitor *visitor);
void api_request_free(struct api_request *api_request);

/* Counts it as a run from here to its end. ERR_LIMIT: its key has reached its limit. */
int api_request_count_run(struct api_request *api_request, struct err *err);

/* Its client was answered or has disconnected, and it waits for the end of its run. */
void api_request_go_on_alone(struct api_request *api_request);

/* {user_id} of the path. */
const char *api_request_user(const struct api_request *api_request);

/* Reads a JSON object from the body ({} if there is none) and calls the function with it; it is borrowed. Any other
 * body is answered with an error. */
void api_request_read_json(struct api_request *api_request,
                           void (*then)(struct api_request *api_request, json_t *body));

/* Registers for room in the client's queue and for its disconnect: before an operation that answers by itself. */
void api_request_attend(struct api_request *api_request);

/* Handles the return value of an operation (daemon/operation.h): -1 is answered with the error. */
void api_request_settle(struct api_request *api_request, int code, const struct err *err);

/* Sends the answer and frees the api_request. Takes the reference; bytes are copied. */
void api_request_answer(struct api_request *api_request, int status, json_t *answer);
void api_request_answer_bytes(struct api_request *api_request, int status, const char *type, const void *bytes,
                              size_t size);
void api_request_refuse(struct api_request *api_request, const struct err *err);
void api_request_problem(struct api_request *api_request, int status, const char *code, const char *detail,
                         const char *remedy);

/* Chooses the form of a run's output: by the Accept header, and `wants_stream` if it is not one answer. */
void api_request_choose_form(struct api_request *api_request, bool wants_stream);

/* Keeps the connections of silent streams open. */
void api_request_beat_all(struct service *service);

/* A callback of the server: true if the body of this request may take so much more memory. `context` is the service. */
bool api_request_has_room(void *context, const struct http_request *request, size_t bytes);
