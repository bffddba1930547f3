/* Files of a sandbox that another Glovebox has (engine remote). A request becomes one operation there or a few. A file
 * passes through at the pace of the slower side and is not stored here. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct api_request;
struct file_request;
struct session;

/* The session of the request's path, if it is at the remote, or is made there now. NULL: it belongs to this host; or,
 * with err->code, it cannot be made. */
struct session *remote_file_session(struct api_request *api_request, bool creates, struct err *err);

/* Each answers the request, now or later. */
void remote_file_read(struct api_request *api_request, struct session *session, const struct file_request *request);
void remote_file_stat(struct api_request *api_request, struct session *session, const struct file_request *request);
void remote_file_change(struct api_request *api_request, struct session *session, const struct file_request *request,
                        bool is_directory);
void remote_file_list_artifacts(struct api_request *api_request, struct session *session);
