#include "session/making.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/environment.h"
#include "box/identity.h"
#include "box/policy.h"
#include "box/tree.h"
#include "session/log.h"
#include "session/oom.h"
#include "session/packages.h"
#include "session/view.h"
#include "wire/frame.h"

#define SESSION_DIR "/run/session"

enum { MOUNTS_MAX = 32, OUTPUT_PIPE_BYTES = 1 << 20, ENV_MAX = 256 /* beside our own few */,
       WAITING_AGE_MS = 100, KERNEL_FDS = 5 /* 0, 1, 2, requests, replies */ };

/* Everything that is open while one box is being made. */
struct making {
        struct maker_request own_request;
        const struct maker_request *request; /* that one */
        const struct maker_settings *settings;
        const struct cgroup_host *host;
        struct nursery *nursery; /* whose ward has the box; NULL: nobody's */
        bool for_stock, from_stock;
        json_t *options;
        struct view *view; /* of the image */
        int lease_fd, workspace_fd, listener_fd;
        uid_t uid;
        gid_t gid;
        struct box_mount mounts[MOUNTS_MAX];
        size_t n_mounts;
        char *env[ENV_MAX + 5]; /* the caller's, four of ours, NULL */
        char **environment; /* all of it, for the kernel */
        struct box_spec spec;
        struct box_birth birth;
        bool is_settling; /* the birth is under way, and the box is not there yet */
        struct box box;
};

void making_free(struct making *making) {
        if (!making)
                return;
        if (making->is_settling)
                box_abandon(&making->birth);
        (void) box_end(&making->box, NULL, NULL);
        for (size_t i = 0; i < making->n_mounts; i++)
                fd_close(&making->mounts[i].tree_fd);
        for (size_t i = 0; making->env[i]; i++)
                free(making->env[i]);
        fd_close(&making->workspace_fd);
        fd_close(&making->lease_fd);
        fd_close(&making->listener_fd);
        view_close(making->view);
        if (making->environment)
                environment_free(making->environment);
        json_decref(making->options);
        free(making);
}

static int share(const struct making *making, int fd, bool writable) {
        return tree_clone_owned(fd, writable, making->lease_fd >= 0, making->uid, making->gid);
}

static int add_mount(struct making *making, int source_fd, const char *destination, bool writable, struct err *err) {
        if (making->n_mounts == MOUNTS_MAX)
                return err_set(err, ERR_LIMIT, "a box can have at most %d mounts", MOUNTS_MAX - 1);
        struct stat status;
        int tree = fstat(source_fd, &status) < 0 ? -errno : share(making, source_fd, writable);
        if (tree < 0)
                return tree_explain(tree, destination, err);
        making->mounts[making->n_mounts++] =
                (struct box_mount) { tree, S_ISDIR(status.st_mode), writable, destination };
        return 0;
}

static int open_own_directory(const char *path, struct err *err) {
        int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? err_sys(err, errno, "opening %s", path) : fd;
}

static int open_workspace(struct making *making, const struct policy *policy, struct err *err) {
        const struct maker_request *request = making->request;
        if (request->ephemeral) {
                making->workspace_fd = tree_make_tmpfs(request->limits.disk_bytes, request->limits.disk_files,
                                                       making->uid, making->gid, 0755);
                return making->workspace_fd < 0 ? err_sys(err, -making->workspace_fd, "making a workspace") : 0;
        }
        _cleanup_fd_ int source = -1;
        if (request->workspace_is_ours)
                source = open_own_directory(request->workspace, err);
        else if (policy_open_source(policy, request->workspace, true, &source, err) < 0)
                return -1;
        if (source < 0)
                return -1;
        making->workspace_fd = share(making, source, true);
        return making->workspace_fd < 0 ? tree_explain(making->workspace_fd, request->workspace, err) : 0;
}

