/* The records of sessions: creating, finding and freeing them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fnv.h"
#include "session/caller.h"
#include "session/install.h"
#include "session/kernel_pool.h"
#include "session/session.h"
#include "session/session_config.h"
#include "session/session_engine.h"
#include "store/disk_reserve.h"
#include "store/session_file.h"

static int session_record_make_directories(struct session *session, struct err *err) {
        const char *data = session->manager->data_dir, *id = session->row.id;
        (void) snprintf(session->state_dir, sizeof(session->state_dir), "%.900s/state/%s", data, id);
        if (*session->row.workspace)
                (void) snprintf(session->workspace, sizeof(session->workspace), "%.1000s", session->row.workspace);
        else if (session->ephemeral)
                session->workspace[0] = session->state_dir[0] = '\0'; /* it has nothing on the disk */
        else
                (void) snprintf(session->workspace, sizeof(session->workspace), "%.900s/sessions/%s", data, id);
        if (session->ephemeral)
                return 0; /* made with the kernel */
        if (mkdir(session->state_dir, 0700) < 0 && errno != EEXIST)
                return err_sys(err, errno, "making %s", session->state_dir);
        if (!*session->workspace || *session->row.workspace)
                return 0;
        bool is_made = mkdir(session->workspace, 0755) == 0;
        if (is_made && session_config_has_users(&session->row)) /* for other users of the box, whatever the umask */
                is_made = chmod(session->workspace, 0755) == 0;
        if (!is_made && errno != EEXIST) {
                int code = errno;
                (void) rmdir(session->state_dir); /* unless something is in it already */
                return err_sys(err, code, "making %s", session->workspace);
        }
        return 0;
}

/* ---- among the others ---- */

static size_t row_of(const char *text) {
        return fnv_of_text(text) % MANAGER_SESSION_ROWS;
}

static void session_list_add(struct session *session) {
        struct session_manager *manager = session->manager;
        struct session **by_id = &manager->by_id[row_of(session->row.id)];
        struct session **by_name = &manager->by_name[row_of(session->row.name)];
        session->next_by_id = *by_id;
        session->next_by_name = *by_name;
        *by_id = *by_name = session;
        session->next = manager->sessions;
        session->backlink = &manager->sessions;
        if (session->next)
                session->next->backlink = &session->next;
        manager->sessions = session;
        manager->n_sessions++;
}

static void session_list_remove(struct session *session) {
        struct session_manager *manager = session->manager;
        struct session **at = &manager->by_id[row_of(session->row.id)];
        while (*at != session)
                at = &(*at)->next_by_id;
        *at = session->next_by_id;
        at = &manager->by_name[row_of(session->row.name)];
        while (*at != session)
                at = &(*at)->next_by_name;
        *at = session->next_by_name;
        *session->backlink = session->next;
        if (session->next)
                session->next->backlink = session->backlink;
        manager->n_sessions--;
}

struct session *session_make(struct session_manager *manager, const struct registry_session *row, bool ephemeral,
                             struct err *err) {
        if (manager->n_sessions >= MANAGER_SESSIONS_MAX) {
                (void) err_set(err, ERR_LIMIT, "there are %d sessions already; remove some with `glovebox session rm`",
                               MANAGER_SESSIONS_MAX);
                return NULL;
        }
        struct session *session = calloc(1, sizeof(*session));
        if (!session) {
                (void) err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                return NULL;
        }
        session->manager = manager;
        session->row = *row;
        session->ephemeral = ephemeral;
        session->used_ms = loop_now_ms();
        session->workspace_fd = -1;
        session->is_remote = session_engine_is_remote(row);
        if (session_record_make_directories(session, err) < 0) {
                free(session);
                return NULL;
        }
        session_list_add(session);
        disk_bound(session, false);
        return session;
}

void session_free(struct session *session) {
        struct install *helped = session->helps;
        if (session->install)
                install_abandon(session->install);
        session_list_remove(session);
        if (session->from_pool)
                kernel_pool_run_ended(session->manager);
        while (session->runs) {
                struct run *run = session->runs;
                session->runs = run->next;
                run_free(run);
        }
        helper_job_drop(&session->artifacts.job);
        loop_timer_drop(&session->program.timer);
        json_writer_release(&session->artifacts.collected);
        kernel_reply_release(&session->artifacts.outcome);
        kernel_reply_release(&session->disk.outcome);
        kernel_free(session->kernel);
        artifact_list_release(&session->artifacts.seen);
        json_writer_release(&session->artifacts.seen_many);
        fd_close(&session->workspace_fd);
        json_decref(session->held_back);
        json_decref(session->wake_report);
        free(session->granted);
        if (session->caller)
                session->caller->session = NULL;
        free(session);
        if (helped)
                install_helper_gone(helped);
}

bool session_is_seen_by(const struct session *session, const char *owner) {
        return !session->ephemeral && (!*owner || strcmp(session->row.owner, owner) == 0);
}

/* "key/name": how the operator names a session of a key. */
static struct session *find_of_key(struct session_manager *manager, const char *name) {
        char key[sizeof(((struct registry_session *) NULL)->owner)];
        const char *slash = strchr(name, '/');
        size_t size = slash ? (size_t) (slash - name) : 0;
        if (size == 0 || size >= sizeof(key))
                return NULL;
        memcpy(key, name, size);
        key[size] = '\0';
        return session_find(manager, key, slash + 1);
}

struct session *session_find(struct session_manager *manager, const char *owner, const char *name) {
        size_t row = row_of(name);
        if (!*owner && strchr(name, '/'))
                return find_of_key(manager, name);
        for (struct session *session = manager->by_name[row]; session; session = session->next_by_name)
                if (session_is_seen_by(session, owner) && !session_is_going(session) &&
                    strcmp(session->row.owner, owner) == 0 && strcmp(session->row.name, name) == 0)
                        return session;
        for (struct session *session = manager->by_id[row]; session; session = session->next_by_id)
                if (session_is_seen_by(session, owner) && !session_is_going(session) &&
                    strcmp(session->row.id, name) == 0)
                        return session;
        return NULL;
}

struct session *session_create(struct session_manager *manager, const struct registry_session *row, struct err *err) {
        struct registry_session fresh = *row;
        fresh.created_ms = fresh.used_ms = loop_wall_ms();
        if (disk_reserve_check(err) < 0)
                return NULL;
        if (registry_check_name(fresh.name, err) < 0 || registry_make_id(fresh.id, err) < 0)
                return NULL;
        if (disk_admit(manager, NULL, 0, err) < 0)
                return NULL;
        /* The row first: if the daemon is killed in between, the next one makes the directories. */
        if (registry_add(manager->registry, &fresh, err) < 0)
                return NULL;
        struct session *session = session_make(manager, &fresh, false, err);
        if (session && session_file_write(session->state_dir, &fresh, err) == 0) {
                disk_bound(session, true);
                return session;
        }
        if (session)
                session_remove(session, false);
        else
                (void) registry_remove(manager->registry, fresh.id, NULL);
        return NULL;
}

int session_open_kernel_directory(const struct session *session) {
        char path[1100];
        (void) snprintf(path, sizeof(path), "%s/kernel", session->state_dir);
        int fd = session->ephemeral ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd >= 0 ? fd : session->ephemeral ? -ENOENT : -errno;
}

int session_open_workspace(const struct session *session) {
        if (session->ephemeral && !*session->row.workspace) {
                int fd = session->kernel ? session->kernel->fds[MAKER_WORKSPACE] : -1;
                fd = fd < 0 ? -1 : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                return fd < 0 ? -ENOENT : fd;
        }
        int fd = open(session->workspace, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}
