#include "daemon/takeover.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/log.h"
#include "session/group_sweep.h"
#include "session/network.h"
#include "session/recovery.h"
#include "session/session.h"
#include "session/waiting_run.h"
#include "store/disk_reserve.h"
#include "store/packages.h"
#include "store/session_file.h"

/* A daemon that has too few descriptors or too little memory to take a session over does not start: the session would
 * count as lost, and its kernel, which the vault still holds, would end. A later start finds everything. */
struct takeover {
        struct session_manager *manager;
        struct holding *holdings;
        size_t adopted;
        struct err *err;
};

static struct session *session_by_id(struct session_manager *manager, const char *id) {
        for (struct session *session = manager->sessions; session; session = session->next)
                if (strcmp(session->row.id, id) == 0)
                        return session;
        return NULL;
}

/* An entry of the vault. */
struct holding {
        struct holding *next;
        char name[VAULT_NAME_MAX + 1];
        json_t *note;
        int fds[VAULT_FDS_MAX];
        size_t n_fds;
};

/* Newest first. */
static void takeover_collect(const char *name, const void *note, size_t note_size, int *fds, size_t n_fds,
                             void *context) {
        struct takeover *takeover = context;
        struct holding *holding = calloc(1, sizeof(*holding));
        json_error_t why = { 0 };
        json_t *json = holding ? json_loadb(note, note_size, 0, &why) : NULL;
        bool is_short = !holding || (!json && json_error_code(&why) == json_error_out_of_memory);
        if (is_short || n_fds > VAULT_FDS_MAX) { /* it stays there for the next daemon */
                if (is_short)
                        (void) err_sys(takeover->err, ENOMEM, "a kernel cannot be taken over");
                json_decref(json);
                for (size_t i = 0; i < n_fds; i++)
                        fd_close(&fds[i]);
                free(holding);
                return;
        }
        (void) snprintf(holding->name, sizeof(holding->name), "%s", name);
        holding->note = json;
        memcpy(holding->fds, fds, n_fds * sizeof(*fds));
        holding->n_fds = n_fds;
        holding->next = takeover->holdings;
        takeover->holdings = holding;
}

static void close_holding(struct holding *holding) {
        for (size_t i = 0; i < holding->n_fds; i++)
                fd_close(&holding->fds[i]);
}

/* A session may have two, if the daemon died between getting a new kernel and dropping the old one. The newer one
 * counts. */
static int adopt_holding(struct takeover *takeover, struct holding *holding) {
        json_t *json = holding->note;
        const char *id = json_string_value(json_object_get(json, "session"));
        struct session *session = id ? session_by_id(takeover->manager, id) : NULL;
        int all[MAKER_FDS];
        json_int_t slots = json_integer_value(json_object_get(json, "slots"));
        for (size_t i = 0, n = 0; i < MAKER_FDS; i++)
                all[i] = slots & (1 << i) && n < holding->n_fds ? holding->fds[n++] : -1;
        const char *group = json_string_value(json_object_get(json, "group"));
        if (json_integer_value(json_object_get(json, "protocol")) != KERNEL_PROTOCOL) {
                if (session)
                        daemon_log(
                                "session %s: its kernel was started by another version and cannot be taken over: its "
                                "variables are lost; put sessions to sleep before an upgrade",
                                session->row.name);
                session = NULL;
        }
        if (session && !session->kernel && !session->is_inherited && group) {
                session->is_inherited = true;
                takeover->adopted++;
                return session_adopt(session, (pid_t) json_integer_value(json_object_get(json, "pid")), all,
                                     holding->name, group, takeover->err);
        }
        close_holding(holding);
        (void) vault_drop(&takeover->manager->vault, holding->name, NULL); /* it is not needed again */
        return 0;
}

/* With `code` below 0 nothing is taken over: the vault keeps it. */
static int adopt_all(struct takeover *takeover, int code) {
        while (takeover->holdings) {
                struct holding *holding = takeover->holdings;
                takeover->holdings = holding->next;
                if (code < 0)
                        close_holding(holding);
                else
                        code = adopt_holding(takeover, holding);
                json_decref(holding->note);
                free(holding);
        }
        return code;
}

