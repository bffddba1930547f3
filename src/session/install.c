#include "session/install.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/helper_job.h"
#include "base/json_bounds.h"
#include "base/memory.h"
#include "base/units.h"
#include "egress/rules.h"
#include "image/python.h"
#include "session/caller.h"
#include "session/network.h"
#include "session/session.h"
#include "session/session_engine.h"
#include "spawn/kernel_files.h"
#include "store/packages.h"

#define SETTINGS_SCRIPT "glovebox_kernel/pip_settings.py"
#define INSTALL_SCRIPT "/opt/glovebox/kernel/glovebox_kernel/install.py"

enum { SETTINGS_MIN_MS = 10000, SETTLE_TIMEOUT_MS = 300000, ASK_TIMEOUT_MS = 10000 };

struct install {
        struct caller caller; /* the caller of the helper's run; acts for the caller of the install */
        struct session *session, *helper;
        json_t *packages;
        uint64_t timeout_ms;
        uint64_t begun_ms;
        char script[4300];
        struct helper_job *job;
        struct loop_timer *timer; /* while the kernel answers */
        json_t *result;           /* of the helper's run */
        json_t *report;           /* what was installed */
        struct err err;           /* why the install failed, if code is not ERR_NONE */
        uint64_t unread[2];       /* bytes of output and of errors that the caller did not read */
        bool stopping;            /* finish is called from within install_stop */
};

/* ---- the end ---- */

static void install_release(struct install *install) {
        loop_timer_drop(&install->timer);
        helper_job_drop(&install->job);
        if (install->helper)
                install->helper->helps = NULL;
        json_decref(install->packages);
        json_decref(install->result);
        json_decref(install->report);
        free(install);
}

/* Translates error messages about a kernel and its variables into those of an install. */
static void explain_failure(const struct install *install, json_t *result) {
        static const char same[] = "the session's packages are as they were";
        const char *status = json_string_value(json_object_get(result, "status"));
        char message[600], limit[32];
        if (install->err.code != ERR_NONE) {
                (void) snprintf(message, sizeof(message), "%.500s; %s", install->err.message, same);
                json_object_set_new(result, "status", json_string("error"));
                json_object_set_new(result, "exit_code", json_integer(1));
        } else if (status && strcmp(status, "timeout") == 0)
                (void) snprintf(message, sizeof(message),
                                "time limit %g s reached: the install was ended, %s; raise "
                                "timeout_ms, or install less at once",
                                (double) install->timeout_ms / 1000, same);
        else if (status && strcmp(status, "oom") == 0)
                (void) snprintf(message, sizeof(message),
                                "memory limit %s reached while installing: %s; give the session more memory",
                                units_format_bytes(install->session->row.limits.memory_bytes, limit), same);
        else if (status && strcmp(status, "disk") == 0)
                (void) snprintf(message, sizeof(message),
                                "disk limit %s reached while installing, or the host's disk "
                                "is nearly full: %s; give the session more disk",
                                units_format_bytes(install->session->row.limits.disk_bytes, limit), same);
        else if (status && strcmp(status, "interrupted") == 0)
                (void) snprintf(message, sizeof(message), "the install was interrupted: %s", same);
        else
                (void) snprintf(message, sizeof(message),
                                "pip could not install the packages, for the reason that it printed: %s", same);
        json_object_set_new(
                result, "error",
                json_pack("{s:s, s:s, s:s}", "name", "install_failed", "value", message, "message", message));
}

static json_t *make_answer(struct install *install, json_t *stale) {
        json_t *answer = json_incref(install->result), *installed = json_object_get(install->report, "installed");
        json_object_del(answer, "variables_lost"); /* those of the helper */
        static const char *const cut_keys[] = { "stdout_cut_bytes", "stderr_cut_bytes" };
        for (size_t i = 0; i < ELEMENTS(cut_keys); i++) {
                json_int_t cut = json_integer_value(json_object_get(answer, cut_keys[i]));
                json_object_set_new(answer, cut_keys[i], json_integer(cut + (json_int_t) install->unread[i]));
        }
        json_object_set_new(answer, "installed", installed ? json_incref(installed) : json_array());
        json_object_set_new(answer, "restart_needed", stale ? json_incref(stale) : json_array());
        if (!install->report)
                explain_failure(install, answer);
        return answer;
}

/* Answers the caller, if it still waits. Frees the install. */
static void install_finish(struct install *install, json_t *stale) {
        struct session *session = install->session;
        struct caller *outer = install->caller.behalf_of;
        bool stopping = install->stopping;
        session->install = NULL;
        session->used_ms = loop_now_ms();
        if (outer && install->result && !session_is_going(session))
                caller_answer(outer, make_answer(install, stale));
        else if (outer) {
                if (session_is_going(session) || install->err.code == ERR_NONE)
                        (void) err_set(&install->err, ERR_GONE, "%s before the packages were installed",
                                       session_is_going(session) ? "the session was removed" : "the helper box ended");
                caller_refuse(outer, &install->err);
        }
        install_release(install);
        if (session_is_going(session) && !stopping)
                session_remove(session, session->keep_files);
}