/* A directory of the session's that it may only read. Its files are everybody's to read: no ids need to be mapped. */
static int show_own(struct making *making, const char *parent, const char *name, const char *destination,
                    struct err *err) {
        char path[1100];
        (void) snprintf(path, sizeof(path), "%s/%s", parent, name);
        _cleanup_fd_ int source = open_own_directory(path, err);
        if (source < 0)
                return -1;
        int tree = tree_clone(source, false);
        if (tree < 0)
                return tree_explain(tree, path, err);
        making->mounts[making->n_mounts++] = (struct box_mount) { tree, true, false, destination };
        return 0;
}

/* What the host's pip settings name: certificates, directories of packages. The operator's own words. */
static int show_settings(struct making *making, struct err *err) {
        size_t i;
        json_t *pair;
        json_array_foreach(json_object_get(making->options, "shown"), i, pair) {
                const char *source = json_string_value(json_array_get(pair, 0));
                const char *destination = json_string_value(json_array_get(pair, 1));
                _cleanup_fd_ int fd = source && destination ? open(source, O_PATH | O_CLOEXEC) : -1;
                if (fd < 0)
                        return err_sys(err, errno, "opening %.300s, which pip's settings name", source ? source : "");
                if (add_mount(making, fd, destination, false, err) < 0)
                        return -1;
        }
        return 0;
}

static int open_packages(struct making *making, struct err *err) {
        const struct maker_request *request = making->request;
        char staging[1100];
        if (making->n_mounts + 2 > MOUNTS_MAX)
                return err_set(err, ERR_LIMIT, "a box can have at most %d mounts", MOUNTS_MAX - 3);
        if (!*request->packages)
                return 0;
        if (!request->installs)
                return show_own(making, request->packages, "packages", PACKAGES_PLACE, err);
        (void) snprintf(staging, sizeof(staging), "%s/install", request->packages);
        _cleanup_fd_ int fd = open_own_directory(staging, err);
        if (fd < 0 || add_mount(making, fd, PACKAGES_PLACE, true, err) < 0 ||
            show_own(making, request->packages, "packages", PACKAGES_BEFORE_PLACE, err) < 0)
                return -1;
        return show_settings(making, err);
}

/* The script of a program, or its directory. Where it is shown is the caller's word, within the place for code. */
static int open_script(struct making *making, const struct policy *policy, struct err *err) {
        const char *source = json_string_value(json_object_get(making->options, "script"));
        const char *destination = json_string_value(json_object_get(making->options, "script_at"));
        _cleanup_fd_ int fd = -1;
        if (!source)
                return 0;
        if (!destination || strncmp(destination, BOX_CODE_DIR, strlen(BOX_CODE_DIR)) != 0 ||
            strchr(destination + strlen(BOX_CODE_DIR), '/') != strrchr(destination + strlen(BOX_CODE_DIR), '/') ||
            strstr(destination, ".."))
                return err_set(err, ERR_USAGE, "\"script_at\" must be " BOX_CODE_DIR " or a file in it");
        if (policy_open_source(policy, source, false, &fd, err) < 0)
                return -1;
        return add_mount(making, fd, destination, false, err);
}

static int open_mounts(struct making *making, const struct policy *policy, struct err *err) {
        size_t i;
        json_t *mount;
        json_array_foreach(json_object_get(making->options, "mounts"), i, mount) {
                const char *source = json_string_value(json_object_get(mount, "source"));
                const char *destination = json_string_value(json_object_get(mount, "destination"));
                bool writable = json_is_true(json_object_get(mount, "writable"));
                _cleanup_fd_ int fd = -1;
                if (!source || !destination)
                        return err_set(err, ERR_USAGE, "a mount needs \"source\" and \"destination\"");
                if (policy_check_destination(destination, err) < 0 ||
                    policy_open_source(policy, source, writable, &fd, err) < 0 ||
                    add_mount(making, fd, destination, writable, err) < 0)
                        return -1;
        }
        if (open_script(making, policy, err) < 0)
                return -1;
        const char *data = json_string_value(json_object_get(making->options, "data"));
        _cleanup_fd_ int data_fd = -1;
        if (data && (policy_open_source(policy, data, false, &data_fd, err) < 0 ||
                     add_mount(making, data_fd, "/data", false, err) < 0))
                return -1;
        if (making->request->ephemeral || making->request->is_program)
                return 0; /* it never sleeps, and everything that it can write to is bounded */
        _cleanup_fd_ int session_dir = open_own_directory(making->request->state_dir, err);
        return session_dir < 0 ? -1 : add_mount(making, session_dir, SESSION_DIR, true, err);
}

