#include "spawn/maker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/loop.h"
#include "base/priority.h"
#include "base/process_title.h"
#include "engine/engine.h"
#include "engine/mount_dir.h"
#include "spawn/box_pool.h"
#include "spawn/image_cache.h"
#include "spawn/nursery.h"
#include "spawn/spawn_elsewhere.h"
#include "spawn/spawn_job.h"
#include "store/registry.h"

enum {
        SUPERVISORS_MAX = 4, /* images that have nurseries, which need memory; kernels of other images start cold */
        NURSERIES_MAX = 2 * SUPERVISORS_MAX,
        WAITING_MAX = 64,
        FLIGHTS_MAX = 5, /* boxes and kernels that seal themselves at the same time */
        NURSERY_WAIT_MS = 30000, /* a request waits no longer for a nursery that is importing */
        NURSERY_NO_IMAGE_MS = 60000,
        UNREPORTED_MS = 20,
        HEAP_KEPT = 1 << 20,
        ELSEWHERE_MAX = 64, /* boxes of other engines that are made at the same time */
        POOL_PAUSE_MS = 5, /* idle time before a box is made for the pool */
};

/* ---- nurseries ---- */

static struct nursery nurseries[NURSERIES_MAX];
static size_t n_nurseries;

static struct supervisor supervisors[SUPERVISORS_MAX];
static size_t n_supervisors;

static struct nursery *find_kind(const struct maker_request *request, bool light) {
        struct supervisor *supervisor = NULL;
        if (request->fresh)
                return NULL;
        for (size_t i = 0; i < n_nurseries; i++) {
                if (strcmp(nurseries[i].image, request->image) != 0)
                        continue;
                if (nurseries[i].light == light)
                        return &nurseries[i];
                supervisor = nurseries[i].supervisor;
        }
        if (!supervisor && n_supervisors == SUPERVISORS_MAX)
                return NULL;
        if (!supervisor) {
                supervisor = &supervisors[n_supervisors++];
                *supervisor = (struct supervisor) { .fd = -1 };
        }
        struct nursery *nursery = &nurseries[n_nurseries++];
        *nursery = (struct nursery) {
                .light = light, .supervisor = supervisor, .socket_fd = -1, .answer_fd = -1, .pidfd = -1
        };
        (void) snprintf(nursery->image, sizeof(nursery->image), "%.64s", request->image);
        return nursery;
}

static struct nursery *find_nursery(const struct maker_request *request) {
        return find_kind(request, request->light);
}

/* The nursery to fork from now: that of the request's kind, or the other. A full kernel can replace a light one, and an
 * ephemeral run that cannot wait for a full one imports the modules itself. NULL: start cold. */
static struct nursery *find_ready(const struct maker_request *request) {
        struct nursery *nursery = find_nursery(request);
        bool takes_other = request->light || ((request->ephemeral || request->is_program) && !request->pooled);
        if (takes_other && nursery && nursery->state != NURSERY_READY)
                nursery = find_kind(request, !request->light);
        return nursery && nursery->state == NURSERY_READY ? nursery : NULL;
}

static void start_nursery(const struct maker_settings *settings, struct nursery *nursery) {
        struct err err;
        _cleanup_(image_close) struct image image = { 0 };
        uint64_t fingerprint;
        char preload[SUPERVISOR_PRELOAD_MAX];
        if (image_cache_open(settings, nursery->image, &image, &fingerprint, &err) < 0) {
                nursery->retry_ms = loop_now_ms() + NURSERY_NO_IMAGE_MS;
                return;
        }
        /* The variables as spawn_job.c has them. */
        (void) snprintf(preload, sizeof(preload), "DF_BYTES=%" PRIu64 ",NP_BYTES=%" PRIu64 ",%s", settings->df_bytes,
                        settings->np_bytes, nursery->light ? "" : settings->preload);
        const struct box_spec spec = { .image = &image, .limits = LIMITS_DEFAULT };
        nursery->supervisor->owner = settings->data_dir;
        (void) nursery_start(nursery, &spec, preload, &err); /* its state reports a failure */
}

