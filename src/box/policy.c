/* The mount policy: which host paths a box may see.
 *
 * A source is opened once; everything is then decided about the open descriptor: by the path that the kernel gives for
 * it, and by identity (device and inode) of it and of each directory above it, walked by "..". Either of the two is
 * enough to refuse, so that a link, a bind mount or another spelling does not get around it; a permission goes by path
 * alone.
 * Directories below a source count too: a mount of /home/me contains /home/me/.ssh. */
#include "box/policy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "box/policy_place.h"
#include "box/policy_private.h"

static const struct {
        const char *path, *why;
} never[] = {
        { "/etc", "the host's settings and passwords" },
        { "/proc", "the host's processes" },
        { "/sys", "the host's devices" },
        { "/dev", "the host's devices" },
        { "/run", "the sockets of the host's services" },
        { "/var/run", "the sockets of the host's services" },
        { "/boot", "the host's kernel" },
        { "/root", "the home of the host's administrator" },
        { "/var/lib/docker", "a container engine" },
        { "/var/lib/containerd", "a container engine" },
        { "/var/lib/containers", "a container engine" },
        { "/var/lib/incus", "a container engine" },
        { "/var/lib/lxd", "a container engine" },
        { "/var/lib/kubelet", "a container engine" },
        { "/var/snap/docker", "a container engine" },
        { "/var/snap/lxd", "a container engine" },
};

static const char *const home_secrets[] = { ".ssh", ".aws", ".gnupg", ".config", ".kube", ".docker" };

struct question {
        const struct policy *policy;
        bool writable;
        const struct policy_where *source;
        char shown[POLICY_SHOWN_MAX]; /* the source as the caller wrote it */
};

struct socket_question {
        const struct question *question;
        struct err *err;
};