static int read_env(struct making *making, struct err *err) {
        const char *name;
        json_t *value;
        size_t n = 0;
        /* From when on data are worth trimming; the session may have its own idea, which comes later and wins. */
        if (asprintf(&making->env[n++], "DF_BYTES=%" PRIu64, making->settings->df_bytes) < 0 ||
            asprintf(&making->env[n++], "NP_BYTES=%" PRIu64, making->settings->np_bytes) < 0)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        json_object_foreach(json_object_get(making->options, "env"), name, value) {
                if (n == ENV_MAX + 2 || !json_is_string(value) || !*name || strchr(name, '='))
                        return err_set(err, ERR_USAGE, "env: names without \"=\" and texts only, at most %d", ENV_MAX);
                if (asprintf(&making->env[n], "%s=%s", name, json_string_value(value)) < 0)
                        return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                n++;
        }
        return 0;
}

/* The caller's value of a variable ("NAME=" is given), or NULL. */
static const char *given_value(const struct making *making, const char *prefix) {
        const char *given = NULL;
        for (size_t i = 0; making->env[i]; i++)
                if (strncmp(making->env[i], prefix, strlen(prefix)) == 0)
                        given = making->env[i] + strlen(prefix);
        return given;
}

/* The kernel's own way to its package comes after the caller's environment: a session cannot be talked out of it. The
 * session's packages come before the image's, or what covers one of these would not. */
static char **make_environment(struct making *making, struct err *err) {
        const struct image *image = &making->view->image;
        const char *python_path = given_value(making, "PYTHONPATH="), *path = given_value(making, "PATH=");
        bool has_packages = *making->request->packages && !making->request->installs;
        _cleanup_free_ char *usual = environment_path(image);
        size_t n = 0;
        if (!python_path)
                python_path = environment_image_value(image, "PYTHONPATH=");
        while (making->env[n])
                n++;
        if (asprintf(&making->env[n], "PYTHONPATH=" VIEW_KERNEL "%s%s%s%s", has_packages ? ":" PACKAGES_SITE : "",
                     image->has_layer ? ":" IMAGE_LAYER_PATH : "", python_path ? ":" : "",
                     python_path ? python_path : "") < 0 ||
            !usual ||
            (has_packages && asprintf(&making->env[n + 1], "PATH=" PACKAGES_BIN ":%s",
                                      path ? path : usual + strlen("PATH=")) < 0)) {
                (void) err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                return NULL;
        }
        return environment_make(image, &making->request->limits, making->request->network, making->env, err);
}

/* Ours go into the reply, theirs to the agent. Pipes only: what a box can write to and the daemon reads must not carry
 * descriptors (base/pipe_peek.h). */
