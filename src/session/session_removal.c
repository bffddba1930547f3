/* The removal of a session. */
#include <stdio.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memory.h"
#include "session/install.h"
#include "session/manager.h"
#include "session/remote_link.h"
#include "session/remote_place.h"
#include "session/session.h"
#include "store/reaper.h"
#include "store/session_file.h"

/* From here on its name is free. Its files move to a directory that the next daemon empties after a crash. */
static void strike_out(struct session *session, bool keep_files) {
        struct err err;
        session->removal = SESSION_GOES;
        session->keep_files = keep_files;
        if (session->ephemeral)
                return;
        /* In this order: if a daemon finds the workspace in the state directory, it finishes the removal. */
        char path[1100];
        (void) snprintf(path, sizeof(path), "%s/" SESSION_REMOVED_WORKSPACE, session->state_dir);
        if (!keep_files && !*session->row.workspace && rename(session->workspace, path) == 0)
                (void) snprintf(session->workspace, sizeof(session->workspace), "%.1000s", path);
        session_file_remove(session->state_dir);
        if (registry_remove(session->manager->registry, session->row.id, &err) == 0)
                return;
        daemon_log("session %s: %s", session->row.name, err.message);
        (void) mkdir(path, 0700);
        session->removal = SESSION_GOES_LISTED;
}

/* Its row could not be removed because the disk was full. Without its files there may be space at the next sweep. Until
 * then its state directory stays, which marks the removal for the next daemon. */
static bool strike_out_again(struct session *session) {
        static const char *const large[] = { SESSION_REMOVED_WORKSPACE, "journal", "kernel" };
        if (registry_remove(session->manager->registry, session->row.id, NULL) == 0)
                return true;
        for (size_t i = 0; i < ELEMENTS(large); i++) {
                char path[1100];
                (void) snprintf(path, sizeof(path), "%s/%s", session->state_dir, large[i]);
                janitor_empty(&session->manager->janitor, path);
        }
        return false;
}

static void kill_kernel(struct session *session) {
        if (session->is_program)
                kernel_note_end(session->kernel, KERNEL_END_OVER);
        if (session->runs && session->runs->started && session->runs->reason == RUN_REASON_NONE)
                session->runs->reason = RUN_REASON_REMOVED;
        if (session->kernel->state != KERNEL_MAKING)
                kernel_kill(session->kernel);
}

static void remove_directories(const struct session *session, bool keep_files) {
        if (session->ephemeral && *session->state_dir) /* small, and no user's files */
                reaper_remove_tree(session->state_dir);
        else if (!session->ephemeral)
                janitor_remove(&session->manager->janitor, session->state_dir);
        if (!keep_files && *session->workspace && !*session->row.workspace)
                janitor_remove(&session->manager->janitor, session->workspace);
}

void session_remove(struct session *session, bool keep_files) {
        struct err err;
        if (!session_is_going(session)) {
                disk_unbound(session);
                if (session->is_remote) {
                        const struct remote_place place = remote_place_of(session);
                        remote_link_forget(session->manager, &place);
                        remote_place_remove(&place);
                }
                strike_out(session, keep_files);
        }
        if (session->kernel) { /* its end calls this again */
                kill_kernel(session);
                return;
        }
        if (session->install && install_stop(session->install))
                return; /* likewise */
        (void) err_set(&err, ERR_GONE, "the session was removed");
        session_fail_runs(session, &err);
        if (session->removal == SESSION_GOES_LISTED && !strike_out_again(session))
                return; /* the sweep calls this again */
        remove_directories(session, keep_files);
        session_free(session);
}
