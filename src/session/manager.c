#include "session/manager.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/data_dir.h"
#include "base/data_id.h"
#include "base/fnv.h"
#include "base/log.h"
#include "base/memory.h"
#include "box/host/host_trial.h"
#include "box/host/identity.h"
#include "engine/mount_dir.h"
#include "session/group_sweep.h"
#include "session/kernel_order.h"
#include "session/kernel_pool.h"
#include "session/maker_link.h"
#include "session/network.h"
#include "session/outputs.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "session/session_config.h"
#include "session/vault_link.h"
#include "store/disk_reserve.h"
#include "store/reaper.h"

struct kernel *manager_find_kernel(struct session_manager *manager, const char *id) {
        for (size_t i = 0; i < manager->n_pool; i++)
                if (strcmp(manager->pool[i]->id, id) == 0)
                        return manager->pool[i];
        for (struct session *session = manager->sessions; session; session = session->next)
                if (session->kernel && strcmp(session->kernel->id, id) == 0)
                        return session->kernel;
        return NULL;
}

const char *manager_preload(const struct session_manager *manager) {
        return manager->options->preload ? manager->options->preload : MANAGER_PRELOAD;
}

/* ---- start ---- */

/* The service sets the totals that its operator chose. */
static const struct share_row share_rows[MANAGER_SHARES] = {
        [SHARE_SANDBOXES] = { .what = "sandboxes",
                              .remedy = "destroy some",
                              .setting = "--max-sandboxes, SANDBOX_MAX_CONTAINERS" },
        [SHARE_RUNS] = { .what = "runs at a time", .remedy = "wait for some to end", .total = 1024 },
        [SHARE_REQUESTS] = { .what = "requests under way",
                             .total = 1024,
                             .operator_too = true,
                             .remedy = "wait for some to be answered, or close their connections" },
        [SHARE_FILES] = { .what = "files being sent", .remedy = "wait for some to arrive", .total = 512 },
        [SHARE_ORDERS] = { .what = "boxes that wait to be made",
                           .remedy = "try again in a moment",
                           .total = KERNEL_ORDERS_MAX,
                           .operator_too = true },
        [SHARE_SPILL] = { .what = "bytes of output put aside for slow readers",
                          .remedy = "read the streams that are open, or close them",
                          .total = 1 << 30,
                          .box_percent = 25,
                          .operator_too = true },
        [SHARE_CODE] = { .what = "bytes of code of runs under way",
                         .remedy = "wait for some to end, or put the code into a file",
                         .total = 12 << 20,
                         .operator_too = true },
        [SHARE_BODIES] = { .what = "bytes of requests that are being read",
                           .remedy = "try again in a moment",
                           .total = 12 << 20,
                           .operator_too = true },
        [SHARE_ANSWERS] = { .what = "bytes of large answers that wait to be read",
                            .remedy = "read them, or try again in a moment",
                            .total = 12 << 20,
                            .fits_once = true,
                            .operator_too = true },
        [SHARE_HELPER_JOBS] = { .what = "helper processes that remove, list or install",
                                .total = 64,
                                .remedy = "try again in a moment",
                                .operator_too = true },
};

/* Older versions had no id in the data directory and named groups by its path. */
static void name_old_groups(struct session_manager *manager) {
        (void) snprintf(manager->old_group_prefix, sizeof(manager->old_group_prefix), "k-%08x-",
                        fnv_of_text(manager->data_dir));
}

void manager_init(struct session_manager *manager, const struct serve_options *options) {
        *manager = (struct session_manager) { .options = options,
                                              .vault = { .fd = -1 },
                                              .maker = { .fd = -1 },
                                              .janitor = { .fd = -1 },
                                              .meter = { .fd = -1 },
                                              .audit = { .fd = -1 },
                                              .egress = HELPER_PROGRAM_DOWN,
                                              .started_ms = loop_now_ms(),
                                              .started_wall_ms = loop_wall_ms() };
        remote_link_init(manager);
        share_table_open(&manager->shares, share_rows, MANAGER_SHARES, (unsigned) options->key_share_percent);
        (void) snprintf(manager->data_dir, sizeof(manager->data_dir), "%s", options->data_dir);
        name_old_groups(manager);
}

