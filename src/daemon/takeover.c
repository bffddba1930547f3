#include "daemon/takeover.h"

#include <dirent.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/claim.h"
#include "base/fd.h"
#include "session/network.h"
#include "session/recovery.h"
#include "session/session.h"
#include "session/waiting.h"
#include "store/packages.h"
#include "store/reaper.h"
#include "store/session_file.h"

enum { UNSEEN_MS = 300 }; /* for processes that are not seen to leave their groups */

struct heritage {
        struct daemon *daemon;
        struct holding *holdings;
        size_t adopted;
};

static struct session *session_by_id(struct daemon *daemon, const char *id) {
        for (struct session *session = daemon->sessions; session; session = session->next)
                if (strcmp(session->row.id, id) == 0)
                        return session;
        return NULL;
}

/* Something that the vault holds. */
struct holding {
        struct holding *next;
        char name[VAULT_NAME_MAX + 1];
        json_t *note;
        int fds[VAULT_FDS_MAX];
        size_t n_fds;
};

/* Newest first. */
static void collect(const char *name, const void *note, size_t note_size, int *fds, size_t n_fds, void *context) {
        struct heritage *heritage = context;
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
        holding->next = heritage->holdings;
        heritage->holdings = holding;
}

/* A session may have two: a daemon that died between getting a new kernel and letting go of the old one. The newer one
 * counts. */
static void inherit(struct heritage *heritage, struct holding *holding) {
        json_t *json = holding->note;
        const char *id = json_string_value(json_object_get(json, "session"));
        struct session *session = id ? session_by_id(heritage->daemon, id) : NULL;
        int all[MAKER_FDS];
        json_int_t slots = json_integer_value(json_object_get(json, "slots"));
        for (size_t i = 0, n = 0; i < MAKER_FDS; i++)
                all[i] = slots & (1 << i) && n < holding->n_fds ? holding->fds[n++] : -1;
        const char *group = json_string_value(json_object_get(json, "group"));
        if (json_integer_value(json_object_get(json, "protocol")) != KERNEL_PROTOCOL) {
                if (session)
                        daemon_log("session %s: its kernel was started by another version and cannot be taken over: its "
                                   "variables are lost; put sessions to sleep before an upgrade",
                                   session->row.name);
                session = NULL;
        }
        if (session && !session->kernel && !session->is_inherited && group) {
                session->is_inherited = true;
                session_adopt(session, (pid_t) json_integer_value(json_object_get(json, "pid")), all, holding->name,
                              group);
                heritage->adopted++;
        } else {
                for (size_t i = 0; i < holding->n_fds; i++)
                        fd_close(&holding->fds[i]);
                (void) vault_drop(&heritage->daemon->vault, holding->name, NULL); /* nobody would ask for it again */
        }
}

static void inherit_all(struct heritage *heritage) {
        while (heritage->holdings) {
                struct holding *holding = heritage->holdings;
                heritage->holdings = holding->next;
                inherit(heritage, holding);
                json_decref(holding->note);
                free(holding);
        }
}

static int add_session(const struct registry_session *row, void *context) {
        struct err err;
        struct daemon *daemon = context;
        char path[4400];
        (void) snprintf(path, sizeof(path), "%s/state/%s/" SESSION_REMOVED_WORKSPACE, daemon->data_dir, row->id);
        if (access(path, F_OK) == 0) { /* the last daemon died while it removed this one */
                (void) snprintf(path, sizeof(path), "%s/state/%s", daemon->data_dir, row->id);
                session_file_remove(path);
                (void) registry_remove(daemon->registry, row->id, NULL);
                return 0;
        }
        struct session *session = session_make(daemon, row, false, &err);
        if (!session)
                daemon_log("session %s: %s", row->name, err.message);
        else
                packages_drop_staging(session->state_dir); /* of an install that died with the last daemon */
        return 0;
}

/* A session that the registry does not know, but its session file does: the registry was damaged and begun anew. */
static void find_again(struct daemon *daemon, const char *state_dir, const char *id) {
        static struct registry_session row;
        struct err err = { 0 };
        if (session_file_read(state_dir, &row, &err) < 0 || strcmp(row.id, id) != 0) {
                if (session_file_exists(state_dir))
                        daemon_log("%s belongs to a session that the registry does not have, and its session file cannot "
                                   "be used; it is left as it is: %s", state_dir, err.message);
                return;
        }
        if (registry_add(daemon->registry, &row, &err) < 0)
                daemon_log("session %s: its files are there, but it cannot be entered: %s", row.name, err.message);
        else {
                daemon_log("session %s was found again by its session file", row.name);
                (void) add_session(&row, daemon);
        }
}

static void find_lost_sessions(struct daemon *daemon) {
        char path[4400];
        (void) snprintf(path, sizeof(path), "%s/state", daemon->data_dir);
        DIR *directory = opendir(path);
        struct dirent *entry;
        while (directory && (entry = readdir(directory))) {
                if (entry->d_name[0] == '.' || session_by_id(daemon, entry->d_name))
                        continue;
                (void) snprintf(path, sizeof(path), "%s/state/%s", daemon->data_dir, entry->d_name);
                find_again(daemon, path, entry->d_name);
        }
        if (directory)
                (void) closedir(directory);
}

