#include "spawn/spawn_job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/oom.h"
#include "box/host/host_trial.h"
#include "box/host/identity.h"
#include "box/late_mounts.h"
#include "box/policy.h"
#include "box/seal/environment.h"
#include "engine/programs.h"
#include "spawn/image_cache.h"
#include "spawn/spawn_job_state.h"
#include "store/packages.h"
#include "wire/frame.h"

void spawn_job_clear(struct spawn_job *job) {
        job->lease_fd = job->workspace_fd = job->listener_fd = -1;
        job->box = (struct box) { .pidfd = -1, .control_fd = -1 };
        memset(job->ours, 0xff, sizeof(job->ours));
        memset(job->theirs, 0xff, sizeof(job->theirs));
}

static void close_all(int *fds, size_t n) {
        for (size_t i = 0; i < n; i++)
                fd_close(&fds[i]);
}

void spawn_job_free(struct spawn_job *job) {
        if (!job)
                return;
        if (job->is_settling)
                box_abandon(&job->birth);
        if (job->is_sealing)
                nursery_drop(&job->child);
        close_all(job->ours, MAKER_FDS);
        close_all(job->theirs, KERNEL_FDS);
        (void) box_end(&job->box, NULL, NULL);
        for (size_t i = 0; i < job->n_mounts; i++)
                fd_close(&job->mounts[i].tree_fd);
        for (size_t i = 0; job->env[i]; i++)
                free(job->env[i]);
        fd_close(&job->workspace_fd);
        fd_close(&job->lease_fd);
        fd_close(&job->listener_fd);
        image_close(&job->image);
        if (job->environment)
                environment_free(job->environment);
        json_decref(job->options);
        free(job);
}

int spawn_job_read_env(struct spawn_job *job, struct err *err) {
        const char *name;
        json_t *value;
        size_t n = 0;
        /* The size from which data are trimmed; a session's own value follows later and wins. */
        if (asprintf(&job->env[n++], "DF_BYTES=%" PRIu64, job->settings->df_bytes) < 0 ||
            asprintf(&job->env[n++], "NP_BYTES=%" PRIu64, job->settings->np_bytes) < 0)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        json_object_foreach (json_object_get(job->options, "env"), name, value) {
                if (n == ENV_MAX + 2 || !json_is_string(value) || !*name || strchr(name, '='))
                        return err_set(err, ERR_USAGE, "env: names without \"=\" and texts only, at most %d", ENV_MAX);
                if (asprintf(&job->env[n], "%s=%s", name, json_string_value(value)) < 0)
                        return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                n++;
        }
        return 0;
}

/* The caller's value of a variable ("NAME=" is given), or NULL. */
static const char *given_value(const struct spawn_job *job, const char *prefix) {
        const char *given = NULL;
        for (size_t i = 0; job->env[i]; i++)
                if (strncmp(job->env[i], prefix, strlen(prefix)) == 0)
                        given = job->env[i] + strlen(prefix);
        return given;
}

/* The path of the kernel's own package comes after the caller's environment, so a caller cannot override it. The
 * session's packages come before the image's, so that they take precedence. */
char **spawn_job_make_environment(struct spawn_job *job, struct err *err) {
        const struct image *image = &job->image;
        const char *python_path = given_value(job, "PYTHONPATH="), *path = given_value(job, "PATH=");
        bool has_packages = *job->request->packages && !job->request->installs;
        _cleanup_free_ char *usual = environment_path(image);
        size_t n = 0;
        if (!python_path)
                python_path = environment_image_value(image, "PYTHONPATH=");
        while (job->env[n])
                n++;
        if (asprintf(&job->env[n], "PYTHONPATH=" IMAGE_KERNEL_PATH "%s%s%s%s", has_packages ? ":" PACKAGES_SITE : "",
                     image->has_layer ? ":" IMAGE_LAYER_PATH : "", python_path ? ":" : "",
                     python_path ? python_path : "") < 0 ||
            !usual ||
            (has_packages &&
             asprintf(&job->env[n + 1], "PATH=" PACKAGES_BIN ":%s", path ? path : usual + strlen("PATH=")) < 0)) {
                (void) err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                return NULL;
        }
        return environment_make(image, &job->request->limits, job->request->network, job->env, err);
}