static int open_channels(bool leased, struct maker_reply *reply, int ret_theirs[static KERNEL_FDS], struct err *err) {
        int requests[2] = { -1, -1 }, replies[2] = { -1, -1 }, out[2] = { -1, -1 }, error[2] = { -1, -1 };
        int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        int code = 0;
        if (null_fd < 0 || pipe2(requests, O_CLOEXEC) < 0 || pipe2(replies, O_CLOEXEC) < 0 ||
            pipe2(out, O_CLOEXEC) < 0 || pipe2(error, O_CLOEXEC) < 0)
                code = err_sys(err, errno, "making the kernel's channels");
        /* A megabyte printed at once then costs one wake-up instead of sixteen. An ordinary user may not have many such
         * pipes (fs.pipe-user-pages-soft): only where the limit does not count. */
        if (code == 0 && geteuid() == 0 && leased)
                (void) fcntl(out[1], F_SETPIPE_SZ, OUTPUT_PIPE_BYTES);
        reply->fds[MAKER_REQUESTS] = requests[1];
        reply->fds[MAKER_REPLIES] = replies[0];
        reply->fds[MAKER_OUT] = out[0];
        reply->fds[MAKER_ERR] = error[0];
        const int theirs[KERNEL_FDS] = { null_fd, out[1], error[1], requests[0], replies[1] };
        memcpy(ret_theirs, theirs, sizeof(theirs));
        return code;
}

/* Cold: the agent executes Python. */
static int execute_kernel(struct making *making, char *const *environment, const int theirs[static KERNEL_FDS],
                          struct err *err) {
        char *argv[] = { making->view->image.python, (char[]) { "-m" }, (char[]) { "glovebox_kernel" },
                         (char[]) { "--requests" }, (char[]) { "3" }, (char[]) { "--replies" }, (char[]) { "4" },
                         (char[]) { "--preload" }, (char *) making->request->preload, NULL };
        struct frame_writer payload = { 0 };
        frame_put_text(&payload, BOX_WORKSPACE);
        frame_put_texts(&payload, argv);
        frame_put_texts(&payload, environment);
        int sent = frame_send(making->box.control_fd, FRAME_START, 1, &payload, theirs, KERNEL_FDS);
        frame_writer_release(&payload);
        return sent < 0 ? err_sys(err, -sent, "asking the agent for a kernel") : 0;
}

static int start_kernel(struct making *making, struct maker_reply *reply, struct err *err) {
        struct nursery *nursery = making->nursery && making->nursery->state == NURSERY_READY ? making->nursery : NULL;
        int theirs[KERNEL_FDS];
        int code = open_channels(making->lease_fd >= 0, reply, theirs, err);
        const struct nursery_birth birth = { .box = &making->box, .spec = &making->spec,
                                             .environment = making->environment, .fds = theirs,
                                             .has_memory_cgroup = making->host->usable[CGROUP_MEMORY],
                                             .has_pids_cgroup = making->host->usable[CGROUP_PIDS],
                                             .is_awaited = !making->request->pooled };
        bool is_forked = code == 0 && nursery && nursery_fork(nursery, &birth, &reply->fds[MAKER_KERNEL],
                                                              &reply->fds[MAKER_STATUS], err) == 0;
        if (code == 0 && nursery && !is_forked)
                daemon_log("a kernel starts cold: %s", err->message);
        if (code == 0 && !is_forked)
                code = execute_kernel(making, making->environment, theirs, err);
        for (size_t i = 0; i < KERNEL_FDS; i++)
                fd_close(&theirs[i]);
        return code;
}

/* Image and options; the nursery is none of ours when the image is not the one that it imported. */
static int begin(struct making *making, struct err *err) {
        const char *options = making->request->options;
        making->options = json_loads(*options ? options : "{}", JSON_REJECT_DUPLICATES, NULL);
        if (!making->options)
                return err_set(err, ERR_USAGE, "the session's options are not JSON");
        /* What waits in the pool or the stock may have been made a little before the image changed as well. */
        uint64_t age_ms = making->for_stock || making->request->pooled ? WAITING_AGE_MS : 0;
        if (!(making->view = view_open(making->settings, making->request->image, age_ms, err)) ||
            read_env(making, err) < 0 || !(making->environment = make_environment(making, err)))
                return -1;
        if (making->nursery && making->nursery->fingerprint != making->view->fingerprint) {
                nursery_stop(making->nursery); /* the image was rebuilt: the next nursery imports the new one */
                making->nursery = NULL;
        }
        return 0;
}

