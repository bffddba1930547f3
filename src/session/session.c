#include "session/session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "session/asker.h"
#include "session/harvest.h"
#include "session/install.h"
#include "session/modest.h"
#include "session/network.h"
#include "session/packages.h"
#include "session/passport.h"
#include "session/remove_tree.h"
#include "session/serve_options.h"

enum { DISPLAYS_MAX = 100 }; /* of one run */

#define SLEEP_FILE "sleep"
#define SLEEP_PATH "/run/session/" SLEEP_FILE /* as the kernel sees it */

static const struct kernel_listener listener;

/* ---- the kernel ---- */

static bool sleeps_on_disk(const struct session *session) {
        char path[1100];
        (void) snprintf(path, sizeof(path), "%s/kernel/" SLEEP_FILE, session->state_dir);
        return !session->ephemeral && access(path, F_OK) == 0;
}

void session_fail_runs(struct session *session, const struct err *err) {
        while (session->runs) {
                struct run *run = session->runs;
                session->runs = run->next;
                run_fail(run, err);
                run_free(run);
        }
}

/* From its first kernel on, so that a living one sees what is installed later. */
static void show_packages(const struct session *session, struct maker_request *request) {
        int code = packages_make_directory(session->state_dir);
        if (code < 0) {
                daemon_log("session %s: no packages can be installed: %s", session->row.name, strerror(-code));
                return;
        }
        (void) snprintf(request->packages, sizeof(request->packages), "%.1000s", session->state_dir);
        request->fresh |= packages_cover_image(session->state_dir);
}

static void order_kernel(struct session *session) {
        struct err err;
        struct maker_request request;
        if (session->ephemeral && !session->granted &&
            (session->kernel = pool_take(session->daemon, &session->row, session->light))) {
                session->kernel->listener = &listener;
                session->kernel->owner = session;
                pool_refill_soon(session->daemon);
                return;
        }
        struct egress_rules *rules = NULL;
        daemon_fill_request(&session->row, &request);
        request.ephemeral = session->ephemeral && !*session->row.workspace;
        if (!request.ephemeral)
                (void) snprintf(request.state_dir, sizeof(request.state_dir), "%.1000s/kernel", session->state_dir);
        (void) snprintf(request.workspace, sizeof(request.workspace), "%s", session->workspace);
        request.workspace_is_ours = !*session->row.workspace;
        request.light = session->light;
        if (session->helps)
                install_fill_request(session->helps, &request);
        else if (!session->ephemeral)
                show_packages(session, &request);
        if (network_rules_of(session, &rules, &err) < 0) {
                session_fail_runs(session, &err);
                return;
        }
        request.network = rules != NULL;
        if (!request.ephemeral && ((mkdir(session->state_dir, 0700) < 0 && errno != EEXIST) ||
                                   (mkdir(request.state_dir, 0700) < 0 && errno != EEXIST)))
                (void) err_sys(&err, errno, "making %s", request.state_dir);
        else if (daemon_name_kernel(session->daemon, &request, &err) == 0) {
                session->kernel =
                        kernel_make(session->daemon->loop, &session->daemon->host, &listener, session, &request);
                /* The journal is the session's, not the kernel's: it goes on over restarts. */
                if (session->kernel) {
                        (void) snprintf(session->kernel->state_dir, sizeof(session->kernel->state_dir), "%s",
                                        session->state_dir);
                        session->kernel->rules = take_ptr(rules);
                }
                if (session->kernel && daemon_order_kernel(session->daemon, &request, &err) == 0)
                        return;
                if (!session->kernel)
                        (void) err_set(&err, ERR_SYSTEM, "out of memory");
        }
        free(rules);
        kernel_free(session->kernel);
        session->kernel = NULL;
        session_fail_runs(session, &err);
}

static void tell_vault(struct session *session) {
        struct kernel *kernel = session->kernel;
        if (session->ephemeral)
                return;
        /* The vault holds a row of descriptors without holes: which slots they are goes into the note. */
        int fds[MAKER_FDS];
        size_t n_fds = 0;
        unsigned slots = 0;
        for (unsigned i = 0; i < MAKER_FDS; i++) {
                if (kernel->fds[i] < 0)
                        continue;
                slots |= 1u << i;
                fds[n_fds++] = kernel->fds[i];
        }
        _cleanup_free_ char *note = NULL;
        int size = asprintf(&note, "{\"session\": \"%s\", \"group\": \"%s\", \"pid\": %d, \"slots\": %u}",
                            session->row.id, kernel->group, (int) kernel->pid, slots);
        struct err err;
        if (size > 0 && vault_put(&session->daemon->vault, kernel->id, note, (size_t) size, fds, n_fds, &err) < 0)
                daemon_log("session %s: will not survive this daemon: %s", session->row.name, err.message);
}

