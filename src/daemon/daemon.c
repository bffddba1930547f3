/* `glovebox serve`.
 *
 * Theory of operation. This process decides everything and waits for nothing: clients, kernels, timers and signals are
 * events of one loop. Boxes are made by the maker (a child of ours) and outlive us by the vault (nobody's child), which
 * holds a copy of every descriptor that a living session needs. After a `kill -9`, the next daemon takes the registry,
 * asks the vault what is left, and goes on; what belongs to no session any more is destroyed. */
#include "daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/data_id.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/oom.h"
#include "box/host/identity.h"
#include "daemon/listener.h"
#include "daemon/socket_client.h"
#include "daemon/takeover.h"
#include "session/custody.h"
#include "session/network.h"
#include "session/outputs.h"
#include "session/program.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "spawn/kernel_files.h"
#include "store/disk_reserve.h"
#include "store/reaper.h"

/* ---- kernels ---- */

void daemon_fill_request(const struct registry_session *row, struct maker_request *ret_request) {
        struct maker_request request = { .limits = row->limits, .allow_weaker = row->allow_weaker,
                                         .fresh = strcmp(row->mode, "fresh") == 0, .of_key = *row->owner != '\0' };
        (void) snprintf(request.image, sizeof(request.image), "%s", row->image);
        (void) snprintf(request.options, sizeof(request.options), "%s", row->options);
        *ret_request = request;
}

int daemon_name_kernel(const struct daemon *daemon, struct maker_request *request, struct err *err) {
        if (registry_make_id(request->kernel_id, err) < 0)
                return -1;
        (void) snprintf(request->group, sizeof(request->group), "%s%s", daemon->group_prefix, request->kernel_id);
        return 0;
}

struct order {
        struct order *next;
        uint64_t turn;
        char owner[sizeof(((struct registry_session *) NULL)->owner)];
        struct maker_request request;
};

static void order_free(struct daemon *daemon, struct order *order) {
        share_give(&daemon->shares, SHARE_ORDERS, &(const struct share_claim) { .key = order->owner, .amount = 1 });
        daemon->n_orders--;
        free(order);
}

/* The maker works one at a time; a few requests in its socket keep it busy, the rest waits here. */
static void give_orders(struct daemon *daemon) {
        struct err err;
        while (daemon->orders && daemon->n_ordered < DAEMON_ORDERS_AT_ONCE) {
                struct order *order = daemon->orders;
                if (daemon_find_kernel(daemon, order->request.kernel_id)) { /* still wanted */
                        if (maker_send(&daemon->maker, &order->request, &err) < 0)
                                return; /* its next answer, or its end, comes back here */
                        daemon->n_ordered++;
                        daemon->turn = order->turn;
                }
                daemon->orders = order->next;
                order_free(daemon, order);
        }
}

/* One turn behind the last order of the same key; a key that has none waiting is in the next turn. */
static void queue_order(struct daemon *daemon, struct order *order) {
        order->turn = daemon->turn + 1;
        for (const struct order *at = daemon->orders; at; at = at->next)
                if (strcmp(at->owner, order->owner) == 0)
                        order->turn = at->turn + 1;
        struct order **place = &daemon->orders;
        while (*place && (*place)->turn <= order->turn)
                place = &(*place)->next;
        order->next = *place;
        *place = order;
        daemon->n_orders++;
}