/* Our ends go into the reply, theirs to the kernel. Only pipes: a channel that a box can write to and the daemon reads
 * must not pass descriptors (base/pipe_peek.h). */
static int open_channels(struct spawn_job *job, struct err *err) {
        int requests[2] = { -1, -1 }, replies[2] = { -1, -1 }, out[2] = { -1, -1 }, error[2] = { -1, -1 };
        int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        int code = 0;
        if (null_fd < 0 || fd_make_pipe_to_box(requests) < 0 || pipe2(replies, O_CLOEXEC) < 0 ||
            fd_make_pipe_from_box(out) < 0 || fd_make_pipe_from_box(error) < 0)
                code = err_sys(err, errno, "making the kernel's channels");
        /* A megabyte printed at once then costs one wake-up instead of sixteen. An ordinary user may not have many such
         * pipes (fs.pipe-user-pages-soft): only where the limit does not count. */
        if (code == 0 && geteuid() == 0 && job->lease_fd >= 0)
                (void) fcntl(out[1], F_SETPIPE_SZ, OUTPUT_PIPE_BYTES);
        job->ours[MAKER_REQUESTS] = requests[1];
        job->ours[MAKER_REPLIES] = replies[0];
        job->ours[MAKER_OUT] = out[0];
        job->ours[MAKER_ERR] = error[0];
        const int theirs[KERNEL_FDS] = { null_fd, out[1], error[1], requests[0], replies[1] };
        memcpy(job->theirs, theirs, sizeof(theirs));
        return code;
}

/* Python looks for modules in the current directory first, which is the workspace: a random.py there, the user's, would
 * take the place of the module that the kernel means. */
#define KERNEL_START                                                                                                   \
        "import sys\nif sys.path[0] == '': del sys.path[0]\nfrom glovebox_kernel.main import main\nmain()\n"

/* Cold: the agent executes Python. In an image of another engine there may be none: what is executed there becomes
 * Python, or serves commands without it (guest/commands). */
static int execute_kernel(struct spawn_job *job, struct err *err) {
        char *argv[] = { (char[]) { ENGINE_PROGRAMS "/commands" },
                         job->image.python,
                         (char[]) { "-c" },
                         (char[]) { KERNEL_START },
                         (char[]) { "--requests" },
                         (char[]) { "3" },
                         (char[]) { "--replies" },
                         (char[]) { "4" },
                         (char[]) { "--preload" },
                         (char *) job->request->preload,
                         NULL };
        struct frame_writer payload = { 0 };
        frame_put_text(&payload, BOX_WORKSPACE);
        frame_put_texts(&payload, argv + (*job->request->engine ? 0 : 1));
        frame_put_texts(&payload, job->environment);
        int sent = frame_send(job->box.control_fd, FRAME_START, 1, &payload, job->theirs, KERNEL_FDS);
        frame_writer_release(&payload);
        close_all(job->theirs, KERNEL_FDS);
        return sent < 0 ? err_sys(err, -sent, "asking the agent for a kernel") : 0;
}

int spawn_job_start_kernel(struct spawn_job *job, struct err *err) {
        struct nursery *nursery = job->nursery && job->nursery->state == NURSERY_READY ? job->nursery : NULL;
        if (open_channels(job, err) < 0)
                return -1;
        const struct nursery_birth birth = { .box = &job->box,
                                             .spec = &job->spec,
                                             .environment = job->environment,
                                             .fds = job->theirs,
                                             .has_memory_cgroup = job->host->usable[CGROUP_MEMORY],
                                             .has_pids_cgroup = job->host->usable[CGROUP_PIDS],
                                             .is_awaited = !job->request->pooled,
                                             .mounts_follow = job->request->pooled };
        if (!nursery)
                return execute_kernel(job, err);
        job->is_sealing = nursery_fork(nursery, &birth, &job->child, err) == 0;
        if (job->is_sealing)
                return 0;
        daemon_log("a kernel starts cold: %s", err->message);
        return execute_kernel(job, err);
}

