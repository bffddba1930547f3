/* The daemon itself: ping, status, shutdown. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/operation.h"
#include "engine/incus.h"
#include "session/caller.h"
#include "session/kernel_pool.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "store/disk_reserve.h"

static uint64_t memory_bytes_of(pid_t pid) {
        unsigned long pages = 0;
        char path[64];
        (void) snprintf(path, sizeof(path), "/proc/%d/statm", (int) pid);
        FILE *file = fopen(path, "re");
        if (file) {
                if (fscanf(file, "%*u %lu", &pages) != 1)
                        pages = 0;
                (void) fclose(file);
        }
        return (uint64_t) pages * (uint64_t) sysconf(_SC_PAGESIZE);
}

int operation_ping(struct caller *caller, struct err *err) {
        (void) err;
        caller_begin(caller, "ping", NULL);
        caller_answer(caller, json_pack("{s:s, s:i}", "version", GLOVEBOX_VERSION, "pid", (int) getpid()));
        return 0;
}

/* The nursery of the daemon's own image that is light or not, or null. */
static json_t *describe_nursery(const struct session_manager *manager, bool light) {
        static const char *const states[] = { "down", "starting", "ready" };
        for (size_t i = 0; i < manager->n_nurseries; i++) {
                const struct maker_nursery *nursery = &manager->nurseries[i];
                if (strcmp(nursery->image, manager->options->image) != 0 || nursery->light != light)
                        continue;
                uint64_t memory_bytes = nursery->pid > 0 ? memory_bytes_of(nursery->pid) : 0;
                return json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:s, s:I}", "image", nursery->image, "state",
                                 states[nursery->state], "pid", (int) nursery->pid, "supervisor_pid",
                                 (int) nursery->supervisor_pid, "forks", (json_int_t) nursery->forks, "box_pool",
                                 (json_int_t) nursery->n_boxes_ready, "preloaded", (json_int_t) nursery->n_preloaded,
                                 "failed_imports", nursery->failed_imports, "memory_bytes", (json_int_t) memory_bytes);
        }
        return json_null();
}

/* {"vault": {"state": "running", "pid": 7, "restarts": 0}, …} */
static json_t *describe_helpers(const struct session_manager *manager) {
        json_t *helpers = json_object();
        for (size_t i = 0; i < HELPERS; i++) {
                const struct helper *helper = &manager->helpers[i];
                json_t *json = json_pack("{s:s, s:i, s:I}", "state", helper_state(helper), "pid", (int) helper->pid,
                                         "restarts", (json_int_t) helper->n_restarts);
                if (*helper->trouble)
                        json_object_set_new(json, "trouble", json_string(helper->trouble));
                json_object_set_new(helpers, helper->name, json);
        }
        return helpers;
}

static json_t *describe_storage(void) {
        struct disk_reserve_state state;
        disk_reserve_look(&state);
        return json_pack("{s:b, s:I, s:I}", "reserve_in_use", (int) state.is_in_use, "reserve_bytes",
                         (json_int_t) state.reserve_bytes, "free_bytes", (json_int_t) state.free_bytes);
}

static json_t *describe_daemon(const struct daemon *daemon) {
        const struct session_manager *manager = &daemon->manager;
        const struct serve_options *options = manager->options;
        const struct loop_turns turns = loop_turns(manager->loop);
        return json_pack("{s:i, s:s, s:I, s:I, s:s, s:s?, s:s, s:s, s:I, s:I, s:f, s:f}", "pid", (int) getpid(),
                         "version", GLOVEBOX_VERSION, "uptime_ms", (json_int_t) (loop_now_ms() - manager->started_ms),
                         "memory_bytes", (json_int_t) memory_bytes_of(getpid()), "socket",
                         *options->socket_link ? options->socket_link : options->socket_path, "api",
                         *daemon->front_address ? daemon->front_address : NULL, "data_dir", manager->data_dir, "image",
                         options->image, "clients", (json_int_t) daemon->n_clients, "log_dropped",
                         (json_int_t) log_dropped(), "longest_turn_ms", (double) turns.longest_us / 1000,
                         "longest_turn_cpu_ms", (double) turns.longest_cpu_us / 1000);
}

static json_t *describe_pool(const struct session_manager *manager) {
        return json_pack("{s:I, s:I, s:I, s:I}", "wanted", (json_int_t) manager->options->pool, "ready",
                         (json_int_t) kernel_pool_ready(manager, false), "light_wanted",
                         (json_int_t) kernel_pool_wanted(manager, true), "light_ready",
                         (json_int_t) kernel_pool_ready(manager, true));
}

/* Tests whether each accepts connections now. Requests to an engine could block the loop: `glovebox doctor` makes
 * them. */
static json_t *describe_engines(const struct session_manager *manager) {
        json_t *engines = json_pack("[{s:s, s:b, s:s}]", "name", "native", "there", 1, "needs", "");
        for (size_t i = 0; engine_table[i]; i++) {
                bool is_there = engine_is_there(engine_table[i], &manager->options->engines);
                const char *trouble = engine_table[i] == &engine_incus_vm ? manager->remote.vm_trouble : "";
                json_t *engine = json_pack("{s:s, s:b, s:s}", "name", engine_table[i]->name, "there",
                                           (int) (is_there && !*trouble), "needs", engine_table[i]->needs);
                if (is_there && *trouble)
                        (void) json_object_set_new(engine, "why", json_string(trouble));
                (void) json_array_append_new(engines, engine);
        }
        return engines;
}

int operation_status(struct caller *caller, struct err *err) {
        static const struct session_info_form brief = { .is_brief = true };
        (void) err;
        caller_begin(caller, "status", NULL);
        struct session_manager *manager = caller->manager;
        json_t *sessions = json_array();
        for (struct session *session = manager->sessions; session; session = session->next)
                if (session_is_seen_by(session, caller->owner)) {
                        const struct session_info info = session_info_of(session);
                        json_array_append_new(sessions, session_info_to_json(&info, &brief));
                }
        caller_answer(caller, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "engine",
                                        manager->engine.name, "engine_why", manager->engine_why, "engines",
                                        describe_engines(manager), "daemon", describe_daemon(daemon_of(manager)),
                                        "pool", describe_pool(manager), "nursery", describe_nursery(manager, false),
                                        "light_nursery", describe_nursery(manager, true), "sessions", sessions,
                                        "helpers", describe_helpers(manager), "storage", describe_storage()));
        return 0;
}

/* Sessions whose variables the vault keeps for the next daemon. */
static size_t count_awake(const struct session_manager *manager) {
        size_t n = 0;
        for (const struct session *session = manager->sessions; session; session = session->next)
                n += session->kernel && !session->ephemeral && !session->helps && !session_is_going(session);
        return n;
}

int operation_shutdown(struct caller *caller, bool end_sessions, struct err *err) {
        caller_begin(caller, "shutdown", NULL);
        if (!caller_is_operator(caller))
                return err_set(err, ERR_REFUSED, "only the operator ends the daemon");
        struct daemon *daemon = daemon_of(caller->manager); /* read before the answer frees the caller */
        daemon->end_sessions = end_sessions;
        daemon->manager.draining = true;
        caller_answer(caller,
                      json_pack("{s:I}", "awake", (json_int_t) (end_sessions ? 0 : count_awake(caller->manager))));
        loop_stop(daemon->manager.loop);
        return 0;
}
