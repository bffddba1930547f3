/* Uploads into a sandbox: the body itself, or the parts of a form. The files are invisible until the body is complete;
 * then they get their names, one after the other. */
#pragma once

#include <stdbool.h>

struct api_request;
struct file_request;
struct session;

/* The body is one file, at the request's path; or, if it is multipart/form-data, its parts are files in that directory.
 * Takes the api_request. */
void body_upload_begin(struct api_request *api_request, const struct file_request *request);
/* The same to a sandbox of another Glovebox. */
void body_upload_begin_remote(struct api_request *api_request, struct session *session,
                              const struct file_request *request);

/* Is the body multipart/form-data? */
bool body_upload_is_form(const struct api_request *api_request);
