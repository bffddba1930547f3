#include "session/group_sweep.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/claim.h"
#include "base/log.h"
#include "session/session.h"
#include "store/reaper.h"

enum { UNSEEN_MS = 300 }; /* wait for processes whose exit cannot be observed */

static bool is_group_in_use(const struct session_manager *manager, const char *group) {
        for (size_t i = 0; i < manager->n_pool; i++)
                if (strcmp(manager->pool[i]->group, group) == 0)
                        return true;
        for (const struct session *session = manager->sessions; session; session = session->next)
                if (session->kernel && strcmp(session->kernel->group, group) == 0)
                        return true;
        return false;
}

/* Kills the processes now; the reaper removes the group. A process that a v1 hierarchy does not list is ending, or is
 * in another PID namespace and cannot be killed: one short wait covers all of them. */
static void sweep_group(struct session_manager *manager, const char *name, uint64_t until_ms) {
        struct cgroup cgroup;
        while (cgroup_remove_empty(&manager->host, name) < 0) {
                if (cgroup_adopt(&manager->host, name, &cgroup, NULL) < 0)
                        return;
                if (cgroup_kill_now(&cgroup) > 0) {
                        reaper_bury(&cgroup, -1, -1);
                        return;
                }
                cgroup_release(&cgroup);
                if (loop_now_ms() >= until_ms) {
                        daemon_log(
                                "the control group %s cannot be removed: its processes cannot be seen from here (they "
                                "are in another pid namespace, or do not end); it is left",
                                name);
                        return;
                }
                (void) poll(NULL, 0, 5);
        }
}

/* Older versions named groups by the path of the data directory, which another daemon's may have as well, in another
 * mount namespace. An empty group is unused; one with processes stays. */
static void sweep_old_group(struct session_manager *manager, const char *name) {
        if (cgroup_remove_empty(&manager->host, name) < 0)
                daemon_log("the control group %s of an older version is in use, perhaps by another daemon: it is left",
                           name);
}

/* One box has a group in each hierarchy. */
static bool is_in_earlier_place(const struct session_manager *manager, size_t place, const char *name) {
        char path[sizeof(manager->host.parent[0]) + 300];
        for (size_t i = 0; i < place; i++) {
                (void) snprintf(path, sizeof(path), "%s/%s", manager->host.parent[i], name);
                if (*manager->host.parent[i] && access(path, F_OK) == 0)
                        return true;
        }
        return false;
}

static bool has_prefix(const char *name, const char *prefix) {
        return strncmp(name, prefix, strlen(prefix)) == 0;
}

void group_sweep(struct session_manager *manager) {
        if (!manager->knows_takeover) /* a daemon that could not start does not know which sessions own them */
                return;
        uint64_t until_ms = loop_now_ms() + UNSEEN_MS;
        manager->n_orphans = 0;
        for (size_t i = 0; i < CGROUP_PLACES; i++) {
                DIR *directory = *manager->host.parent[i] ? opendir(manager->host.parent[i]) : NULL;
                struct dirent *entry;
                while (directory && (entry = readdir(directory))) {
                        const char *name = entry->d_name;
                        bool is_new = has_prefix(name, manager->group_prefix);
                        if ((!is_new && !has_prefix(name, manager->old_group_prefix)) ||
                            is_group_in_use(manager, name) || is_in_earlier_place(manager, i, name))
                                continue;
                        if (claim_is_held(name)) { /* a program that was handed to its caller: session/program.h */
                                manager->n_orphans++;
                                continue;
                        }
                        if (is_new)
                                sweep_group(manager, name, until_ms);
                        else
                                sweep_old_group(manager, name);
                }
                if (directory)
                        (void) closedir(directory);
        }
}
