/* Translates answers and refusals of the remote: its names, engine and session become this daemon's. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct session;

/* Makes an err of an answer's "error". The session's name there ("": none) is replaced by its name here. */
struct err remote_answer_refusal(const json_t *error, const char *name_there, const char *name_here);

/* Changes an answer that describes the session to this daemon's names. */
void remote_answer_shape_session(json_t *answer, const struct session *session, bool is_new);

/* Describes a session that the remote does not have yet. A new reference. */
json_t *remote_answer_describe_new(const struct session *session);

/* Copies a large answer without its "ok" and without parsing it into values, after checking that it is JSON. */
char *remote_answer_copy_text(const char *bytes, size_t size, size_t *ret_size, struct err *err);