static void fill_spec(struct making *making) {
        const struct maker_request *request = making->request;
        making->spec = (struct box_spec) { .name = request->group, .image = &making->view->image,
                                           .limits = request->limits,
                                           .allow_weaker = request->allow_weaker, .host_uid = making->uid,
                                           .host_gid = making->gid, .workspace_fd = making->workspace_fd,
                                           .mounts = making->mounts, .n_mounts = making->n_mounts,
                                           .ret_listener_fd = request->network ? &making->listener_fd : NULL };
}

struct policy maker_policy(const struct maker_settings *settings, bool is_operator, bool of_key) {
        return (struct policy) { .operator = is_operator,
                                 .read_paths = settings->read_paths,
                                 .write_paths = of_key ? settings->key_write_paths : settings->write_paths,
                                 .socket_path = settings->socket_path,
                                 .state_dir = settings->data_dir };
}

static struct policy make_policy(const struct making *making) {
        return maker_policy(making->settings, json_is_true(json_object_get(making->options, "operator")),
                            making->request->of_key);
}

static int open_trees(struct making *making, struct err *err) {
        const struct policy policy = make_policy(making);
        for (size_t i = 0; i < making->n_mounts; i++)
                fd_close(&making->mounts[i].tree_fd);
        making->n_mounts = 0;
        fd_close(&making->workspace_fd);
        if (open_workspace(making, &policy, err) < 0 || open_mounts(making, &policy, err) < 0)
                return -1;
        return open_packages(making, err);
}

/* A box that failed halfway may have mounted the trees already: one serves one box. */
static int start_without_ward(struct making *making, struct err *err) {
        if (making->nursery) {
                daemon_log("a kernel starts cold: no box below the nursery's ward: %s", err->message);
                making->nursery = NULL;
                if (open_trees(making, err) < 0)
                        return -1;
                fill_spec(making);
        }
        if (box_start(&making->spec, making->host, &making->box, err) < 0)
                return -1;
        return oom_unspare(making->box.pidfd, making->box.pid, OOM_OFFERED, err);
}

/* A box of the nursery's ward, so that it can fork into it; or, when that does not work out, of nobody's. */
static int start_box(struct making *making, struct err *err) {
        struct ward *ward = making->nursery ? making->nursery->ward : NULL;
        uint64_t mould = ward ? ward_mould_of(making->nursery->fingerprint, &making->spec) : 0;
        making->spec.from_mould = ward && mould && ward->mould == mould;
        if (ward && box_prepare(&making->spec, making->host, &making->birth, err) == 0) {
                if (ward_clone_box(ward, &making->birth, mould, err) == 0 && box_proceed(&making->birth, err) == 0) {
                        making->is_settling = true;
                        return 0;
                }
                box_abandon(&making->birth);
        }
        return start_without_ward(making, err);
}

static int make_box(struct making *making, struct err *err) {
        if (identity_lease(&making->uid, &making->gid, &making->lease_fd, err) < 0 || open_trees(making, err) < 0)
                return -1;
        fill_spec(making);
        return start_box(making, err);
}

/* Would any box of its kind do? Only options that concern the kernel and not the box may be there. */
static bool is_plain(const struct making *making) {
        const char *name;
        json_t *value;
        json_object_foreach(making->options, name, value)
                if (strcmp(name, "env") != 0 && strcmp(name, "operator") != 0)
                        return false;
        const struct maker_request *request = making->request;
        return request->ephemeral && !request->network && !request->installs && !*request->packages;
}

static bool take_from_stock(struct making *making, struct stock *stock) {
        struct stock_box stocked;
        if (!making->nursery || !is_plain(making))
                return false;
        stock_note(stock, making->request);
        if (!stock_take(stock, making->request, making->nursery, &stocked))
                return false;
        making->box = stocked.box;
        making->lease_fd = stocked.lease_fd;
        making->workspace_fd = stocked.workspace_fd;
        making->uid = stocked.uid;
        making->gid = stocked.gid;
        making->from_stock = true;
        fill_spec(making);
        return true;
}