/* The nurseries that the request needs. After a light kernel, the same caller may want a full one. */
static void start_nurseries(const struct maker_settings *settings, const struct maker_request *request) {
        /* A light one is there much sooner, and serves until the full one is. */
        bool is_short = (request->ephemeral || request->is_program) && *settings->preload;
        for (int light = request->light || is_short; light >= 0; light--) {
                struct nursery *nursery = find_kind(request, light);
                if (nursery && nursery_is_due(nursery, loop_now_ms()))
                        start_nursery(settings, nursery);
        }
}

static struct box_pool pool;

/* The nursery whose pool size was not reported to the daemon yet. The next reply or pause reports it. */
static const struct nursery *unreported;

static void maker_describe(const struct nursery *nursery, struct maker_nursery *ret_nursery) {
        *ret_nursery = (struct maker_nursery) { .light = nursery->light,
                                                .state = nursery->state,
                                                .pid = nursery->pid,
                                                .supervisor_pid = nursery->supervisor ? nursery->supervisor->pid : 0,
                                                .forks = nursery->forks,
                                                .n_preloaded = nursery->n_preloaded };
        if (unreported == nursery)
                unreported = NULL;
        if (strcmp(pool.kind.image, nursery->image) == 0)
                ret_nursery->n_boxes_ready = (uint32_t) pool.n_boxes;
        (void) snprintf(ret_nursery->image, sizeof(ret_nursery->image), "%s", nursery->image);
        (void) snprintf(ret_nursery->trouble, sizeof(ret_nursery->trouble), "%s", nursery->trouble);
        (void) snprintf(ret_nursery->failed_imports, sizeof(ret_nursery->failed_imports), "%.399s", nursery->failed);
}

/* ---- the process ---- */

static void send_reply(int fd, struct maker_reply *reply) {
        int code = fd_passing_send(fd, reply, sizeof(*reply), reply->fds, MAKER_FDS, 0);
        for (size_t i = 0; i < MAKER_FDS; i++)
                fd_close(&reply->fds[i]);
        if (code < 0)
                _exit(EXIT_FAILURE);
}

static void report_nursery(int fd, const struct nursery *nursery) {
        struct maker_reply reply = { 0 };
        for (size_t i = 0; i < MAKER_FDS; i++)
                reply.fds[i] = -1;
        maker_describe(nursery, &reply.nursery);
        send_reply(fd, &reply);
}

/* ---- makings under way ---- */

static struct spawn_job *flights[FLIGHTS_MAX];
static size_t n_flights;

static void reply_to(int fd, const struct maker_request *request, struct spawn_job *job, const struct err *err) {
        struct maker_reply reply = { 0 };
        const struct nursery *nursery = job ? spawn_job_nursery(job) : NULL;
        if (!nursery)
                nursery = find_nursery(request);
        for (size_t i = 0; i < MAKER_FDS; i++)
                reply.fds[i] = -1;
        memcpy(reply.kernel_id, request->kernel_id, sizeof(reply.kernel_id));
        reply.good = job;
        if (job)
                spawn_job_finish(job, &reply);
        else
                reply.err = *err;
        if (nursery)
                maker_describe(nursery, &reply.nursery);
        send_reply(fd, &reply);
}

/* It is done, or failed. */
static void land_job(int fd, struct spawn_job *job, bool good, const struct err *err) {
        if (!spawn_job_is_for_pool(job))
                reply_to(fd, spawn_job_request(job), good ? job : NULL, err);
        else if (good) {
                spawn_job_store(job, &pool);
                unreported = find_nursery(spawn_job_request(job));
        } else
                pool.is_wanted = false; /* until it is asked for again */
        spawn_job_free(job);
}

/* Goes on until it waits for a box or a kernel. If there is no room, it is waited for here. */
static void continue_job(int fd, struct spawn_job *job) {
        struct err err;
        bool good;
        do
                good = spawn_job_continue(job, &err) == 0;
        while (good && spawn_job_wait_fd(job) >= 0 && n_flights == FLIGHTS_MAX);
        if (good && spawn_job_wait_fd(job) >= 0)
                flights[n_flights++] = job;
        else
                land_job(fd, job, good, &err);
}

static void take_off(int fd, struct spawn_job *job) {
        if (spawn_job_wait_fd(job) >= 0 && n_flights < FLIGHTS_MAX)
                flights[n_flights++] = job;
        else
                continue_job(fd, job);
}

