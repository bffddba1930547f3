#include "session/session_kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "session/install.h"
#include "session/kernel_order.h"
#include "session/kernel_pool.h"
#include "session/network.h"
#include "session/recovery.h"
#include "session/session_engine.h"
#include "session/session_question.h"
#include "session/session_run.h"
#include "store/packages.h"

/* ---- from the pool ---- */

/* Mounts what the caller wants into the box of a kernel from the pool. */
static int attach_box(struct session *session, struct err *err) {
        struct kernel *kernel = session->kernel;
        struct maker_request request;
        kernel_order_fill(&session->row, &request);
        request.attach = request.is_program = true;
        request.by_owner = session->is_program;
        request.box_is_leased = kernel->fds[MAKER_LEASE] >= 0;
        request.box_uid = kernel->host_uid;
        request.ephemeral = !*session->row.workspace;
        memcpy(request.kernel_id, kernel->id, sizeof(request.kernel_id));
        (void) snprintf(request.workspace, sizeof(request.workspace), "%s", session->row.workspace);
        kernel_set_state(kernel, KERNEL_ATTACHING);
        return kernel_order_place(session->manager, &request, session->row.owner, err);
}

static bool may_take_from_pool(const struct session *session) {
        return session->ephemeral && !session->granted && !session->program.wants_listener && !session->needs_new_box;
}

static bool take_from_pool(struct session *session) {
        struct err err;
        if (!may_take_from_pool(session))
                return false;
        session->kernel = kernel_pool_take(session->manager, &session->row, session->light);
        if (!session->kernel)
                return false;
        session->kernel->listener = &session_kernel_listener;
        session->kernel->owner = session;
        session->from_pool = true;
        if (kernel_pool_limit(session->manager, session->kernel, &session->row.limits, &err) < 0 ||
            (kernel_pool_has_to_show(&session->row) && attach_box(session, &err) < 0)) {
                kernel_free(session->kernel);
                session->kernel = NULL;
                session->from_pool = false;
        }
        kernel_pool_refill_soon(session->manager);
        return session->from_pool;
}

void session_attached(struct session *session, struct maker_reply *reply) {
        struct err err;
        struct kernel *kernel = session->kernel;
        int code = kernel_attached(kernel, reply, &err);
        fd_close(&reply->fds[MAKER_WORKSPACE]);
        if (session_is_going(session))
                return; /* it was killed; the listener is informed of its end */
        if (code < 0) { /* if a new box fails, too, its error goes to the caller */
                daemon_log("a box from the pool was not used: %s", err.message);
                session->kernel = NULL;
                session->from_pool = false;
                session->needs_new_box = true;
                kernel_free(kernel);
        }
        session_advance(session);
}

/* ---- by an order ---- */

/* Mounts the session's packages into every box, so that a running kernel sees packages that are installed later. */
static void add_packages(const struct session *session, struct maker_request *request) {
        int code = packages_make_directory(session->state_dir);
        if (code < 0) {
                daemon_log("session %s: no packages can be installed: %s", session->row.name, strerror(-code));
                return;
        }
        (void) snprintf(request->packages, sizeof(request->packages), "%.1000s", session->state_dir);
        request->fresh |= packages_cover_image(session->state_dir);
}

static bool has_state_dir(const struct maker_request *request) {
        return !request->ephemeral && !request->is_program;
}

static void fill_request(struct session *session, struct maker_request *request) {
        kernel_order_fill(&session->row, request);
        request->ephemeral = session->ephemeral && !*session->row.workspace;
        request->is_program = session->ephemeral && !session->helps;
        request->by_owner = session->is_program;
        if (has_state_dir(request))
                (void) snprintf(request->state_dir, sizeof(request->state_dir), "%.1000s/kernel", session->state_dir);
        (void) snprintf(request->workspace, sizeof(request->workspace), "%s", session->workspace);
        request->workspace_is_ours = !*session->row.workspace;
        request->light = session->light;
        if (session->helps)
                install_fill_request(session->helps, request);
        else if (!session->ephemeral)
                add_packages(session, request);
}

static int make_state_dirs(const struct session *session, const struct maker_request *request, struct err *err) {
        if (has_state_dir(request) && ((mkdir(session->state_dir, 0700) < 0 && errno != EEXIST) ||
                                       (mkdir(request->state_dir, 0700) < 0 && errno != EEXIST)))
                return err_sys(err, errno, "making %s", request->state_dir);
        return 0;
}