static void on_ready(struct kernel *kernel) {
        struct session *session = kernel->owner;
        session->state = SESSION_IDLE;
        tell_vault(session);
        session_advance(session);
}

static void on_failed(struct kernel *kernel, const struct err *err) {
        struct session *session = kernel->owner;
        session->kernel = NULL;
        kernel_free(kernel);
        session_fail_runs(session, err);
        if (session->removing || session->ephemeral)
                session_remove(session, session->keep_files);
}

static void on_output(struct kernel *kernel) {
        struct session *session = kernel->owner;
        if (session->runs && session->runs->started)
                run_feed(session->runs);
}

static void answer_asker(struct session *session, json_t *answer, const struct err *err) {
        struct asker *asker = session->asker;
        session->asker = NULL;
        if (asker && err)
                asker_refuse(asker, err);
        else if (asker)
                asker_answer(asker, json_incref(answer));
}

/* Nothing is sent to it any more; on_ended brings the next one. */
static void end_kernel(struct session *session) {
        session->ending = true;
        kernel_kill(session->kernel);
}

/* The kernel's word about a trim, a sleep or a wake. */
static void on_answer(struct session *session, json_t *answer) {
        int asked = (int) session->asked;
        bool good = json_is_true(json_object_get(answer, "ok"));
        session->asked = SESSION_ASKED_NOTHING;
        if (asked == SESSION_ASKED_PACKAGES) {
                if (session->install)
                        install_kernel_answered(session->install, answer);
                session_advance(session);
                return;
        }
        json_t *told = json_object();
        if (asked == SESSION_ASKED_WAKE) {
                session->state = SESSION_IDLE;
                char path[1100];
                (void) snprintf(path, sizeof(path), "%s/kernel/" SLEEP_FILE, session->state_dir);
                if (!good) { /* keep what cannot be read, for a person to look at; the session goes on without */
                        char aside[1200];
                        (void) snprintf(aside, sizeof(aside), "%s.unreadable", path);
                        (void) rename(path, aside);
                        session->variables_lost = true;
                        daemon_log("session %s: cannot be woken: %s", session->row.name,
                                   json_string_value(json_object_get(answer, "error")));
                } else
                        (void) unlink(path);
        } else if (asked == SESSION_ASKED_TRIM && good) {
                session->state = SESSION_TRIMMED;
                json_object_set(told, "bytes", json_object_get(answer, "bytes"));
        } else if (asked == SESSION_ASKED_SLEEP && good) {
                session->state = SESSION_ASLEEP;
                json_decref(session->held_back);
                session->held_back = NULL;
                json_object_set(told, "bytes", json_object_get(answer, "bytes"));
                end_kernel(session); /* it is ending anyway */
        } else if (asked == SESSION_ASKED_SLEEP) {
                json_decref(session->held_back);
                session->held_back = json_incref(json_object_get(answer, "held"));
                if (session_hibernate(session, true, session->asker, NULL) == 0) {
                        json_decref(told);
                        return; /* the asker waits for that answer now */
                }
        }
        json_object_set_new(told, "state", json_string(session_state_name(session)));
        if (session->held_back)
                json_object_set(told, "held_back", session->held_back);
        answer_asker(session, told, NULL);
        json_decref(told);
        session_advance(session);
}

static void end_run(struct session *session) {
        struct run *run = session->runs;
        session->runs = run->next;
        run_free(run);
        session->used_ms = loop_now_ms();
        session->state = SESSION_IDLE;
}

/* Its result is told. */
static void leave_run(struct session *session) {
        end_run(session);
        if (session->ephemeral) {
                /* Whoever helps an install is waited for: what it wrote is looked at when it is gone. */
                session->kernel->is_over = session->kernel->ephemeral && !session->helps;
                session_remove(session, false);
        } else
                session_advance(session);
}

