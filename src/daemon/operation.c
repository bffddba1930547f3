#include "daemon/operation.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "session/caller.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "store/disk_reserve.h"

const char *operation_text(json_t *json, const char *key, struct err *err) {
        const char *text = json_string_value(json_object_get(json, key));
        if (!text)
                (void) err_set(err, ERR_USAGE, "\"%s\" must be given, as text", key);
        return text;
}

struct session *operation_session(struct caller *caller, json_t *json, struct err *err) {
        const char *name = operation_text(json, "session", err);
        struct session *session = name ? session_find(caller->daemon, caller->owner, name) : NULL;
        if (name && !session && !caller_is_operator(caller))
                (void) err_set(err, ERR_NOT_FOUND,
                               "there is no sandbox \"%.100s\"; make it with create, or run something in it", name);
        else if (name && !session)
                (void) err_set(err, ERR_NOT_FOUND,
                               "there is no session \"%.100s\"; `glovebox session ls` shows those there are", name);
        return session;
}

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

static int ping(struct caller *caller, json_t *json, struct err *err) {
        (void) json;
        (void) err;
        caller_answer(caller, json_pack("{s:s, s:i}", "version", GLOVEBOX_VERSION, "pid", (int) getpid()));
        return 0;
}

/* The nursery of the daemon's own image that is light or not, or null. */
static json_t *describe_nursery(const struct daemon *daemon, bool light) {
        static const char *const states[] = { "down", "starting", "ready" };
        for (size_t i = 0; i < daemon->n_nurseries; i++) {
                const struct maker_nursery *nursery = &daemon->nurseries[i];
                if (strcmp(nursery->image, daemon->options->image) != 0 || nursery->light != light)
                        continue;
                uint64_t memory_bytes = nursery->pid > 0 ? memory_bytes_of(nursery->pid) : 0;
                return json_pack("{s:s, s:s, s:i, s:I, s:I, s:I, s:s, s:I}", "image", nursery->image, "state",
                                 states[nursery->state], "pid", (int) nursery->pid, "forks",
                                 (json_int_t) nursery->forks, "stock", (json_int_t) nursery->n_stock, "preloaded",
                                 (json_int_t) nursery->n_preloaded, "failed_imports", nursery->failed_imports,
                                 "memory_bytes", (json_int_t) memory_bytes);
        }
        return json_null();
}

/* {"vault": {"state": "running", "pid": 7, "restarts": 0}, …} */
static json_t *describe_helpers(const struct daemon *daemon) {
        json_t *helpers = json_object();
        for (size_t i = 0; i < HELPERS; i++) {
                const struct helper *helper = &daemon->helpers[i];
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

static int status(struct caller *caller, json_t *json, struct err *err) {
        (void) json;
        (void) err;
        struct daemon *daemon = caller->daemon;
        const struct loop_turns turns = loop_turns(daemon->loop);
        json_t *sessions = json_array();
        for (struct session *session = daemon->sessions; session; session = session->next)
                if (session_is_seen_by(session, caller->owner))
                        json_array_append_new(sessions, session_to_json(session, true));
        json_t *answer = json_pack(
                "{s:{s:i, s:s, s:I, s:I, s:s, s:s?, s:s, s:s, s:I, s:I, s:f, s:f}, s:{s:I, s:I, s:I, s:I}, s:o, s:o, s:o, s:o}",
                "daemon", "pid", (int) getpid(), "version", GLOVEBOX_VERSION, "uptime_ms",
                (json_int_t) (loop_now_ms() - daemon->started_ms), "memory_bytes",
                (json_int_t) memory_bytes_of(getpid()), "socket",
                *daemon->options->socket_link ? daemon->options->socket_link : daemon->socket_path, "api",
                *daemon->front_address ? daemon->front_address : NULL, "data_dir", daemon->data_dir, "image",
                daemon->options->image, "clients", (json_int_t) daemon->n_clients, "log_dropped",
                (json_int_t) log_dropped(), "longest_turn_ms", (double) turns.longest_us / 1000, "longest_turn_cpu_ms",
                (double) turns.longest_cpu_us / 1000, "pool", "wanted", (json_int_t) daemon->options->pool, "ready",
                (json_int_t) kernel_pool_ready(daemon, false), "light_wanted", (json_int_t) kernel_pool_wanted(daemon, true),
                "light_ready", (json_int_t) kernel_pool_ready(daemon, true), "nursery", describe_nursery(daemon, false),
                "light_nursery", describe_nursery(daemon, true), "sessions", sessions, "helpers",
                describe_helpers(daemon));
        json_object_set_new(answer, "storage", describe_storage());
        caller_answer(caller, answer);
        return 0;
}

static int shutdown_daemon(struct caller *caller, json_t *json, struct err *err) {
        if (!caller_is_operator(caller))
                return err_set(err, ERR_REFUSED, "only the operator ends the daemon");
        const char *sessions = json_string_value(json_object_get(json, "sessions"));
        struct daemon *daemon = caller->daemon; /* who was answered is gone */
        daemon->end_sessions = sessions && strcmp(sessions, "end") == 0;
        daemon->draining = true;
        caller_answer(caller, json_object());
        loop_stop(daemon->loop);
        return 0;
}

static const struct operation operations_daemon[] = {
        { "ping", ping }, { "status", status }, { "shutdown", shutdown_daemon }, { NULL, NULL },
};

int operation_run(struct caller *caller, json_t *json, struct err *err) {
        static const struct operation *const tables[] = { operations_run, operations_file, operations_session,
                                                          operations_daemon, operations_install,
                                                          operations_process };
        const char *name = operation_text(json, "op", err);
        if (!name)
                return -1;
        for (size_t i = 0; i < ELEMENTS(tables); i++)
                for (const struct operation *row = tables[i]; row->name; row++)
                        if (strcmp(row->name, name) == 0) {
                                caller_begin(caller, row->name, json_string_value(json_object_get(json, "session")));
                                return row->run(caller, json, err);
                        }
        return err_set(err, ERR_USAGE, "there is no operation \"%.60s\"; docs/PROTOCOL.md lists them", name);
}
