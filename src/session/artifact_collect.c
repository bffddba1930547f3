#include "session/artifact_collect.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fd.h"
#include "session/outputs.h"
#include "session/session.h"

enum { MUCH_BYTES = 1 << 20, MUCH_FILES = 20 }; /* the daemon copies at most this; a child copies more */
enum { CONTENTS_BYTES = 4 << 20 }; /* of all artifacts whose contents are in a result */
enum { PATIENCE_MS = 60000 };
enum { SEEN_FEW_BYTES = 64 << 10 }; /* of a list of artifacts, packed: a child looks at larger ones */

static int64_t in_ns(const struct timespec *when) {
        return (int64_t) when->tv_sec * 1000000000 + when->tv_nsec;
}

static bool stat_artifacts(const struct session *session, struct stat *ret_status) {
        return fstatat(session->workspace_fd, "artifacts", ret_status, AT_SYMLINK_NOFOLLOW) == 0 &&
               S_ISDIR(ret_status->st_mode);
}

static bool is_on_tmpfs(const struct session *session) {
        return session->kernel && session->kernel->ephemeral && !*session->row.workspace;
}

/* A tmpfs, whose directories grow with each entry: their size alone shows that there is none. */
static bool is_empty_on_tmpfs(const struct session *session) {
        enum { TMPFS_EMPTY_BYTES = 40 };
        struct stat status;
        return stat_artifacts(session, &status) && status.st_nlink == 2 && status.st_size == TMPFS_EMPTY_BYTES;
}

/* The usual case costs one system call: there were no artifacts, and nothing has come into their directory since. */
static bool is_still_empty(struct session *session) {
        struct stat status;
        if (is_on_tmpfs(session))
                return is_empty_on_tmpfs(session);
        return session->artifacts.empty_since_ns && stat_artifacts(session, &status) &&
               in_ns(&status.st_ctim) == session->artifacts.empty_since_ns;
}

/* A change time can be trusted only when it is past: clocks of file systems tick every few milliseconds. */
static void note_empty(struct session *session) {
        enum { SETTLED_NS = 50 * 1000000 };
        struct stat status;
        struct timespec now;
        session->artifacts.empty_since_ns = 0;
        if (session->artifacts.seen.count || session->artifacts.seen.cut || is_on_tmpfs(session))
                return;
        if (!stat_artifacts(session, &status) || status.st_nlink > 2)
                return;
        (void) clock_gettime(CLOCK_REALTIME, &now);
        if (in_ns(&now) - in_ns(&status.st_ctim) > SETTLED_NS)
                session->artifacts.empty_since_ns = in_ns(&status.st_ctim);
}

static void forget_seen(struct session *session) {
        artifact_list_release(&session->artifacts.seen);
        json_writer_release(&session->artifacts.seen_many);
        session->artifacts.is_seen = false;
}

void artifact_collect_prepare(struct session *session) {
        struct timespec now;
        (void) clock_gettime(CLOCK_REALTIME_COARSE, &now); /* the clock of change times */
        session->artifacts.run_since_ns = in_ns(&now);
        if (session->workspace_fd >= 0)
                return;
        int fd = session_open_workspace(session);
        if (fd < 0)
                return;
        session->workspace_fd = fd;
        forget_seen(session);
        if (is_on_tmpfs(session) && is_empty_on_tmpfs(session))
                return;
        session->artifacts.is_seen = artifact_scan_few(fd, &session->artifacts.seen);
        note_empty(session);
}

void artifact_collect_resume(struct session *session, int64_t began_ms) {
        artifact_collect_prepare(session);
        forget_seen(session);
        session->artifacts.run_since_ns = began_ms * 1000000;
        session->artifacts.empty_since_ns = 0;
}

