/* A run as a stream of events. Each is one JSON object:
 *
 *     {"event":"start","run_id":"…"}
 *     {"event":"stdout","number":1,"text":"…"}      "stderr" likewise; numbers count up, and a broken connection goes
 *     {"event":"display","data":{…}}                on from the next one with GET …/runs/{run_id}/events?from=
 *     {"event":"result","number":7,"result":{…}}    the last one; or {"event":"error","problem":{…}}
 *
 * An event without a number is a part of the next one with a number: a client that continues after number N must drop
 * what followed it, because it is sent again. They are sent as lines (application/x-ndjson) or as server-sent events,
 * whose `event` and `id` fields say the same. */
#pragma once

#include <jansson.h>
#include <stddef.h>

struct caller_output;
struct api_request;

void stream_begin(struct api_request *api_request, const char *run_id);
void stream_put_output(struct api_request *api_request, const struct caller_output *output);
void stream_put_display(struct api_request *api_request, const char *data, size_t size); /* JSON */
void stream_beat(struct api_request *api_request);

/* Sends the last event. The request is freed. */
void stream_end(struct api_request *api_request, const char *result, size_t size);
void stream_end_with_problem(struct api_request *api_request, int status, const char *code, const char *detail,
                             const char *remedy);
