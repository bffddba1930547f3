#include "session/program.h"

#include <string.h>

#include "base/build.h"
#include "base/memory.h"
#include "session/caller.h"
#include "session/manager.h"
#include "session/session.h"
#include "session/session_config.h"

enum { PATIENCE_MS = 5000 }; /* for a caller that has not ended its program */

/* As the caller receives them (docs/PROTOCOL.md). */
static const enum maker_fd handed_over[] = { MAKER_REQUESTS,  MAKER_REPLIES,  MAKER_OUT,    MAKER_ERR,
                                             MAKER_PIDFD,     MAKER_CONTROL,  MAKER_KERNEL, MAKER_STATUS,
                                             MAKER_WORKSPACE, MAKER_LISTENER, MAKER_LEASE };

static struct session *make_session(struct caller *caller, json_t *options, struct err *err) {
        struct registry_session row;
        if (session_config_from_json(caller, options, SESSION_CONFIG_LOOK_LATER, &row, err) < 0 ||
            registry_make_id(row.id, err) < 0)
                return NULL;
        if (!json_object_get(options, "workspace"))
                *row.workspace = '\0'; /* a project's workspace is for its sessions */
        return session_make(caller->manager, &row, true, err);
}

int program_begin(struct caller *caller, const struct program_request *request, struct err *err) {
        if (!caller->type->hand_over)
                return err_set(err, ERR_UNSUPPORTED, "a program's box is handed over through the daemon's socket only");
        /* Its box is handed over and ended by its caller, which only a native box allows. */
        (void) json_object_set_new(request->options, "engine", json_string("native"));
        struct session *session = make_session(caller, request->options, err);
        if (!session)
                return -1;
        session->is_program = true;
        session->program.wants_listener = request->wants_listener;
        session->light = request->is_light;
        if (request->what && strlen(request->what) < sizeof(session->program.what))
                (void) strcpy(session->program.what, request->what);
        session->caller = caller;
        caller->session = session;
        caller->cancel_on_disconnect = true;
        session_advance(session);
        return 0;
}

static void on_deadline(void *context) {
        struct session *session = context;
        session->program.timer = NULL;
        session_remove(session, false);
}

static json_t *program_describe(const struct session *session) {
        const struct kernel *kernel = session->kernel;
        unsigned slots = 0;
        for (unsigned i = 0; i < ELEMENTS(handed_over); i++)
                slots |= kernel->fds[handed_over[i]] >= 0 ? 1u << i : 0;
        return json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:o}", "event", "box", "version", build_name(), "id",
                         session->row.id, "group", kernel->group, "slots", (int) slots, "way",
                         session->from_pool               ? "pool"
                         : kernel->fds[MAKER_KERNEL] >= 0 ? "fork"
                                                          : "cold",
                         "isolation", session_isolation(session));
}

void program_hand_over(struct session *session) {
        struct kernel *kernel = session->kernel;
        json_t *event = program_describe(session);
        _cleanup_free_ char *text = event ? json_dumps(event, JSON_COMPACT) : NULL;
        json_decref(event);
        int fds[ELEMENTS(handed_over)];
        size_t n_fds = 0;
        for (size_t i = 0; i < ELEMENTS(handed_over); i++)
                if (kernel->fds[handed_over[i]] >= 0)
                        fds[n_fds++] = kernel->fds[handed_over[i]];
        kernel_mark_usage(kernel);
        session_set_state(session, SESSION_RUNNING);
        session->manager->counters.runs_started++;
        session->program.timer =
                loop_timer(session->manager->loop, loop_now_ms() + session->row.limits.timeout_ms + PATIENCE_MS,
                           on_deadline, session);
        int code = text ? session->caller->type->hand_over(session->caller, text, fds, n_fds) : -1;
        kernel_hand_over(kernel);
        if (code < 0)
                session_remove(session, false);
}

bool program_ask_to_end(struct session *session) {
        static const char text[] = "{\"event\":\"end\"}";
        struct caller *caller = session->caller;
        if (!session->is_program || session->state != SESSION_RUNNING || !caller ||
            caller->type->hand_over(caller, text, NULL, 0) < 0)
                return false;
        if (session->program
                    .is_asked_to_end) /* the second time ends it, as a second Ctrl-C does; the first deadline stays */
                return true;
        session->program.is_asked_to_end = true;
        loop_timer_drop(&session->program.timer);
        session->program.timer = loop_timer(session->manager->loop, loop_now_ms() + PATIENCE_MS, on_deadline, session);
        return true;
}

static json_t *describe_usage(struct kernel *kernel) {
        kernel_measure(kernel);
        return json_pack("{s:I, s:I, s:I}", "cpu_us", (json_int_t) kernel->usage.cpu_us, "memory_peak_bytes",
                         (json_int_t) kernel->usage.memory_peak_bytes, "oom_kills",
                         (json_int_t) kernel->usage.oom_kills);
}

int program_usage(struct caller *caller, const char *id, struct err *err) {
        struct session *session = caller->manager->sessions;
        while (session && (!session->is_program || !id || strcmp(session->row.id, id) != 0))
                session = session->next;
        if (!session || !session->kernel)
                return err_set(err, ERR_NOT_FOUND, "this program has ended");
        caller_answer(caller, describe_usage(session->kernel));
        return 0;
}

void program_fail(struct session *session, const struct err *err) {
        struct caller *caller = session->caller;
        session->caller = NULL;
        if (caller)
                caller_refuse(caller, err);
}

void program_end(struct session *session) {
        struct caller *caller = session->caller;
        struct kernel *kernel = session->kernel;
        session->caller = NULL;
        if (!caller)
                return;
        json_t *answer = describe_usage(kernel);
        if (kernel->exited)
                (void) json_object_set_new(answer, "wait_status", json_integer(kernel->wait_status));
        caller_answer(caller, answer);
}

void program_let_go_all(struct session_manager *manager) {
        for (struct session *session = manager->sessions, *next; session; session = next) {
                next = session->next;
                if (!session->is_program || session_is_going(session) || session->state != SESSION_RUNNING)
                        continue;
                if (session->caller)
                        session->caller->session = NULL;
                session->caller = NULL;
                kernel_let_go(session->kernel);
                session_free(session);
        }
}
