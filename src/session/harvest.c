#include "session/harvest.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fd.h"
#include "session/outputs.h"
#include "session/session.h"
#include "session/touch.h"

#define UNWATCHED UINT64_MAX /* touch_count of a session whose directory has no watch */

enum { MUCH_BYTES = 4 << 20, MUCH_FILES = 100 }; /* more than this is not copied by the daemon itself */

static int64_t in_ns(const struct timespec *when) {
        return (int64_t) when->tv_sec * 1000000000 + when->tv_nsec;
}

static bool stat_artifacts(const struct session *session, struct stat *ret_status) {
        return fstatat(session->workspace_fd, "artifacts", ret_status, AT_SYMLINK_NOFOLLOW) == 0 &&
               S_ISDIR(ret_status->st_mode);
}

static bool is_on_tmpfs(const struct session *session) {
        return session->kernel && session->kernel->ephemeral;
}

/* A tmpfs, whose directories grow with each entry: by their size alone one can tell that there is none. */
static bool is_empty_on_tmpfs(const struct session *session) {
        enum { TMPFS_EMPTY_BYTES = 40 };
        struct stat status;
        return stat_artifacts(session, &status) && status.st_nlink == 2 && status.st_size == TMPFS_EMPTY_BYTES;
}

/* The usual case costs no system call: there were no artifacts, and nothing has come into their directory since. */
static bool is_still_empty(struct session *session) {
        struct stat status;
        if (is_on_tmpfs(session))
                return is_empty_on_tmpfs(session);
        if (!session->empty_since_ns)
                return false;
        uint64_t count = touch_count();
        if (session->kernel && kernel_is_untouched(session->kernel) && session->touch_count == count)
                return true;
        if (!stat_artifacts(session, &status) || in_ns(&status.st_ctim) != session->empty_since_ns)
                return false;
        if (session->touch_count != UNWATCHED)
                session->touch_count = count; /* it was another one that was touched */
        return true;
}

/* A change time can be trusted only when it is past: clocks of file systems tick every few milliseconds. */
static void note_empty(struct session *session) {
        enum { SETTLED_NS = 50 * 1000000 };
        struct stat status;
        struct timespec now;
        session->empty_since_ns = 0;
        if (session->seen.count || session->seen.cut || is_on_tmpfs(session))
                return;
        /* First the watch: what comes before it, the change time tells. */
        session->touch_count = touch_watch(session->workspace_fd, "artifacts") == 0 ? touch_count() : UNWATCHED;
        if (!stat_artifacts(session, &status) || status.st_nlink > 2)
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
        if (is_on_tmpfs(session) && is_empty_on_tmpfs(session))
                return;
        (void) artifact_scan(fd, &session->seen, NULL);
        note_empty(session);
}

static void copy_out(struct session *session, int workspace_fd, const char *run_id, struct artifact_list *list) {
        char out_dir[4200];
        (void) snprintf(out_dir, sizeof(out_dir), "%s/outputs/%s", session->daemon->data_dir, run_id);
        (void) artifact_copy_out(workspace_fd, list, out_dir, session->row.limits.disk_bytes, NULL);
        outputs_stamp(session->daemon, out_dir);
}

/* ---- by a child ---- */

static bool is_much(const struct artifact_list *list) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < list->count; i++)
                bytes += list->items[i].size;
        return bytes > MUCH_BYTES || list->count > MUCH_FILES;
}

static int copy_in_child(const int *fds, int out_fd, void *context) {
        struct session *session = context;
        struct artifact_list list = { 0 };
        if (artifact_scan(fds[0], &list, NULL) < 0)
                return -1;
        artifact_keep_changed(&list, &session->seen);
        copy_out(session, fds[0], session->runs->id, &list);
        json_t *array = artifact_list_to_json(&list);
        char *text = json_dumps(array, JSON_COMPACT);
        return text && fd_write_all(out_fd, text, strlen(text)) == 0 ? 0 : -1;
}

static void on_copied(void *context, const char *bytes, size_t size) {
        struct session *session = context;
        session->errand = NULL;
        session->harvest = bytes ? json_loadb(bytes, size, 0, NULL) : NULL;
        if (!session->harvest)
                session->harvest = json_array(); /* what was copied is swept with the rest */
        session->harvested(session);
}

bool harvest_is_much(struct session *session) {
        struct artifact_list list = { 0 };
        if (!session->ephemeral || session->harvest || session->workspace_fd < 0 || is_still_empty(session) ||
            artifact_scan(session->workspace_fd, &list, NULL) < 0)
                return false;
        artifact_keep_changed(&list, &session->seen);
        bool much = is_much(&list);
        artifact_list_release(&list);
        return much;
}

bool harvest_begin(struct session *session, void (*harvested)(struct session *session)) {
        const struct errand_order order = { .fds = { session->workspace_fd }, .n_fds = 1, .work = copy_in_child,
                                            .done = on_copied, .context = session };
        session->harvested = harvested;
        session->errand = errand_start(session->daemon->loop, &order, NULL);
        return session->errand != NULL;
}

/* ---- on the spot ---- */

json_t *harvest_collect(struct session *session, const char *run_id) {
        struct artifact_list now = { 0 }, fresh = { 0 };
        if (session->harvest) {
                json_t *harvest = session->harvest;
                session->harvest = NULL;
                return harvest;
        }
        if (session->workspace_fd < 0 || is_still_empty(session) ||
            artifact_scan(session->workspace_fd, &now, NULL) < 0)
                return json_array();
        if (now.count && artifact_scan(session->workspace_fd, &fresh, NULL) == 0) {
                artifact_keep_changed(&fresh, &session->seen);
                if (session->ephemeral)
                        copy_out(session, session->workspace_fd, run_id, &fresh);
                else if (!*session->row.owner) /* to others, where it is on the host says nothing they may know */
                        (void) artifact_locate(&fresh, session->workspace, NULL);
        }
        json_t *array = artifact_list_to_json(&fresh);
        artifact_list_release(&fresh);
        artifact_list_release(&session->seen);
        session->seen = now;
        note_empty(session);
        return array;
}