static void name_helpers(struct session_manager *manager) {
        static const char *const names[HELPERS] = {
                [HELPER_VAULT] = "vault",     [HELPER_MAKER] = "maker",   [HELPER_REAPER] = "reaper",
                [HELPER_JANITOR] = "janitor", [HELPER_EGRESS] = "proxy",  [HELPER_METER] = "meter",
                [HELPER_AUDIT] = "audit",     [HELPER_REMOTE] = "remote", [HELPER_INSTANCES] = "instances"
        };
        for (size_t i = 0; i < HELPERS; i++)
                manager->helpers[i] = (struct helper) { .name = names[i], .loop = manager->loop, .context = manager };
}

static int manager_make_directories(const struct session_manager *manager, struct err *err) {
        static const char *const names[] = { "state", "sessions", "outputs" };
        if (data_dir_mark(manager->data_dir, err) < 0)
                return -1;
        for (size_t i = 0; i < ELEMENTS(names); i++) {
                char path[4200];
                (void) snprintf(path, sizeof(path), "%s/%s", manager->data_dir, names[i]);
                struct stat status;
                if (mkdir(path, 0700) < 0 && errno != EEXIST)
                        return err_sys(err, errno, "making %s", path);
                if (stat(path, &status) < 0)
                        return err_sys(err, errno, "cannot look at %s", path);
                if (!S_ISDIR(status.st_mode)) /* without it no session could be taken over */
                        return err_set(err, ERR_REFUSED,
                                       "%s is not a directory: move it away, and put the daemon's own directory back",
                                       path);
        }
        return 0;
}

int manager_open(struct session_manager *manager, struct err *err) {
        char quarantined[4200], path[4200];
        if (identity_enter(&manager->rootless, err) < 0 || loop_make(&manager->loop, err) < 0)
                return -1;
        (void) host_refuses_proc(); /* now: it waits for a child, which the event loop must not do */
        name_helpers(manager);
        /* Opened before the registry is locked: a killed process closes its descriptors in reverse order, and closing
         * this one can take 20 ms, during which the dead daemon would still hold the lock. */
        disk_reserve_open(manager->data_dir);
        if (manager_make_directories(manager, err) < 0 || disk_open(manager, err) < 0 ||
            registry_open(manager->data_dir, &manager->registry, quarantined, err) < 0)
                return -1;
        registry_name_socket(manager->registry, manager->options->socket_path);
        if (*quarantined)
                daemon_log("the registry was damaged; it was moved to %s and a new one begun", quarantined);
        char id[DATA_ID_SIZE + 1];
        if (data_id_get(manager->data_dir, id, err) < 0)
                return -1;
        (void) snprintf(manager->data_id, sizeof(manager->data_id), "%s", id);
        (void) snprintf(manager->group_prefix, sizeof(manager->group_prefix), "b-%s-", id);
        if (session_engine_settle(manager, err) < 0)
                return -1;
        reaper_know_engines(&manager->options->engines, manager->data_id);
        mount_dir_configure(manager->data_dir, !identity_has_range());
        (void) snprintf(path, sizeof(path), "%s/state", manager->data_dir);
        journal_scratch_start(path);
        cgroup_host_look(&manager->host);
        cgroup_host_leave_v2(&manager->host);
        cgroup_host_set_idle(&manager->host, false); /* the last daemon may have crashed */
        cpu_reserve_look();
        return vault_link_open(manager, err);
}

