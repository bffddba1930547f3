/* Operations that run something, or read a run again. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "daemon/operation.h"
#include "daemon/upload.h"
#include "session/caller.h"
#include "session/program.h"
#include "session/session.h"
#include "session/session_config.h"
#include "session/spill.h"
#include "session/waiting.h"
#include "store/disk_reserve.h"

enum { CODE_MAX = 4 << 20 };

static struct session *session_for(struct caller *caller, json_t *json, struct err *err) {
        if (!json_is_true(json_object_get(json, "ephemeral"))) {
                bool created;
                if (json_is_false(json_object_get(json, "create"))) /* one that was removed stays so */
                        return operation_session(caller, json, err);
                return session_config_find_or_create(caller, json, &created, err);
        }
        struct registry_session row;
        if (session_config_from_json(caller, json, &row, err) < 0 || registry_make_id(row.id, err) < 0)
                return NULL;
        return session_make(caller->manager, &row, true, err);
}

static uint64_t timeout_of(const struct session *session, json_t *json) {
        json_int_t asked = json_integer_value(json_object_get(json, "timeout_ms"));
        return asked > 0 ? (uint64_t) asked : session->row.limits.timeout_ms;
}

/* `what` is the payload of EXECUTE but for its id; taken. */
static int submit(struct caller *caller, json_t *json, json_t *what, struct err *err) {
        if (disk_reserve_check(err) < 0) {
                json_decref(what);
                return -1;
        }
        struct session *session = session_for(caller, json, err);
        bool fits = session && run_fits(session, what, err) == 0;
        struct run *run = fits ? run_make(session, what, timeout_of(session, json)) : NULL;
        if (session && session->ephemeral)
                session->light = json_object_get(what, "argv") || json_is_true(json_object_get(json, "light"));
        json_decref(what);
        size_t waiting = 0;
        for (struct run *other = session ? session->runs : NULL; other; other = other->next)
                waiting++;
        if (session && waiting >= SESSION_RUNS_MAX)
                (void) err_set(err, ERR_LIMIT, "%d runs already wait in session %s; wait for some to end", SESSION_RUNS_MAX,
                               session->row.name);
        else if (session && fits && !run)
                (void) err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (!run || waiting >= SESSION_RUNS_MAX) {
                run_free(run);
                if (session && session->ephemeral)
                        session_remove(session, false);
                return -1;
        }
        caller->stream = json_is_true(json_object_get(json, "stream"));
        caller->cancel_on_disconnect = json_is_true(json_object_get(json, "cancel_on_disconnect"));
        bool detach = json_is_true(json_object_get(json, "detach"));
        struct err refusal = { 0 };
        run->refusal = &refusal;
        session_submit(session, run);
        if (refusal.code != ERR_NONE) {
                *err = refusal;
                return -1;
        }
        run->refusal = NULL;
        /* Whoever learns its id has it acknowledged: then it is in the journal, or on disk until it is its turn. */
        if (!run->started && (detach || caller->type->accepted) &&
            waiting_put(run, caller->cancel_on_disconnect, err) < 0) {
                session_cancel(session, run);
                return -1;
        }
        if (detach)
                caller_answer(caller, json_pack("{s:s, s:s}", "run_id", run->id, "session", session->row.id));
        else
                run_add_caller(run, caller);
        return 0;
}

/* What the kernel is told as it was asked. */
static void copy_members(json_t *json, json_t *what, const char *const *keys) {
        for (; *keys; keys++)
                if (json_object_get(json, *keys))
                        json_object_set(what, *keys, json_object_get(json, *keys));
}

static int submit_code(struct caller *caller, json_t *json, json_t *code, struct err *err) {
        json_t *what = json_object();
        json_object_set_new(what, "code", code);
        copy_members(json, what, (const char *const[]) { "context", "store_history", "file", "args", "input", NULL });
        if (!json_is_true(json_object_get(json, "ephemeral"))) /* a fresh box has it in its environment */
                copy_members(json, what, (const char *const[]) { "env", NULL });
        return submit(caller, json, what, err);
}

/* ---- code that follows as DATA ---- */

struct code_upload {
        struct upload upload;
        char *bytes;
        size_t size;
};

static int on_piece(struct upload *upload, const char *bytes, size_t size, struct err *err) {
        struct code_upload *code = (struct code_upload *) upload;
        char *grown = realloc(code->bytes, code->size + size + 1);
        if (!grown)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        memcpy(grown + code->size, bytes, size);
        code->bytes = grown;
        code->size += size;
        return 0;
}

static void on_finish(struct upload *upload) {
        struct code_upload *code = (struct code_upload *) upload;
        struct err err;
        json_t *text = json_stringn(code->bytes ? code->bytes : "", code->size);
        if (!text)
                (void) err_set(&err, ERR_USAGE, "the code is not UTF-8 text");
        if (!text || submit_code(upload->caller, upload->json, text, &err) < 0)
                caller_refuse(upload->caller, &err);
}

static void on_abandon(struct upload *upload) {
        free(((struct code_upload *) upload)->bytes);
}