static int add_session(const struct registry_session *row, void *context) {
        struct err err;
        const struct takeover *takeover = context;
        struct session_manager *manager = takeover->manager;
        char path[4400];
        (void) snprintf(path, sizeof(path), "%s/state/%s/" SESSION_REMOVED_WORKSPACE, manager->data_dir, row->id);
        if (access(path, F_OK) == 0) { /* the last daemon died while it removed this one */
                (void) snprintf(path, sizeof(path), "%s/state/%s", manager->data_dir, row->id);
                session_file_remove(path);
                (void) registry_remove(manager->registry, row->id, NULL);
                return 0;
        }
        struct session *session = session_make(manager, row, false, &err);
        if (session)
                packages_drop_staging(session->state_dir); /* of an install that died with the last daemon */
        else if (err_is_shortage(&err)) {
                *takeover->err = err;
                return -1;
        } else
                daemon_log("session %s: %s", row->name, err.message);
        return 0;
}

static int takeover_enter(struct session_manager *manager, const struct registry_session *row, struct err *err) {
        if (registry_add(manager->registry, row, err) == 0)
                return 0;
        return err->code == ERR_NO_SPACE && disk_reserve_use() ? registry_add(manager->registry, row, err) : -1;
}

/* A session that has a session file and no row in the registry: the registry was damaged and begun anew. If it cannot
 * be entered, the daemon does not start: otherwise it would let go of the session's kernel. */
static int find_again(struct takeover *takeover, const char *state_dir, const char *id) {
        static struct registry_session row;
        struct session_manager *manager = takeover->manager;
        struct err *err = takeover->err;
        bool is_read = session_file_read(state_dir, &row, err) == 0;
        if (!is_read && err_is_shortage(err))
                return -1;
        if (!is_read || strcmp(row.id, id) != 0) {
                if (session_file_exists(state_dir))
                        daemon_log(
                                "%s belongs to a session that the registry does not have, and its session file cannot "
                                "be used; it is left as it is: %s",
                                state_dir, err->message);
                return 0;
        }
        if (takeover_enter(manager, &row, err) == 0) {
                daemon_log("session %s was found again by its session file", row.name);
                return add_session(&row, takeover);
        }
        if (err->code != ERR_EXISTS)
                return -1;
        daemon_log("session %s: its files are there, but it cannot be entered: %s", row.name, err->message);
        return 0;
}

/* A directory with a session file belongs to a session, even if that cannot be entered. */
static int remove_stale_state(struct takeover *takeover, const char *state_dir, const char *id) {
        (void) id;
        if (!session_file_exists(state_dir))
                janitor_remove(&takeover->manager->janitor, state_dir);
        return 0;
}

/* Calls `call` for each state directory without a session, until one fails. */
static int for_each_stray(struct takeover *takeover,
                          int (*call)(struct takeover *takeover, const char *state_dir, const char *id)) {
        char path[4400];
        const char *data_dir = takeover->manager->data_dir;
        (void) snprintf(path, sizeof(path), "%s/state", data_dir);
        _cleanup_dir_ DIR *directory = opendir(path);
        if (!directory)
                return err_sys(takeover->err, errno, "reading %s", path);
        struct dirent *entry;
        while ((entry = dir_next(directory))) {
                if (entry->d_name[0] == '.' || session_by_id(takeover->manager, entry->d_name))
                        continue;
                (void) snprintf(path, sizeof(path), "%s/state/%s", data_dir, entry->d_name);
                if (call(takeover, path, entry->d_name) < 0)
                        return -1;
        }
        return errno == 0 ? 0 : err_sys(takeover->err, errno, "reading %s/state", data_dir);
}

/* Collects all before it takes over any: what the vault has is complete, or nothing is touched. */
static int adopt_from_vault(struct takeover *takeover) {
        *takeover->err = (struct err) { 0 };
        int code = vault_each(&takeover->manager->vault, takeover_collect, takeover, takeover->err);
        if (code == 0 && takeover->err->code != ERR_NONE)
                code = -1;
        return adopt_all(takeover, code);
}

int takeover_sessions(struct session_manager *manager, struct err *err) {
        struct takeover takeover = { .manager = manager, .err = err };
        if (registry_each(manager->registry, add_session, &takeover, err) < 0 ||
            for_each_stray(&takeover, find_again) < 0 || adopt_from_vault(&takeover) < 0)
                return -1;
        if (takeover.adopted)
                daemon_log("took over %zu living kernels", takeover.adopted);
        for (struct session *session = manager->sessions; session; session = session->next)
                if ((!session->kernel && !session->is_remote && recovery_settle_session(session, err) < 0) ||
                    waiting_run_load(session, err) < 0)
                        return -1;
        network_connect(manager);
        manager->knows_takeover = true;
        group_sweep(manager);
        return for_each_stray(&takeover, remove_stale_state);
}

void takeover_resume_runs(struct session_manager *manager) {
        for (struct session *session = manager->sessions, *next; session; session = next) {
                next = session->next;
                session_advance(session);
        }
}