/* Makes the record of a kernel and orders its box. */
static int place_order(struct session *session, struct maker_request *request, struct egress_rules **rules,
                       struct err *err) {
        struct session_manager *manager = session->manager;
        if (make_state_dirs(session, request, err) < 0 || kernel_order_name(manager, request, err) < 0)
                return -1;
        session->kernel = kernel_make(manager->loop, &manager->host, &session_kernel_listener, session, request);
        if (!session->kernel)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        /* The journal belongs to the session, not to the kernel: it continues after a restart. */
        (void) snprintf(session->kernel->state_dir, sizeof(session->kernel->state_dir), "%s", session->state_dir);
        session->kernel->rules = take_ptr(*rules);
        return kernel_order_place(manager, request, session->row.owner, err);
}

void session_order_kernel(struct session *session) {
        struct err err;
        struct maker_request request;
        _cleanup_free_ struct egress_rules *rules = NULL;
        if (take_from_pool(session))
                return;
        fill_request(session, &request);
        int code = network_rules_of(session, &rules, &err);
        request.network = rules != NULL || session->program.wants_listener;
        if (code == 0)
                code = place_order(session, &request, &rules, &err);
        if (code == 0)
                return;
        kernel_free(session->kernel);
        session->kernel = NULL;
        session_fail_runs(session, &err);
}

/* ---- its end ---- */

void session_end_kernel(struct session *session) {
        kernel_note_end(session->kernel, KERNEL_END_REQUESTED);
        kernel_kill(session->kernel);
}

void session_break_off_kernel(struct session *session) {
        kernel_note_end(session->kernel, KERNEL_END_PROTOCOL);
        kernel_kill(session->kernel);
}

/* ---- after a crash of the daemon ---- */

static struct kernel *make_adopted(struct session *session, const char *kernel_id, const char *group) {
        struct maker_request request = { 0 };
        struct session_engine engine = session_engine_of(&session->row);
        memcpy(request.engine, engine.name, sizeof(request.engine));
        (void) snprintf(request.kernel_id, sizeof(request.kernel_id), "%s", kernel_id);
        (void) snprintf(request.group, sizeof(request.group), "%s", group);
        (void) snprintf(request.state_dir, sizeof(request.state_dir), "%s", session->state_dir);
        (void) snprintf(request.workspace, sizeof(request.workspace), "%s", session->workspace);
        return kernel_make(session->manager->loop, &session->manager->host, &session_kernel_listener, session,
                           &request);
}

/* Sets the session's state and its open request as recorded in the journal. */
static void resume_adopted(struct session *session) {
        struct kernel *kernel = session->kernel;
        const struct journal_request *open = journal_open_request(kernel->journal);
        session_set_state(session,
                          journal_holds(kernel->journal) == JOURNAL_HOLDS_TRIMMED ? SESSION_TRIMMED : SESSION_IDLE);
        if (open && open->is_run)
                session_adopt_run(session, open);
        else if (open)
                session_question_adopt(session, open);
        kernel_resume(kernel, session->row.limits.timeout_ms);
}

int session_adopt(struct session *session, pid_t pid, int fds[static MAKER_FDS], const char *kernel_id,
                  const char *group, struct err *err) {
        session->kernel = make_adopted(session, kernel_id, group);
        if (!session->kernel)
                return err_sys(err, ENOMEM, "the kernel of session %s cannot be taken over", session->row.name);
        if (kernel_adopt(session->kernel, pid, fds, err) < 0) {
                kernel_free(session->kernel);
                session->kernel = NULL;
                (void) err_prefix(err, "the kernel of session %s cannot be taken over", session->row.name);
                if (err_is_shortage(err))
                        return -1;
                daemon_log("%s", err->message);
                return 0;
        }
        if (network_rules_of(session, &session->kernel->rules, err) < 0)
                daemon_log("session %s: its network stays closed: %s", session->row.name, err->message);
        if (recovery_kernel_counts(session)) {
                resume_adopted(session);
                return 0;
        }
        session_set_state(session, SESSION_NEW); /* the last daemon was ending it, or it had not begun */
        if (journal_holds(session->kernel->journal) == JOURNAL_HOLDS_NOTHING)
                kernel_note_end(session->kernel, KERNEL_END_REQUESTED);
        kernel_kill(session->kernel);
        return 0;
}
