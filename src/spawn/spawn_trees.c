/* The trees of a box: its workspace, the script's directory, mounts of the caller, packages and our own directories,
 * each opened without following links, checked, and mapped to the user of the box. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/host/identity.h"
#include "box/policy.h"
#include "box/seal/tree.h"
#include "spawn/spawn_job.h"
#include "spawn/spawn_job_state.h"
#include "store/packages.h"

static int keep_open(int fd) {
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        return copy < 0 ? -errno : copy;
}

static int share_tree(const struct spawn_job *job, int fd, bool writable) {
        if (job->is_plain)
                return keep_open(fd);
        if (job->is_served)
                return tree_clone_served(fd, writable, job->uid, job->gid);
        return tree_clone_owned(fd, writable, job->is_leased, job->uid, job->gid);
}

static int add_mount(struct spawn_job *job, int source_fd, const char *destination, bool writable, struct err *err) {
        if (job->n_mounts == MOUNTS_MAX)
                return err_set(err, ERR_LIMIT, "a box can have at most %d mounts", MOUNTS_MAX - 1);
        struct stat status;
        int tree = fstat(source_fd, &status) < 0 ? -errno : share_tree(job, source_fd, writable);
        if (tree < 0)
                return tree_explain(tree, destination, err);
        job->mounts[job->n_mounts++] = (struct box_mount) { tree, S_ISDIR(status.st_mode), writable, destination };
        return 0;
}

static int open_own_directory(const char *path, struct err *err) {
        int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? err_sys(err, errno, "opening %s", path) : fd;
}

static int open_workspace(struct spawn_job *job, const struct policy *policy, struct err *err) {
        const struct maker_request *request = job->request;
        if (request->ephemeral && job->is_plain)
                return 0; /* the box hands it out */
        if (request->ephemeral) {
                job->workspace_fd = tree_make_tmpfs(request->limits.disk_bytes, request->limits.disk_files, job->uid,
                                                    job->gid, 0755);
                return job->workspace_fd < 0 ? err_sys(err, -job->workspace_fd, "making a workspace") : 0;
        }
        _cleanup_fd_ int source = -1;
        if (request->workspace_is_ours)
                source = open_own_directory(request->workspace, err);
        else if (policy_open_source(policy, request->workspace, true, &source, err) < 0)
                return -1;
        if (source < 0)
                return -1;
        /* In a directory that a caller named, only the box's own user makes files, so no other user can remove them. */
        if (job->has_users && request->workspace_is_ours)
                job->workspace_fd = tree_clone_for_users(source, job->uid, job->gid, IDENTITY_DISK_UID);
        else
                job->workspace_fd = share_tree(job, source, true);
        return job->workspace_fd < 0 ? tree_explain(job->workspace_fd, request->workspace, err) : 0;
}

/* A directory of the session's that it may only read. All users may read its files: no ids need to be mapped. */
static int show_own(struct spawn_job *job, const char *parent, const char *name, const char *destination,
                    struct err *err) {
        char path[1100];
        (void) snprintf(path, sizeof(path), "%s/%s", parent, name);
        _cleanup_fd_ int source = open_own_directory(path, err);
        if (source < 0)
                return -1;
        int tree = job->is_plain ? keep_open(source) : tree_clone(source, false);
        if (tree < 0)
                return tree_explain(tree, path, err);
        job->mounts[job->n_mounts++] = (struct box_mount) { tree, true, false, destination };
        return 0;
}

/* The files that the host's pip settings name: certificates, directories of packages. The operator chose them. */
static int show_settings(struct spawn_job *job, struct err *err) {
        size_t i;
        json_t *pair;
        json_array_foreach (json_object_get(job->options, "shown"), i, pair) {
                const char *source = json_string_value(json_array_get(pair, 0));
                const char *destination = json_string_value(json_array_get(pair, 1));
                _cleanup_fd_ int fd = source && destination ? open(source, O_PATH | O_CLOEXEC) : -1;
                if (fd < 0)
                        return err_sys(err, errno, "opening %.300s, which pip's settings name", source ? source : "");
                if (add_mount(job, fd, destination, false, err) < 0)
                        return -1;
        }
        return 0;
}

static int open_packages(struct spawn_job *job, struct err *err) {
        const struct maker_request *request = job->request;
        char staging[1100];
        if (job->n_mounts + 2 > MOUNTS_MAX)
                return err_set(err, ERR_LIMIT, "a box can have at most %d mounts", MOUNTS_MAX - 3);
        if (!*request->packages)
                return 0;
        if (!request->installs)
                return show_own(job, request->packages, "packages", PACKAGES_PLACE, err);
        (void) snprintf(staging, sizeof(staging), "%s/install", request->packages);
        _cleanup_fd_ int fd = open_own_directory(staging, err);
        if (fd < 0 || add_mount(job, fd, PACKAGES_PLACE, true, err) < 0 ||
            show_own(job, request->packages, "packages", PACKAGES_BEFORE_PLACE, err) < 0)
                return -1;
        return show_settings(job, err);
}