static int release_kernel(struct spawn_job *job, struct err *err) {
        job->is_sealing = false;
        if (nursery_release(job->nursery, &job->child, err) < 0) {
                daemon_log("a kernel starts cold: %s", err->message);
                return execute_kernel(job, err);
        }
        job->ours[MAKER_KERNEL] = take_fd(&job->child.pidfd);
        job->ours[MAKER_STATUS] = take_fd(&job->child.status_fd);
        close_all(job->theirs, KERNEL_FDS);
        return 0;
}

static int spawn_job_read_options(struct spawn_job *job, struct err *err) {
        const char *options = job->request->options;
        job->options = json_loads(*options ? options : "{}", JSON_REJECT_DUPLICATES, NULL);
        job->has_users = json_is_true(json_object_get(job->options, "users")) && !job->request->installs;
        return job->options ? 0 : err_set(err, ERR_USAGE, "the session's options are not JSON");
}

/* Image and options; the nursery is not used if the image is not the one that it imported. */
static int spawn_job_begin(struct spawn_job *job, struct err *err) {
        if (spawn_job_read_options(job, err) < 0)
                return -1;
        if (image_cache_open(job->settings, job->request->image, &job->image, &job->fingerprint, err) < 0 ||
            spawn_job_read_env(job, err) < 0 || !(job->environment = spawn_job_make_environment(job, err)))
                return -1;
        if (job->nursery && job->nursery->fingerprint != job->fingerprint) {
                nursery_stop(job->nursery); /* the image was rebuilt: the next nursery imports the new one */
                job->nursery = NULL;
        }
        return 0;
}

static void fill_spec(struct spawn_job *job) {
        const struct maker_request *request = job->request;
        job->spec = (struct box_spec) { .name = request->group,
                                        .image = &job->image,
                                        .limits = request->limits,
                                        .allow_weaker = request->allow_weaker,
                                        .without_proc = request->allow_weaker && host_refuses_proc(),
                                        .users = job->has_users,
                                        .host_uid = job->uid,
                                        .host_gid = job->gid,
                                        .workspace_fd = job->workspace_fd,
                                        .mounts = job->mounts,
                                        .n_mounts = job->n_mounts,
                                        .ret_listener_fd = request->network ? &job->listener_fd : NULL };
}

struct policy maker_policy(const struct maker_settings *settings, bool is_operator, bool of_key) {
        return (struct policy) { .is_operator = is_operator,
                                 .read_paths = settings->read_paths,
                                 .write_paths = of_key ? settings->key_write_paths : settings->write_paths,
                                 .socket_path = settings->socket_path,
                                 .state_dir = settings->data_dir };
}

/* A box that failed halfway may have mounted the trees already: they are used once. */
static int start_without_supervisor(struct spawn_job *job, struct err *err) {
        if (job->nursery) {
                daemon_log("a kernel starts cold: no box below the nursery's supervisor: %s", err->message);
                job->nursery = NULL;
                if (spawn_job_open_trees(job, err) < 0)
                        return -1;
                fill_spec(job);
        }
        if (box_start(&job->spec, job->host, &job->box, err) < 0)
                return -1;
        return oom_unspare(job->box.pidfd, job->box.pid, OOM_OFFERED, err);
}