static void on_ended(struct kernel *kernel);
static void on_harvested(struct session *session);

/* What an ephemeral run left may be much to copy: then its answer waits, and the daemon does not. */
static bool is_harvested_first(struct session *session, json_t *outcome) {
        if (session->errand)
                return true;
        if (!harvest_is_much(session) || !harvest_begin(session, on_harvested))
                return false;
        loop_timer_drop(&session->runs->timer); /* the code has ended in time */
        session->outcome = json_incref(outcome);
        return true;
}

static void finish_run(struct session *session, json_t *outcome) {
        if (is_harvested_first(session, outcome))
                return;
        run_finish(session->runs, outcome);
        if (session->kernel->state != KERNEL_DEAD) {
                leave_run(session);
                return;
        }
        end_run(session); /* it died while its artifacts were copied */
        on_ended(session->kernel);
}

static void on_harvested(struct session *session) {
        json_t *outcome = session->outcome;
        session->outcome = NULL;
        if (outcome)
                finish_run(session, outcome);
        else
                on_ended(session->kernel);
        json_decref(outcome);
}

static void on_frame(struct kernel *kernel, enum kernel_frame type, const char *payload, size_t size) {
        struct session *session = kernel->owner;
        struct run *run = session->runs;
        if (type == KERNEL_DISPLAY && run && json_array_size(run->displays) >= DISPLAYS_MAX)
                return;
        if (type == KERNEL_PONG && run && run->started) {
                run_finish_unsent(run);
                leave_run(session);
                return;
        }
        if (type == KERNEL_RESULT && run && run->started && !harvest_is_much(session) &&
            run_finish_plain(run, payload, size)) {
                leave_run(session);
                return;
        }
        if (!modest_json(payload, size)) {
                kernel->broke_protocol = true;
                kernel_kill(kernel);
                return;
        }
        json_t *json = json_loadb(payload, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        if (session->asked != SESSION_ASKED_NOTHING && type == KERNEL_ANSWER)
                on_answer(session, json);
        else if (!run || !run->started)
                kernel_kill(kernel); /* nobody asked */
        else if (type == KERNEL_DISPLAY) {
                json_t *data = json_object_get(json, "data");
                if (data && json_array_size(run->displays) < DISPLAYS_MAX) {
                        json_array_append(run->displays, data);
                        run_tell_display(run, data);
                }
        } else {
                /* An id that is not this run's is an answer to something else: it proves nothing about this run. */
                const char *id = json_string_value(json_object_get(json, "id"));
                if (id && strcmp(id, run->id) == 0)
                        finish_run(session, json);
                else { /* whatever it answers from now on would be one run late */
                        kernel->broke_protocol = true;
                        kernel_kill(kernel);
                }
        }
        json_decref(json);
}

static void on_ended(struct kernel *kernel) {
        struct session *session = kernel->owner;
        struct run *run = session->runs;
        if (run && run->started && kernel->was_ready && is_harvested_first(session, NULL))
                return; /* it comes back here */
        if (!session->ephemeral)
                (void) vault_drop(&session->daemon->vault, kernel->id, NULL);
        if (session->asked == SESSION_ASKED_PACKAGES && session->install)
                install_kernel_answered(session->install, NULL);
        session->asked = SESSION_ASKED_NOTHING;
        if (!kernel->was_ready) { /* it would die again: whoever waits is told why */
                struct err died;
                (void) err_set(&died, ERR_SYSTEM, "the kernel died while it was starting%s%s",
                               *kernel->last_words ? ": " : "", kernel->last_words);
                session_fail_runs(session, &died);
        } else if (run && run->started) {
                run_finish_dead(run);
                end_run(session);
        } else if (!session->ending && !sleeps_on_disk(session))
                session->variables_lost = true;
        session->state = sleeps_on_disk(session) ? SESSION_ASLEEP : session->ending ? SESSION_NEW : SESSION_LOST;
        session->ending = false;
        struct err gone;
        (void) err_set(&gone, ERR_GONE, "the kernel died before it answered");
        answer_asker(session, NULL, &gone);
        session->kernel = NULL;
        session->awake = false;
        kernel_free(kernel);
        fd_close(&session->workspace_fd);
        if (session->removing || session->ephemeral)
                session_remove(session, session->keep_files);
        else
                session_advance(session);
}

static const struct kernel_listener listener = { on_ready, on_failed, on_output, on_frame, on_ended };

/* ---- runs ---- */

/* The kernel ignores a signal that comes before it has begun the run, so it is repeated, ever more rarely. */
static void interrupt_again(void *context) {
        struct run *run = context;
        uint64_t waited_ms = loop_now_ms() - run->told_ms;
        run->timer = NULL;
        if (waited_ms >= DAEMON_INTERRUPT_GRACE_MS) {
                run->killed = true;
                kernel_kill(run->session->kernel);
                return;
        }
        kernel_signal(run->session->kernel, SIGINT);
        uint64_t next_ms = 2 * waited_ms + 50;
        if (next_ms > DAEMON_INTERRUPT_GRACE_MS)
                next_ms = DAEMON_INTERRUPT_GRACE_MS;
        run->timer = loop_timer(run->session->daemon->loop, run->told_ms + next_ms, interrupt_again, run);
}

static void tell_to_end(struct run *run, enum run_reason reason) {
        if (run->reason != RUN_REASON_NONE)
                return;
        run->reason = reason;
        run->told_ms = loop_now_ms();
        loop_timer_drop(&run->timer);
        interrupt_again(run);
}

static void on_deadline(void *context) {
        struct run *run = context;
        run->timer = NULL;
        tell_to_end(run, RUN_REASON_TIMEOUT);
}

static void watch_deadline(struct run *run) {
        run->timer = loop_timer(run->session->daemon->loop, loop_now_ms() + run->timeout_ms, on_deadline, run);
}

static void start_run(struct session *session) {
        struct run *run = session->runs;
        struct kernel *kernel = session->kernel;
        struct err err;
        _cleanup_json_text_ struct json_text payload = { 0 };
        run_write_request(run, &payload);
        harvest_prepare(session);
        kernel_mark_usage(kernel);
        run->started_us = loop_now_us();
        watch_deadline(run);
        int code = -1;
        if (payload.failed)
                (void) err_set(&err, ERR_SYSTEM, "out of memory");
        else if (journal_begin(kernel->journal, run->id, &err) == 0 &&
                 (code = kernel_send(kernel, KERNEL_EXECUTE, payload.bytes, payload.size, &err)) < 0)
                (void) journal_end(kernel->journal, "{}", 2, NULL); /* or no other run could begin */
        if (code < 0) {
                session->runs = run->next;
                run_fail(run, &err);
                run_free(run);
                return;
        }
        run->started = true;
        session->daemon->tally.runs_started++;
        session->state = SESSION_RUNNING;
}

static void wake(struct session *session) {
        static const char payload[] = "{\"id\": 0, \"path\": \"" SLEEP_PATH "\"}";
        if (kernel_send(session->kernel, KERNEL_WAKE, payload, sizeof(payload) - 1, NULL) == 0)
                session->asked = SESSION_ASKED_WAKE;
}

static bool has_run_to_start(const struct session *session) {
        return session->runs && !session->runs->started && !session->removing && !session->ending &&
               session->asked == SESSION_ASKED_NOTHING;
}

/* One step; false when there is nothing to do but wait. */
static bool advance(struct session *session) {
        if (!has_run_to_start(session))
                return false;
        if (!session->kernel)
                order_kernel(session);
        struct kernel *kernel = session->kernel;
        if (!kernel || !kernel_is_free(kernel) || !session->runs)
                return false;
        /* Looked for once per kernel: only a new one can have something to wake up to. */
        if (!session->awake && sleeps_on_disk(session))
                wake(session);
        else {
                session->awake = true;
                start_run(session);
        }
        return true;
}

void session_advance(struct session *session) {
        while (advance(session)) /* a run that cannot be started makes room for the next */
                ;
        if (session->ephemeral && !session->runs && !session->removing)
                session_remove(session, false); /* its only run could not be started */
}

void session_submit(struct session *session, struct run *run) {
        struct run **last = &session->runs;
        while (*last)
                last = &(*last)->next;
        *last = run;
        session->used_ms = loop_now_ms();
        session->row.used_ms = loop_wall_ms(); /* the registry learns it at the next sweep */
        session->touched = true;
        session_advance(session);
}

bool session_interrupt(struct session *session) {
        if (!session->runs || !session->runs->started || !session->kernel)
                return false;
        tell_to_end(session->runs, RUN_REASON_INTERRUPT);
        return true;
}

void session_cancel(struct session *session, struct run *run) {
        if (run->started) {
                (void) session_interrupt(session);
                return;
        }
        struct run **at = &session->runs;
        while (*at != run)
                at = &(*at)->next;
        *at = run->next;
        struct err gone;
        (void) err_set(&gone, ERR_GONE, "the run was cancelled before it began: whoever asked for it left");
        run_fail(run, &gone);
        run_free(run);
        if (session->ephemeral)
                session_remove(session, false);
}

void session_restart(struct session *session) {
        char path[1100];
        (void) snprintf(path, sizeof(path), "%s/kernel/" SLEEP_FILE, session->state_dir);
        (void) unlink(path);
        session->variables_lost = false;
        if (session->runs && session->runs->started)
                session->runs->reason = RUN_REASON_REMOVED;
        if (session->kernel && session->kernel->state != KERNEL_MAKING)
                end_kernel(session);
        else if (!session->kernel)
                session->state = SESSION_NEW;
}

int session_hibernate(struct session *session, bool trim_only, struct asker *asker, struct err *err) {
        static const char sleep_payload[] = "{\"id\": 0, \"path\": \"" SLEEP_PATH "\", \"exit\": true}";
        static const char trim_payload[] = "{\"id\": 0, \"directory\": \"/run/session\"}";
        if (!session->kernel || session->asked != SESSION_ASKED_NOTHING || session->runs)
                return err_set(err, ERR_BUSY, "session %s %s", session->row.name,
                               session->kernel ? "is running; interrupt it first" : "has no kernel to put to sleep");
        int code = trim_only
                           ? kernel_send(session->kernel, KERNEL_TRIM, trim_payload, sizeof(trim_payload) - 1, err)
                           : kernel_send(session->kernel, KERNEL_SLEEP, sleep_payload, sizeof(sleep_payload) - 1, err);
        if (code < 0)
                return -1;
        session->asked = trim_only ? SESSION_ASKED_TRIM : SESSION_ASKED_SLEEP;
        session->asker = asker;
        if (asker)
                asker->session = session;
        return 0;
}

int session_ask_packages(struct session *session, const char *payload) {
        if (!session->kernel || session->runs || session->asked != SESSION_ASKED_NOTHING ||
            kernel_send(session->kernel, KERNEL_PACKAGES, payload, strlen(payload), NULL) < 0)
                return -1;
        session->asked = SESSION_ASKED_PACKAGES;
        return 0;
}

void session_adopt(struct session *session, pid_t pid, int fds[static MAKER_FDS], const char *kernel_id,
                   const char *group) {
        struct maker_request request = { 0 };
        struct err err;
        (void) snprintf(request.kernel_id, sizeof(request.kernel_id), "%s", kernel_id);
        (void) snprintf(request.group, sizeof(request.group), "%s", group);
        (void) snprintf(request.state_dir, sizeof(request.state_dir), "%s", session->state_dir);
        (void) snprintf(request.workspace, sizeof(request.workspace), "%s", session->workspace);
        session->kernel = kernel_make(session->daemon->loop, &session->daemon->host, &listener, session, &request);
        if (!session->kernel || kernel_adopt(session->kernel, pid, fds, &err) < 0) {
                daemon_log("session %s: its kernel cannot be taken over", session->row.name);
                kernel_free(session->kernel);
                session->kernel = NULL;
                session->state = SESSION_LOST;
                session->variables_lost = true;
                return;
        }
        if (network_rules_of(session, &session->kernel->rules, &err) < 0)
                daemon_log("session %s: its network stays closed: %s", session->row.name, err.message);
        const char *open_run = journal_open_run(session->kernel->journal);
        session->state = open_run ? SESSION_RUNNING : SESSION_IDLE;
        if (!open_run)
                return;
        json_t *nothing = json_object();
        struct run *run = run_make(session, nothing, session->row.limits.timeout_ms);
        json_decref(nothing);
        if (!run)
                return;
        (void) snprintf(run->id, sizeof(run->id), "%s", open_run);
        run->started = true;
        run->started_us = loop_now_us();
        session->runs = run;
        harvest_prepare(session);
        watch_deadline(run);
}