static void launch_job(const struct maker_settings *settings, const struct cgroup_host *host, int fd,
                       const struct maker_request *request) {
        struct err err;
        struct spawn_job *job = spawn_job_start(settings, host, find_ready(request), &pool, request, &err);
        if (job)
                take_off(fd, job);
        else
                reply_to(fd, request, NULL, &err);
}

static bool is_pool_job_under_way(void) {
        for (size_t i = 0; i < n_flights; i++)
                if (spawn_job_is_for_pool(flights[i]))
                        return true;
        return false;
}

/* The nursery for which the pool should have one more box. */
static struct nursery *find_short(void) {
        for (size_t i = 0; i < n_nurseries && !is_pool_job_under_way(); i++)
                if (box_pool_is_short(&pool, &nurseries[i]))
                        return &nurseries[i];
        return NULL;
}

static void launch_for_pool(const struct maker_settings *settings, const struct cgroup_host *host, int fd,
                            struct nursery *nursery) {
        static struct maker_request request; /* large: not on the stack */
        struct err err;
        char id[27];
        request = pool.kind;
        *request.options = '\0';
        struct spawn_job *job = NULL;
        if (registry_make_id(id, &err) == 0) {
                (void) snprintf(request.group, sizeof(request.group), "%s%s", settings->group_prefix, id);
                job = spawn_job_start(settings, host, nursery, NULL, &request, &err);
        }
        if (job)
                take_off(fd, job);
        else
                pool.is_wanted = false;
}

/* Oldest first. `polled` is as many as there were flights when it was filled. */
static void land_settled(int fd, const struct pollfd *polled, size_t n_polled) {
        for (size_t i = 0, at = 0; i < n_polled; i++) {
                if (!polled[i].revents && !spawn_job_is_late(flights[at])) {
                        at++;
                        continue;
                }
                struct spawn_job *job = flights[at];
                memmove(&flights[at], &flights[at + 1], (--n_flights - at) * sizeof(flights[0]));
                continue_job(fd, job);
        }
}

/* Requests that wait until a nursery is ready. A request for preloaded modules is served sooner that way than by a cold
 * Python, and a light kernel for the pool can wait; any other request is served cold at once. */
static struct maker_request *waiting[WAITING_MAX];
static size_t n_waiting;

static bool should_wait(const struct maker_request *request) {
        bool has_time = *request->preload || (request->light && request->pooled);
        const struct nursery *nursery = has_time ? find_nursery(request) : NULL;
        return nursery && nursery->state == NURSERY_STARTING && loop_now_ms() - nursery->started_ms < NURSERY_WAIT_MS;
}

static bool postpone_request(const struct maker_request *request) {
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
                launch_job(settings, host, fd, request);
                free(request);
        }
}

static void look_after_nurseries(const struct maker_settings *settings, int fd, const struct pollfd *polled) {
        for (size_t i = 0; i < n_nurseries; i++) {
                struct nursery *nursery = &nurseries[i];
                if (polled[i].revents && polled[i].fd == nursery->answer_fd && nursery_read_answer(nursery))
                        report_nursery(fd, nursery);
                if (nursery_is_due(nursery, loop_now_ms()))
                        start_nursery(settings, nursery);
        }
}

/* ---- boxes of other engines: a process for each, since an engine may be slow, or hang ---- */

static struct {
        pid_t pid;
        char kernel_id[27];
} elsewhere[ELSEWHERE_MAX];
static size_t n_elsewhere;

static void make_elsewhere(const struct maker_settings *settings, int fd, const struct maker_request *request)
        __attribute__((noreturn));
static void make_elsewhere(const struct maker_settings *settings, int fd, const struct maker_request *request) {
        struct maker_reply reply = { 0 };
        (void) syscall(SYS_close_range, fd + 1, ~0u, 0); /* nothing of the nurseries' */
        process_title_set("engine", request->engine);
        for (size_t i = 0; i < MAKER_FDS; i++)
                reply.fds[i] = -1;
        memcpy(reply.kernel_id, request->kernel_id, sizeof(reply.kernel_id));
        memcpy(reply.engine, request->engine, sizeof(reply.engine));
        reply.good = spawn_elsewhere(settings, request, &reply, &reply.err) == 0;
        if (fd_passing_send(fd, &reply, sizeof(reply), reply.fds, MAKER_FDS, 0) < 0 && reply.good) {
                struct err ignored; /* the daemon has ended: the box is not needed */
                const struct engine *engine = engine_find(request->engine, &ignored);
                (void) engine->remove(settings->engines, request->group, &ignored);
                mount_dir_remove(request->group);
        }
        _exit(EXIT_SUCCESS);
}