/* A box of the nursery's supervisor, so that it can fork into it; or, if that fails, one without a supervisor. */
static int start_box(struct spawn_job *job, struct err *err) {
        struct supervisor *supervisor = job->nursery ? job->nursery->supervisor : NULL;
        uint64_t template = supervisor ? supervisor_template_of(job->nursery->fingerprint, &job->spec) : 0;
        job->spec.from_template = supervisor && template && supervisor->template == template;
        if (supervisor && box_prepare(&job->spec, job->host, &job->birth, err) == 0) {
                if (supervisor_clone_box(supervisor, &job->birth, template, err) == 0 &&
                    box_proceed(&job->birth, err) == 0) {
                        job->is_settling = true;
                        return 0;
                }
                box_abandon(&job->birth);
        }
        return start_without_supervisor(job, err);
}

static int make_box(struct spawn_job *job, struct err *err) {
        int code = job->has_users ? identity_lease_users(&job->uid, &job->gid, &job->lease_fd, err)
                                  : identity_lease(&job->uid, &job->gid, &job->lease_fd, err);
        if (code < 0)
                return -1;
        job->is_leased = job->lease_fd >= 0;
        if (spawn_job_open_trees(job, err) < 0)
                return -1;
        fill_spec(job);
        if (job->has_users && job->spec.without_proc)
                return err_set(err, ERR_UNSUPPORTED,
                               "a sandbox with users needs /proc, which this host does not give to boxes; leave "
                               "\"users\" out");
        return start_box(job, err);
}

/* True if any box of its kind will do: all options of the request concern the kernel, and none the box. */
static bool is_plain(const struct spawn_job *job) {
        const char *name;
        json_t *value;
        json_object_foreach (job->options, name, value)
                if (strcmp(name, "env") != 0 && strcmp(name, "operator") != 0)
                        return false;
        const struct maker_request *request = job->request;
        return request->ephemeral && !request->network && !request->installs && !*request->packages;
}

static bool take_from_pool(struct spawn_job *job, struct box_pool *pool) {
        struct pooled_box pooled;
        if (!job->nursery || !is_plain(job))
                return false;
        box_pool_note(pool, job->request);
        if (!box_pool_take(pool, job->request, job->nursery, &pooled))
                return false;
        job->box = pooled.box;
        job->lease_fd = pooled.lease_fd;
        job->is_leased = pooled.lease_fd >= 0;
        job->workspace_fd = pooled.workspace_fd;
        job->uid = pooled.uid;
        job->gid = pooled.gid;
        job->from_pool = true;
        fill_spec(job);
        return true;
}

static struct spawn_job *spawn_job_new(const struct maker_settings *settings, const struct maker_request *request,
                                       struct err *err) {
        struct spawn_job *job = calloc(1, sizeof(*job));
        if (!job) {
                (void) err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                return NULL;
        }
        job->own_request = *request;
        job->request = &job->own_request;
        job->settings = settings;
        spawn_job_clear(job);
        return job;
}

struct spawn_job *spawn_job_start(const struct maker_settings *settings, const struct cgroup_host *host,
                                  struct nursery *nursery, struct box_pool *pool, const struct maker_request *request,
                                  struct err *err) {
        struct spawn_job *job = spawn_job_new(settings, request, err);
        if (!job)
                return NULL;
        job->host = host;
        job->nursery = nursery;
        job->for_pool = !pool;
        if (spawn_job_begin(job, err) == 0 && ((pool && take_from_pool(job, pool)) || make_box(job, err) == 0))
                return job;
        spawn_job_free(job);
        return NULL;
}

bool spawn_job_is_for_pool(const struct spawn_job *job) {
        return job->for_pool;
}

const struct maker_request *spawn_job_request(const struct spawn_job *job) {
        return job->request;
}

const struct nursery *spawn_job_nursery(const struct spawn_job *job) {
        return job->nursery;
}

int spawn_job_wait_fd(const struct spawn_job *job) {
        return job->is_settling ? job->birth.sync_fd : job->is_sealing ? job->child.verdict_fd : -1;
}

bool spawn_job_is_late(const struct spawn_job *job) {
        return job->is_sealing && loop_now_ms() >= job->child.until_ms;
}