/* A script without its directory, as a copy in BOX_CODE_DIR. */
static int copy_script(struct spawn_job *job, int source_fd, const char *name, struct err *err) {
        char path[64];
        _cleanup_free_ char *text = NULL;
        size_t size;
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", source_fd);
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        int code = fd < 0 ? -errno : fd_read_to_end(fd, SCRIPT_MAX_BYTES, &text, &size);
        int tree = code < 0 ? code : tree_make_with_file(name, text, size, job->uid, job->gid);
        if (tree < 0)
                return err_sys(err, -tree, "copying the script %.200s", name);
        job->mounts[job->n_mounts++] = (struct box_mount) { tree, true, false, BOX_CODE_DIR };
        return 0;
}

/* A script is opened as by `glovebox run` without a daemon: the owner of this daemon named it, and only its text goes
 * to the box. A directory is a mount like any other. */
static int open_script_source(const struct spawn_job *job, const struct policy *policy, const char *source, bool alone,
                              int *ret_fd, struct err *err) {
        if (!alone || !job->request->by_owner)
                return policy_open_source(policy, source, false, ret_fd, err);
        *ret_fd = open(source, O_PATH | O_CLOEXEC);
        return *ret_fd < 0 ? err_sys(err, errno, "opening %.300s", source) : 0;
}

/* BOX_CODE_DIR, or a file in it. */
static bool is_script_place(const char *destination) {
        static const char directory[] = BOX_CODE_DIR "/";
        if (!destination || strcmp(destination, BOX_CODE_DIR) == 0)
                return destination != NULL;
        if (strncmp(destination, directory, strlen(directory)) != 0)
                return false;
        const char *name = destination + strlen(directory);
        return *name && !strchr(name, '/') && strcmp(name, "..") != 0 && strcmp(name, ".") != 0;
}

/* The script of a program (destination: a file in the place for code), or its directory (that place). */
static int open_script(struct spawn_job *job, const struct policy *policy, struct err *err) {
        const char *source = json_string_value(json_object_get(job->options, "script"));
        const char *destination = json_string_value(json_object_get(job->options, "script_at"));
        struct stat status;
        _cleanup_fd_ int fd = -1;
        if (!source)
                return 0;
        if (!is_script_place(destination))
                return err_set(err, ERR_USAGE, "\"script_at\" must be " BOX_CODE_DIR " or a file in it");
        if (job->n_mounts == MOUNTS_MAX)
                return err_set(err, ERR_LIMIT, "a box can have at most %d mounts", MOUNTS_MAX - 1);
        bool alone = strcmp(destination, BOX_CODE_DIR) != 0;
        if (open_script_source(job, policy, source, alone, &fd, err) < 0)
                return -1;
        if (!alone)
                return add_mount(job, fd, destination, false, err);
        if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
                return err_set(err, ERR_USAGE, "%.300s is not a plain file", source);
        return copy_script(job, fd, strrchr(destination, '/') + 1, err);
}

static int open_mounts(struct spawn_job *job, const struct policy *policy, struct err *err) {
        size_t i;
        json_t *mount;
        json_array_foreach (json_object_get(job->options, "mounts"), i, mount) {
                const char *source = json_string_value(json_object_get(mount, "source"));
                const char *destination = json_string_value(json_object_get(mount, "destination"));
                bool writable = json_is_true(json_object_get(mount, "writable"));
                _cleanup_fd_ int fd = -1;
                if (!source || !destination)
                        return err_set(err, ERR_USAGE, "a mount needs \"source\" and \"destination\"");
                if (policy_check_destination(destination, err) < 0 ||
                    policy_open_source(policy, source, writable, &fd, err) < 0 ||
                    add_mount(job, fd, destination, writable, err) < 0)
                        return -1;
        }
        if (open_script(job, policy, err) < 0)
                return -1;
        const char *data = json_string_value(json_object_get(job->options, "data"));
        _cleanup_fd_ int data_fd = -1;
        if (data && (policy_open_source(policy, data, false, &data_fd, err) < 0 ||
                     add_mount(job, data_fd, BOX_DATA_DIR, false, err) < 0))
                return -1;
        if (job->request->ephemeral || job->request->is_program)
                return 0; /* it never sleeps, and everything that it can write to is bounded */
        _cleanup_fd_ int session_dir = open_own_directory(job->request->state_dir, err);
        return session_dir < 0 ? -1 : add_mount(job, session_dir, SESSION_DIR, true, err);
}

static struct policy make_policy(const struct spawn_job *job) {
        return maker_policy(job->settings, json_is_true(json_object_get(job->options, "operator")),
                            job->request->of_key);
}

int spawn_job_open_trees(struct spawn_job *job, struct err *err) {
        const struct policy policy = make_policy(job);
        for (size_t i = 0; i < job->n_mounts; i++)
                fd_close(&job->mounts[i].tree_fd);
        job->n_mounts = 0;
        fd_close(&job->workspace_fd);
        if (open_workspace(job, &policy, err) < 0 || open_mounts(job, &policy, err) < 0)
                return -1;
        return open_packages(job, err);
}

int spawn_job_open_late_trees(struct spawn_job *job, struct err *err) {
        const struct policy policy = make_policy(job);
        if (*job->request->workspace) {
                if (open_workspace(job, &policy, err) < 0)
                        return -1;
                int tree = fcntl(job->workspace_fd, F_DUPFD_CLOEXEC, 3);
                if (tree < 0)
                        return err_sys(err, errno, "opening the workspace");
                job->mounts[job->n_mounts++] = (struct box_mount) { tree, true, true, BOX_WORKSPACE };
        }
        return open_mounts(job, &policy, err);
}
