/* Active sessions and ephemeral runs: list them, end them, change their limits. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "daemon/operation.h"
#include "daemon/remote.h"
#include "session/caller.h"
#include "session/program.h"
#include "session/session.h"
#include "session/session_config.h"
#include "store/session_file.h"

enum { WHAT_MAX = 80, PREFIX_MIN = 6 };

static bool session_is_visible(const struct session *session, const struct caller *caller) {
        return !session_is_going(session) && !session->helps &&
               (session->ephemeral || session_is_seen_by(session, caller->owner)) &&
               (caller_is_operator(caller) || strcmp(session->row.owner, caller->owner) == 0);
}

/* The first line of the code, or the words of the command; bounded. */
static json_t *describe_work(const struct run *run) {
        char text[WHAT_MAX + 1] = "";
        size_t i, used = 0;
        json_t *word;
        const char *code = json_string_value(json_object_get(run->request, "code"));
        json_array_foreach (json_object_get(run->request, "argv"), i, word) {
                int n = snprintf(text + used, sizeof(text) - used, "%s%s", used ? " " : "", json_string_value(word));
                used += n > 0 ? (size_t) n : 0;
                if (used >= sizeof(text))
                        break;
        }
        if (code) {
                code += strspn(code, " \t\r\n");
                (void) snprintf(text, sizeof(text), "%.*s", (int) strcspn(code, "\r\n"), code);
        }
        for (size_t end = strlen(text); end > 0; end--) { /* half a character is not UTF-8 */
                json_t *cut = json_stringn(text, end);
                if (cut)
                        return cut;
        }
        return json_string("");
}

static json_t *describe_run(const struct run *run) {
        uint64_t now_us = loop_now_us();
        return json_pack("{s:s, s:s, s:I, s:o}", "run_id", run->id, "status", run->started ? "running" : "waiting",
                         "running_ms", (json_int_t) (run->started ? (now_us - run->started_us) / 1000 : 0), "what",
                         describe_work(run));
}

/* The daemon does not see what a program runs (session/program.h); its caller reports it. */
static json_t *describe_program(const struct session *session) {
        bool running = session->state == SESSION_RUNNING;
        return json_pack("{s:s, s:s, s:I, s:s}", "run_id", session->row.id, "status", running ? "running" : "waiting",
                         "running_ms", (json_int_t) (loop_now_ms() - session->used_ms), "what",
                         *session->program.what ? session->program.what : "glovebox run");
}

int operation_ps(struct caller *caller, struct err *err) {
        static const struct session_info_form brief = { .is_brief = true };
        (void) err;
        caller_begin(caller, "ps", NULL);
        json_t *list = json_array();
        for (struct session *session = caller->manager->sessions; session; session = session->next) {
                if (!session_is_visible(session, caller))
                        continue;
                const struct session_info info = session_info_of(session);
                json_t *item = session_info_to_json(&info, &brief), *runs = json_array();
                for (const struct run *run = session->runs; run; run = run->next)
                        (void) json_array_append_new(runs, describe_run(run));
                if (session->is_program)
                        (void) json_array_append_new(runs, describe_program(session));
                (void) json_object_set_new(item, "ephemeral", json_boolean(session->ephemeral));
                (void) json_object_set_new(item, "owner", json_string(session->row.owner));
                (void) json_object_set_new(item, "runs", runs);
                (void) json_array_append_new(list, item);
        }
        caller_answer(caller, json_pack("{s:o}", "processes", list));
        return 0;
}

static bool has_prefix(const char *text, const char *prefix) {
        return strlen(prefix) >= PREFIX_MIN && strncmp(text, prefix, strlen(prefix)) == 0;
}

/* By a session's name or id, or the beginning of an id, of a session or of a run. */
static struct session *find_target(struct caller *caller, const char *name, struct err *err) {
        struct session *found = session_find(caller->manager, caller->owner, name);
        if (found)
                return found;
        for (struct session *session = caller->manager->sessions; session; session = session->next) {
                if (!session_is_visible(session, caller) ||
                    !(has_prefix(session->row.id, name) || (session->runs && has_prefix(session->runs->id, name))))
                        continue;
                if (found) {
                        (void) err_set(err, ERR_USAGE, "\"%.100s\" begins more than one id; write more of it", name);
                        return NULL;
                }
                found = session;
        }
        if (!found)
                (void) err_set(err, ERR_NOT_FOUND, "nothing of the name or id \"%.100s\" is here; see glovebox ps",
                               name);
        return found;
}

