/* The states of a session, and which may follow which. */

#include "base/log.h"
#include "session/session.h"

static const char *const names[SESSION_STATES] = {
        [SESSION_NEW] = "new",         [SESSION_IDLE] = "idle",     [SESSION_RUNNING] = "running",
        [SESSION_TRIMMED] = "trimmed", [SESSION_ASLEEP] = "asleep", [SESSION_LOST] = "lost",
};

/* A session without a kernel (new, asleep, lost) gets one and is idle. A kernel of the pool is ready, so a new session
 * may run at once. A sleeping session is woken, and thereby idle, before it runs. A run ends before its session does
 * anything else; only a program's kernel exits while it is running. */
static const bool moves[SESSION_STATES][SESSION_STATES] = {
        [SESSION_NEW] = { [SESSION_NEW] = true,
                          [SESSION_IDLE] = true,
                          [SESSION_RUNNING] = true,
                          [SESSION_TRIMMED] = true,
                          [SESSION_ASLEEP] = true,
                          [SESSION_LOST] = true },
        [SESSION_IDLE] = { [SESSION_NEW] = true,
                           [SESSION_IDLE] = true,
                           [SESSION_RUNNING] = true,
                           [SESSION_TRIMMED] = true,
                           [SESSION_ASLEEP] = true,
                           [SESSION_LOST] = true },
        [SESSION_RUNNING] = { [SESSION_IDLE] = true, [SESSION_LOST] = true },
        [SESSION_TRIMMED] = { [SESSION_NEW] = true,
                              [SESSION_IDLE] = true,
                              [SESSION_RUNNING] = true,
                              [SESSION_TRIMMED] = true,
                              [SESSION_ASLEEP] = true,
                              [SESSION_LOST] = true },
        [SESSION_ASLEEP] = { [SESSION_NEW] = true,
                             [SESSION_IDLE] = true,
                             [SESSION_TRIMMED] = true,
                             [SESSION_ASLEEP] = true,
                             [SESSION_LOST] = true },
        [SESSION_LOST] = { [SESSION_NEW] = true,
                           [SESSION_IDLE] = true,
                           [SESSION_TRIMMED] = true,
                           [SESSION_ASLEEP] = true,
                           [SESSION_LOST] = true },
};

const char *session_state_name(const struct session *session) {
        return session->is_remote && *session->remote.state ? session->remote.state : names[session->state];
}

void session_set_state(struct session *session, enum session_state state) {
        if (!moves[session->state][state])
                daemon_log("session %s: it was %s and is %s, which cannot be; please report this", session->row.id,
                           names[session->state], names[state]);
        session->state = state;
}