int manager_start_helpers(struct session_manager *manager, struct err *err) {
        struct helper *helpers = manager->helpers;
        if (reaper_start(&helpers[HELPER_REAPER], &manager->host, manager->data_dir, err) < 0 ||
            maker_link_start(manager, err) < 0 ||
            janitor_start(&manager->janitor, &helpers[HELPER_JANITOR], manager->data_dir, err) < 0 ||
            meter_start(&manager->meter, &helpers[HELPER_METER], manager->data_dir, err) < 0)
                return -1;
        reaper_sweep_boxes();
        return audit_start(&manager->audit, &helpers[HELPER_AUDIT], manager->data_dir, manager->options->audit_bytes,
                           err);
}

/* ---- while it runs ---- */

/* Sessions whose rows could not be removed, as the disk was full. */
static void finish_removals(struct session_manager *manager) {
        for (struct session *session = manager->sessions, *next; session; session = next) {
                next = session->next;
                if (session->removal == SESSION_GOES_LISTED && !session->kernel)
                        session_remove(session, session->keep_files);
        }
}

void manager_sweep(struct session_manager *manager) {
        uint64_t now = loop_now_ms(), idle_ms = manager->options->idle_ms;
        for (struct session *session = manager->sessions; idle_ms && session; session = session->next)
                if (session->state == SESSION_IDLE && now - session->used_ms >= idle_ms)
                        (void) session_hibernate(session, session_config_has_users(&session->row), NULL, NULL);
        for (struct session *session = manager->sessions; session; session = session->next)
                if (session->touched && !session->ephemeral)
                        session->touched =
                                registry_touch(manager->registry, session->row.id, session->row.used_ms, NULL) < 0;
        for (struct session *session = manager->sessions; session; session = session->next)
                if (session->kernel) /* processes go on between runs */
                        cpu_weight_watch(session->kernel);
        disk_reserve_restore();
        finish_removals(manager);
        if (now - manager->boxes_swept_ms >= MANAGER_BOXES_SWEEP_MS) {
                manager->boxes_swept_ms = now;
                reaper_sweep_boxes();
        }
        outputs_sweep(manager);
        if (manager->n_orphans > 0)
                group_sweep(manager);
        kernel_pool_refill(manager);
        (void) malloc_trim(0); /* free memory between small blocks that are in use */
}

/* ---- end ---- */

void manager_stop_making(struct session_manager *manager) {
        manager->draining = true;
        maker_link_stop(manager);
        group_sweep(manager);
        network_stop(manager);
        remote_link_stop(manager);
        if (manager->loop)
                kernel_pool_empty(manager);
}

/* The vault keeps the kernels of named sessions; freeing the record must not kill them. */
static void free_sessions(struct session_manager *manager, bool end_sessions) {
        while (manager->sessions) {
                struct session *session = manager->sessions;
                char doomed[1024] = "";
                if (session->ephemeral || session->removal == SESSION_GOES)
                        (void) snprintf(doomed, sizeof(doomed), "%s", session->state_dir);
                else if (session->kernel && !end_sessions)
                        kernel_let_go(session->kernel);
                if (session->kernel && session_is_going(session)) /* killed, but its end was not seen yet */
                        vault_link_drop(manager, session->kernel->id);
                session_free(session);
                if (*doomed)
                        janitor_remove(&manager->janitor, doomed);
        }
}

void manager_stop(struct session_manager *manager, bool end_sessions) {
        if (!end_sessions)
                vault_link_make_sure(manager);
        free_sessions(manager, end_sessions);
        kernel_order_drop_all(manager);
        disk_close(manager);
        meter_stop(&manager->meter);
        audit_stop(&manager->audit);
        janitor_stop(&manager->janitor);
        if (end_sessions && manager->vault.fd >= 0)
                (void) vault_end(&manager->vault, NULL);
        vault_link_end_empty(manager);
        vault_link_close(manager);
        registry_close(manager->registry);
        journal_scratch_stop();
        reaper_stop();
        share_table_release(&manager->shares);
        loop_free(manager->loop);
}
