#include "session/maker.h"

#include <errno.h>
#include <fcntl.h>
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
#include "base/memory.h"
#include "box/box.h"
#include "box/environment.h"
#include "box/identity.h"
#include "box/policy.h"
#include "box/tree.h"
#include "image/image.h"
#include "wire/frame.h"

#define KERNEL_TREE "/opt/glovebox/kernel"
#define SESSION_DIR "/run/session"

enum { MOUNTS_MAX = 32, ENV_MAX = 256 };

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
        char *env[ENV_MAX + 4]; /* the caller's, three of ours, NULL */
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
                return err_sys(err, -tree, "mounting at %s", destination);
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
                making->workspace_fd = tree_make_tmpfs(request->limits.disk_bytes, request->limits.disk_files, making->uid,
                                                       making->gid, 0755);
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
        return making->workspace_fd < 0 ? err_sys(err, -making->workspace_fd, "showing the workspace") : 0;
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
        _cleanup_fd_ int session_dir = open_own_directory(making->request->state_dir, err);
        return session_dir < 0 ? -1 : add_mount(making, session_dir, SESSION_DIR, true, err);
}

static int open_image(struct making *making, struct err *err) {
        if (image_open(making->settings->data_dir, making->request->image, &making->image, err) < 0)
                return -1;
        if (!*making->image.python)
                return err_set(err, ERR_NOT_FOUND, "image %s has no python3: it cannot hold a kernel", making->image.name);
        if (making->image.n_trees == IMAGE_TREES_MAX)
                return err_set(err, ERR_LIMIT, "image %s shows too many directories", making->image.name);
        struct image_tree *tree = &making->image.trees[making->image.n_trees];
        tree->fd = open(making->settings->kernel_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (tree->fd < 0)
                return err_sys(err, errno, "opening the kernel's own files in %s", making->settings->kernel_dir);
        (void) snprintf(tree->path, sizeof(tree->path), KERNEL_TREE);
        making->image.n_trees++;
        return 0;
}

static int read_env(struct making *making, struct err *err) {
        const char *name;
        json_t *value;
        size_t n = 0;
        json_object_foreach(json_object_get(making->options, "env"), name, value) {
                if (n == ENV_MAX || !json_is_string(value) || !*name || strchr(name, '='))
                        return err_set(err, ERR_USAGE, "env: names without \"=\" and texts only, at most %d", ENV_MAX);
                if (asprintf(&making->env[n], "%s=%s", name, json_string_value(value)) < 0)
                        return err_set(err, ERR_SYSTEM, "out of memory");
                n++;
        }
        /* From when on data are worth trimming; a session may have its own idea. */
        const struct {
                const char *name;
                uint64_t bytes;
        } thresholds[] = { { "DF_BYTES", making->settings->df_bytes }, { "NP_BYTES", making->settings->np_bytes } };
        for (size_t i = 0; i < ELEMENTS(thresholds); i++)
                if (thresholds[i].bytes && !json_object_get(json_object_get(making->options, "env"), thresholds[i].name) &&
                    asprintf(&making->env[n++], "%s=%llu", thresholds[i].name, (unsigned long long) thresholds[i].bytes) < 0)
                        return err_set(err, ERR_SYSTEM, "out of memory");
        return 0;
}

/* The kernel's own way to its package comes after the caller's environment: a session cannot be talked out of it. */
static char **make_environment(struct making *making, struct err *err) {
        const struct image *image = &making->image;
        size_t n = 0;
        while (making->env[n])
                n++;
        const char *given = NULL;
        for (size_t i = 0; i < n; i++)
                if (strncmp(making->env[i], "PYTHONPATH=", 11) == 0)
                        given = making->env[i] + 11;
        char *path;
        if (asprintf(&path, "PYTHONPATH=" KERNEL_TREE "%s%s%s", image->has_layer ? ":" IMAGE_LAYER_PATH : "",
                     given ? ":" : "", given ? given : "") < 0) {
                (void) err_set(err, ERR_SYSTEM, "out of memory");
                return NULL;
        }
        making->env[n] = path;
        return environment_make(image, &making->request->limits, making->env, err);
}

/* Ours go into the reply, theirs to the agent. */
static int open_channels(struct maker_reply *reply, int ret_theirs[static 4], struct err *err) {
        int channel[2] = { -1, -1 }, out[2] = { -1, -1 }, error[2] = { -1, -1 };
        int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        int code = 0;
        if (null_fd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
            pipe2(error, O_CLOEXEC) < 0)
                code = err_sys(err, errno, "making the kernel's channels");
        reply->fds[MAKER_CHANNEL] = channel[0];
        reply->fds[MAKER_OUT] = out[0];
        reply->fds[MAKER_ERR] = error[0];
        const int theirs[4] = { null_fd, out[1], error[1], channel[1] };
        memcpy(ret_theirs, theirs, sizeof(theirs));
        return code;
}

static int start_kernel(struct making *making, struct maker_reply *reply, struct err *err) {
        char **environment = make_environment(making, err);
        if (!environment)
                return -1;
        int theirs[4];
        int code = open_channels(reply, theirs, err);
        if (code == 0) {
                char *argv[] = { making->image.python, (char[]) { "-m" }, (char[]) { "glovebox_kernel" },
                                 (char[]) { "--fd" }, (char[]) { "3" }, (char[]) { "--preload" },
                                 (char *) making->request->preload, NULL };
                struct frame_writer payload = { 0 };
                frame_put_text(&payload, BOX_WORKSPACE);
                frame_put_texts(&payload, argv);
                frame_put_texts(&payload, environment);
                int sent = frame_send(making->box.control_fd, FRAME_START, 1, &payload, theirs, 4);
                frame_writer_release(&payload);
                if (sent < 0)
                        code = err_sys(err, -sent, "asking the agent for a kernel");
        }
        for (size_t i = 0; i < 4; i++)
                fd_close(&theirs[i]);
        environment_free(environment);
        return code;
}

static int make(const struct maker_settings *settings, const struct cgroup_host *host,
                const struct maker_request *request, struct maker_reply *reply, struct err *err) {
        _cleanup_(making_release) struct making making = { .request = request, .settings = settings, .lease_fd = -1,
                                                           .workspace_fd = -1, .box = { .pidfd = -1, .control_fd = -1 } };
        const struct policy policy = { .operator = true, .state_dir = settings->data_dir };
        making.options = json_loads(*request->options ? request->options : "{}", JSON_REJECT_DUPLICATES, NULL);
        if (!making.options)
                return err_set(err, ERR_USAGE, "the session's options are not JSON");
        if (identity_lease(&making.uid, &making.gid, &making.lease_fd, err) < 0 || open_image(&making, err) < 0 ||
            open_workspace(&making, &policy, err) < 0 || open_mounts(&making, &policy, err) < 0 ||
            read_env(&making, err) < 0)
                return -1;
        const struct box_spec spec = { .name = request->group, .image = &making.image, .limits = request->limits,
                                       .allow_weaker = request->allow_weaker, .host_uid = making.uid,
                                       .host_gid = making.gid, .workspace_fd = making.workspace_fd,
                                       .mounts = making.mounts, .n_mounts = making.n_mounts };
        if (box_start(&spec, host, &making.box, err) < 0 || start_kernel(&making, reply, err) < 0)
                return -1;
        reply->pid = making.box.pid;
        reply->host_uid = making.uid;
        reply->has_lease = making.lease_fd >= 0;
        reply->fds[MAKER_PIDFD] = take_fd(&making.box.pidfd);
        reply->fds[MAKER_CONTROL] = take_fd(&making.box.control_fd);
        reply->fds[MAKER_WORKSPACE] = take_fd(&making.workspace_fd);
        reply->fds[MAKER_LEASE] = reply->has_lease ? take_fd(&making.lease_fd) : -1;
        /* From here on the box belongs to whoever holds these descriptors; only its control groups keep a name. */
        making.box.pid = 0;
        cgroup_release(&making.box.cgroup);
        return 0;
}

/* ---- the process ---- */

static int send_reply(int fd, const struct maker_reply *reply) {
        struct iovec part = { (void *) reply, sizeof(*reply) };
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int) * MAKER_FDS)];
        } control = { 0 };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
        size_t n = reply->good ? (reply->has_lease ? MAKER_FDS : MAKER_FDS - 1) : 0;
        if (n) {
                message.msg_control = control.bytes;
                message.msg_controllen = CMSG_SPACE(sizeof(int) * n);
                struct cmsghdr *head = CMSG_FIRSTHDR(&message);
                *head = (struct cmsghdr) { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                                           .cmsg_len = CMSG_LEN(sizeof(int) * n) };
                memcpy(CMSG_DATA(head), reply->fds, sizeof(int) * n);
        }
        return sendmsg(fd, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void serve(const struct maker_settings *settings, int fd) __attribute__((noreturn));
static void serve(const struct maker_settings *settings, int fd) {
        (void) prctl(PR_SET_NAME, "glovebox-maker");
        (void) signal(SIGINT, SIG_IGN); /* Ctrl-C at the daemon is the daemon's to handle */
        (void) signal(SIGTERM, SIG_DFL);
        struct cgroup_host host;
        cgroup_host_look(&host);
        static struct maker_request request; /* large: not on the stack */
        for (;;) {
                struct pollfd watched = { .fd = fd, .events = POLLIN };
                (void) poll(&watched, 1, 1000);
                while (waitpid(-1, NULL, WNOHANG) > 0)
                        ;
                if (!watched.revents)
                        continue;
                ssize_t n = recv(fd, &request, sizeof(request), 0);
                if (n != sizeof(request))
                        _exit(EXIT_SUCCESS);
                struct maker_reply reply = { 0 };
                for (size_t i = 0; i < MAKER_FDS; i++)
                        reply.fds[i] = -1;
                memcpy(reply.kernel_id, request.kernel_id, sizeof(reply.kernel_id));
                reply.good = make(settings, &host, &request, &reply, &reply.err) == 0;
                int code = send_reply(fd, &reply);
                for (size_t i = 0; i < MAKER_FDS; i++)
                        fd_close(&reply.fds[i]);
                if (code < 0)
                        _exit(EXIT_FAILURE);
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
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int) * MAKER_FDS)];
        } control;
        struct iovec part = { ret_reply, sizeof(*ret_reply) };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                                  .msg_controllen = sizeof(control.bytes) };
        ssize_t n = recvmsg(maker->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n != (ssize_t) sizeof(*ret_reply))
                return err_set(err, ERR_GONE, "the maker has died");
        for (size_t i = 0; i < MAKER_FDS; i++)
                ret_reply->fds[i] = -1;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
                memcpy(ret_reply->fds, CMSG_DATA(head), head->cmsg_len - CMSG_LEN(0));
        return 0;
}
