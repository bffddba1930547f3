#include "session/harvest.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fd.h"
#include "session/session.h"

static int64_t in_ns(const struct timespec *when) {
        return (int64_t) when->tv_sec * 1000000000 + when->tv_nsec;
}

/* The usual case costs one system call: there were no artifacts, and nothing has touched their directory since. */
static bool is_still_empty(const struct session *session) {
        struct stat status;
        return session->empty_since_ns &&
               fstatat(session->workspace_fd, "artifacts", &status, AT_SYMLINK_NOFOLLOW) == 0 &&
               S_ISDIR(status.st_mode) && in_ns(&status.st_ctim) == session->empty_since_ns;
}

/* A change time can be trusted only when it is past: clocks of file systems tick every few milliseconds. */
static void note_empty(struct session *session) {
        enum { SETTLED_NS = 50 * 1000000 };
        struct stat status;
        struct timespec now;
        session->empty_since_ns = 0;
        if (session->seen.count || session->seen.cut ||
            fstatat(session->workspace_fd, "artifacts", &status, AT_SYMLINK_NOFOLLOW) < 0 || status.st_nlink > 2)
                return;
        (void) clock_gettime(CLOCK_REALTIME, &now);
        if (in_ns(&now) - in_ns(&status.st_ctim) > SETTLED_NS)
                session->empty_since_ns = in_ns(&status.st_ctim);
}

void harvest_prepare(struct session *session) {
        if (session->workspace_fd >= 0)
                return;
        int fd = session_open_workspace(session);
        if (fd < 0)
                return;
        session->workspace_fd = fd;
        artifact_list_release(&session->seen);
        (void) artifact_scan(fd, &session->seen, NULL);
        note_empty(session);
}

json_t *harvest_collect(struct session *session, const char *run_id) {
        struct artifact_list now = { 0 }, fresh = { 0 };
        if (session->workspace_fd < 0 || is_still_empty(session) ||
            artifact_scan(session->workspace_fd, &now, NULL) < 0)
                return json_array();
        if (now.count && artifact_scan(session->workspace_fd, &fresh, NULL) == 0) {
                artifact_keep_changed(&fresh, &session->seen);
                if (session->ephemeral) {
                        char out_dir[4200];
                        (void) snprintf(out_dir, sizeof(out_dir), "%s/outputs/%s", session->daemon->data_dir, run_id);
                        (void) artifact_copy_out(session->workspace_fd, &fresh, out_dir, session->row.limits.disk_bytes,
                                                 NULL);
                } else if (!*session->row.owner) /* to others, where it is on the host says nothing they may know */
                        (void) artifact_locate(&fresh, session->workspace, NULL);
        }
        json_t *array = artifact_list_to_json(&fresh);
        artifact_list_release(&fresh);
        artifact_list_release(&session->seen);
        session->seen = now;
        note_empty(session);
        return array;
}
