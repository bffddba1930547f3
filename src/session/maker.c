#include "session/maker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/passing.h"
#include "box/box.h"
#include "box/environment.h"
#include "box/identity.h"
#include "box/policy.h"
#include "box/tree.h"
#include "image/image.h"
#include "session/nursery.h"
#include "session/oom.h"
#include "session/packages.h"
#include "wire/frame.h"

#define KERNEL_TREE "/opt/glovebox/kernel"
#define SESSION_DIR "/run/session"

enum {
        MOUNTS_MAX = 32, OUTPUT_PIPE_BYTES = 1 << 20,
        ENV_MAX = 256, /* beside our own few */
        NURSERIES_MAX = 4,
        WAITING_MAX = 64,
        NURSERY_WAIT_MS = 30000,    /* a request waits no longer for a nursery that is importing */
        NURSERY_NO_IMAGE_MS = 60000,
};

/* Everything that is open while one box is being made. */
struct making {
        const struct maker_request *request;
        const struct maker_settings *settings;
        json_t *options;
        struct image image;
        int lease_fd, workspace_fd;
        uid_t uid;
        gid_t gid;
        struct box_mount mounts[MOUNTS_MAX];
        size_t n_mounts;
        char *env[ENV_MAX + 5]; /* the caller's, four of ours, NULL */
        struct box box;
};

static void making_release(struct making *making) {
        (void) box_end(&making->box, NULL, NULL);
        for (size_t i = 0; i < making->n_mounts; i++)
                fd_close(&making->mounts[i].tree_fd);
        for (size_t i = 0; making->env[i]; i++)
                free(making->env[i]);
        fd_close(&making->workspace_fd);
        fd_close(&making->lease_fd);
        image_close(&making->image);
        json_decref(making->options);
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
        const char *data = json_string_value(json_object_get(making->options, "data"));
        _cleanup_fd_ int data_fd = -1;
        if (data && (policy_open_source(policy, data, false, &data_fd, err) < 0 ||
                     add_mount(making, data_fd, "/data", false, err) < 0))
                return -1;
        if (making->request->ephemeral)
                return 0; /* it never sleeps, and everything that it can write to is bounded */
        _cleanup_fd_ int session_dir = open_own_directory(making->request->state_dir, err);
        return session_dir < 0 ? -1 : add_mount(making, session_dir, SESSION_DIR, true, err);
}

