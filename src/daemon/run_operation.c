/* Runs: code, commands and programs, and reading a run again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "daemon/operation.h"
#include "daemon/remote.h"
#include "kernel/kernel_choice.h"
#include "session/caller.h"
#include "session/manager.h"
#include "session/session.h"
#include "session/session_config.h"
#include "session/session_config_check.h"
#include "session/spill.h"
#include "session/user_permit.h"
#include "session/waiting_run.h"
#include "store/disk_reserve.h"

/* True if the interpreter, or a library that may be loaded already, reads the variable when it starts. program.py has
 * the same list for programs. */
static bool is_read_at_start(const char *name) {
        static const char *const prefixes[] = { "PYTHON",   "LD_",      "GLIBC_",     "MALLOC_",   "LC_",     "LANG",
                                                "OMP_",     "GOMP_",    "KMP_",       "OPENBLAS_", "BLIS_",   "MKL_",
                                                "NUMEXPR_", "VECLIB_",  "ARROW_",     "LOKY_",     "JOBLIB_", "POLARS_",
                                                "RAYON_",   "MPL",      "MATPLOTLIB", "XDG_",      "NPY_",    "NUMPY_",
                                                "PANDAS_",  "SKLEARN_", "SCIPY_",     "RDBASE",    "HOME",    "TZ" };
        for (size_t i = 0; i < ELEMENTS(prefixes); i++)
                if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
                        return true;
        return false;
}

/* Variables of an ephemeral run go with its code if possible: then any ready box can run it. The others are set in the
 * box. */
static bool env_goes_with_code(const struct run_request *request) {
        const char *mode = json_string_value(json_object_get(request->options, "mode")), *name;
        json_t *value;
        if (!request->is_ephemeral)
                return true;
        if (mode && strcmp(mode, "fresh") == 0)
                return false;
        json_object_foreach (request->env, name, value)
                if (is_read_at_start(name))
                        return false;
        return true;
}

/* The options of the box of an ephemeral run. A new reference. */
static json_t *options_of_box(const struct run_request *request, struct err *err) {
        if (!env_goes_with_code(request))
                return json_incref(request->options);
        json_t *options = json_copy(request->options);
        if (!options) {
                (void) err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                return NULL;
        }
        (void) json_object_del(options, "env");
        if (!request->env || session_config_check_env(request->env, err) == 0)
                return options;
        json_decref(options);
        return NULL;
}

static struct session *find_run_session(struct caller *caller, const struct run_request *request, struct err *err) {
        if (!request->is_ephemeral) {
                bool created;
                if (request->must_exist) /* one that was removed stays so */
                        return caller_find_session(caller, request->session, err);
                struct session *session =
                        session_config_find_or_create(caller, request->session, request->options, &created, err);
                if (session && created)
                        session->is_unproven = true;
                return session;
        }
        struct registry_session row;
        json_t *options = options_of_box(request, err);
        int code = options ? session_config_from_json(caller, options, SESSION_CONFIG_LOOK_NOW, &row, err) : -1;
        json_decref(options);
        if (code < 0 || registry_make_id(row.id, err) < 0)
                return NULL;
        return session_make(caller->manager, &row, true, err);
}

static int check_queue(const struct session *session, struct err *err) {
        size_t waiting = 0;
        for (const struct run *run = session->runs; run; run = run->next)
                waiting++;
        if (waiting >= SESSION_RUNS_MAX)
                return err_set(err, ERR_LIMIT, "%d runs already wait in session %s; wait for some to end",
                               SESSION_RUNS_MAX, session->row.name);
        return 0;
}

/* If no modules are preloaded, a light kernel saves nothing. */
static bool suits_light_kernel(const struct session *session, const struct run_request *request,
                               const json_t *payload) {
        return json_object_get(payload, "argv") || (*manager_preload(session->manager) && request->code &&
                                                    kernel_choice_is_light(request->code, request->code_size));
}

/* Makes a run of this payload, which is that of EXECUTE without an id. NULL: refused, and an ephemeral session is
 * gone. */
