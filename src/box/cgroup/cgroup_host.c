/* Finds the control groups in which this process may create boxes. It reads files and checks access; it changes
 * nothing.
 *
 * For each hierarchy there are two places to try: its root as visible here, and the own group. A process that may write
 * to the root (the superuser on a host, or in a container with a cgroup namespace) works there; one whose service
 * manager delegated a group to its user works in that one. The kernel is queried for access; the uid does not decide,
 * since root inside a user namespace is an ordinary user here. */
#include "box/cgroup/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/cgroup/cgroup_file.h"
#include "box/cgroup/cgroup_prepare.h"
#include "box/cgroup/cgroup_text.h"

enum { V2 = CGROUP_V2_TREE, PROC_TEXT_MAX = 4 << 20 };

static const char *const controller_names[CGROUP_CONTROLLERS] = {
        [CGROUP_MEMORY] = "memory",
        [CGROUP_PIDS] = "pids",
        [CGROUP_CPU] = "cpu",
};

/* The facts about one hierarchy. */
struct hierarchy {
        bool mounted;
        struct cgroup_mount mount;
        char own[CGROUP_PATH_MAX]; /* the directory of our own group, "" when not visible */
};

const char *cgroup_controller_name(enum cgroup_controller controller) {
        return controller_names[controller];
}

const char *cgroup_kind_name(const struct cgroup_host *host) {
        static const char *const names[] = {
                [CGROUP_NONE] = "none", [CGROUP_V1] = "v1", [CGROUP_HYBRID] = "hybrid", [CGROUP_V2] = "v2"
        };
        return names[host->kind];
}

bool cgroup_host_in_v2(const struct cgroup_host *host, enum cgroup_controller controller) {
        return host->parent[V2][0] && strcmp(host->parent[controller], host->parent[V2]) == 0;
}

static bool may_access(const char *dir, const char *file, int mode) {
        char path[CGROUP_PATH_MAX + 64];
        (void) snprintf(path, sizeof(path), "%s%s%s", dir, *file ? "/" : "", file);
        return faccessat(AT_FDCWD, path, mode, AT_EACCESS) == 0;
}

static bool file_lists_word(const char *dir, const char *file, const char *word) {
        char path[CGROUP_PATH_MAX + 64], text[512];
        (void) snprintf(path, sizeof(path), "%s/%s", dir, file);
        return cgroup_file_read(AT_FDCWD, path, text, sizeof(text)) >= 0 && cgroup_text_has_word(text, word);
}

/* True if directories can be created in base/relative, or in the deepest part of it that exists. */
static bool may_create(const char *base, const char *relative, char ret_parent[static CGROUP_PATH_MAX]) {
        char path[CGROUP_PATH_MAX];
        int size = snprintf(path, sizeof(path), "%s/%s", base, relative);
        if (size < 0 || (size_t) size >= sizeof(path))
                return false;
        memcpy(ret_parent, path, (size_t) size + 1);
        while (!may_access(path, "", F_OK) && strlen(path) > strlen(base))
                *strrchr(path, '/') = '\0';
        return may_access(path, "", W_OK | X_OK);
}

static bool look_at_v1(struct cgroup_host *host, size_t place, const struct hierarchy *at) {
        const char *bases[] = { at->mount.point, at->own };
        for (size_t i = 0; i < ELEMENTS(bases); i++) {
                char parent[CGROUP_PATH_MAX];
                if (!bases[i][0] || !may_create(bases[i], host->relative, parent))
                        continue;
                memcpy(host->parent[place], parent, sizeof(parent));
                return true;
        }
        return false;
}

/* True if this controller can be used in base/relative: it is enabled there already, or we may enable it. */
static bool v2_offers(const char *base, const char *parent, const char *controller) {
        if (!file_lists_word(base, "cgroup.subtree_control", controller) &&
            !(file_lists_word(base, "cgroup.controllers", controller) &&
              may_access(base, "cgroup.subtree_control", W_OK)))
                return false;
        return !may_access(parent, "", F_OK) || file_lists_word(parent, "cgroup.subtree_control", controller) ||
               may_access(parent, "cgroup.subtree_control", W_OK);
}

/* Putting a process from our group into another needs write access to cgroup.procs of the group that holds both. */
static bool v2_may_move(const struct hierarchy *at, const char *parent) {
        char common[CGROUP_PATH_MAX];
        cgroup_text_common(at->own[0] ? at->own : at->mount.point, parent, common);
        return may_access(common, "cgroup.procs", W_OK);
}

