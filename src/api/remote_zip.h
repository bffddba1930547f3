/* The archive of all artifacts of a sandbox that another Glovebox has (engine remote): written here, while each file
 * passes through at the pace of the slower side. Nothing but the names is kept here. */
#pragma once

struct api_request;
struct session;

/* Answers the request, now or later. */
void remote_zip_send(struct api_request *api_request, struct session *session);