static bool path_is_within(const char *path, const char *tree) {
        size_t length = strlen(tree);
        while (length > 0 && tree[length - 1] == '/')
                length--;
        return strncmp(path, tree, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* True if the path leads to the source or to something below it. */
static bool is_in_source(const struct question *question, const char *path) {
        return path_is_within(path, question->source->path) ||
               policy_place_is_within(path, &question->source->chain[0]);
}

static int refuse_inside(const struct question *question, const char *tree, const char *why, struct err *err) {
        char real[POLICY_SHOWN_MAX], shown_tree[POLICY_SHOWN_MAX];
        if (strcmp(question->shown, tree) == 0)
                return err_set(err, ERR_REFUSED,
                               "cannot mount %s (%s): it is never mountable; copy what the box needs elsewhere",
                               question->shown, why);
        return err_set(err, ERR_REFUSED,
                       "cannot mount %s: it is %s, and %s (%s) is never mountable; copy what the box needs elsewhere",
                       question->shown, policy_show_path(question->source->path, real),
                       policy_show_path(tree, shown_tree), why);
}

static int refuse_above(const struct question *question, const char *tree, const char *why, struct err *err) {
        char shown_tree[POLICY_SHOWN_MAX];
        return err_set(err, ERR_REFUSED,
                       "cannot mount %s: it contains %s (%s), which is never mountable; mount a directory below it",
                       question->shown, policy_show_path(tree, shown_tree), why);
}

/* True if it lies in .sandbox of the source. A box sees an empty directory in that place (rootfs.c). */
static bool is_covered(const struct question *question, const char *path) {
        char covered[PATH_MAX + sizeof("/.sandbox")], real[PATH_MAX];
        struct stat status;
        (void) snprintf(covered, sizeof(covered), "%s/.sandbox", question->source->path);
        return path_is_within(realpath(path, real) ? real : path, covered) && lstat(covered, &status) == 0 &&
               S_ISDIR(status.st_mode);
}

/* The rule for one tree that no box may see: not it, not below it, not above it. */
static int check_tree(const struct question *question, const char *tree, const char *why, struct err *err) {
        struct policy_place place;
        int code = policy_place_find(tree, &place);
        if (code == -ENOENT || code == -ENOTDIR)
                return 0;
        /* A tree that we may not open is still refused by its name. */
        if (path_is_within(question->source->path, tree) || (code == 0 && policy_where_has(question->source, &place)))
                return refuse_inside(question, tree, why, err);
        if (is_in_source(question, tree) && !is_covered(question, tree))
                return refuse_above(question, tree, why, err);
        return 0;
}

/* Key files that do not exist yet count for a writable mount, because code in the box could create them. */
static int check_home(const struct question *question, const char *home, struct err *err) {
        if (!home || home[0] != '/')
                return 0;
        for (size_t i = 0; i < ELEMENTS(home_secrets); i++) {
                char path[PATH_MAX];
                if (snprintf(path, sizeof(path), "%s/%s", home, home_secrets[i]) >= (int) sizeof(path))
                        return 0;
                if (check_tree(question, path, "a user's keys and settings", err) < 0)
                        return -1;
        }
        struct policy_place place;
        if (!question->writable || policy_place_find(home, &place) < 0 || !is_in_source(question, home))
                return 0;
        char shown_home[POLICY_SHOWN_MAX];
        return err_set(err, ERR_REFUSED,
                       "cannot mount %s for writing: code in the box could create %s/.ssh; mount a directory below it, "
                       "or mount it read-only",
                       question->shown, policy_show_path(home, shown_home));
}

static int check_homes(const struct question *question, struct err *err) {
        const char *own = getenv("HOME");
        const struct passwd *user = getpwuid(getuid());
        if (check_home(question, own, err) < 0)
                return -1;
        if (user && (!own || strcmp(own, user->pw_dir) != 0) && check_home(question, user->pw_dir, err) < 0)
                return -1;
        _cleanup_dir_ DIR *homes = opendir("/home");
        struct dirent *entry;
        while (homes && (entry = dir_next(homes))) {
                char home[sizeof("/home/") + NAME_MAX];
                snprintf(home, sizeof(home), "/home/%s", entry->d_name);
                if (check_home(question, home, err) < 0)
                        return -1;
        }
        return 0;
}

/* A container engine may listen outside of /run; then these variables name its socket. */
static int check_engine_sockets(const struct question *question, struct err *err) {
        static const char *const variables[] = { "DOCKER_HOST", "CONTAINER_HOST" };
        static const char scheme[] = "unix://";
        for (size_t i = 0; i < ELEMENTS(variables); i++) {
                const char *value = getenv(variables[i]);
                if (!value || strncmp(value, scheme, strlen(scheme)) != 0)
                        continue;
                const char *path = value + strlen(scheme);
                if (path[0] == '/' && check_tree(question, path, "a container engine's socket", err) < 0)
                        return -1;
        }
        return 0;
}

/* By its real directory: "..", or a link to another directory, does not lead a box there. A box that may write could
 * replace what the path goes through, and clients would find its socket; so then the path as it was given counts, too.
 */
static int check_one_socket(const struct question *question, const char *path, const char *why, struct err *err) {
        char real[PATH_MAX];
        bool is_real = realpath(path, real) != NULL;
        if (is_real && check_tree(question, real, why, err) < 0)
                return -1;
        return is_real && !question->writable ? 0 : check_tree(question, path, why, err);
}

static int check_socket(void *context, const char *path) {
        const struct socket_question *asked = context;
        return check_one_socket(asked->question, path, "a Glovebox daemon's socket", asked->err);
}

/* A box may see no Glovebox on this host, whatever its data directory and owner. */
static int check_private(const struct question *question, int fd, struct err *err) {
        static const char why[] = "a Glovebox's own files or sockets";
        char path[PATH_MAX];
        switch (policy_find_private(fd, question->source->path, !question->policy->is_first_look, path)) {
        case POLICY_PRIVATE_AROUND:
                return refuse_inside(question, path, why, err);
        case POLICY_PRIVATE_BELOW:
                return refuse_above(question, path, why, err);
        default:
                break;
        }
        struct socket_question asked = { question, err };
        if (question->policy->socket_path &&
            check_one_socket(question, question->policy->socket_path, "the daemon's socket", err) < 0)
                return -1;
        return policy_each_socket(check_socket, &asked);
}

static int check_never(const struct question *question, struct err *err) {
        struct policy_place root;
        if (policy_place_find("/", &root) < 0 || policy_place_is_same(&root, &question->source->chain[0]))
                return err_set(err, ERR_REFUSED, "cannot mount %s: it is the whole host; mount a directory below it",
                               question->shown);
        for (size_t i = 0; i < ELEMENTS(never); i++)
                if (check_tree(question, never[i].path, never[i].why, err) < 0)
                        return -1;
        const char *state_dir = question->policy->state_dir;
        if (state_dir && check_tree(question, state_dir, "Glovebox's own state", err) < 0)
                return -1;
        if (check_engine_sockets(question, err) < 0)
                return -1;
        return check_homes(question, err);
}

static int check_type(const struct question *question, struct err *err) {
        mode_t type = question->source->chain[0].mode & S_IFMT;
        if (type == S_IFDIR || type == S_IFREG)
                return 0;
        return err_set(err, ERR_REFUSED, "cannot mount %s: it is a %s; only directories and plain files are mountable",
                       question->shown,
                       type == S_IFSOCK                     ? "socket"
                       : type == S_IFIFO                    ? "FIFO"
                       : type == S_IFBLK || type == S_IFCHR ? "device"
                                                            : "special file");
}

/* Compares paths alone; the allowed path is resolved in the same way. A relative or missing entry allows nothing. */
static bool list_allows(const char *const *list, const char *path) {
        for (; list && *list; list++) {
                char real[PATH_MAX];
                if ((*list)[0] == '/' && realpath(*list, real) && path_is_within(path, real))
                        return true;
        }
        return false;
}

/* What may be written may be read. */
static bool lists_allow(const struct policy *policy, bool writable, const char *path) {
        return list_allows(policy->write_paths, path) || (!writable && list_allows(policy->read_paths, path));
}

static int refuse_unlisted(const struct question *question, struct err *err) {
        return err_set(err, ERR_REFUSED,
                       "cannot mount %s%s: it is not below a path that this service allows for that; ask its operator "
                       "to allow it",
                       question->shown, question->writable ? " for writing" : "");
}

int policy_fail_missing(const char *source, int reason, struct err *err) {
        char shown[POLICY_SHOWN_MAX];
        (void) policy_show_path(source, shown);
        if (reason == ENOENT || reason == ENOTDIR)
                return err_set(err, ERR_NOT_FOUND, "cannot mount \"%s\": it does not exist; create it first", shown);
        return err_sys(err, reason, "cannot mount %s", shown);
}

static int refuse_unopened(const struct question *question, const char *source, int reason, struct err *err) {
        const struct policy *policy = question->policy;
        /* A refusal tells a caller other than the operator whether a path exists only if the path is allowed. */
        if (!policy->is_operator && (strstr(source, "/..") || !lists_allow(policy, question->writable, source)))
                return refuse_unlisted(question, err);
        return policy_fail_missing(source, reason, err);
}

int policy_open_source(const struct policy *policy, const char *source, bool writable, int *ret_fd, struct err *err) {
        struct question question = { .policy = policy, .writable = writable };
        (void) policy_show_path(source, question.shown);
        if (!policy->is_operator && source[0] != '/')
                return err_set(err, ERR_USAGE, "cannot mount \"%s\": write an absolute path", question.shown);

        _cleanup_free_ struct policy_where *where = malloc(sizeof(*where));
        if (!where)
                return err_sys(err, ENOMEM, "cannot mount %s", question.shown);
        _cleanup_fd_ int fd = open(source, O_PATH | O_CLOEXEC);
        if (fd < 0)
                return refuse_unopened(&question, source, errno, err);
        int code = policy_where_find(fd, where);
        if (code == -ESTALE)
                return err_set(err, ERR_REFUSED,
                               "cannot mount %s: it was deleted or moved meanwhile, or has no path on this host",
                               question.shown);
        if (code < 0)
                return err_sys(err, -code, "cannot mount %s: it cannot be examined", question.shown);
        question.source = where;
        if (!policy->is_operator && !lists_allow(policy, writable, where->path))
                return refuse_unlisted(&question, err);
        if (check_type(&question, err) < 0 || check_never(&question, err) < 0 || check_private(&question, fd, err) < 0)
                return -1;
        *ret_fd = take_fd(&fd);
        return 0;
}