static void launch_elsewhere(const struct maker_settings *settings, int fd, const struct maker_request *request) {
        struct err err;
        pid_t pid = -1;
        if (n_elsewhere == ELSEWHERE_MAX)
                (void) err_set(&err, ERR_BUSY, "%s: %d boxes are being made already; try again in a moment",
                               request->engine, (int) ELSEWHERE_MAX);
        else if ((pid = fork()) < 0)
                (void) err_sys(&err, errno, "starting a process that makes a box");
        if (pid == 0)
                make_elsewhere(settings, fd, request);
        if (pid < 0) {
                reply_to(fd, request, NULL, &err);
                return;
        }
        elsewhere[n_elsewhere].pid = pid;
        memcpy(elsewhere[n_elsewhere++].kernel_id, request->kernel_id, sizeof(request->kernel_id));
}

/* A child that ended has answered, unless it crashed. */
static void reap_elsewhere(int fd, pid_t pid, int status) {
        struct maker_request request = { 0 };
        struct err err;
        size_t i = 0;
        while (i < n_elsewhere && elsewhere[i].pid != pid)
                i++;
        if (i == n_elsewhere)
                return;
        memcpy(request.kernel_id, elsewhere[i].kernel_id, sizeof(request.kernel_id));
        request.fresh = true;
        elsewhere[i] = elsewhere[--n_elsewhere];
        if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS)
                return;
        (void) err_set(&err, ERR_GONE, "the box was being made when the process that made it died; try again");
        reply_to(fd, &request, NULL, &err);
}

/* At once: a caller waits. */
static void maker_attach(const struct maker_settings *settings, int fd, const struct maker_request *request,
                         int box_pidfd) {
        struct maker_reply reply = { .attached = true };
        for (size_t i = 0; i < MAKER_FDS; i++)
                reply.fds[i] = -1;
        memcpy(reply.kernel_id, request->kernel_id, sizeof(reply.kernel_id));
        reply.good = spawn_job_attach(settings, request, box_pidfd, &reply, &reply.err) == 0;
        send_reply(fd, &reply);
}

static void take_request(const struct maker_settings *settings, const struct cgroup_host *host, int fd) {
        static struct maker_request request; /* large: not on the stack */
        _cleanup_fd_ int box_pidfd = -1;
        ssize_t size = fd_passing_receive(fd, &request, sizeof(request), &box_pidfd, 1, 0);
        if (size <= (ssize_t) offsetof(struct maker_request, options))
                _exit(EXIT_SUCCESS);
        ((char *) &request)[size - 1] = '\0';
        if (request.attach) {
                maker_attach(settings, fd, &request, box_pidfd);
                return;
        }
        if (!engine_is_native(request.engine)) {
                launch_elsewhere(settings, fd, &request);
                return;
        }
        start_nurseries(settings, &request);
        if (!postpone_request(&request))
                launch_job(settings, host, fd, &request);
}

/* One iteration waits for: the boxes under way, the nurseries, and requests of the daemon. */
struct watches {
        struct pollfd polled[FLIGHTS_MAX + NURSERIES_MAX + 1];
        size_t n_flights, n_nurseries; /* when they were listed */
        uint64_t wait_ms;
};

static void list_watches(struct watches *watches, int fd) {
        size_t n = 0;
        watches->n_flights = n_flights;
        watches->n_nurseries = n_nurseries;
        watches->wait_ms = 1000;
        for (size_t i = 0; i < n_flights; i++)
                watches->polled[n++] = (struct pollfd) { .fd = spawn_job_wait_fd(flights[i]), .events = POLLIN };
        for (size_t i = 0; i < n_nurseries; i++) {
                watches->polled[n++] = (struct pollfd) { .fd = nurseries[i].answer_fd, .events = POLLIN };
                uint64_t due_ms = nursery_due_in_ms(&nurseries[i], loop_now_ms());
                watches->wait_ms = due_ms < watches->wait_ms ? due_ms : watches->wait_ms;
        }
        /* The last slot is kept free, so that a box for the pool never delays a caller. */
        watches->polled[n] = (struct pollfd) { .fd = n_flights < FLIGHTS_MAX - 1 ? fd : -1, .events = POLLIN };
}

