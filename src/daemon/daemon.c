/* `glovebox serve`.
 *
 * Theory of operation. This process decides everything and never blocks: clients, kernels, timers and signals are
 * events of one loop. Boxes are made by the maker, a child process. The vault, a process without a parent, holds a copy
 * of every file descriptor that a living session needs, so boxes outlive the daemon. After a `kill -9` the next daemon
 * reads the registry, lists the contents of the vault, and continues; boxes that belong to no session are destroyed. */
#include "daemon/daemon.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/oom.h"
#include "base/priority.h"
#include "daemon/listener.h"
#include "daemon/remote_move.h"
#include "daemon/socket_client.h"
#include "daemon/takeover.h"
#include "session/kernel_pool.h"
#include "session/program.h"
#include "session/serve_options.h"
#include "store/reaper.h"

/* ---- time and signals ---- */

enum { FIRST_SWEEP_MS = 1000 };

static uint64_t sweep_ms(const struct daemon *daemon) {
        uint64_t idle_ms = daemon->manager.options->idle_ms;
        return idle_ms && idle_ms < DAEMON_SWEEP_MS ? (idle_ms < 100 ? 100 : idle_ms) : DAEMON_SWEEP_MS;
}

static void on_sweep(void *context) {
        struct daemon *daemon = context;
        daemon->sweep_timer = loop_timer(daemon->manager.loop, loop_now_ms() + sweep_ms(daemon), on_sweep, daemon);
        manager_sweep(&daemon->manager);
        if (loop_now_ms() - daemon->remote_swept_ms >= MANAGER_BOXES_SWEEP_MS) {
                daemon->remote_swept_ms = loop_now_ms();
                remote_sweep(&daemon->manager);
        }
}

/* Boxes of other engines whose vault died with the last daemon end a moment after it. */
static void on_first_sweep(void *context) {
        struct daemon *daemon = context;
        daemon->sweep_timer = loop_timer(daemon->manager.loop, loop_now_ms() + sweep_ms(daemon), on_sweep, daemon);
        reaper_sweep_boxes();
}

static void daemon_on_drained(void *context) {
        struct daemon *daemon = context;
        loop_timer_drop(&daemon->drain_timer);
        loop_stop(daemon->manager.loop);
}

static void on_drain_time(void *context) {
        struct daemon *daemon = context;
        daemon->drain_timer = NULL;
        daemon_log("some requests are not answered yet; their runs go on and can be read from the next daemon");
        loop_stop(daemon->manager.loop);
}

/* Refuses new requests and finishes open ones, for a while. The second signal stops at once. */
/* The first SIGTERM or SIGINT lets the requests of the front end finish, up to a time limit; a second one stops at
 * once. */
static void daemon_drain(struct daemon *daemon) {
        struct session_manager *manager = &daemon->manager;
        bool again = manager->draining;
        manager->draining = true;
        if (again || !daemon->front) {
                loop_stop(manager->loop);
                return;
        }
        uint64_t end_ms = loop_now_ms() + manager->options->drain_ms;
        daemon->drain_timer = loop_timer(manager->loop, end_ms, on_drain_time, daemon);
        manager->options->front->drain(daemon->front, daemon_on_drained, daemon);
}

static void on_signal(void *context, uint32_t events) {
        struct daemon *daemon = context;
        (void) events;
        struct signalfd_siginfo info;
        while (read(daemon->signal_fd, &info, sizeof(info)) == sizeof(info))
                daemon_drain(daemon);
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
        daemon->signal_watch = loop_watch(daemon->manager.loop, daemon->signal_fd, EPOLLIN, on_signal, daemon);
        return daemon->signal_watch ? 0 : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
}

/* ---- start and end ---- */

static void raise_descriptor_limit(void) {
        struct rlimit limit;
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
                limit.rlim_cur = limit.rlim_max;
                (void) setrlimit(RLIMIT_NOFILE, &limit);
        }
}

/* Large blocks go back to the system when they are freed. By default the C library keeps them from the second one on:
 * it raises the size from which a block is a mapping of its own with each that is freed. */
static void give_memory_back(void) {
        enum { LARGE = 128 << 10 };
        (void) mallopt(M_MMAP_THRESHOLD, LARGE);
        (void) mallopt(M_TRIM_THRESHOLD, LARGE);
}

static int start_parts(struct daemon *daemon, struct err *err) {
        struct session_manager *manager = &daemon->manager;
        give_memory_back();
        log_open();
        oom_spare_self();
        raise_descriptor_limit();
        if (manager_open(manager, err) < 0 || watch_signals(daemon, err) < 0 ||
            manager_start_helpers(manager, err) < 0 || takeover_sessions(manager, err) < 0 ||
            listener_open(daemon, err) < 0)
                return -1;
        const struct serve_front *front = manager->options->front;
        if (front && front->open(daemon, manager->options->front_settings, &daemon->front, err) < 0)
                return -1;
        daemon->sweep_timer = loop_timer(manager->loop, loop_now_ms() + FIRST_SWEEP_MS, on_first_sweep, daemon);
        priority_serve_first();
        if (*daemon->front_address)
                priority_stay_alert();
        takeover_resume_runs(manager);
        remote_sweep(manager);
        kernel_pool_refill(manager);
        return 0;
}

static void daemon_stop(struct daemon *daemon) {
        struct session_manager *manager = &daemon->manager;
        manager->draining = true;
        listener_close(daemon);
        loop_timer_drop(&daemon->drain_timer);
        client_free_all(daemon, true);
        if (daemon->front)
                manager->options->front->close(daemon->front);
        listener_remove_dir(daemon);
        manager_stop_making(manager);
        if (!daemon->end_sessions)
                program_let_go_all(manager);
        client_free_all(daemon, false);
        loop_timer_drop(&daemon->sweep_timer);
        loop_unwatch(&daemon->signal_watch);
        fd_close(&daemon->signal_fd);
        manager_stop(manager, daemon->end_sessions);
}

int serve_run(const struct serve_options *options, struct err *err) {
        struct daemon daemon = { .listen_fd = -1, .spare_fd = -1, .signal_fd = -1 };
        manager_init(&daemon.manager, options);
        int code = start_parts(&daemon, err);
        if (code == 0) {
                if (options->ready)
                        options->ready(options->ready_context);
                code = loop_run(daemon.manager.loop, err);
        } else if (daemon.manager.vault_is_new)
                daemon.end_sessions = true; /* there are no sessions yet: leave nothing behind */
        daemon_stop(&daemon);
        return code;
}