static int execute(struct caller *caller, json_t *json, struct err *err) {
        if (!json_is_true(json_object_get(json, "code_follows"))) {
                json_t *code = json_object_get(json, "code");
                if (!json_is_string(code))
                        return err_set(err, ERR_USAGE, "\"code\" must be given, as text");
                return submit_code(caller, json, json_incref(code), err);
        }
        struct code_upload *code = calloc(1, sizeof(*code));
        if (!code)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        code->upload = (struct upload) { .caller = caller, .max = CODE_MAX, .piece = on_piece, .finish = on_finish,
                                         .abandon = on_abandon, .json = json_incref(json) };
        if (upload_begin(&code->upload, err) < 0) {
                json_decref(json);
                free(code);
                return -1;
        }
        return 0;
}

static int command(struct caller *caller, json_t *json, struct err *err) {
        json_t *argv = json_object_get(json, "argv");
        const char *shell = json_string_value(json_object_get(json, "shell"));
        size_t i;
        json_t *argument;
        json_array_foreach(argv, i, argument) if (!json_is_string(argument)) return err_set(err, ERR_USAGE,
                                                                                            "argv holds texts only");
        if (shell) /* the kernel knows which shell the image has */
                argv = json_pack("[s, s, s]", "", "-c", shell);
        else if (json_array_size(argv) > 0)
                argv = json_incref(argv);
        else
                return err_set(err, ERR_USAGE, "\"argv\" (a list of texts) or \"shell\" (a text) must be given");
        json_t *what = json_object();
        json_object_set_new(what, "argv", argv);
        copy_members(json, what, (const char *const[]) { "env", "cwd", "stdin", "input", NULL });
        return submit(caller, json, what, err);
}

/* ---- reading again ---- */

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

/* A run that is over, from the journal, as fast as the caller reads. */
static int send_events(struct caller *caller, const struct session *session, struct journal *journal,
                       const struct journal_run *run, struct err *err) {
        _cleanup_free_ char *text = NULL;
        size_t size;
        if (read_result_text(journal, run, &text, &size, err) < 0)
                return -1;
        if (caller->type->accepted)
                caller->type->accepted(caller, run->run_id);
        caller_tell_begun(caller, run->run_id);
        return spill_run(caller, journal, run->run_id, text, size, session->row.id, err);
}

/* The session's journal; *ret_owned is to be closed, unless it is NULL. */
static struct journal *journal_of(struct session *session, struct journal **ret_owned, struct err *err) {
        *ret_owned = NULL;
        if (session->kernel && session->kernel->journal)
                return session->kernel->journal;
        return session_open_journal(session, ret_owned, err) < 0 ? NULL : *ret_owned;
}

static int read_run(struct caller *caller, json_t *json, struct err *err) {
        struct session *session = operation_session(caller, json, err);
        const char *run_id = session ? operation_text(json, "run", err) : NULL;
        if (!run_id)
                return -1;
        json_int_t from = json_integer_value(json_object_get(json, "from"));
        caller->stream = true;
        caller->cursor = from > 0 ? (uint64_t) from : 1;
        for (struct run *run = session->runs; run; run = run->next)
                if (strcmp(run->id, run_id) == 0) {
                        run_add_caller(run, caller);
                        return 0;
                }
        struct journal *owned, *journal = journal_of(session, &owned, err);
        struct journal_run found;
        int code = journal ? journal_find(journal, run_id, &found, err) : -1;
        if (code == 0)
                code = send_events(caller, session, journal, &found, err);
        journal_close(owned);
        return code;
}

/* The result of a run that is over, with its output; of one that is not, only that. */
static int show_run(struct caller *caller, json_t *json, struct err *err) {
        struct session *session = operation_session(caller, json, err);
        const char *run_id = session ? operation_text(json, "run", err) : NULL;
        if (!run_id)
                return -1;
        for (struct run *run = session->runs; run; run = run->next)
                if (strcmp(run->id, run_id) == 0) {
                        caller_answer(caller, json_pack("{s:s, s:s}", "run_id", run_id, "status",
                                                      run->started ? "running" : "waiting"));
                        return 0;
                }
        struct journal *owned, *journal = journal_of(session, &owned, err);
        struct journal_run found;
        _cleanup_free_ char *text = NULL;
        size_t size;
        int code = journal ? journal_find(journal, run_id, &found, err) : -1;
        if (code == 0)
                code = read_result_text(journal, &found, &text, &size, err);
        if (code == 0)
                run_answer_again(caller, journal, &found, text, size);
        journal_close(owned);
        return code;
}

static int cancel_run(struct caller *caller, json_t *json, struct err *err) {
        struct session *session = operation_session(caller, json, err);
        const char *run_id = session ? operation_text(json, "run", err) : NULL;
        if (!run_id)
                return -1;
        struct run *run = session->runs;
        while (run && strcmp(run->id, run_id) != 0)
                run = run->next;
        if (run) /* one that waits never begins */
                session_cancel(session, run);
        caller_answer(caller, json_pack("{s:b}", "interrupted", (int) (run != NULL)));
        return 0;
}

const struct operation operations_run[] = {
        { "execute", execute },   { "command", command },       { "run.read", read_run },
        { "run.show", show_run },
        { "run.cancel", cancel_run }, { "program", program_begin },
        { "program.usage", program_usage }, { NULL, NULL },
};