/* ---- 4: the kernel ---- */

/* Only names that were installed are taken from the kernel's answer. */
static json_t *known_names(const struct install *install, const json_t *stale) {
        json_t *names = json_array(), *item;
        size_t i;
        json_array_foreach (json_object_get(install->report, "installed"), i, item) {
                json_t *name = json_object_get(item, "name");
                for (size_t k = 0; k < json_array_size(stale); k++)
                        if (json_equal(name, json_array_get(stale, k))) {
                                json_array_append(names, name);
                                break;
                        }
        }
        return names;
}

static json_t *all_names(const struct install *install) {
        json_t *names = json_array(), *item;
        size_t i;
        json_array_foreach (json_object_get(install->report, "installed"), i, item)
                json_array_append(names, json_object_get(item, "name"));
        return names;
}

static void finish_with(struct install *install, json_t *stale) {
        install_finish(install, stale);
        json_decref(stale);
}

void install_kernel_answered(struct install *install, json_t *answer) {
        if (!answer)
                finish_with(install, NULL); /* the next kernel imports the new packages */
        else if (json_is_true(json_object_get(answer, "ok")))
                finish_with(install, known_names(install, json_object_get(answer, "stale")));
        else /* a kernel of an older version: its box does not show the packages */
                finish_with(install, all_names(install));
}

static void on_no_answer(void *context) {
        struct install *install = context;
        install->timer = NULL;
        install_finish(install, json_object_get(install->report, "replaced"));
}

static void ask_kernel(struct install *install) {
        struct session *session = install->session;
        json_t *names = all_names(install);
        json_t *question =
                json_pack("{s:o, s:O}", "names", names, "replaced", json_object_get(install->report, "replaced"));
        _cleanup_free_ char *text = question ? json_dumps(question, JSON_COMPACT | JSON_EMBED) : NULL;
        json_decref(question);
        if (!session->kernel || session_ends_kernel(session))
                install_finish(install, NULL);
        else if (text && session_ask_packages(session, text) == 0)
                install->timer =
                        loop_timer(session->manager->loop, loop_now_ms() + ASK_TIMEOUT_MS, on_no_answer, install);
        else /* it is busy: it may have imported any package that existed in another version before */
                install_finish(install, json_object_get(install->report, "replaced"));
}

/* ---- 3: what the helper left ---- */

/* In a child. */
static int install_settle(const int *fds, int out_fd, void *context) {
        (void) fds;
        struct install *install = context;
        struct err err = { 0 };
        json_t *report = NULL;
        if (packages_settle(install->session->state_dir, &install->session->row.limits, &report, &err) < 0)
                report = json_pack("{s:s, s:i}", "error", err.message, "code", (int) err.code);
        return report && json_dumpfd(report, out_fd, JSON_COMPACT) == 0 ? 0 : -1;
}

static void on_settled(void *context, const char *words, size_t size) {
        struct install *install = context;
        install->job = NULL;
        json_t *report = words ? json_loadb(words, size, 0, NULL) : NULL;
        const char *error = json_string_value(json_object_get(report, "error"));
        if (report && !error) {
                install->report = report;
                ask_kernel(install);
                return;
        }
        (void) err_set(&install->err, ERR_SYSTEM, "%s", error ? error : "the new packages could not be put in place");
        json_decref(report);
        install_finish(install, NULL);
}

static int install_drop(const int *fds, int out_fd, void *context) {
        (void) fds;
        struct install *install = context;
        packages_drop_staging(install->session->state_dir);
        return fd_write_all(out_fd, "{}", 2) < 0 ? -1 : 0;
}

static void on_dropped(void *context, const char *words, size_t size) {
        struct install *install = context;
        (void) words;
        (void) size;
        install->job = NULL;
        install_finish(install, NULL);
}

void install_helper_gone(struct install *install) {
        struct session *session = install->session;
        const char *status = json_string_value(json_object_get(install->result, "status"));
        bool good = status && strcmp(status, "ok") == 0;
        install->helper = NULL;
        const struct helper_job_order order = { .timeout_ms = SETTLE_TIMEOUT_MS,
                                                .work = good ? install_settle : install_drop,
                                                .done = good ? on_settled : on_dropped,
                                                .context = install };
        if (!session_is_going(session) && !session->manager->draining)
                install->job = helper_job_start(session->manager->loop, &order, &install->err);
        if (!install->job)
                install_finish(install, NULL);
}

/* ---- 2: the helper box ---- */