static bool is_group_in_use(const struct daemon *daemon, const char *group) {
        for (size_t i = 0; i < daemon->n_pool; i++)
                if (strcmp(daemon->pool[i]->group, group) == 0)
                        return true;
        for (const struct session *session = daemon->sessions; session; session = session->next)
                if (session->kernel && strcmp(session->kernel->group, group) == 0)
                        return true;
        return false;
}

/* Killed now, removed by the reaper: nobody waits for it here. What a v1 hierarchy does not list is ending, or is in
 * another pid namespace, where nobody here can end it: it gets a moment, all of them together. */
static void sweep_group(struct daemon *daemon, const char *name, uint64_t until_ms) {
        struct cgroup cgroup;
        while (cgroup_remove_empty(&daemon->host, name) < 0) {
                if (cgroup_adopt(&daemon->host, name, &cgroup, NULL) < 0)
                        return;
                if (cgroup_kill_now(&cgroup) > 0) {
                        reaper_bury(&cgroup, -1, -1);
                        return;
                }
                cgroup_release(&cgroup);
                if (loop_now_ms() >= until_ms) {
                        daemon_log("the control group %s cannot be removed: its processes cannot be seen from here (they "
                                   "are in another pid namespace, or do not end); it is left",
                                   name);
                        return;
                }
                (void) poll(NULL, 0, 5);
        }
}

/* Older versions named groups by the path of the data directory, which another daemon's may have as well, in another
 * mount namespace. An empty group is nobody's; one with processes stays. */
static void sweep_old_group(struct daemon *daemon, const char *name) {
        if (cgroup_remove_empty(&daemon->host, name) < 0)
                daemon_log("the control group %s of an older version is in use, perhaps by another daemon: it is left",
                           name);
}

/* One box has a group in each hierarchy. */
static bool is_in_earlier_place(const struct daemon *daemon, size_t place, const char *name) {
        char path[sizeof(daemon->host.parent[0]) + 300];
        for (size_t i = 0; i < place; i++) {
                (void) snprintf(path, sizeof(path), "%s/%s", daemon->host.parent[i], name);
                if (*daemon->host.parent[i] && access(path, F_OK) == 0)
                        return true;
        }
        return false;
}

static bool has_prefix(const char *name, const char *prefix) {
        return strncmp(name, prefix, strlen(prefix)) == 0;
}

void takeover_sweep_groups(struct daemon *daemon) {
        if (!daemon->knows_takeover) /* a daemon that could not start: who they belong to was never asked */
                return;
        uint64_t until_ms = loop_now_ms() + UNSEEN_MS;
        daemon->n_orphans = 0;
        for (size_t i = 0; i < CGROUP_PLACES; i++) {
                DIR *directory = *daemon->host.parent[i] ? opendir(daemon->host.parent[i]) : NULL;
                struct dirent *entry;
                while (directory && (entry = readdir(directory))) {
                        const char *name = entry->d_name;
                        bool is_new = has_prefix(name, daemon->group_prefix);
                        if ((!is_new && !has_prefix(name, daemon->old_group_prefix)) ||
                            is_group_in_use(daemon, name) || is_in_earlier_place(daemon, i, name))
                                continue;
                        if (claim_is_held(name)) { /* a program whose caller has it: session/program.h */
                                daemon->n_orphans++;
                                continue;
                        }
                        if (is_new)
                                sweep_group(daemon, name, until_ms);
                        else
                                sweep_old_group(daemon, name);
                }
                if (directory)
                        (void) closedir(directory);
        }
}

/* State of kernels that nobody holds any more. */
static void sweep_state(struct daemon *daemon) {
        char path[4400];
        (void) snprintf(path, sizeof(path), "%s/state", daemon->data_dir);
        DIR *directory = opendir(path);
        struct dirent *entry;
        while (directory && (entry = readdir(directory))) {
                if (entry->d_name[0] == '.' || session_by_id(daemon, entry->d_name))
                        continue;
                (void) snprintf(path, sizeof(path), "%s/state/%s", daemon->data_dir, entry->d_name);
                if (!session_file_exists(path)) /* one with a session file is somebody's, even if it cannot be entered */
                        janitor_remove(&daemon->janitor, path);
        }
        if (directory)
                (void) closedir(directory);
}

int takeover_sessions(struct daemon *daemon, struct err *err) {
        struct heritage heritage = { .daemon = daemon };
        if (registry_each(daemon->registry, add_session, daemon, err) < 0)
                return -1;
        find_lost_sessions(daemon);
        int code = vault_each(&daemon->vault, collect, &heritage, err);
        inherit_all(&heritage);
        if (code < 0)
                return -1;
        if (heritage.adopted)
                daemon_log("took over %zu living kernels", heritage.adopted);
        for (struct session *session = daemon->sessions; session; session = session->next) {
                if (!session->kernel)
                        recovery_settle_session(session);
                waiting_load(session);
        }
        network_connect(daemon);
        daemon->knows_takeover = true;
        takeover_sweep_groups(daemon);
        sweep_state(daemon);
        return 0;
}

void takeover_resume_runs(struct daemon *daemon) {
        for (struct session *session = daemon->sessions, *next; session; session = next) {
                next = session->next;
                session_advance(session);
        }
}