struct making *making_start(const struct maker_settings *settings, const struct cgroup_host *host,
                            struct nursery *nursery, struct stock *stock, const struct maker_request *request,
                            struct err *err) {
        struct making *making = calloc(1, sizeof(*making));
        if (!making) {
                (void) err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                return NULL;
        }
        making->own_request = *request;
        making->request = &making->own_request;
        making->settings = settings;
        making->host = host;
        making->nursery = nursery;
        making->lease_fd = making->workspace_fd = making->listener_fd = -1;
        making->box = (struct box) { .pidfd = -1, .control_fd = -1 };
        making->for_stock = !stock;
        if (begin(making, err) == 0 && ((stock && take_from_stock(making, stock)) || make_box(making, err) == 0))
                return making;
        making_free(making);
        return NULL;
}

bool making_is_for_stock(const struct making *making) {
        return making->for_stock;
}

const struct maker_request *making_request(const struct making *making) {
        return making->request;
}

const struct nursery *making_nursery(const struct making *making) {
        return making->nursery;
}

int making_wait_fd(const struct making *making) {
        return making->is_settling ? making->birth.sync_fd : -1;
}

int making_settle(struct making *making, struct err *err) {
        if (!making->is_settling)
                return 0;
        making->is_settling = false;
        if (box_settle(&making->birth, &making->box, err) == 0)
                return oom_unspare(making->box.pidfd, making->box.pid, OOM_OFFERED, err);
        box_abandon(&making->birth);
        return start_without_ward(making, err);
}

/* A box that waited may have died the moment it was needed: then this request gets one of its own. */
static int start_again(struct making *making, struct maker_reply *reply, struct err *err) {
        for (size_t i = 0; i < MAKER_FDS; i++)
                fd_close(&reply->fds[i]);
        (void) box_end(&making->box, NULL, NULL);
        fd_close(&making->workspace_fd);
        fd_close(&making->lease_fd);
        making->from_stock = false;
        return make_box(making, err) < 0 || making_settle(making, err) < 0 ? -1 : start_kernel(making, reply, err);
}

int making_finish(struct making *making, struct maker_reply *reply, struct err *err) {
        if (start_kernel(making, reply, err) < 0 && (!making->from_stock || start_again(making, reply, err) < 0))
                return -1;
        reply->pid = making->box.pid;
        reply->host_uid = making->uid;
        (void) snprintf(reply->group, sizeof(reply->group), "%.47s", making->box.cgroup.name);
        reply->fds[MAKER_PIDFD] = take_fd(&making->box.pidfd);
        reply->fds[MAKER_CONTROL] = take_fd(&making->box.control_fd);
        reply->fds[MAKER_WORKSPACE] = take_fd(&making->workspace_fd);
        reply->fds[MAKER_LEASE] = take_fd(&making->lease_fd);
        reply->fds[MAKER_LISTENER] = take_fd(&making->listener_fd);
        /* From here on the box belongs to whoever holds these descriptors; only its control groups keep a name. */
        making->box.pid = 0;
        cgroup_release(&making->box.cgroup);
        return 0;
}

void making_store(struct making *making, struct stock *stock) {
        if (!making->nursery)
                return; /* not below a ward: nothing could be forked into it */
        const struct stock_box made = { .box = making->box, .uid = making->uid, .gid = making->gid,
                                        .ward_pid = making->nursery->ward->pid,
                                        .fingerprint = making->view->fingerprint,
                                        .lease_fd = take_fd(&making->lease_fd),
                                        .workspace_fd = take_fd(&making->workspace_fd) };
        making->box = (struct box) { .pidfd = -1, .control_fd = -1 };
        stock_put(stock, &made);
}
