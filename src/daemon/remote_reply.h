/* Replies of the remote to a request that was passed on to it: events, output, data of a file, and the answer. They go
 * on to the caller of the request. */
#pragma once

#include <stdbool.h>

struct message;
struct remote_request;

/* False: the request is over, and freed. */
bool remote_reply_take(struct remote_request *request, const struct message *message);