static void maker_turn(const struct maker_settings *settings, const struct cgroup_host *host, int fd) {
        struct watches watches;
        list_watches(&watches, fd);
        struct pollfd *of_nurseries = &watches.polled[watches.n_flights];
        const struct pollfd *of_requests = &of_nurseries[watches.n_nurseries];
        struct nursery *short_of_boxes = watches.n_flights == 0 ? find_short() : NULL;
        if (short_of_boxes && watches.wait_ms > POOL_PAUSE_MS)
                watches.wait_ms = POOL_PAUSE_MS;
        if (unreported && watches.wait_ms > UNREPORTED_MS)
                watches.wait_ms = UNREPORTED_MS;
        bool is_idle = poll(watches.polled, watches.n_flights + watches.n_nurseries + 1, (int) watches.wait_ms) == 0;
        int status;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
                reap_elsewhere(fd, pid, status);
        if (is_idle && unreported)
                report_nursery(fd, unreported);
        land_settled(fd, watches.polled, watches.n_flights);
        box_pool_weed(&pool);
        look_after_nurseries(settings, fd, of_nurseries);
        make_postponed(settings, host, fd);
        if (of_requests->revents)
                take_request(settings, host, fd);
        else if (short_of_boxes && is_idle && find_short() == short_of_boxes)
                launch_for_pool(settings, host, fd, short_of_boxes);
}

static void maker_serve(const struct maker_settings *settings, int fd) __attribute__((noreturn));
static void maker_serve(const struct maker_settings *settings, int fd) {
        process_title_set("maker", settings->data_dir);
        (void) signal(SIGINT, SIG_IGN); /* Ctrl-C at the daemon is the daemon's to handle */
        (void) signal(SIGTERM, SIG_DFL);
        struct cgroup_host host;
        cgroup_host_look(&host);
        cgroup_host_leave_v2(&host);
        /* Memory for one box is about that for the next: it need not go back to the kernel in between. */
        (void) mallopt(M_TRIM_THRESHOLD, HEAP_KEPT);
        (void) mallopt(M_MMAP_THRESHOLD, HEAP_KEPT);
        pool.n_wanted = settings->box_pool < BOX_POOL_MAX ? settings->box_pool : BOX_POOL_MAX;
        for (;;)
                maker_turn(settings, &host, fd);
}

int maker_start(const struct maker_settings *settings, struct maker *ret_maker, struct err *err) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return err_sys(err, errno, "making a socket pair");
        pid_t parent = getpid(), pid = fork();
        if (pid < 0) {
                int code = errno;
                fd_close(&ends[0]);
                fd_close(&ends[1]);
                return err_sys(err, code, "starting the maker");
        }
        if (pid == 0) {
                /* Closes the daemon's descriptors: a listening socket kept here would outlive the daemon. */
                (void) dup2(ends[1], 3);
                (void) syscall(SYS_close_range, 4, ~0u, 0);
                (void) fcntl(3, F_SETFD, FD_CLOEXEC);
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() != parent) /* it died before that was asked for */
                        _exit(EXIT_FAILURE);
                priority_stand_apart();
                maker_serve(settings, 3);
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

int maker_send(struct maker *maker, const struct maker_request *request, int box_pidfd, struct err *err) {
        size_t size = offsetof(struct maker_request, options) + strlen(request->options) + 1;
        int code = fd_passing_send(maker->fd, request, size, &box_pidfd, 1, MSG_DONTWAIT);
        if (code == -EAGAIN)
                return err_set(err, ERR_BUSY, "too many boxes are being made at once; try again in a moment");
        return code < 0 ? err_sys(err, -code, "asking the maker for a box") : 0;
}

int maker_receive(struct maker *maker, struct maker_reply *ret_reply, struct err *err) {
        int fds[MAKER_FDS];
        if (fd_passing_receive(maker->fd, ret_reply, sizeof(*ret_reply), fds, MAKER_FDS, MSG_DONTWAIT) !=
            (ssize_t) sizeof(*ret_reply))
                return err_set(err, ERR_GONE, "the maker has died");
        memcpy(ret_reply->fds, fds, sizeof(fds));
        return 0;
}
