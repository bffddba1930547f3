#include "session/heritage.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/network.h"
#include "session/packages.h"
#include "session/passport.h"
#include "session/session.h"
#include "session/slate.h"

struct heritage {
        struct daemon *daemon;
        size_t adopted;
        bool found_slate;
};

static struct session *session_by_id(struct daemon *daemon, const char *id) {
        for (struct session *session = daemon->sessions; session; session = session->next)
                if (strcmp(session->row.id, id) == 0)
                        return session;
        return NULL;
}

/* It was the first that the vault got, and so it comes before the kernels whose journals it is about. */
static void inherit_slate(struct heritage *heritage, int *fds, size_t n_fds) {
        struct err err;
        if (n_fds == 1 && slate_take_over(heritage->daemon->loop, fds[0], &err) < 0)
                daemon_log("%s", err.message);
        for (size_t i = 0; i < n_fds; i++)
                fd_close(&fds[i]);
        heritage->found_slate = true;
}

/* Without one, journals write every record at once. */
static void make_slate(struct daemon *daemon) {
        struct err err;
        _cleanup_fd_ int fd = -1;
        if (slate_make(daemon->loop, &fd, &err) < 0)
                daemon_log("%s", err.message);
        else if (vault_put(&daemon->vault, SLATE_NAME, "", 0, &fd, 1, &err) < 0) {
                daemon_log("the slate is not used: %s", err.message);
                slate_close();
        }
}

static void inherit(const char *name, const void *note, size_t note_size, int *fds, size_t n_fds, void *context) {
        struct heritage *heritage = context;
        if (strcmp(name, SLATE_NAME) == 0) {
                inherit_slate(heritage, fds, n_fds);
                return;
        }
        json_t *json = json_loadb(note, note_size, 0, NULL);
        const char *id = json_string_value(json_object_get(json, "session"));
        struct session *session = id ? session_by_id(heritage->daemon, id) : NULL;
        int all[MAKER_FDS];
        json_int_t slots = json_integer_value(json_object_get(json, "slots"));
        for (size_t i = 0, n = 0; i < MAKER_FDS; i++)
                all[i] = slots & (1 << i) && n < n_fds ? fds[n++] : -1;
        const char *group = json_string_value(json_object_get(json, "group"));
        if (session && !session->kernel && group) {
                session_adopt(session, (pid_t) json_integer_value(json_object_get(json, "pid")), all, name, group);
                heritage->adopted++;
        } else {
                for (size_t i = 0; i < n_fds; i++)
                        fd_close(&fds[i]);
                (void) vault_drop(&heritage->daemon->vault, name, NULL); /* nobody would ever ask for it again */
        }
        json_decref(json);
}

static int add_session(const struct registry_session *row, void *context) {
        struct err err;
        struct daemon *daemon = context;
        char path[4400];
        (void) snprintf(path, sizeof(path), "%s/state/%s/" SESSION_REMOVED_WORKSPACE, daemon->data_dir, row->id);
        if (access(path, F_OK) == 0) { /* the last daemon died while it removed this one */
                (void) snprintf(path, sizeof(path), "%s/state/%s", daemon->data_dir, row->id);
                passport_remove(path);
                (void) registry_remove(daemon->registry, row->id, NULL);
                return 0;
        }
        struct session *session = session_make(daemon, row, false, &err);
        if (!session)
                daemon_log("session %s: %s", row->name, err.message);
        else {
                packages_drop_staging(session->state_dir); /* of an install that died with the last daemon */
                (void) snprintf(path, sizeof(path), "%s/kernel/sleep", session->state_dir);
                session->state = access(path, F_OK) == 0 ? SESSION_ASLEEP : SESSION_NEW;
        }
        return 0;
}

/* A session that the registry does not know, but its passport does: the registry was damaged and begun anew. */
static void find_again(struct daemon *daemon, const char *state_dir, const char *id) {
        static struct registry_session row;
        struct err err;
        if (passport_read(state_dir, &row, NULL) < 0 || strcmp(row.id, id) != 0)
                return;
        if (registry_add(daemon->registry, &row, &err) < 0)
                daemon_log("session %s: its files are there, but it cannot be entered: %s", row.name, err.message);
        else {
                daemon_log("session %s was found again by its passport", row.name);
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

void heritage_sweep_groups(struct daemon *daemon) {
        size_t prefix = strlen(daemon->group_prefix);
        if (!daemon->knows_heritage) /* a daemon that could not start: who they belong to was never asked */
                return;
        for (size_t i = 0; i < CGROUP_PLACES; i++) {
                DIR *directory = *daemon->host.parent[i] ? opendir(daemon->host.parent[i]) : NULL;
                struct dirent *entry;
                while (directory && (entry = readdir(directory)))
                        if (strncmp(entry->d_name, daemon->group_prefix, prefix) == 0 &&
                            !is_group_in_use(daemon, entry->d_name))
                                (void) cgroup_destroy_by_name(&daemon->host, entry->d_name, NULL);
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
                struct registry_session row;
                if (passport_read(path, &row, NULL) <
                    0) /* one with a passport is somebody's, even if it cannot be entered */
                        janitor_remove(&daemon->janitor, path);
        }
        if (directory)
                (void) closedir(directory);
}

int heritage_take_over(struct daemon *daemon, struct err *err) {
        struct heritage heritage = { .daemon = daemon };
        if (registry_each(daemon->registry, add_session, daemon, err) < 0)
                return -1;
        find_lost_sessions(daemon);
        if (vault_each(&daemon->vault, inherit, &heritage, err) < 0)
                return -1;
        /* Behind kernels of a daemon that had none it would come too late for them. */
        if (!heritage.found_slate && heritage.adopted == 0)
                make_slate(daemon);
        if (heritage.adopted)
                daemon_log("took over %zu living kernels", heritage.adopted);
        for (struct session *session = daemon->sessions; session; session = session->next)
                if (!session->kernel && session->state == SESSION_NEW && session_had_kernel(session)) {
                        session->state = SESSION_LOST;
                        session->variables_lost = true;
                }
        network_connect(daemon);
        daemon->knows_heritage = true;
        heritage_sweep_groups(daemon);
        sweep_state(daemon);
        return 0;
}
