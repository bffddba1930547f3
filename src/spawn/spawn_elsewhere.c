#include "spawn/spawn_elsewhere.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/host/identity.h"
#include "box/seal/tree.h"
#include "engine/engine.h"
#include "engine/mount_dir.h"
#include "spawn/image_cache.h"
#include "spawn/kernel_copy.h"
#include "spawn/spawn_job_state.h"

/* The engine makes its control groups. */
static const struct cgroup_host no_groups;

static const char *const workspace_names[] = { BOX_WORKSPACE, "/session", "/sandbox", "/work" };

/* The image as the engine knows it. Our kernel's files are shown beside it. */
static int open_image(struct spawn_job *job, const struct engine *engine, struct err *err) {
        const struct maker_request *request = job->request;
        if (engine->inspect_image(job->settings->engines, request->image, &job->image, err) < 0)
                return -1;
        job->options = json_loads(*request->options ? request->options : "{}", JSON_REJECT_DUPLICATES, NULL);
        if (!job->options)
                return err_set(err, ERR_USAGE, "the session's options are not JSON");
        if (spawn_job_read_env(job, err) < 0)
                return -1;
        job->environment = spawn_job_make_environment(job, err);
        return job->environment ? 0 : -1;
}

/* Files on the host stay their owner's: they are mapped to the user of the box. A daemon that is not root cannot map
 * them: then the engine does, or the box runs as their owner. */
static int choose_user(struct spawn_job *job, const struct engine *engine, struct err *err) {
        const struct engine_settings *settings = job->settings->engines;
        job->is_leased = identity_has_range();
        job->is_served = *job->request->runtime != '\0';
        job->is_plain = !job->is_leased;
        job->uid = BOX_UID;
        job->gid = BOX_GID;
        if (job->is_leased)
                return 0;
        if (!engine->choose_user)
                return err_set(err, ERR_UNSUPPORTED,
                               "engine %s shows files through mounts that only root can make: run the daemon as root, "
                               "or use podman, docker or native",
                               engine->name);
        if (!engine_has_bounds(engine, settings) && !job->request->allow_weaker)
                return err_set(err, ERR_UNSUPPORTED,
                               "%s of a user cannot bound memory and processes here, since the control groups are of "
                               "version 1: accept that with --allow-weaker, or use native, or root's %s",
                               engine->name, engine->name);
        return engine->choose_user(settings, &job->uid, &job->gid, err);
}

/* Bounded in files too, which not every engine's own can be. */
static int show_tmpfs(struct spawn_job *job, struct mount_dir *dir, const char *destination, unsigned mode,
                      struct err *err) {
        if (job->is_plain)
                return mount_dir_add_tmpfs(dir, destination, job->request->limits.tmp_bytes, err);
        _cleanup_fd_ int tree =
                tree_make_tmpfs(job->request->limits.tmp_bytes, LIMITS_TMP_FILES, job->uid, job->gid, mode);
        const struct box_mount mount = { tree, true, true, destination };
        if (tree < 0)
                return err_sys(err, -tree, "making %s", destination);
        return mount_dir_add_tree(dir, &mount, err);
}

static int show_all(struct spawn_job *job, int kernel_fd, struct mount_dir *dir, struct err *err) {
        struct box_mount workspace = { job->workspace_fd, true, true, BOX_WORKSPACE };
        _cleanup_fd_ int kernel_tree = kernel_fd < 0   ? -1
                                       : job->is_plain ? fcntl(kernel_fd, F_DUPFD_CLOEXEC, 3)
                                                       : tree_clone(kernel_fd, false);
        const struct box_mount files = { kernel_tree, true, false, IMAGE_KERNEL_PATH };
        if (kernel_tree < 0)
                return err_sys(err, errno, "opening the kernel's own files in %s", job->settings->kernel_dir);
        bool is_inside = job->is_plain && job->request->ephemeral;
        if (is_inside ? mount_dir_add_tmpfs(dir, BOX_WORKSPACE, job->request->limits.disk_bytes, err) < 0
                      : mount_dir_add_tree(dir, &workspace, err) < 0)
                return -1;
        const char *source = dir->mounts[dir->n_mounts - 1].source;
        for (size_t i = 1; source && i < ELEMENTS(workspace_names); i++)
                if (mount_dir_add_path(dir, source, workspace_names[i], true, err) < 0)
                        return -1;
        if (mount_dir_add_tree(dir, &files, err) < 0 || show_tmpfs(job, dir, "/tmp", 01777, err) < 0 ||
            show_tmpfs(job, dir, BOX_HOME, 0700, err) < 0)
                return -1;
        for (size_t i = 0; i < job->n_mounts; i++)
                if (mount_dir_add_tree(dir, &job->mounts[i], err) < 0)
                        return -1;
        return 0;
}