static bool kernel_has_cgroup_kill(void) {
        struct utsname name;
        unsigned major = 0, minor = 0;
        return uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
               (major > 5 || (major == 5 && minor >= 14));
}

/* The best of both places is the one that offers the most of the controllers that no v1 hierarchy holds. */
static void look_at_v2(struct cgroup_host *host, const struct hierarchy *at, const struct hierarchy *v1) {
        char own[CGROUP_PATH_MAX];
        memcpy(own, at->own, sizeof(own));
        char *leaf = strrchr(own, '/');
        if (leaf && strcmp(leaf + 1, CGROUP_SELF_LEAF) == 0)
                *leaf = '\0';
        const char *bases[] = { at->mount.point, own };
        int best = -1;
        for (size_t i = 0; i < ELEMENTS(bases); i++) {
                char parent[CGROUP_PATH_MAX];
                if (!bases[i][0] || !may_create(bases[i], host->relative, parent) || !v2_may_move(at, parent))
                        continue;
                int score = 0;
                bool offered[CGROUP_CONTROLLERS];
                for (size_t c = 0; c < CGROUP_CONTROLLERS; c++) {
                        offered[c] = !v1[c].mounted && v2_offers(bases[i], parent, controller_names[c]);
                        score += offered[c];
                }
                if (score <= best)
                        continue;
                best = score;
                memcpy(host->parent[V2], parent, sizeof(parent));
                host->kill = kernel_has_cgroup_kill();
                for (size_t c = 0; c < CGROUP_CONTROLLERS; c++) {
                        if (v1[c].mounted)
                                continue;
                        host->usable[c] = offered[c];
                        (void) snprintf(host->parent[c], sizeof(host->parent[c]), "%s", offered[c] ? parent : "");
                }
        }
}

/* "memory, pids and cpu" of the controllers that are missing. */
static void list_missing(const struct cgroup_host *host, char *ret_text, size_t size) {
        ret_text[0] = '\0';
        for (size_t c = 0; c < CGROUP_CONTROLLERS; c++)
                if (!host->usable[c]) {
                        size_t used = strlen(ret_text);
                        (void) snprintf(ret_text + used, size - used, "%s%s", used ? ", " : "", controller_names[c]);
                }
}

/* The user id on the host: inside a user namespace of our own geteuid() returns 0. */
static unsigned host_uid(void) {
        char text[256];
        unsigned inside, outside, uid = geteuid();
        if (cgroup_file_read(AT_FDCWD, "/proc/self/uid_map", text, sizeof(text)) > 0 &&
            sscanf(text, "%u %u", &inside, &outside) == 2 && inside == uid)
                return outside;
        return uid;
}

static void cgroup_host_explain(struct cgroup_host *host, const struct hierarchy *at) {
        char missing[64];
        list_missing(host, missing, sizeof(missing));
        if (!missing[0])
                return;
        bool read_only = false, v1 = false;
        for (size_t i = 0; i <= V2; i++)
                read_only |= at[i].mounted && (i == V2 || !host->usable[i]) && at[i].mount.read_only;
        for (size_t c = 0; c < CGROUP_CONTROLLERS; c++)
                v1 |= at[c].mounted && !host->usable[c];
        char *text = host->why_not;
        size_t size = sizeof(host->why_not);
        if (host->kind == CGROUP_NONE)
                (void) snprintf(text, size,
                                "no control group file system is mounted: mount one "
                                "(mount -t cgroup2 cgroup2 /sys/fs/cgroup), or use --allow-weaker");
        else if (read_only)
                (void) snprintf(text, size,
                                "%s: the control groups are mounted read-only, as in most containers: start "
                                "the container with docker run --cap-add SYS_ADMIN, run Glovebox on the host, "
                                "or use --allow-weaker",
                                missing);
        else if (v1)
                (void) snprintf(text, size,
                                "%s: no writable control group: let the administrator run: "
                                "for h in memory pids cpu; do install -d -o %u /sys/fs/cgroup/$h/%s; done "
                                "(after each boot), or use --allow-weaker",
                                missing, host_uid(), host->relative);
        else if (host->parent[V2][0])
                (void) snprintf(text, size,
                                "%s: the controller is not offered to the group we may write to: enable it in "
                                "cgroup.subtree_control of the groups above (or boot with cgroup_enable=memory), "
                                "or use --allow-weaker",
                                missing);
        else
                (void) snprintf(text, size,
                                "%s: no control group was delegated to this user: start it as "
                                "systemd-run --user --scope -p Delegate=yes glovebox ... (a service that outlives the "
                                "login also needs loginctl enable-linger), run it as root, or use --allow-weaker",
                                missing);
}