static void install_on_answer(struct caller *caller, const char *text, size_t size, json_t *json) {
        struct install *install = (struct install *) caller;
        install->result = json ? json_copy(json) : json_loadb(text, size, JSON_ALLOW_NUL, NULL);
}

static void install_on_refuse(struct caller *caller, const struct err *err) {
        ((struct install *) caller)->err = *err;
}

static void install_on_accepted(struct caller *caller, const char *run_id) {
        struct caller *outer = caller->behalf_of;
        if (outer && outer->type->accepted)
                outer->type->accepted(outer, run_id);
}

static void install_on_begun(struct caller *caller, const char *run_id) {
        if (caller->behalf_of)
                caller_report_begun(caller->behalf_of, run_id);
}

/* The install continues even if its output is not read; the excess is dropped and counted. */
static void install_on_output(struct caller *caller, const struct caller_output *output) {
        struct caller *outer = caller->behalf_of;
        if (outer && outer->type->wants_more(outer))
                outer->type->output(outer, output);
        else
                ((struct install *) caller)->unread[output->is_error] += output->size;
}

static void install_on_display(struct caller *caller, const char *data, size_t size) {
        (void) caller;
        (void) data;
        (void) size;
}

static bool install_wants_more(const struct caller *caller) {
        (void) caller;
        return true;
}

static const struct caller_type caller_type = { .answer = install_on_answer,
                                                .refuse = install_on_refuse,
                                                .accepted = install_on_accepted,
                                                .begun = install_on_begun,
                                                .output = install_on_output,
                                                .display = install_on_display,
                                                .wants_more = install_wants_more };

void install_staging(const struct install *install, char *ret_path, size_t room) {
        (void) snprintf(ret_path, room, "%.1000s/install", install->session->state_dir);
}

void install_fill_request(const struct install *install, struct maker_request *request) {
        request->installs = true;
        (void) snprintf(request->packages, sizeof(request->packages), "%.1000s", install->session->state_dir);
}

/* The command for the kernel of the helper box: pip, with the settings of the host's pip. */
static json_t *make_command(const struct install *install, json_t *settings) {
        json_t *argv = json_pack("[s, s]", "-I", INSTALL_SCRIPT), *env = json_object();
        static const char *const fixed[][2] = {
                { "PYTHONUSERBASE", PACKAGES_PLACE "/current" },
                { "TMPDIR", PACKAGES_PLACE "/tmp" },
                { "PIP_CONFIG_FILE", "/dev/null" },
                { "PIP_BREAK_SYSTEM_PACKAGES", "1" }, /* the system's are read-only: nothing can be broken */
                { "PIP_ROOT_USER_ACTION", "ignore" },
        };
        json_array_extend(argv, install->packages);
        json_object_update(env, json_object_get(settings, "env"));
        for (size_t i = 0; i < ELEMENTS(fixed); i++)
                json_object_set_new(env, fixed[i][0], json_string(fixed[i][1]));
        return json_pack("{s:o, s:o, s:s, s:b}", "argv", argv, "env", env, "cwd", "/tmp", "python", 1);
}

/* Exactly the hosts that the operator's pip uses, which may have private addresses. */
static int grant_network(struct session *helper, const json_t *settings, struct err *err) {
        size_t i;
        json_t *host;
        const char *proxy = json_string_value(json_object_get(settings, "proxy"));
        if (json_array_size(json_object_get(settings, "hosts")) == 0)
                return 0; /* directories alone */
        helper->granted = calloc(1, sizeof(*helper->granted));
        if (!helper->granted)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        json_array_foreach (json_object_get(settings, "hosts"), i, host)
                if (egress_rules_add(helper->granted, json_string_value(host), true, err) < 0)
                        return err_prefix(err, "pip's settings on this host");
        if (proxy && egress_rules_set_upstream(helper->granted, proxy, err) < 0)
                return err_prefix(err, "pip's proxy on this host");
        return 0;
}