/* To where the operator finds them; a caller who gets their contents needs no copy. */
static void copy_out(struct session *session, int workspace_fd, const char *run_id, struct artifact_list *list) {
        char out_dir[4200];
        if (session->gives_contents)
                return;
        if (disk_admit(session->manager, NULL, 0, NULL) < 0) { /* the reserve of the host: its artifacts are lost */
                artifact_list_release(list);
                return;
        }
        (void) snprintf(out_dir, sizeof(out_dir), "%s/outputs/%s", session->manager->data_dir, run_id);
        (void) artifact_copy_out(workspace_fd, list, out_dir, session->row.limits.disk_bytes, NULL);
        outputs_stamp(session->manager, out_dir);
}

/* Keeps the artifacts that the run created or changed. If the state before the run is unknown, change times decide. */
static void keep_fresh(const struct session *session, struct artifact_list *list) {
        struct artifact_list seen = { 0 };
        if (!session->artifacts.is_seen)
                artifact_keep_since(list, (uint64_t) session->artifacts.run_since_ns);
        else if (session->artifacts.seen_many.size == 0)
                artifact_keep_changed(list, &session->artifacts.seen);
        else if (artifact_list_unpack(session->artifacts.seen_many.bytes, session->artifacts.seen_many.size, &seen) ==
                 0)
                artifact_keep_changed(list, &seen);
        artifact_list_release(&seen);
}

/* Only the operator may see where they are on the host. */
static void describe_fresh(const struct session *session, int workspace_fd, struct artifact_list *fresh,
                           struct json_writer *text) {
        const struct artifact_form form = { .hides_host = *session->row.owner != '\0',
                                            .contents_max = session->gives_contents ? CONTENTS_BYTES : 0,
                                            .contents_fd = workspace_fd };
        if (!session->ephemeral && !form.hides_host)
                (void) artifact_locate(fresh, session->workspace, NULL);
        artifact_list_write_json(fresh, &form, text);
}

static void artifact_collect_report(struct session *session, struct artifact_list *fresh) {
        json_writer_release(&session->artifacts.collected);
        describe_fresh(session, session->workspace_fd, fresh, &session->artifacts.collected);
        session->artifacts.is_collected = true;
}

/* ---- by a child ---- */

static bool is_much(const struct artifact_list *list) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < list->count; i++)
                bytes += list->items[i].size;
        return bytes > MUCH_BYTES || list->count > MUCH_FILES;
}

/* For an ephemeral run: copies its artifacts out of the box, and lists them. */
static int copy_in_child(const int *fds, int out_fd, void *context) {
        struct session *session = context;
        struct artifact_list list = { 0 };
        if (artifact_scan(fds[0], &list, NULL) < 0)
                return -1;
        keep_fresh(session, &list);
        copy_out(session, fds[0], session->runs->id, &list);
        struct json_writer text = { 0 };
        describe_fresh(session, fds[0], &list, &text);
        return !text.failed && fd_write_all(out_fd, text.bytes, text.size) == 0 ? 0 : -1;
}

static void on_copied(void *context, const char *bytes, size_t size) {
        struct session *session = context;
        session->artifacts.job = NULL;
        json_writer_release(&session->artifacts.collected);
        if (bytes)
                json_writer_put(&session->artifacts.collected, bytes, size);
        else /* what was copied is swept with the rest */
                json_writer_put_literal(&session->artifacts.collected, "[]");
        session->artifacts.is_collected = true;
        session->artifacts.on_collected(session);
}

/* For a session: lists the artifacts that the run created or changed, as JSON, and all that exist now. Comparing and
 * describing ten thousand files takes milliseconds. */
static int list_in_child(const int *fds, int out_fd, void *context) {
        struct session *session = context;
        struct artifact_list list = { 0 };
        struct json_writer now = { 0 }, text = { 0 };
        if (artifact_scan(fds[0], &list, NULL) < 0)
                return -1;
        artifact_list_pack(&list, &now);
        keep_fresh(session, &list);
        describe_fresh(session, fds[0], &list, &text);
        return !now.failed && !text.failed && fd_write_all(out_fd, &text.size, sizeof(text.size)) == 0 &&
                               fd_write_all(out_fd, text.bytes, text.size) == 0 &&
                               fd_write_all(out_fd, now.bytes, now.size) == 0
                       ? 0
                       : -1;
}