static int settle_box(struct spawn_job *job, struct err *err) {
        job->is_settling = false;
        if (box_settle(&job->birth, &job->box, err) == 0)
                return oom_unspare(job->box.pidfd, job->box.pid, OOM_OFFERED, err);
        box_abandon(&job->birth);
        return start_without_supervisor(job, err);
}

/* A box of the pool may have died in the meantime: then this request gets a new one. */
static int start_again(struct spawn_job *job, struct err *err) {
        close_all(job->ours, MAKER_FDS);
        close_all(job->theirs, KERNEL_FDS);
        (void) box_end(&job->box, NULL, NULL);
        fd_close(&job->workspace_fd);
        fd_close(&job->lease_fd);
        job->from_pool = false;
        if (make_box(job, err) < 0)
                return -1;
        return job->is_settling ? 0 : spawn_job_start_kernel(job, err);
}

int spawn_job_continue(struct spawn_job *job, struct err *err) {
        if (job->is_settling && settle_box(job, err) < 0)
                return -1;
        if (job->for_pool)
                return 0;
        int code = job->is_sealing ? release_kernel(job, err) : spawn_job_start_kernel(job, err);
        return code < 0 && job->from_pool ? start_again(job, err) : code;
}

void spawn_job_give(struct spawn_job *job, struct maker_reply *reply) {
        reply->pid = job->box.pid;
        reply->host_uid = job->uid;
        memcpy(reply->fds, job->ours, sizeof(reply->fds));
        memset(job->ours, 0xff, sizeof(job->ours));
        reply->fds[MAKER_PIDFD] = take_fd(&job->box.pidfd);
        reply->fds[MAKER_CONTROL] = take_fd(&job->box.control_fd);
        reply->fds[MAKER_WORKSPACE] = take_fd(&job->workspace_fd);
        reply->fds[MAKER_LEASE] = take_fd(&job->lease_fd);
        reply->fds[MAKER_LISTENER] = take_fd(&job->listener_fd);
        /* From here on the box belongs to the holder of these descriptors; only its control groups keep a name. */
        job->box.pid = 0;
}

void spawn_job_finish(struct spawn_job *job, struct maker_reply *reply) {
        (void) snprintf(reply->group, sizeof(reply->group), "%.47s", job->box.cgroup.name);
        spawn_job_give(job, reply);
        cgroup_release(&job->box.cgroup);
}

int spawn_job_attach(const struct maker_settings *settings, const struct maker_request *request, int box_pidfd,
                     struct maker_reply *reply, struct err *err) {
        struct spawn_job *job = spawn_job_new(settings, request, err);
        if (!job)
                return -1;
        job->is_leased = request->box_is_leased;
        job->uid = request->box_is_leased ? request->box_uid : geteuid();
        job->gid = request->box_is_leased ? (gid_t) request->box_uid : getegid(); /* leased as a pair: identity.h */
        int code = spawn_job_read_options(job, err) < 0 || spawn_job_open_late_trees(job, err) < 0
                           ? -1
                           : late_mounts_attach(box_pidfd, job->mounts, job->n_mounts, job->uid, job->gid, err);
        if (code == 0)
                reply->fds[MAKER_WORKSPACE] = take_fd(&job->workspace_fd);
        spawn_job_free(job);
        return code;
}

void spawn_job_store(struct spawn_job *job, struct box_pool *pool) {
        if (!job->nursery)
                return; /* not below a supervisor: nothing could be forked into it */
        const struct pooled_box made = { .box = job->box,
                                         .uid = job->uid,
                                         .gid = job->gid,
                                         .supervisor_pid = job->nursery->supervisor->pid,
                                         .fingerprint = job->fingerprint,
                                         .lease_fd = take_fd(&job->lease_fd),
                                         .workspace_fd = take_fd(&job->workspace_fd) };
        job->box = (struct box) { .pidfd = -1, .control_fd = -1 };
        box_pool_put(pool, &made);
}