/* The image with the kernel's own files in it. The caller closes it, whatever the result. */
static int open_image(const struct maker_settings *settings, const char *name, struct image *ret_image,
                      struct err *err) {
        if (image_open(settings->data_dir, name, ret_image, err) < 0)
                return -1;
        if (!*ret_image->python)
                return err_set(err, ERR_NOT_FOUND, "image %s has no python3: it cannot hold a kernel", ret_image->name);
        if (ret_image->n_trees == IMAGE_TREES_MAX)
                return err_set(err, ERR_LIMIT, "image %s shows too many directories", ret_image->name);
        struct image_tree *tree = &ret_image->trees[ret_image->n_trees];
        tree->fd = open(settings->kernel_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (tree->fd < 0)
                return err_sys(err, errno, "opening the kernel's own files in %s", settings->kernel_dir);
        (void) snprintf(tree->path, sizeof(tree->path), KERNEL_TREE);
        ret_image->n_trees++;
        return 0;
}

static int read_env(struct making *making, struct err *err) {
        const char *name;
        json_t *value;
        size_t n = 0;
        /* From when on data are worth trimming; the session may have its own idea, which comes later and wins. */
        if (asprintf(&making->env[n++], "DF_BYTES=%" PRIu64, making->settings->df_bytes) < 0 ||
            asprintf(&making->env[n++], "NP_BYTES=%" PRIu64, making->settings->np_bytes) < 0)
                return err_set(err, ERR_SYSTEM, "out of memory");
        json_object_foreach(json_object_get(making->options, "env"), name, value) {
                if (n == ENV_MAX + 2 || !json_is_string(value) || !*name || strchr(name, '='))
                        return err_set(err, ERR_USAGE, "env: names without \"=\" and texts only, at most %d", ENV_MAX);
                if (asprintf(&making->env[n], "%s=%s", name, json_string_value(value)) < 0)
                        return err_set(err, ERR_SYSTEM, "out of memory");
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
        const struct image *image = &making->image;
        const char *python_path = given_value(making, "PYTHONPATH="), *path = given_value(making, "PATH=");
        bool has_packages = *making->request->packages && !making->request->installs;
        size_t n = 0;
        while (making->env[n])
                n++;
        if (asprintf(&making->env[n], "PYTHONPATH=" KERNEL_TREE "%s%s%s%s", has_packages ? ":" PACKAGES_SITE : "",
                     image->has_layer ? ":" IMAGE_LAYER_PATH : "", python_path ? ":" : "",
                     python_path ? python_path : "") < 0 ||
            (has_packages && asprintf(&making->env[n + 1], "PATH=" PACKAGES_BIN ":%s", path ? path : BOX_PATH) < 0)) {
                (void) err_set(err, ERR_SYSTEM, "out of memory");
                return NULL;
        }
        return environment_make(image, &making->request->limits, making->request->network, making->env, err);
}

/* Ours go into the reply, theirs to the agent. */
static int open_channels(bool leased, struct maker_reply *reply, int ret_theirs[static 4], struct err *err) {
        int channel[2] = { -1, -1 }, out[2] = { -1, -1 }, error[2] = { -1, -1 };
        int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        int code = 0;
        if (null_fd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) < 0 ||
            pipe2(out, O_CLOEXEC) < 0 || pipe2(error, O_CLOEXEC) < 0)
                code = err_sys(err, errno, "making the kernel's channels");
        /* A megabyte printed at once then costs one wake-up instead of sixteen. An ordinary user may not have many such
         * pipes (fs.pipe-user-pages-soft): only where the limit does not count. */
        if (code == 0 && geteuid() == 0 && leased)
                (void) fcntl(out[1], F_SETPIPE_SZ, OUTPUT_PIPE_BYTES);
        reply->fds[MAKER_CHANNEL] = channel[0];
        reply->fds[MAKER_OUT] = out[0];
        reply->fds[MAKER_ERR] = error[0];
        const int theirs[4] = { null_fd, out[1], error[1], channel[1] };
        memcpy(ret_theirs, theirs, sizeof(theirs));
        return code;
}

/* Cold: the agent executes Python. */
static int execute_kernel(struct making *making, char *const *environment, const int theirs[static 4],
                          struct err *err) {
        char *argv[] = { making->image.python, (char[]) { "-m" }, (char[]) { "glovebox_kernel" },
                         (char[]) { "--fd" }, (char[]) { "3" }, (char[]) { "--preload" },
                         (char *) making->request->preload, NULL };
        struct frame_writer payload = { 0 };
        frame_put_text(&payload, BOX_WORKSPACE);
        frame_put_texts(&payload, argv);
        frame_put_texts(&payload, environment);
        int sent = frame_send(making->box.control_fd, FRAME_START, 1, &payload, theirs, 4);
        frame_writer_release(&payload);
        return sent < 0 ? err_sys(err, -sent, "asking the agent for a kernel") : 0;
}

static int start_kernel(struct making *making, struct nursery *nursery, const struct box_spec *spec,
                        const struct cgroup_host *host, struct maker_reply *reply, struct err *err) {
        char **environment = make_environment(making, err);
        if (!environment)
                return -1;
        int theirs[4];
        int code = open_channels(making->lease_fd >= 0, reply, theirs, err);
        const struct nursery_birth birth = { .box = &making->box, .spec = spec, .environment = environment,
                                             .fds = theirs,
                                             .has_memory_cgroup = host->usable[CGROUP_MEMORY],
                                             .has_pids_cgroup = host->usable[CGROUP_PIDS] };
        bool is_forked = code == 0 && nursery && nursery_fork(nursery, &birth, &reply->fds[MAKER_KERNEL],
                                                              &reply->fds[MAKER_STATUS], err) == 0;
        if (code == 0 && !is_forked)
                code = execute_kernel(making, environment, theirs, err);
        for (size_t i = 0; i < 4; i++)
                fd_close(&theirs[i]);
        environment_free(environment);
        return code;
}

/* A box of the nursery's ward, so that it can fork into it; *nursery becomes NULL when that does not work out. */
static int start_box(const struct box_spec *spec, const struct cgroup_host *host, struct nursery **nursery,
                     struct box *ret_box, struct err *err) {
        struct box_birth birth;
        if (*nursery && box_prepare(spec, host, &birth, err) == 0) {
                if (ward_clone_box(&(*nursery)->ward, &birth, err) == 0 && box_settle(&birth, ret_box, err) == 0)
                        return 0;
                box_abandon(&birth);
        }
        *nursery = NULL;
        return box_start(spec, host, ret_box, err);
}

static int make(const struct maker_settings *settings, const struct cgroup_host *host, struct nursery *nursery,
                const struct maker_request *request, struct maker_reply *reply, struct err *err) {
        _cleanup_(making_release) struct making making = { .request = request,
                                                           .settings = settings,
                                                           .lease_fd = -1,
                                                           .workspace_fd = -1,
                                                           .box = { .pidfd = -1, .control_fd = -1 } };
        making.options = json_loads(*request->options ? request->options : "{}", JSON_REJECT_DUPLICATES, NULL);
        if (!making.options)
                return err_set(err, ERR_USAGE, "the session's options are not JSON");
        const struct policy policy = { .operator = json_is_true(json_object_get(making.options, "operator")),
                                       .read_paths = settings->read_paths, .write_paths = settings->write_paths,
                                       .state_dir = settings->data_dir };
        if (identity_lease(&making.uid, &making.gid, &making.lease_fd, err) < 0 ||
            open_image(settings, request->image, &making.image, err) < 0 || open_workspace(&making, &policy, err) < 0 ||
            open_mounts(&making, &policy, err) < 0 || open_packages(&making, err) < 0 || read_env(&making, err) < 0)
                return -1;
        if (nursery && nursery->fingerprint != nursery_fingerprint(&making.image)) {
                nursery_stop(nursery); /* the image was rebuilt: the next nursery imports the new one */
                nursery = NULL;
        }
        const struct box_spec spec = { .name = request->group, .image = &making.image, .limits = request->limits,
                                       .allow_weaker = request->allow_weaker, .host_uid = making.uid,
                                       .host_gid = making.gid, .workspace_fd = making.workspace_fd,
                                       .mounts = making.mounts, .n_mounts = making.n_mounts,
                                       .ret_listener_fd = request->network ? &reply->fds[MAKER_LISTENER] : NULL };
        if (start_box(&spec, host, &nursery, &making.box, err) < 0 ||
            oom_unspare(making.box.pidfd, making.box.pid, OOM_OFFERED, err) < 0 ||
            start_kernel(&making, nursery, &spec, host, reply, err) < 0)
                return -1;
        reply->pid = making.box.pid;
        reply->host_uid = making.uid;
        reply->fds[MAKER_PIDFD] = take_fd(&making.box.pidfd);
        reply->fds[MAKER_CONTROL] = take_fd(&making.box.control_fd);
        reply->fds[MAKER_WORKSPACE] = take_fd(&making.workspace_fd);
        reply->fds[MAKER_LEASE] = take_fd(&making.lease_fd);
        /* From here on the box belongs to whoever holds these descriptors; only its control groups keep a name. */
        making.box.pid = 0;
        cgroup_release(&making.box.cgroup);
        return 0;
}

/* ---- nurseries ---- */

static struct nursery nurseries[NURSERIES_MAX];
static size_t n_nurseries;

/* A nursery is worth its memory for a few images; the others start cold. */
static struct nursery *find_nursery(const struct maker_request *request) {
        if (request->fresh)
                return NULL;
        for (size_t i = 0; i < n_nurseries; i++)
                if (strcmp(nurseries[i].image, request->image) == 0)
                        return &nurseries[i];
        if (n_nurseries == NURSERIES_MAX)
                return NULL;
        struct nursery *nursery = &nurseries[n_nurseries++];
        *nursery = (struct nursery) { .ward = { .fd = -1 }, .socket_fd = -1, .pidfd = -1 };
        (void) snprintf(nursery->image, sizeof(nursery->image), "%s", request->image);
        return nursery;
}

static void start_nursery(const struct maker_settings *settings, struct nursery *nursery) {
        struct image image = { 0 };
        struct err err;
        struct box_spec spec = { .image = &image, .limits = LIMITS_DEFAULT };
        if (open_image(settings, nursery->image, &image, &err) < 0)
                nursery->retry_ms = loop_now_ms() + NURSERY_NO_IMAGE_MS;
        else
                (void) nursery_start(nursery, &spec, settings->preload, &err); /* a failure is told by its state */
        image_close(&image);
}

static void describe(const struct nursery *nursery, struct maker_nursery *ret_nursery) {
        *ret_nursery = (struct maker_nursery) { .state = nursery->state, .pid = nursery->pid, .forks = nursery->forks,
                                                .n_preloaded = nursery->n_preloaded };
        (void) snprintf(ret_nursery->image, sizeof(ret_nursery->image), "%s", nursery->image);
        (void) snprintf(ret_nursery->trouble, sizeof(ret_nursery->trouble), "%s", nursery->trouble);
        (void) snprintf(ret_nursery->failed_imports, sizeof(ret_nursery->failed_imports), "%.399s", nursery->failed);
}

/* ---- the process ---- */

static void send_reply(int fd, struct maker_reply *reply) {
        int code = passing_send(fd, reply, sizeof(*reply), reply->fds, MAKER_FDS, 0);
        for (size_t i = 0; i < MAKER_FDS; i++)
                fd_close(&reply->fds[i]);
        if (code < 0)
                _exit(EXIT_FAILURE);
}

static void make_and_reply(const struct maker_settings *settings, const struct cgroup_host *host, int fd,
                           const struct maker_request *request) {
        struct maker_reply reply = { 0 };
        struct nursery *nursery = find_nursery(request);
        for (size_t i = 0; i < MAKER_FDS; i++)
                reply.fds[i] = -1;
        memcpy(reply.kernel_id, request->kernel_id, sizeof(reply.kernel_id));
        bool is_ready = nursery && nursery->state == NURSERY_READY;
        reply.good = make(settings, host, is_ready ? nursery : NULL, request, &reply, &reply.err) == 0;
        if (nursery)
                describe(nursery, &reply.nursery);
        send_reply(fd, &reply);
}

static void tell_about(int fd, const struct nursery *nursery) {
        struct maker_reply reply = { 0 };
        for (size_t i = 0; i < MAKER_FDS; i++)
                reply.fds[i] = -1;
        describe(nursery, &reply.nursery);
        send_reply(fd, &reply);
}

/* Requests that wait until a nursery is ready. One that wants modules imported has them from there before a cold Python
 * would; any other is served cold at once. */
static struct maker_request *waiting[WAITING_MAX];
static size_t n_waiting;

static bool should_wait(const struct maker_request *request) {
        const struct nursery *nursery = *request->preload ? find_nursery(request) : NULL;
        return nursery && nursery->state == NURSERY_STARTING && loop_now_ms() - nursery->started_ms < NURSERY_WAIT_MS;
}

static bool postpone(const struct maker_request *request) {
        if (n_waiting == WAITING_MAX || !should_wait(request))
                return false;
        struct maker_request *copy = malloc(sizeof(*copy));
        if (!copy)
                return false;
        *copy = *request;
        waiting[n_waiting++] = copy;
        return true;
}

static void make_postponed(const struct maker_settings *settings, const struct cgroup_host *host, int fd) {
        for (size_t i = 0; i < n_waiting;) {
                if (should_wait(waiting[i])) {
                        i++;
                        continue;
                }
                struct maker_request *request = waiting[i];
                memmove(&waiting[i], &waiting[i + 1], (--n_waiting - i) * sizeof(waiting[0]));
                make_and_reply(settings, host, fd, request);
                free(request);
        }
}

static void look_after_nurseries(const struct maker_settings *settings, int fd, const struct pollfd *polled) {
        for (size_t i = 0; i < n_nurseries; i++) {
                struct nursery *nursery = &nurseries[i];
                if (polled[i].revents && polled[i].fd == nursery->socket_fd && nursery_hear(nursery))
                        tell_about(fd, nursery);
                if (nursery_is_due(nursery, loop_now_ms()))
                        start_nursery(settings, nursery);
        }
}

static void take_request(const struct maker_settings *settings, const struct cgroup_host *host, int fd) {
        static struct maker_request request; /* large: not on the stack */
        if (recv(fd, &request, sizeof(request), 0) != (ssize_t) sizeof(request))
                _exit(EXIT_SUCCESS);
        struct nursery *nursery = find_nursery(&request);
        if (nursery && nursery_is_due(nursery, loop_now_ms()))
                start_nursery(settings, nursery);
        if (!postpone(&request))
                make_and_reply(settings, host, fd, &request);
}

static void serve(const struct maker_settings *settings, int fd) __attribute__((noreturn));
static void serve(const struct maker_settings *settings, int fd) {
        (void) prctl(PR_SET_NAME, "glovebox-maker");
        (void) signal(SIGINT, SIG_IGN); /* Ctrl-C at the daemon is the daemon's to handle */
        (void) signal(SIGTERM, SIG_DFL);
        struct cgroup_host host;
        cgroup_host_look(&host);
        for (;;) {
                struct pollfd polled[NURSERIES_MAX + 1];
                size_t n = n_nurseries;
                uint64_t wait_ms = 1000;
                for (size_t i = 0; i < n; i++) {
                        polled[i] = (struct pollfd) { .fd = nurseries[i].socket_fd, .events = POLLIN };
                        uint64_t due_ms = nursery_due_in_ms(&nurseries[i], loop_now_ms());
                        wait_ms = due_ms < wait_ms ? due_ms : wait_ms;
                }
                polled[n] = (struct pollfd) { .fd = fd, .events = POLLIN };
                (void) poll(polled, n + 1, (int) wait_ms);
                while (waitpid(-1, NULL, WNOHANG) > 0)
                        ;
                look_after_nurseries(settings, fd, polled);
                make_postponed(settings, &host, fd);
                if (polled[n].revents)
                        take_request(settings, &host, fd);
        }
}

int maker_start(const struct maker_settings *settings, struct maker *ret_maker, struct err *err) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return err_sys(err, errno, "making a socket pair");
        pid_t pid = fork();
        if (pid < 0) {
                int code = errno;
                fd_close(&ends[0]);
                fd_close(&ends[1]);
                return err_sys(err, code, "starting the maker");
        }
        if (pid == 0) {
                /* Keep nothing of the daemon's: a listening socket held here would outlive it. */
                (void) dup2(ends[1], 3);
                (void) syscall(SYS_close_range, 4, ~0u, 0);
                (void) fcntl(3, F_SETFD, FD_CLOEXEC);
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                serve(settings, 3);
        }
        fd_close(&ends[1]);
        *ret_maker = (struct maker) { pid, ends[0] };
        return 0;
}

void maker_stop(struct maker *maker) {
        fd_close(&maker->fd);
        if (maker->pid > 0) {
                (void) kill(maker->pid, SIGKILL);
                (void) waitpid(maker->pid, NULL, 0);
        }
        maker->pid = 0;
}

int maker_send(struct maker *maker, const struct maker_request *request, struct err *err) {
        if (send(maker->fd, request, sizeof(*request), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t) sizeof(*request))
                return 0;
        if (errno == EAGAIN)
                return err_set(err, ERR_BUSY, "too many boxes are being made at once; try again in a moment");
        return err_sys(err, errno, "asking the maker for a box");
}

int maker_receive(struct maker *maker, struct maker_reply *ret_reply, struct err *err) {
        int fds[MAKER_FDS];
        if (passing_receive(maker->fd, ret_reply, sizeof(*ret_reply), fds, MAKER_FDS, MSG_DONTWAIT) !=
            (ssize_t) sizeof(*ret_reply))
                return err_set(err, ERR_GONE, "the maker has died");
        memcpy(ret_reply->fds, fds, sizeof(fds));
        return 0;
}