/* A long list stays packed: only a child reads it. */
static void keep_seen(struct session *session, const char *bytes, size_t size) {
        forget_seen(session);
        if (size > SEEN_FEW_BYTES)
                json_writer_put(&session->artifacts.seen_many, bytes, size);
        session->artifacts.is_seen = size > SEEN_FEW_BYTES
                                             ? !session->artifacts.seen_many.failed
                                             : artifact_list_unpack(bytes, size, &session->artifacts.seen) == 0;
        if (!session->artifacts.is_seen)
                forget_seen(session);
}

static void take_list(struct session *session, const char *bytes, size_t size) {
        size_t text_size = 0;
        bool is_known = bytes && size > sizeof(text_size);
        if (is_known)
                memcpy(&text_size, bytes, sizeof(text_size));
        is_known = is_known && text_size < size - sizeof(text_size);
        json_writer_release(&session->artifacts.collected);
        if (is_known) {
                bytes += sizeof(text_size);
                json_writer_put(&session->artifacts.collected, bytes, text_size);
                keep_seen(session, bytes + text_size, size - sizeof(text_size) - text_size);
        } else {
                json_writer_put_literal(&session->artifacts.collected, "[]");
                forget_seen(session);
        }
        session->artifacts.is_collected = true;
        session->artifacts.empty_since_ns = 0;
}

static void artifact_collect_on_listed(void *context, const char *bytes, size_t size) {
        struct session *session = context;
        session->artifacts.job = NULL;
        take_list(session, bytes, size);
        session->artifacts.on_collected(session);
}

bool artifact_collect_begin(struct session *session, void (*on_collected)(struct session *session)) {
        char queue[HELPER_JOB_QUEUE_ROOM];
        helper_job_name_queue(session->workspace_fd, queue);
        const struct helper_job_order order = { .fds = { session->workspace_fd },
                                                .n_fds = 1,
                                                .work = session->ephemeral ? copy_in_child : list_in_child,
                                                .done = session->ephemeral ? on_copied : artifact_collect_on_listed,
                                                .timeout_ms = PATIENCE_MS,
                                                .queue = queue,
                                                manager_job_of(session->manager, session->row.owner),
                                                .context = session };
        session->artifacts.on_collected = on_collected;
        session->artifacts.job = helper_job_start(session->manager->loop, &order, NULL);
        return session->artifacts.job != NULL;
}

/* ---- on the spot ---- */

bool artifact_collect_is_much(struct session *session) {
        struct artifact_list now = { 0 }, fresh = { 0 };
        if (session->artifacts.is_collected || session->workspace_fd < 0)
                return false;
        if (is_still_empty(session)) {
                artifact_collect_report(session, &fresh);
                return false;
        }
        if (session->artifacts.seen_many.size > 0 || !artifact_scan_few(session->workspace_fd, &now))
                return true;
        bool is_listed = now.count == 0 || artifact_scan_few(session->workspace_fd, &fresh);
        keep_fresh(session, &fresh);
        if (!is_listed || (session->ephemeral && is_much(&fresh))) {
                artifact_list_release(&now);
                artifact_list_release(&fresh);
                return true;
        }
        if (session->ephemeral)
                copy_out(session, session->workspace_fd, session->runs->id, &fresh);
        artifact_collect_report(session, &fresh);
        artifact_list_release(&fresh);
        forget_seen(session);
        session->artifacts.seen = now;
        session->artifacts.is_seen = true;
        note_empty(session);
        return false;
}

void artifact_collect_now(struct session *session, struct json_writer *ret_array) {
        if (!session->artifacts.is_collected)
                (void) artifact_collect_is_much(session); /* no child could be started: there is no list */
        *ret_array = session->artifacts.collected;
        session->artifacts.collected = (struct json_writer) { 0 };
        session->artifacts.is_collected = false;
}