static int start_helper(struct install *install, json_t *settings, struct err *err) {
        struct session *session = install->session;
        struct registry_session row;
        memcpy(&row, &session->row, offsetof(struct registry_session, options)); /* behind that, a session is shorter */
        (void) strcpy(row.mode, "fresh");
        row.workspace[0] = '\0';
        json_t *options = json_pack("{s:O}", "shown", json_object_get(settings, "shown"));
        session_engine_keep(&session->row, options); /* pip runs in the session's own image */
        _cleanup_free_ char *text = options ? json_dumps(options, JSON_COMPACT) : NULL;
        json_decref(options);
        if (!text || (size_t) snprintf(row.options, sizeof(row.options), "%s", text) >= sizeof(row.options))
                return err_set(err, ERR_LIMIT, "pip's settings on this host are too large for a box");
        int code = packages_make_directory(session->state_dir);
        if (code == 0)
                code = packages_make_staging(session->state_dir);
        if (code < 0)
                return err_sys(err, -code, "making a directory for the packages");
        if (registry_make_id(row.id, err) < 0 || !(install->helper = session_make(session->manager, &row, true, err)))
                return -1;
        install->helper->helps = install;
        json_t *command = make_command(install, settings);
        struct run *run = command ? run_make(install->helper, command, install->timeout_ms) : NULL;
        json_decref(command);
        if (!run)
                (void) err_set(&install->err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (!run || grant_network(install->helper, settings, &install->err) < 0) {
                run_free(run);
                session_remove(install->helper, false); /* which calls install_helper_gone */
                return 0;
        }
        run_add_caller(run, &install->caller);
        session_submit(install->helper, run);
        return 0;
}

/* ---- 1: the host's settings ---- */

/* The time limit of the install: the reader has the lowest priority, and a busy host can delay it. */
static uint64_t settings_time_ms(uint64_t timeout_ms) {
        return timeout_ms > SETTINGS_MIN_MS ? timeout_ms : SETTINGS_MIN_MS;
}

/* In a child, which becomes the host's Python. */
static int ask_settings(const int *fds, int out_fd, void *context) {
        (void) fds;
        struct install *install = context;
        struct python python;
        struct err err = { 0 };
        if (python_choose(-1, &python, &err) == 0) {
                char *argv[] = { python.path, (char[]) { "-I" }, install->script, NULL };
                (void) execv(python.path, argv);
                (void) err_set(&err, ERR_SYSTEM, "%s cannot be started", python.path);
        }
        json_t *answer = json_pack("{s:s}", "error", err.message);
        return answer && json_dumpfd(answer, out_fd, 0) == 0 ? 0 : -1;
}

static void on_settings(void *context, const char *words, size_t size) {
        struct install *install = context;
        install->job = NULL;
        json_t *settings = words && json_is_bounded(words, size) ? json_loadb(words, size, 0, NULL) : NULL;
        const char *error = json_string_value(json_object_get(settings, "error"));
        int code = 0;
        if (!settings && loop_now_ms() - install->begun_ms >= settings_time_ms(install->timeout_ms))
                code = err_set(&install->err, ERR_TIMEOUT,
                               "reading the host's pip settings took longer than the %llu s that the install may take: "
                               "the host is overloaded; try again later, or give it more time",
                               (unsigned long long) (install->timeout_ms / 1000));
        else if (error || !settings)
                code = err_set(&install->err, ERR_UNSUPPORTED, "%.800s",
                               error ? error : "the host's pip settings cannot be read; see the daemon's log");
        else if (install->caller.cancel_on_disconnect && !install->caller.behalf_of)
                code = -1;
        else
                code = start_helper(install, settings, &install->err);
        json_decref(settings);
        if (code < 0)
                install_finish(install, NULL);
}

int install_begin(struct session *session, struct caller *caller, json_t *packages, uint64_t timeout_ms,
                  struct err *err) {
        if (session->install)
                return err_set(err, ERR_BUSY, "packages are being installed into session %s already; wait for that",
                               session->row.name);
        if (disk_admit(session->manager, NULL, 0, err) < 0)
                return -1;
        struct install *install = calloc(1, sizeof(*install));
        char directory[4200];
        if (!install)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        *install = (struct install) { .caller = { .type = &caller_type,
                                                  .manager = session->manager,
                                                  .owner = session->row.owner,
                                                  .stream = caller->stream,
                                                  .cursor = 1,
                                                  .cancel_on_disconnect = caller->cancel_on_disconnect },
                                      .session = session,
                                      .packages = json_incref(packages),
                                      .timeout_ms = timeout_ms };
        if (kernel_files_find(directory, sizeof(directory), err) == 0) {
                (void) snprintf(install->script, sizeof(install->script), "%s/" SETTINGS_SCRIPT, directory);
                install->begun_ms = loop_now_ms();
                const struct helper_job_order order = { .timeout_ms = settings_time_ms(timeout_ms),
                                                        .work = ask_settings,
                                                        .done = on_settings,
                                                        .context = install,
                                                        manager_job_of(session->manager, session->row.owner) };
                install->job = helper_job_start(session->manager->loop, &order, err);
        }
        if (!install->job) {
                install_release(install);
                return -1;
        }
        install->caller.behalf_of = caller;
        caller->stand_in = &install->caller;
        session->install = install;
        return 0;
}

/* ---- an early end ---- */

bool install_stop(struct install *install) {
        struct session *session = install->session;
        install->stopping = true;
        if (install->helper)
                session_remove(install->helper, false);
        else
                install_finish(install, NULL);
        if (session->install)
                session->install->stopping = false;
        return session->install != NULL;
}

void install_abandon(struct install *install) {
        install->session->install = NULL;
        if (install->caller.behalf_of)
                install->caller.behalf_of->stand_in = NULL;
        install_release(install);
}
