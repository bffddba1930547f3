/* What a session asks its kernel besides runs: to trim, to sleep, to wake, and about packages. One question is open at
 * a time (session->asked), and no run starts while one is. */
#pragma once

#include "kernel/kernel.h"
#include "session/session.h"

/* Asks a new kernel to load the sleep file. If that cannot be asked, the runs that wait fail. */
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
