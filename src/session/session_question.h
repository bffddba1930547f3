/* Requests to a kernel that are no runs: trim, sleep, wake, packages. One question is open at a time (session->asked),
 * and no run starts while one is. */
#pragma once

#include "kernel/kernel.h"
#include "session/session.h"

/* Requests that a new kernel loads the sleep file. If the request cannot be sent, the waiting runs fail. */
void session_ask_wake(struct session *session);

/* The kernel's answer to the open question. A malformed one ends the kernel. */
void session_question_answered(struct session *session, const struct kernel_reply *reply);

/* The kernel has answered, and the answer is lost: the record is damaged. */
void session_question_lost(struct session *session);

/* The kernel has ended: closes the open question and returns what was asked. When the session's state is known again,
 * session_question_refuse gives its caller an error. */
enum session_question session_question_dropped(struct session *session);
void session_question_refuse(struct session *session);

/* The question that is open in the journal of a kernel that outlived its daemon. */
void session_question_adopt(struct session *session, const struct journal_request *open);
