/* Answers and refusals of the remote, in the words of this daemon: its names, its engine, its session. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct session;

/* What "error" of an answer says. A session's name there is replaced by its name here; "" has none. */
struct err remote_answer_refusal(const json_t *error, const char *name_there, const char *name_here);

/* The answer describes the session: as it is called here. */
void remote_answer_shape_session(json_t *answer, const struct session *session, bool is_new);

/* A session that is not made there before its first run: all that is known of it is here. A new reference. */
json_t *remote_answer_describe_new(const struct session *session);

/* A large answer, which is not parsed: without its "ok", once it is known to be JSON. NULL: see err. */
char *remote_answer_copy_text(const char *bytes, size_t size, size_t *ret_size, struct err *err);