static struct run *make_run(struct caller *caller, const struct run_request *request, json_t *payload,
                            struct err *err) {
        struct session *session = find_run_session(caller, request, err);
        struct run *run = NULL;
        if (!session)
                return NULL;
        if (session->ephemeral) {
                session->light = request->is_light || suits_light_kernel(session, request, payload);
                session->gives_contents = request->wants_contents;
        }
        if (user_permit_check(session, payload, err) == 0 && run_fits(session, payload, err) == 0 &&
            check_queue(session, err) == 0) {
                run = run_make(session, payload,
                               request->timeout_ms ? request->timeout_ms : session->row.limits.timeout_ms);
                if (!run)
                        (void) err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        if (!run && session->ephemeral)
                session_remove(session, false);
        return run;
}

/* ---- what the journal has ---- */

static int read_result_text(struct journal *journal, const struct journal_run *run, char **ret_text, size_t *ret_size,
                            struct err *err) {
        struct journal_event event;
        bool is_there = journal_event(journal, run->run_id, run->events, &event, err) == 0;
        if (!is_there && err->code == ERR_DAMAGED)
                return -1;
        if (!is_there || event.kind != JOURNAL_EVENT_RESULT)
                return err_set(err, ERR_GONE, "run %s has no result: the daemon that ran it was lost", run->run_id);
        _cleanup_free_ char *text = malloc(event.size + 1);
        size_t size = 0;
        if (!text)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (journal_read(journal, &event, 0, text, event.size, &size, err) < 0)
                return -1;
        if (size < 2)
                return err_set(err, ERR_SYSTEM, "the result of run %s cannot be read", run->run_id);
        *ret_text = take_ptr(text);
        *ret_size = size;
        return 0;
}

/* Sends an ended run from the journal, as fast as the caller reads. */
static int send_events(struct caller *caller, const struct session *session, struct journal *journal,
                       const struct journal_run *run, struct err *err) {
        _cleanup_free_ char *text = NULL;
        size_t size;
        if (read_result_text(journal, run, &text, &size, err) < 0)
                return -1;
        if (caller->type->accepted)
                caller->type->accepted(caller, run->run_id);
        caller_report_begun(caller, run->run_id);
        return spill_run(caller, journal, run->run_id, text, size, session->row.id, err);
}

/* The session's journal; *ret_owned is to be closed, unless it is NULL. */
static struct journal *journal_of(struct session *session, struct journal **ret_owned, struct err *err) {
        *ret_owned = NULL;
        if (session->kernel && session->kernel->journal)
                return session->kernel->journal;
        return session_open_journal(session, ret_owned, err) < 0 ? NULL : *ret_owned;
}

/* The run, when it is not over. */
static struct run *find_run(const struct session *session, const char *run_id) {
        struct run *run = session->runs;
        while (run && strcmp(run->id, run_id) != 0)
                run = run->next;
        return run;
}

/* ---- a request for a run that exists ---- */

static int check_run_id(const struct run_request *request, struct err *err) {
        const char *id = request->run_id;
        if (!id || (strlen(id) == 32 && strspn(id, "0123456789abcdef") == 32))
                return 0;
        return err_set(err, ERR_USAGE, "\"run_id\" must be 32 hexadecimal digits");
}

static void answer_detached(struct caller *caller, const struct session *session, const char *run_id) {
        caller_answer(caller, json_pack("{s:s, s:s}", "run_id", run_id, "session", session->row.id));
}

/* The same for an ended run. 1: it is in the journal, and the caller was answered; 0: it is not there; -1. */
static int join_ended_run(struct caller *caller, struct session *session, const struct run_request *request,
                          struct err *err) {
        struct err ignored;
        struct journal *owned, *journal = journal_of(session, &owned, &ignored);
        struct journal_run found;
        _cleanup_free_ char *text = NULL;
        size_t size;
        int code = 0;
        if (journal && journal_find(journal, request->run_id, &found, &ignored) == 0) {
                if (request->detach)
                        answer_detached(caller, session, request->run_id);
                else if (request->stream)
                        code = send_events(caller, session, journal, &found, err);
                else if ((code = read_result_text(journal, &found, &text, &size, err)) == 0)
                        run_answer_again(caller, journal, &found, text, size);
                code = code < 0 ? -1 : 1;
        }
        journal_close(owned);
        return code;
}

/* A client whose connection broke repeats its request with the same run id: it gets that run, and the code is not
 * executed twice. 1: the run exists, and the caller is attached to it; 0: there is none; -1. */
static int join_run(struct caller *caller, const struct run_request *request, struct err *err) {
        struct session *session = request->run_id && !request->is_ephemeral && request->session
                                          ? session_find(caller->manager, caller->owner, request->session)
                                          : NULL;
        struct run *run = session ? find_run(session, request->run_id) : NULL;
        caller->stream = request->stream;
        if (run && request->detach)
                answer_detached(caller, session, run->id);
        else if (run)
                run_add_caller(run, caller);
        if (run || !session)
                return run != NULL;
        return join_ended_run(caller, session, request, err);
}

/* 1: the remote has the run; 0: it runs here; -1: failure. */
static int pass_run(struct caller *caller, const struct run_request *request, struct err *err) {
        bool is_wanted = remote_is_wanted(caller->manager, request->options), is_new = false;
        struct session *session = NULL;
        if (request->is_ephemeral && !is_wanted)
                return 0;
        if (!request->is_ephemeral)
                session = session_find(caller->manager, caller->owner, request->session ? request->session : "");
        if (!request->is_ephemeral && session && !session->is_remote)
                return 0;
        if (!request->is_ephemeral && !session) {
                if (!is_wanted || request->must_exist)
                        return 0;
                session = session_config_find_or_create(caller, request->session, request->options, &is_new, err);
                if (!session)
                        return -1;
        }
        return remote_run(caller, session, request, is_new, err) < 0 ? -1 : 1;
}

static void set_text(json_t *payload, const char *key, const char *text) {
        if (text)
                json_object_set_new(payload, key, json_string(text));
}

static void set_value(json_t *payload, const char *key, json_t *value) {
        if (value)
                json_object_set(payload, key, value);
}

/* A run is acknowledged when its id is sent: from then on it is in the journal, or on disk until its turn. */
static int acknowledge(struct caller *caller, struct run *run, bool detach, struct err *err) {
        bool is_id_sent = detach || caller->type->accepted;
        if (!run->started && is_id_sent && waiting_run_put(run, caller->cancel_on_disconnect, err) < 0) {
                session_cancel(run->session, run);
                return -1;
        }
        if (detach)
                caller_answer(caller, json_pack("{s:s, s:s}", "run_id", run->id, "session", run->session->row.id));
        else
                run_add_caller(run, caller);
        return 0;
}

/* Takes the payload; NULL: there was no memory for it. */
static int submit_run(struct caller *caller, const struct run_request *request, json_t *payload, struct err *err) {
        struct run *run = NULL;
        if (!payload)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        set_text(payload, "stdin_text", request->stdin_text);
        set_value(payload, "files", request->files);
        if (request->is_one_shot)
                json_object_set_new(payload, "one_shot", json_true());
        int joined = check_run_id(request, err) < 0 || one_shot_check(request, err) < 0
                             ? -1
                             : pass_run(caller, request, err);
        if (joined == 0)
                joined = join_run(caller, request, err);
        if (joined != 0) {
                json_decref(payload);
                return joined < 0 ? -1 : 0;
        }
        if (disk_reserve_check(err) == 0)
                run = make_run(caller, request, payload, err);
        json_decref(payload);
        if (!run)
                return -1;
        if (request->run_id)
                (void) snprintf(run->id, sizeof(run->id), "%s", request->run_id);
        struct err refusal = { 0 };
        caller->stream = request->stream;
        caller->cancel_on_disconnect = request->cancel_on_disconnect;
        run->refusal = &refusal;
        session_submit(run->session, run);
        if (refusal.code != ERR_NONE) {
                *err = refusal;
                return -1;
        }
        run->refusal = NULL;
        return acknowledge(caller, run, request->detach, err);
}

void operation_install_hint(const struct caller *caller, const char *session,
                            char ret_hint[static OPERATION_INSTALL_HINT_MAX]) {
        bool by_verb = caller_is_operator(caller);
        (void) snprintf(ret_hint, OPERATION_INSTALL_HINT_MAX, "%s%.128s%s",
                        by_verb ? "glovebox session install " : "POST /sandbox/", session,
                        by_verb ? "" : "/pip/install with the package");
}

/* A kernel does not know the name of its session: each run of code brings it. */
static void set_install_hint(const struct caller *caller, const struct run_request *request, json_t *payload) {
        char hint[OPERATION_INSTALL_HINT_MAX];
        if (request->is_ephemeral || !request->session)
                return;
        if (!request->install_hint)
                operation_install_hint(caller, request->session, hint);
        set_text(payload, "install_hint", request->install_hint ? request->install_hint : hint);
}

int operation_execute(struct caller *caller, const struct run_request *request, struct err *err) {
        caller_begin(caller, "execute", request->session);
        if (!request->code)
                return err_set(err, ERR_USAGE, "\"code\" must be given, as text");
        json_t *code = json_stringn(request->code, request->code_size);
        if (!code)
                return err_set(err, ERR_USAGE, "the code is not UTF-8 text");
        json_t *payload = json_pack("{s:o}", "code", code);
        set_text(payload, "context", request->context);
        set_text(payload, "file", request->file);
        set_install_hint(caller, request, payload);
        set_text(payload, "input", request->input);
        set_value(payload, "args", request->args);
        if (env_goes_with_code(request))
                set_value(payload, "env", request->env);
        if (request->is_not_counted)
                json_object_set_new(payload, "store_history", json_false());
        return submit_run(caller, request, payload, err);
}

/* A new reference, or NULL. */
static json_t *command_words(const struct run_request *request, struct err *err) {
        size_t i;
        json_t *word;
        json_array_foreach (request->argv, i, word)
                if (!json_is_string(word)) {
                        (void) err_set(err, ERR_USAGE, "argv holds texts only");
                        return NULL;
                }
        if (request->shell) /* the kernel chooses the image's shell */
                return json_pack("[s, s, s]", "", "-c", request->shell);
        if (json_array_size(request->argv) > 0)
                return json_incref(request->argv);
        (void) err_set(err, ERR_USAGE, "\"argv\" (a list of texts) or \"shell\" (a text) must be given");
        return NULL;
}

int operation_command(struct caller *caller, const struct run_request *request, struct err *err) {
        caller_begin(caller, "command", request->session);
        json_t *argv = command_words(request, err);
        if (!argv)
                return -1;
        json_t *payload = json_pack("{s:o}", "argv", argv);
        set_text(payload, "cwd", request->cwd);
        set_text(payload, "stdin", request->stdin_path);
        set_text(payload, "input", request->input);
        set_value(payload, "env", request->env);
        set_text(payload, "user", request->user);
        return submit_run(caller, request, payload, err);
}

int operation_program(struct caller *caller, const struct program_request *request, struct err *err) {
        caller_begin(caller, "program", NULL);
        return program_begin(caller, request, err);
}

int operation_program_usage(struct caller *caller, const char *id, struct err *err) {
        caller_begin(caller, "program.usage", NULL);
        return program_usage(caller, id, err);
}

/* ---- reading again ---- */

static struct session *find_referred(struct caller *caller, const struct run_reference *reference, struct err *err) {
        struct session *session = caller_find_session(caller, reference->session, err);
        if (session && !reference->run_id)
                (void) err_set(err, ERR_USAGE, "\"run\" must be given, as text");
        return reference->run_id ? session : NULL;
}

static int pass_reference(struct caller *caller, struct session *session, const char *op,
                          const struct run_reference *reference, struct err *err) {
        json_t *fields = json_pack("{s:s, s:I}", "run", reference->run_id, "from", (json_int_t) reference->from);
        return remote_pass_new(caller, session, op, fields, err);
}

int operation_run_read(struct caller *caller, const struct run_reference *reference, struct err *err) {
        caller_begin(caller, "run.read", reference->session);
        struct session *session = find_referred(caller, reference, err);
        if (!session)
                return -1;
        if (session->is_remote)
                return pass_reference(caller, session, "run.read", reference, err);
        caller->stream = true;
        caller->cursor = reference->from > 0 ? reference->from : 1;
        struct run *run = find_run(session, reference->run_id);
        if (run)
                return run_add_reader(run, caller, err);
        struct journal *owned, *journal = journal_of(session, &owned, err);
        struct journal_run found;
        int code = journal ? journal_find(journal, reference->run_id, &found, err) : -1;
        if (code == 0)
                code = send_events(caller, session, journal, &found, err);
        journal_close(owned);
        return code;
}

int operation_run_show(struct caller *caller, const struct run_reference *reference, struct err *err) {
        caller_begin(caller, "run.show", reference->session);
        struct session *session = find_referred(caller, reference, err);
        if (!session)
                return -1;
        if (session->is_remote)
                return pass_reference(caller, session, "run.show", reference, err);
        const struct run *run = find_run(session, reference->run_id);
        if (run) {
                caller_answer(caller, json_pack("{s:s, s:s}", "run_id", run->id, "status",
                                                run->started ? "running" : "waiting"));
                return 0;
        }
        struct journal *owned, *journal = journal_of(session, &owned, err);
        struct journal_run found;
        _cleanup_free_ char *text = NULL;
        size_t size;
        int code = journal ? journal_find(journal, reference->run_id, &found, err) : -1;
        if (code == 0)
                code = read_result_text(journal, &found, &text, &size, err);
        if (code == 0)
                run_answer_again(caller, journal, &found, text, size);
        journal_close(owned);
        return code;
}

int operation_run_cancel(struct caller *caller, const struct run_reference *reference, struct err *err) {
        caller_begin(caller, "run.cancel", reference->session);
        struct session *session = find_referred(caller, reference, err);
        if (!session)
                return -1;
        if (session->is_remote)
                return pass_reference(caller, session, "run.cancel", reference, err);
        struct run *run = find_run(session, reference->run_id);
        if (run) /* one that waits never begins */
                session_cancel(session, run);
        caller_answer(caller, json_pack("{s:b}", "interrupted", (int) (run != NULL)));
        return 0;
}