int daemon_order_kernel(struct daemon *daemon, const struct maker_request *request, const char *owner,
                        struct err *err) {
        const struct share_claim claim = { .key = owner, .amount = 1 };
        if (share_take(&daemon->shares, SHARE_ORDERS, &claim, err) < 0)
                return -1;
        struct order *order = malloc(sizeof(*order));
        if (!order) {
                share_give(&daemon->shares, SHARE_ORDERS, &claim);
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        *order = (struct order) { .request = *request };
        (void) snprintf(order->owner, sizeof(order->owner), "%s", owner);
        queue_order(daemon, order);
        give_orders(daemon);
        return 0;
}

struct kernel *daemon_find_kernel(struct daemon *daemon, const char *id) {
        for (size_t i = 0; i < daemon->n_pool; i++)
                if (strcmp(daemon->pool[i]->id, id) == 0)
                        return daemon->pool[i];
        for (struct session *session = daemon->sessions; session; session = session->next)
                if (session->kernel && strcmp(session->kernel->id, id) == 0)
                        return session->kernel;
        return NULL;
}

static void on_maker_died(struct daemon *daemon);

static void note_nursery(struct daemon *daemon, const struct maker_nursery *news) {
        size_t i = daemon->n_nurseries;
        for (size_t other = 0; other < daemon->n_nurseries; other++) {
                if (strcmp(daemon->nurseries[other].image, news->image) != 0)
                        continue;
                daemon->nurseries[other].n_stock = news->n_stock; /* boxes are for both */
                if (daemon->nurseries[other].light == news->light)
                        i = other;
        }
        if (i == DAEMON_NURSERIES_MAX)
                return;
        if (i == daemon->n_nurseries)
                daemon->n_nurseries++;
        if (daemon->nurseries[i].state != news->state && news->state == NURSERY_DOWN)
                daemon_log("the %snursery of image %s is down (%s); kernels start cold until it is back",
                           news->light ? "light " : "", news->image, news->trouble);
        daemon->nurseries[i] = *news;
}

static void on_maker(void *context, uint32_t events) {
        struct daemon *daemon = context;
        (void) events;
        struct maker_reply reply;
        struct err err;
        if (maker_receive(&daemon->maker, &reply, &err) < 0) {
                on_maker_died(daemon);
                return;
        }
        if (*reply.nursery.image)
                note_nursery(daemon, &reply.nursery);
        if (!*reply.kernel_id)
                return;
        daemon->n_ordered--;
        give_orders(daemon);
        kernel_pool_refill(daemon);
        struct kernel *kernel = daemon_find_kernel(daemon, reply.kernel_id);
        if (!kernel) { /* nobody wants it any more */
                for (size_t i = 0; i < MAKER_FDS; i++)
                        fd_close(&reply.fds[i]);
                (void) cgroup_destroy_by_name(&daemon->host, reply.group, NULL);
                return;
        }
        if (kernel_take(kernel, &reply, &err) < 0) {
                daemon->counters.kernels_failed++;
                kernel->listener->failed(kernel, &err);
                return;
        }
        *(kernel->fds[MAKER_KERNEL] >= 0 ? &daemon->counters.kernels_forked : &daemon->counters.kernels_cold) += 1;
        if (kernel->rules)
                network_connect(daemon);
        for (struct session *session = daemon->sessions; session; session = session->next)
                if (session->kernel == kernel && session->removing)
                        kernel_kill(kernel);
}

enum { PATHS_MAX = 64 };

/* "DIR:DIR:…" as a NULL-terminated list that lives as long as the process; `also` is one more, or "" or NULL. */
static int split_paths(const char *text, const char *also, const char *ret_paths[static PATHS_MAX], struct err *err) {
        size_t n = 0;
        char *copy = strdup(text ? text : ""), *rest = copy, *path;
        while (copy && (path = strsep(&rest, ":"))) {
                if (!*path)
                        continue;
                if (*path != '/' || n == PATHS_MAX - 2) {
                        free(copy);
                        return err_set(err, ERR_USAGE, "allowed directories are absolute paths, at most %d",
                                       PATHS_MAX - 2);
                }
                ret_paths[n++] = path;
        }
        if (also && *also)
                ret_paths[n++] = also;
        ret_paths[n] = NULL;
        return copy ? 0 : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
}

const char *daemon_preload(const struct daemon *daemon) {
        return daemon->options->preload ? daemon->options->preload : DAEMON_PRELOAD;
}

static int start_maker(struct daemon *daemon, struct err *err) {
        static struct maker_settings settings;
        static char kernel_dir[4200];
        if (kernel_files_find(kernel_dir, sizeof(kernel_dir), err) < 0)
                return -1;
        static const char *read_paths[PATHS_MAX], *write_paths[PATHS_MAX], *key_write_paths[PATHS_MAX];
        if (split_paths(daemon->options->allow_read, NULL, read_paths, err) < 0 ||
            split_paths(daemon->options->allow_write, NULL, key_write_paths, err) < 0 ||
            split_paths(daemon->options->allow_write, daemon->options->project, write_paths, err) < 0)
                return -1;
        settings = (struct maker_settings){ .data_dir = daemon->data_dir,
                                            .socket_path = daemon->socket_path,
                                            .group_prefix = daemon->group_prefix,
                                            .stock = daemon->options->stock,
                                            .kernel_dir = kernel_dir,
                                            .read_paths = read_paths,
                                            .write_paths = write_paths,
                                            .key_write_paths = key_write_paths,
                                            .df_bytes = daemon->options->df_bytes,
                                            .np_bytes = daemon->options->np_bytes,
                                            .preload = daemon_preload(daemon) };
        daemon->maker_settings = &settings;
        if (maker_start(&settings, &daemon->maker, err) < 0)
                return -1;
        daemon->maker_watch = loop_watch(daemon->loop, daemon->maker.fd, EPOLLIN, on_maker, daemon);
        if (!daemon->maker_watch) {
                maker_stop(&daemon->maker);
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        helper_started(&daemon->helpers[HELPER_MAKER], daemon->maker.pid);
        return 0;
}

static int restart_maker(void *context, struct err *err) {
        struct daemon *daemon = context;
        if (start_maker(daemon, err) < 0)
                return -1;
        give_orders(daemon); /* what was ordered while there was none */
        kernel_pool_refill(daemon);
        return 0;
}

/* Kernels that were on their way are lost; everybody who waited for one is told. */
static void on_maker_died(struct daemon *daemon) {
        struct err gone;
        loop_unwatch(&daemon->maker_watch);
        maker_stop(&daemon->maker);
        takeover_sweep_groups(daemon); /* of boxes that it had made and given to nobody */
        daemon->n_ordered = 0;
        helper_died(&daemon->helpers[HELPER_MAKER]);
        (void) err_set(&gone, ERR_GONE, "the box was being made when its maker died; try again");
        bool again = true;
        while (again) {
                again = false;
                for (size_t i = 0; i < daemon->n_pool && !again; i++)
                        if (daemon->pool[i]->state == KERNEL_MAKING) {
                                daemon->pool[i]->listener->failed(daemon->pool[i], &gone);
                                again = true;
                        }
                for (struct session *session = daemon->sessions; session && !again; session = session->next)
                        if (session->kernel && session->kernel->state == KERNEL_MAKING) {
                                session->kernel->listener->failed(session->kernel, &gone);
                                again = true;
                        }
        }
}

/* ---- time and signals ---- */

static uint64_t sweep_ms(const struct daemon *daemon) {
        uint64_t idle_ms = daemon->options->idle_ms;
        return idle_ms && idle_ms < DAEMON_SWEEP_MS ? (idle_ms < 100 ? 100 : idle_ms) : DAEMON_SWEEP_MS;
}

/* Sessions whose rows could not be struck out, as the disk was full. */
static void finish_removals(struct daemon *daemon) {
        for (struct session *session = daemon->sessions, *next; session; session = next) {
                next = session->next;
                if (session->still_listed && !session->kernel)
                        session_remove(session, session->keep_files);
        }
}

static void on_sweep(void *context) {
        struct daemon *daemon = context;
        uint64_t now = loop_now_ms(), idle_ms = daemon->options->idle_ms;
        daemon->sweep_timer = loop_timer(daemon->loop, now + sweep_ms(daemon), on_sweep, daemon);
        for (struct session *session = daemon->sessions; idle_ms && session; session = session->next)
                if (session->state == SESSION_IDLE && now - session->used_ms >= idle_ms)
                        (void) session_hibernate(session, false, NULL, NULL);
        for (struct session *session = daemon->sessions; session; session = session->next)
                if (session->touched && !session->ephemeral)
                        session->touched =
                                registry_touch(daemon->registry, session->row.id, session->row.used_ms, NULL) < 0;
        disk_reserve_restore();
        finish_removals(daemon);
        outputs_sweep(daemon);
        if (daemon->n_orphans > 0)
                takeover_sweep_groups(daemon);
        kernel_pool_refill(daemon);
        (void) malloc_trim(0); /* what small blocks left between those that are still in use */
}

static void on_drained(void *context) {
        struct daemon *daemon = context;
        loop_timer_drop(&daemon->drain_timer);
        loop_stop(daemon->loop);
}

static void on_drain_time(void *context) {
        struct daemon *daemon = context;
        daemon->drain_timer = NULL;
        daemon_log("answers are still owed; their runs go on, and can be read from the next daemon");
        loop_stop(daemon->loop);
}

/* Nothing new is taken; what is under way may be answered, for a while. Told twice, it goes at once. */
static void drain(struct daemon *daemon) {
        bool again = daemon->draining;
        daemon->draining = true;
        if (again || !daemon->front) {
                loop_stop(daemon->loop);
                return;
        }
        uint64_t end_ms = loop_now_ms() + daemon->options->drain_ms;
        daemon->drain_timer = loop_timer(daemon->loop, end_ms, on_drain_time, daemon);
        daemon->options->front->drain(daemon->front, on_drained, daemon);
}

static void on_signal(void *context, uint32_t events) {
        struct daemon *daemon = context;
        (void) events;
        struct signalfd_siginfo info;
        while (read(daemon->signal_fd, &info, sizeof(info)) == sizeof(info)) {
                if (info.ssi_signo == SIGCHLD)
                        continue; /* the maker's end shows on its socket */
                drain(daemon);
        }
}

static int watch_signals(struct daemon *daemon, struct err *err) {
        sigset_t signals;
        sigemptyset(&signals);
        sigaddset(&signals, SIGTERM);
        sigaddset(&signals, SIGINT);
        (void) sigprocmask(SIG_BLOCK, &signals, NULL);
        (void) signal(SIGPIPE, SIG_IGN);
        (void) signal(SIGHUP, SIG_IGN);
        daemon->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
        if (daemon->signal_fd < 0)
                return err_sys(err, errno, "watching signals");
        daemon->signal_watch = loop_watch(daemon->loop, daemon->signal_fd, EPOLLIN, on_signal, daemon);
        return daemon->signal_watch ? 0 : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
}

/* ---- start and end ---- */

static int make_directories(struct daemon *daemon, struct err *err) {
        static const char *const names[] = { "state", "sessions", "outputs" };
        if (data_dir_mark(daemon->data_dir, err) < 0)
                return -1;
        for (size_t i = 0; i < ELEMENTS(names); i++) {
                char path[4200];
                (void) snprintf(path, sizeof(path), "%s/%s", daemon->data_dir, names[i]);
                if (mkdir(path, 0700) < 0 && errno != EEXIST)
                        return err_sys(err, errno, "making %s", path);
        }
        return 0;
}

static void raise_descriptor_limit(void) {
        struct rlimit limit;
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
                limit.rlim_cur = limit.rlim_max;
                (void) setrlimit(RLIMIT_NOFILE, &limit);
        }
}

/* Clients and kernels wake the daemon when they are about to wait themselves. Pushed aside in that moment, as some
 * schedulers do, they are still there when the daemon wakes the next one, which then starts on another processor with
 * cold caches: a run takes twice as long (bench/profile.md). So it lets them finish. Requests from a network are
 * announced by nobody who waits, and would have to wait for whoever computes just then. */
static void be_patient(const struct daemon *daemon) {
        const struct sched_param none = { 0 };
        if (!*daemon->front_address)
                (void) sched_setscheduler(0, SCHED_BATCH | SCHED_RESET_ON_FORK, &none);
}

static void name_helpers(struct daemon *daemon) {
        static const char *const names[HELPERS] = { [HELPER_VAULT] = "vault", [HELPER_MAKER] = "maker",
                                                    [HELPER_REAPER] = "reaper", [HELPER_JANITOR] = "janitor",
                                                    [HELPER_EGRESS] = "proxy", [HELPER_METER] = "meter",
                                                    [HELPER_AUDIT] = "audit" };
        for (size_t i = 0; i < HELPERS; i++)
                daemon->helpers[i] = (struct helper) { .name = names[i], .loop = daemon->loop, .context = daemon };
        daemon->helpers[HELPER_MAKER].start = restart_maker;
}

/* Large blocks go back to the system when they are freed. Left alone, the C library would keep them from the second one
 * on: it raises the size from which a block is a mapping of its own with each that is freed. */
static void give_memory_back(void) {
        enum { LARGE = 128 << 10 };
        (void) mallopt(M_MMAP_THRESHOLD, LARGE);
        (void) mallopt(M_TRIM_THRESHOLD, LARGE);
}

static int start(struct daemon *daemon, struct err *err) {
        char quarantined[4200], path[4200];
        give_memory_back();
        log_open();
        oom_spare_self();
        raise_descriptor_limit();
        if (identity_enter(&daemon->rootless, err) < 0 || loop_make(&daemon->loop, err) < 0)
                return -1;
        name_helpers(daemon);
        /* Before the lock is taken: what was opened first is closed last, and this one takes Linux up to 20 ms, in
         * which a daemon that was killed should stand in nobody's way. */
        disk_reserve_open(daemon->data_dir);
        if (make_directories(daemon, err) < 0 || disk_open(daemon, err) < 0 ||
            registry_open(daemon->data_dir, &daemon->registry, quarantined, err) < 0)
                return -1;
        if (*quarantined)
                daemon_log("the registry was damaged; it was moved to %s and a new one begun", quarantined);
        char id[DATA_ID_SIZE + 1];
        if (data_id_get(daemon->data_dir, id, err) < 0)
                return -1;
        (void) snprintf(daemon->group_prefix, sizeof(daemon->group_prefix), "b-%s-", id);
        (void) snprintf(path, sizeof(path), "%s/state", daemon->data_dir);
        journal_scratch_start(path);
        cgroup_host_look(&daemon->host);
        cgroup_host_leave_v2(&daemon->host);
        struct helper *helpers = daemon->helpers;
        if (custody_open(daemon, err) < 0 || watch_signals(daemon, err) < 0 ||
            reaper_start(&helpers[HELPER_REAPER], &daemon->host, daemon->data_dir, err) < 0 ||
            start_maker(daemon, err) < 0 ||
            janitor_start(&daemon->janitor, &helpers[HELPER_JANITOR], daemon->data_dir, err) < 0 ||
            meter_start(&daemon->meter, &helpers[HELPER_METER], daemon->data_dir, err) < 0 ||
            audit_start(&daemon->audit, &helpers[HELPER_AUDIT], daemon->data_dir, daemon->options->audit_bytes,
                        err) < 0 ||
            takeover_sessions(daemon, err) < 0 || listener_open(daemon, err) < 0)
                return -1;
        const struct serve_front *front = daemon->options->front;
        if (front && front->open(daemon, daemon->options->front_settings, &daemon->front, err) < 0)
                return -1;
        daemon->sweep_timer = loop_timer(daemon->loop, loop_now_ms() + sweep_ms(daemon), on_sweep, daemon);
        be_patient(daemon);
        takeover_resume_runs(daemon);
        kernel_pool_refill(daemon);
        return 0;
}

static void stop(struct daemon *daemon) {
        daemon->draining = true;
        listener_close(daemon);
        loop_timer_drop(&daemon->drain_timer);
        if (daemon->front)
                daemon->options->front->close(daemon->front);
        loop_unwatch(&daemon->maker_watch);
        helper_retire(&daemon->helpers[HELPER_MAKER]);
        maker_stop(&daemon->maker); /* first: nothing new comes into being from here on */
        takeover_sweep_groups(daemon);
        network_stop(daemon);
        if (daemon->loop)
                kernel_pool_empty(daemon);
        if (!daemon->end_sessions)
                program_let_go_all(daemon);
        while (daemon->clients)
                client_free(daemon->clients);
        if (!daemon->end_sessions)
                custody_make_sure(daemon);
        /* Sessions outlive us through the vault; forgetting the record must not kill the kernel. */
        while (daemon->sessions) {
                struct session *session = daemon->sessions;
                char passing[1024] = "";
                if (session->ephemeral || (session->removing && !session->still_listed))
                        (void) snprintf(passing, sizeof(passing), "%s", session->state_dir);
                else if (session->kernel && !daemon->end_sessions)
                        kernel_let_go(session->kernel);
                session_free(session);
                if (*passing)
                        janitor_remove(&daemon->janitor, passing);
        }
        while (daemon->orders) {
                struct order *order = daemon->orders;
                daemon->orders = order->next;
                order_free(daemon, order);
        }
        loop_timer_drop(&daemon->sweep_timer);
        loop_unwatch(&daemon->signal_watch);
        disk_close(daemon);
        meter_stop(&daemon->meter);
        audit_stop(&daemon->audit);
        janitor_stop(&daemon->janitor);
        if (daemon->end_sessions && daemon->vault.fd >= 0)
                (void) vault_end(&daemon->vault, NULL);
        custody_close(daemon);
        registry_close(daemon->registry);
        fd_close(&daemon->signal_fd);
        journal_scratch_stop();
        reaper_stop();
        share_table_release(&daemon->shares);
        loop_free(daemon->loop);
}

/* The service sets the totals that its operator chose. */
static const struct share_row share_rows[DAEMON_SHARES] = {
        [SHARE_SANDBOXES] = { .what = "sandboxes", .remedy = "destroy some",
                              .setting = "--max-sandboxes, SANDBOX_MAX_CONTAINERS" },
        [SHARE_RUNS] = { .what = "runs at a time", .remedy = "wait for some to end", .total = 1024 },
        [SHARE_REQUESTS] = { .what = "requests under way", .total = 1024, .operator_too = true,
                             .remedy = "wait for some to be answered, or close their connections" },
        [SHARE_FILES] = { .what = "files being sent", .remedy = "wait for some to arrive", .total = 512 },
        [SHARE_ORDERS] = { .what = "boxes that wait to be made", .remedy = "try again in a moment",
                           .total = DAEMON_ORDERS_MAX, .operator_too = true },
        [SHARE_SPILL] = { .what = "bytes of output put aside for slow readers", .remedy = "read the streams that are "
                          "open, or close them", .total = 1 << 30, .box_percent = 25, .operator_too = true },
        [SHARE_CODE] = { .what = "bytes of code of runs under way", .remedy = "wait for some to end, or put the code "
                         "into a file", .total = 32 << 20, .operator_too = true },
        [SHARE_HELPER_JOBS] = { .what = "processes that remove, list or install for somebody", .total = 64,
                            .remedy = "try again in a moment", .operator_too = true },
};

int serve_run(const struct serve_options *options, struct err *err) {
        struct daemon daemon = { .options = options,
                                 .listen_fd = -1,
                                 .spare_fd = -1,
                                 .signal_fd = -1,
                                 .vault = { .fd = -1 },
                                 .maker = { .fd = -1 },
                                 .janitor = { .fd = -1 },
                                 .meter = { .fd = -1 },
                                 .audit = { .fd = -1 },
                                 .egress = EGRESS_DOWN,
                                 .started_ms = loop_now_ms(),
                                 .started_wall_ms = loop_wall_ms() };
        share_table_open(&daemon.shares, share_rows, DAEMON_SHARES, (unsigned) options->key_share_percent);
        (void) snprintf(daemon.data_dir, sizeof(daemon.data_dir), "%s", options->data_dir);
        uint32_t hash = 2166136261u; /* FNV-1a */
        for (const char *at = options->data_dir; *at; at++)
                hash = (hash ^ (unsigned char) *at) * 16777619u;
        (void) snprintf(daemon.old_group_prefix, sizeof(daemon.old_group_prefix), "k-%08x-", hash);
        (void) snprintf(daemon.socket_path, sizeof(daemon.socket_path), "%s", options->socket_path);
        int code = start(&daemon, err);
        if (code == 0) {
                if (options->ready)
                        options->ready(options->ready_context);
                code = loop_run(daemon.loop, err);
        } else if (daemon.vault_is_new)
                daemon.end_sessions = true; /* nobody has sessions there yet: nothing is to be left behind */
        stop(&daemon);
        return code;
}