/* "interrupt" leaves a session its variables, "end" does not; an ephemeral run is ended by both, but a program gets a
 * SIGTERM first. */
int operation_kill(struct caller *caller, const char *target, bool hard, struct err *err) {
        caller_begin(caller, "kill", target);
        if (!target)
                return err_set(err, ERR_USAGE, "\"session\" must be given, as text");
        struct session *session = find_target(caller, target, err);
        if (!session)
                return -1;
        if (session->is_remote)
                return remote_pass_new(caller, session, hard ? "session.restart" : "session.interrupt", NULL, err);
        bool was_running = session->runs && session->runs->started;
        json_t *answer = json_pack("{s:s, s:s, s:b, s:b}", "session", session->row.id, "name", session->row.name,
                                   "ephemeral", (int) session->ephemeral, "was_running", (int) was_running);
        const char *done = "nothing";
        if (!hard && program_ask_to_end(session)) {
                done = "asked";
        } else if (session->ephemeral) {
                done = "ended";
                session_remove(session, false);
        } else if (was_running && hard) {
                done = "restarted";
                session_restart(session);
        } else if (was_running && session_interrupt(session)) {
                done = "interrupted";
        } else if (session->runs) {
                struct err ended;
                done = "cancelled";
                (void) err_set(&ended, ERR_GONE, "the run was ended before it began");
                session_fail_runs(session, &ended);
        }
        (void) json_object_set_new(answer, "done", json_string(done));
        caller_answer(caller, answer);
        return 0;
}

/* Only limits that can be changed in a running box. */
static int check_changeable(json_t *limits, struct err *err) {
        static const char *const good[] = { "memory_bytes", "memory",     "cpus", "pids",       "timeout_ms",
                                            "timeout",      "disk_bytes", "disk", "disk_files", "files" };
        const char *key;
        json_t *value;
        if (!json_is_object(limits) || json_object_size(limits) == 0)
                return err_set(err, ERR_USAGE, "nothing to change is given; name memory, cpus, pids, timeout or disk");
        json_object_foreach (limits, key, value) {
                bool found = false;
                for (size_t i = 0; i < ELEMENTS(good); i++)
                        found = found || strcmp(good[i], key) == 0;
                if (!found)
                        return err_set(err, ERR_USAGE,
                                       "\"%.40s\" of a session cannot be changed while it runs; memory, cpus, pids, "
                                       "timeout and disk can",
                                       key);
        }
        return 0;
}

static int change_box(const struct session *session, const struct limits *limits, struct err *err) {
        struct cgroup_usage usage = { 0 };
        char has[32], asked[32];
        if (session->kernel && *session->kernel->engine)
                return err_set(err, ERR_UNSUPPORTED,
                               "the limits of a box of engine %s cannot be changed while it lives: "
                               "hibernate session %s first",
                               session->kernel->engine, session->row.name);
        if (!session->kernel || !session->kernel->cgroup.host)
                return 0;
        cgroup_read_usage(&session->kernel->cgroup, &usage);
        if (limits->memory_bytes < session->row.limits.memory_bytes && usage.memory_now_bytes >= limits->memory_bytes)
                return err_set(err, ERR_REFUSED,
                               "session %s uses %s now, more than %s; delete variables first, or hibernate it",
                               session->row.name, units_format_bytes(usage.memory_now_bytes, has),
                               units_format_bytes(limits->memory_bytes, asked));
        return cgroup_change_limits(&session->kernel->cgroup, limits, err);
}

/* Changes the running box first, then the row from which the next box is made. */
int operation_session_set(struct caller *caller, const char *name, json_t *limits, struct session_info *ret_info,
                          struct err *err) {
        caller_begin(caller, "session.set", name);
        struct session *session = caller_find_session(caller, name, err);
        if (!session || check_changeable(limits, err) < 0)
                return -1;
        struct registry_session row = session->row;
        if (session_config_read_limits(limits, &row.limits, err) < 0 ||
            session_config_check_ceiling(caller, &row.limits, err) < 0 || change_box(session, &row.limits, err) < 0 ||
            registry_set_limits(caller->manager->registry, row.id, &row.limits, err) < 0)
                return -1;
        session->row.limits = row.limits;
        disk_limit_changed(session);
        (void) session_file_write(session->state_dir, &row, NULL); /* a copy, for when the registry is lost */
        *ret_info = session_info_of(session);
        return 0;
}
