#include "daemon/takeover.h"

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

struct takeover {
        struct session_manager *manager;
        struct holding *holdings;
        size_t adopted;
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
        if (!holding || n_fds > VAULT_FDS_MAX) { /* it stays there for the next daemon */
                for (size_t i = 0; i < n_fds; i++)
                        fd_close(&fds[i]);
                free(holding);
                return;
        }
        (void) snprintf(holding->name, sizeof(holding->name), "%s", name);
        holding->note = json_loadb(note, note_size, 0, NULL);
        memcpy(holding->fds, fds, n_fds * sizeof(*fds));
        holding->n_fds = n_fds;
        holding->next = takeover->holdings;
        takeover->holdings = holding;
}

/* A session may have two, if the daemon died between getting a new kernel and dropping the old one. The newer one
 * counts. */
static void adopt_holding(struct takeover *takeover, struct holding *holding) {
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
                session_adopt(session, (pid_t) json_integer_value(json_object_get(json, "pid")), all, holding->name,
                              group);
                takeover->adopted++;
        } else {
                for (size_t i = 0; i < holding->n_fds; i++)
                        fd_close(&holding->fds[i]);
                (void) vault_drop(&takeover->manager->vault, holding->name, NULL); /* it is not needed again */
        }
}

static void adopt_all(struct takeover *takeover) {
        while (takeover->holdings) {
                struct holding *holding = takeover->holdings;
                takeover->holdings = holding->next;
                adopt_holding(takeover, holding);
                json_decref(holding->note);
                free(holding);
        }
}

static int add_session(const struct registry_session *row, void *context) {
        struct err err;
        struct session_manager *manager = context;
        char path[4400];
        (void) snprintf(path, sizeof(path), "%s/state/%s/" SESSION_REMOVED_WORKSPACE, manager->data_dir, row->id);
        if (access(path, F_OK) == 0) { /* the last daemon died while it removed this one */
                (void) snprintf(path, sizeof(path), "%s/state/%s", manager->data_dir, row->id);
                session_file_remove(path);
                (void) registry_remove(manager->registry, row->id, NULL);
                return 0;
        }
        struct session *session = session_make(manager, row, false, &err);
        if (!session)
                daemon_log("session %s: %s", row->name, err.message);
        else
                packages_drop_staging(session->state_dir); /* of an install that died with the last daemon */
        return 0;
}

static int takeover_enter(struct session_manager *manager, const struct registry_session *row, struct err *err) {
        if (registry_add(manager->registry, row, err) == 0)
                return 0;
        return err->code == ERR_NO_SPACE && disk_reserve_use() ? registry_add(manager->registry, row, err) : -1;
}

/* A session that has a session file and no row in the registry: the registry was damaged and begun anew. If it cannot
 * be entered, the daemon does not start: otherwise it would let go of the session's kernel. */
static int find_again(struct session_manager *manager, const char *state_dir, const char *id, struct err *err) {
        static struct registry_session row;
        if (session_file_read(state_dir, &row, err) < 0 || strcmp(row.id, id) != 0) {
                if (session_file_exists(state_dir))
                        daemon_log(
                                "%s belongs to a session that the registry does not have, and its session file cannot "
                                "be used; it is left as it is: %s",
                                state_dir, err->message);
                return 0;
        }
        if (takeover_enter(manager, &row, err) == 0) {
                daemon_log("session %s was found again by its session file", row.name);
                return add_session(&row, manager);
        }
        if (err->code != ERR_EXISTS)
                return -1;
        daemon_log("session %s: its files are there, but it cannot be entered: %s", row.name, err->message);
        return 0;
}

/* A directory with a session file belongs to a session, even if that cannot be entered. */
static int remove_stale_state(struct session_manager *manager, const char *state_dir, const char *id, struct err *err) {
        (void) id;
        (void) err;
        if (!session_file_exists(state_dir))
                janitor_remove(&manager->janitor, state_dir);
        return 0;
}

/* Calls `call` for each state directory without a session, until one fails. */
static int for_each_stray(struct session_manager *manager,
                          int (*call)(struct session_manager *manager, const char *state_dir, const char *id,
                                      struct err *err),
                          struct err *err) {
        char path[4400];
        (void) snprintf(path, sizeof(path), "%s/state", manager->data_dir);
        _cleanup_dir_ DIR *directory = opendir(path);
        struct dirent *entry;
        while (directory && (entry = readdir(directory))) {
                if (entry->d_name[0] == '.' || session_by_id(manager, entry->d_name))
                        continue;
                (void) snprintf(path, sizeof(path), "%s/state/%s", manager->data_dir, entry->d_name);
                if (call(manager, path, entry->d_name, err) < 0)
                        return -1;
        }
        return 0;
}

int takeover_sessions(struct session_manager *manager, struct err *err) {
        struct takeover takeover = { .manager = manager };
        if (registry_each(manager->registry, add_session, manager, err) < 0 ||
            for_each_stray(manager, find_again, err) < 0)
                return -1;
        int code = vault_each(&manager->vault, takeover_collect, &takeover, err);
        adopt_all(&takeover);
        if (code < 0)
                return -1;
        if (takeover.adopted)
                daemon_log("took over %zu living kernels", takeover.adopted);
        for (struct session *session = manager->sessions; session; session = session->next) {
                if (!session->kernel && !session->is_remote)
                        recovery_settle_session(session);
                waiting_run_load(session);
        }
        network_connect(manager);
        manager->knows_takeover = true;
        group_sweep(manager);
        return for_each_stray(manager, remove_stale_state, err);
}

void takeover_resume_runs(struct session_manager *manager) {
        for (struct session *session = manager->sessions, *next; session; session = next) {
                next = session->next;
                session_advance(session);
        }
}