static char *read_proc(const char *path) {
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        char *text = NULL;
        if (fd < 0 || fd_read_to_end(fd, PROC_TEXT_MAX, &text, NULL) < 0)
                return NULL;
        return text;
}

static void find_hierarchy(const char *mountinfo, const char *proc_cgroup, const char *controller,
                           struct hierarchy *ret) {
        char path[CGROUP_PATH_MAX];
        *ret = (struct hierarchy) { .mounted = false };
        if (cgroup_text_find_mount(mountinfo, controller, &ret->mount) < 0)
                return;
        ret->mounted = true;
        if (cgroup_text_find_own(proc_cgroup, controller, path) < 0 ||
            cgroup_text_locate(&ret->mount, path, ret->own) < 0)
                ret->own[0] = '\0';
}

/* The directory below which the groups of boxes are made. */
static bool read_parent(struct cgroup_host *host) {
        const char *relative = getenv("GLOVEBOX_CGROUP_PARENT");
        if (relative && *relative && !cgroup_text_is_relative(relative)) {
                (void) snprintf(host->why_not, sizeof(host->why_not),
                                "GLOVEBOX_CGROUP_PARENT is not a plain relative "
                                "path: name a directory below the control group's root, such as glovebox");
                return false;
        }
        (void) snprintf(host->relative, sizeof(host->relative), "%s", relative && *relative ? relative : "glovebox");
        return true;
}

static enum cgroup_host_kind kind_of(const struct hierarchy at[static V2 + 1]) {
        bool any_v1 = false;
        for (size_t c = 0; c < CGROUP_CONTROLLERS; c++)
                any_v1 |= at[c].mounted;
        if (any_v1)
                return at[V2].mounted ? CGROUP_HYBRID : CGROUP_V1;
        return at[V2].mounted ? CGROUP_V2 : CGROUP_NONE;
}

void cgroup_host_look(struct cgroup_host *host) {
        *host = (struct cgroup_host) { .kind = CGROUP_NONE };
        if (!read_parent(host))
                return;
        _cleanup_free_ char *mountinfo = read_proc("/proc/self/mountinfo");
        _cleanup_free_ char *proc_cgroup = read_proc("/proc/self/cgroup");
        struct hierarchy at[V2 + 1];
        for (size_t i = 0; i <= V2; i++)
                find_hierarchy(mountinfo ? mountinfo : "", proc_cgroup ? proc_cgroup : "",
                               i < V2 ? controller_names[i] : NULL, &at[i]);
        host->kind = kind_of(at);
        for (size_t c = 0; c < CGROUP_CONTROLLERS; c++)
                if (at[c].mounted)
                        host->usable[c] = look_at_v1(host, c, &at[c]);
        if (at[V2].mounted)
                look_at_v2(host, &at[V2], at);
        cgroup_host_explain(host, at);
}

void cgroup_host_leave_v2(struct cgroup_host *host) {
        if (host->kind != CGROUP_HYBRID)
                return;
        for (enum cgroup_controller c = 0; c < CGROUP_CONTROLLERS; c++)
                if (!host->usable[c] || cgroup_host_in_v2(host, c))
                        return;
        _cleanup_free_ char *mountinfo = read_proc("/proc/self/mountinfo");
        _cleanup_free_ char *proc_cgroup = read_proc("/proc/self/cgroup");
        struct hierarchy at;
        find_hierarchy(mountinfo ? mountinfo : "", proc_cgroup ? proc_cgroup : "", "cpuacct", &at);
        if (!at.mounted || !look_at_v1(host, CGROUP_ACCOUNT, &at))
                return;
        if (strcmp(host->parent[CGROUP_ACCOUNT], host->parent[CGROUP_CPU]) == 0)
                host->parent[CGROUP_ACCOUNT][0] = '\0'; /* mounted together: counted there */
        host->parent[V2][0] = '\0';
        host->kill = false;
}