static int make_box(struct spawn_job *job, const struct engine *engine, struct mount_dir *dir, struct err *err) {
        const struct maker_request *request = job->request;
        if (choose_user(job, engine, err) < 0)
                return -1;
        if (open_image(job, engine, err) < 0)
                return -1;
        /* Its sockets are not the host's. From any other box a UNIX socket to the proxy would carry descriptors, whose
         * close could block the proxy where the kernel cannot refuse them (fd_passing_refuse). */
        bool is_gvisor = strcmp(request->runtime, job->settings->engines->gvisor) == 0;
        struct engine_order order = { .name = request->group,
                                      .owner = job->settings->owner,
                                      .image = request->image,
                                      .runtime = request->runtime,
                                      .limits = request->limits,
                                      .daemon_is_user = job->is_plain,
                                      .has_bounds = engine_has_bounds(engine, job->settings->engines),
                                      .ret_workspace_fd =
                                              job->is_plain && request->ephemeral ? &job->workspace_fd : NULL,
                                      .network = request->network,
                                      .has_relay = request->network && is_gvisor };
        if (engine->reserve && engine->reserve(job->settings->engines, &order, &job->uid, &job->gid, err) < 0)
                return -1;
        if (spawn_job_open_trees(job, err) < 0 || mount_dir_open(job->settings->data_dir, request->group, dir, err) < 0)
                return -1;
        if (order.has_relay && (job->listener_fd = mount_dir_open_proxy(dir, err)) < 0) {
                mount_dir_release(dir);
                return -1;
        }
        struct kernel_copy kernel;
        (void) kernel_copy_open(job->settings->kernel_dir, job->settings->data_dir, &kernel);
        int code = show_all(job, kernel.fd, dir, err);
        order.mount_dir = dir->path;
        order.listen_fd = dir->listen_fd;
        order.uid = job->uid;
        order.gid = job->gid;
        order.mounts = dir->mounts;
        order.n_mounts = dir->n_mounts;
        if (code == 0)
                code = engine->make(job->settings->engines, &order, &job->box, &job->listener_fd, err);
        kernel_copy_close(&kernel);
        mount_dir_release(dir);
        return code;
}

int spawn_elsewhere(const struct maker_settings *settings, const struct maker_request *request,
                    struct maker_reply *reply, struct err *err) {
        const struct engine *engine = engine_find(request->engine, err);
        struct spawn_job *job = engine ? calloc(1, sizeof(*job)) : NULL;
        struct mount_dir *dir = job ? calloc(1, sizeof(*dir)) : NULL;
        if (!dir) {
                free(job);
                return engine ? err_set(err, ERR_SYSTEM, "out of memory") : -1;
        }
        job->request = request;
        job->settings = settings;
        job->host = &no_groups;
        spawn_job_clear(job);
        int code = make_box(job, engine, dir, err);
        bool is_made = code == 0;
        if (code == 0)
                code = spawn_job_start_kernel(job, err);
        if (code < 0 && (is_made || engine->reserve)) {
                struct err ignored;
                (void) engine->remove(settings->engines, request->group, &ignored);
        }
        if (code == 0) {
                (void) snprintf(reply->group, sizeof(reply->group), "%s", request->group);
                spawn_job_give(job, reply);
        } else
                mount_dir_remove(request->group);
        fd_close(&job->box.pidfd);
        fd_close(&job->box.control_fd);
        job->box = (struct box) { .pidfd = -1, .control_fd = -1 };
        spawn_job_free(job);
        free(dir);
        return code;
}
