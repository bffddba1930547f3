/* Which host paths may be shown to a box.
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

/* Deeper than any path that a kernel hands out in one piece. */
enum { CHAIN_MAX = PATH_MAX / 2 + 1 };

struct place {
        unsigned dev_major, dev_minor;
        uint64_t inode;
        uint64_t mount; /* not part of the identity: tells the root from a bind mount of a directory below itself */
};

/* One host path as it is: the name the kernel has for it, itself and every directory above it. */
struct where {
        char path[PATH_MAX];
        struct place chain[CHAIN_MAX];
        size_t n_chain;
        mode_t mode;
};

struct question {
        const struct policy *policy;
        bool writable;
        const struct where *source;
        char shown[POLICY_SHOWN_MAX]; /* the source as the caller wrote it */
};

struct socket_question {
        const struct question *question;
        struct err *err;
};

static bool same_place(const struct place *a, const struct place *b) {
        return a->inode == b->inode && a->dev_major == b->dev_major && a->dev_minor == b->dev_minor;
}

static int place_of(int dir_fd, const char *path, struct place *ret_place, mode_t *ret_mode) {
        struct statx st;
        int flags = AT_SYMLINK_NOFOLLOW | (*path ? 0 : AT_EMPTY_PATH);
        if (statx(dir_fd, path, flags, STATX_TYPE | STATX_INO | STATX_MNT_ID, &st) < 0)
                return -errno;
        *ret_place = (struct place) { st.stx_dev_major, st.stx_dev_minor, st.stx_ino,
                                      st.stx_mask & STATX_MNT_ID ? st.stx_mnt_id : 0 };
        if (ret_mode)
                *ret_mode = st.stx_mode;
        return 0;
}

/* Appends a directory and all above it. */
static int climb(struct where *where, int dir_fd) {
        _cleanup_fd_ int at_fd = -1;
        for (;;) {
                struct place place;
                int code = place_of(dir_fd, "", &place, NULL);
                if (code < 0)
                        return code;
                const struct place *below = where->n_chain ? &where->chain[where->n_chain - 1] : NULL;
                if (at_fd >= 0 && below && same_place(below, &place) && below->mount == place.mount)
                        return 0; /* ".." of the root is the root */
                if (where->n_chain == CHAIN_MAX)
                        return -ENAMETOOLONG;
                where->chain[where->n_chain++] = place;
                int up_fd = openat(dir_fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (up_fd < 0)
                        return -errno;
                fd_close(&at_fd);
                at_fd = dir_fd = up_fd;
        }
}

/* -ESTALE: what is open is not (any more) what its own name leads to. */
static int where_is(int fd, struct where *ret_where) {
        char link[64];
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, ret_where->path, sizeof(ret_where->path));
        if (length < 0)
                return -errno;
        if ((size_t) length >= sizeof(ret_where->path))
                return -ENAMETOOLONG;
        ret_where->path[length] = '\0';
        if (ret_where->path[0] != '/')
                return -ESTALE;

        struct place open_place, named_place;
        int code = place_of(fd, "", &open_place, &ret_where->mode);
        if (code < 0)
                return code;
        if (place_of(AT_FDCWD, ret_where->path, &named_place, NULL) < 0 || !same_place(&open_place, &named_place))
                return -ESTALE;
        ret_where->n_chain = 0;
        if (S_ISDIR(ret_where->mode))
                return climb(ret_where, fd);

        ret_where->chain[ret_where->n_chain++] = open_place;
        char parent[PATH_MAX];
        size_t parent_length = (size_t) (strrchr(ret_where->path, '/') - ret_where->path);
        snprintf(parent, sizeof(parent), "%.*s/", (int) parent_length, ret_where->path);
        _cleanup_fd_ int parent_fd = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
        return parent_fd < 0 ? -errno : climb(ret_where, parent_fd);
}

static bool path_is_within(const char *path, const char *tree) {
        size_t length = strlen(tree);
        while (length > 0 && tree[length - 1] == '/')
                length--;
        return strncmp(path, tree, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

static bool chain_has(const struct where *where, const struct place *place) {
        for (size_t i = 0; i < where->n_chain; i++)
                if (same_place(&where->chain[i], place))
                        return true;
        return false;
}

/* Is `inner` the tree `outer`, or below it? */
static bool is_within(const struct where *inner, const struct where *outer) {
        return path_is_within(inner->path, outer->path) || chain_has(inner, &outer->chain[0]);
}

static int refuse_inside(const struct question *question, const char *tree, const char *why, struct err *err) {
        char real[POLICY_SHOWN_MAX], shown_tree[POLICY_SHOWN_MAX];
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

/* Does it lie in .sandbox of the source? A box sees an empty directory in that place (rootfs.c). */
static bool is_covered(const struct question *question, const char *path) {
        char covered[PATH_MAX + sizeof("/.sandbox")];
        struct stat status;
        (void) snprintf(covered, sizeof(covered), "%s/.sandbox", question->source->path);
        return path_is_within(path, covered) && lstat(covered, &status) == 0 && S_ISDIR(status.st_mode);
}

/* The rule for one tree that no box may see: not it, not below it, not above it. */
static int check_tree(const struct question *question, const char *tree, const char *why, struct err *err) {
        _cleanup_fd_ int fd = open(tree, O_PATH | O_CLOEXEC);
        if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
                return 0;
        _cleanup_free_ struct where *where = malloc(sizeof(*where));
        if (!where)
                return err_sys(err, ENOMEM, "cannot check the mount of %s", question->shown);
        /* A tree that we may not look at is still known by its name. */
        bool known = fd >= 0 && where_is(fd, where) == 0;
        if (path_is_within(question->source->path, tree) || (known && is_within(question->source, where)))
                return refuse_inside(question, tree, why, err);
        if ((path_is_within(tree, question->source->path) || (known && is_within(where, question->source))) &&
            !is_covered(question, known ? where->path : tree))
                return refuse_above(question, tree, why, err);
        return 0;
}

/* Keys that are not there yet count for a writable mount: code in the box could put its own there. */
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
        if (!question->writable)
                return 0;
        _cleanup_fd_ int fd = open(home, O_PATH | O_DIRECTORY | O_CLOEXEC);
        _cleanup_free_ struct where *where = malloc(sizeof(*where));
        if (fd < 0 || !where || where_is(fd, where) < 0 || !is_within(where, question->source))
                return 0;
        char shown_home[POLICY_SHOWN_MAX];
        return err_set(err, ERR_REFUSED,
                       "cannot mount %s for writing: code in the box could create %s/.ssh; mount a directory below it, "
                       "or mount it read-only",
                       question->shown, policy_show_path(home, shown_home));
}

static int check_homes(const struct question *question, struct err *err) {
        struct passwd *user = getpwuid(getuid());
        if (check_home(question, getenv("HOME"), err) < 0 || check_home(question, user ? user->pw_dir : NULL, err) < 0)
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

/* A container engine may listen elsewhere than in /run; then these variables name the place. */
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

static int check_socket(void *context, const char *path) {
        const struct socket_question *asked = context;
        return check_tree(asked->question, path, "a Glovebox daemon's socket", asked->err);
}

/* A box may see no Glovebox on this host, whatever its data directory and owner. */
static int check_private(const struct question *question, int fd, struct err *err) {
        static const char why[] = "a Glovebox's own files or sockets";
        char path[PATH_MAX];
        switch (policy_find_private(fd, question->source->path, path)) {
        case POLICY_PRIVATE_AROUND:
                return refuse_inside(question, path, why, err);
        case POLICY_PRIVATE_BELOW:
                return refuse_above(question, path, why, err);
        default:
                break;
        }
        struct socket_question asked = { question, err };
        if (question->policy->socket_path &&
            check_tree(question, question->policy->socket_path, "the daemon's socket", err) < 0)
                return -1;
        return policy_each_socket(check_socket, &asked);
}

static int check_never(const struct question *question, struct err *err) {
        struct place root;
        if (place_of(AT_FDCWD, "/", &root, NULL) < 0 || same_place(&root, &question->source->chain[0]))
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
        mode_t type = question->source->mode & S_IFMT;
        if (type == S_IFDIR || type == S_IFREG)
                return 0;
        return err_set(err, ERR_REFUSED, "cannot mount %s: it is a %s; only directories and plain files are mountable",
                       question->shown,
                       type == S_IFSOCK                     ? "socket"
                       : type == S_IFIFO                    ? "FIFO"
                       : type == S_IFBLK || type == S_IFCHR ? "device"
                                                            : "special file");
}

/* By path alone, with the allowed path resolved in the same way. A relative or missing entry allows nothing. */
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

static int refuse_unopened(const struct question *question, const char *source, int reason, struct err *err) {
        const struct policy *policy = question->policy;
        /* Only for allowed places does a caller other than the operator learn whether something is there. */
        if (!policy->is_operator && (strstr(source, "/..") || !lists_allow(policy, question->writable, source)))
                return refuse_unlisted(question, err);
        if (reason == ENOENT || reason == ENOTDIR)
                return err_set(err, ERR_NOT_FOUND, "cannot mount \"%s\": it does not exist; create it first",
                               question->shown);
        return err_sys(err, reason, "cannot mount %s", question->shown);
}

int policy_open_source(const struct policy *policy, const char *source, bool writable, int *ret_fd, struct err *err) {
        struct question question = { .policy = policy, .writable = writable };
        (void) policy_show_path(source, question.shown);
        if (!policy->is_operator && source[0] != '/')
                return err_set(err, ERR_USAGE, "cannot mount \"%s\": write an absolute path", question.shown);

        _cleanup_free_ struct where *where = malloc(sizeof(*where));
        if (!where)
                return err_sys(err, ENOMEM, "cannot mount %s", question.shown);
        _cleanup_fd_ int fd = open(source, O_PATH | O_CLOEXEC);
        if (fd < 0)
                return refuse_unopened(&question, source, errno, err);
        int code = where_is(fd, where);
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
