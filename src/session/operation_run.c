/* Operations that run something, or read a run again. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "session/asker.h"
#include "session/light.h"
#include "session/operation.h"
#include "session/row.h"
#include "session/session.h"
#include "session/spill.h"
#include "session/upload.h"

enum { CODE_MAX = 16 << 20, QUEUE_MAX = 64 };

static struct session *session_for(struct asker *asker, json_t *json, struct err *err) {
        if (!json_is_true(json_object_get(json, "ephemeral"))) {
                bool created;
                return row_find_or_create(asker, json, &created, err);
        }
        struct registry_session row;
        if (row_from_json(asker, json, &row, err) < 0 || registry_make_id(row.id, err) < 0)
                return NULL;
        return session_make(asker->daemon, &row, true, err);
}

static uint64_t timeout_of(const struct session *session, json_t *json) {
        json_int_t asked = json_integer_value(json_object_get(json, "timeout_ms"));
        return asked > 0 ? (uint64_t) asked : session->row.limits.timeout_ms;
}

/* `what` is the payload of EXECUTE but for its id; taken. */
static int submit(struct asker *asker, json_t *json, json_t *what, struct err *err) {
        struct session *session = session_for(asker, json, err);
        bool fits = session && run_fits(session, what);
        struct run *run = fits ? run_make(session, what, timeout_of(session, json)) : NULL;
        if (session && session->ephemeral)
                session->light = light_suits(what, daemon_preload(asker->daemon));
        json_decref(what);
        size_t waiting = 0;
        for (struct run *other = session ? session->runs : NULL; other; other = other->next)
                waiting++;
        if (session && waiting >= QUEUE_MAX)
                (void) err_set(err, ERR_LIMIT, "%d runs already wait in session %s; wait for some to end", QUEUE_MAX,
                               session->row.name);
        else if (session && !fits)
                (void) err_set(err, ERR_LIMIT,
                               "runs with more code than the daemon can hold are under way; wait for some to end, or "
                               "put the code into a file");
        else if (session && !run)
                (void) err_set(err, ERR_SYSTEM, "out of memory");
        if (!run || waiting >= QUEUE_MAX) {
                run_free(run);
                if (session && session->ephemeral)
                        session_remove(session, false);
                return -1;
        }
        asker->stream = json_is_true(json_object_get(json, "stream"));
        asker->cancel_on_disconnect = json_is_true(json_object_get(json, "cancel_on_disconnect"));
        if (json_is_true(json_object_get(json, "detach"))) {
                asker_answer(asker, json_pack("{s:s, s:s}", "run_id", run->id, "session", session->row.id));
        } else
                run_add_asker(run, asker);
        session_submit(session, run);
        return 0;
}

static int submit_code(struct asker *asker, json_t *json, json_t *code, struct err *err) {
        json_t *what = json_object();
        json_object_set_new(what, "code", code);
        json_t *context = json_object_get(json, "context");
        if (context)
                json_object_set(what, "context", context);
        return submit(asker, json, what, err);
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
                return err_set(err, ERR_SYSTEM, "out of memory");
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
        if (!text || submit_code(upload->asker, upload->json, text, &err) < 0)
                asker_refuse(upload->asker, &err);
}

static void on_abandon(struct upload *upload) {
        free(((struct code_upload *) upload)->bytes);
}

static int execute(struct asker *asker, json_t *json, struct err *err) {
        if (!json_is_true(json_object_get(json, "code_follows"))) {
                json_t *code = json_object_get(json, "code");
                if (!json_is_string(code))
                        return err_set(err, ERR_USAGE, "\"code\" must be given, as text");
                return submit_code(asker, json, json_incref(code), err);
        }
        struct code_upload *code = calloc(1, sizeof(*code));
        if (!code)
                return err_set(err, ERR_SYSTEM, "out of memory");
        code->upload = (struct upload) { .asker = asker, .max = CODE_MAX, .piece = on_piece, .finish = on_finish,
                                         .abandon = on_abandon, .json = json_incref(json) };
        if (upload_begin(&code->upload, err) < 0) {
                json_decref(json);
                free(code);
                return -1;
        }
        return 0;
}

static int command(struct asker *asker, json_t *json, struct err *err) {
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
        static const char *const keys[] = { "env", "cwd" };
        for (size_t k = 0; k < ELEMENTS(keys); k++)
                if (json_object_get(json, keys[k]))
                        json_object_set(what, keys[k], json_object_get(json, keys[k]));
        return submit(asker, json, what, err);
}

/* ---- reading again ---- */

static int read_result_text(struct journal *journal, const struct journal_run *run, char **ret_text, size_t *ret_size,
                            struct err *err) {
        struct journal_event event;
        if (journal_event(journal, run->run_id, run->events, &event, err) < 0 || event.kind != JOURNAL_EVENT_RESULT)
                return err_set(err, ERR_GONE, "run %s has no result: the daemon that ran it was lost", run->run_id);
        _cleanup_free_ char *text = malloc(event.size + 1);
        size_t size = 0;
        if (!text || journal_read(journal, &event, 0, text, event.size, &size, err) < 0 || size < 2)
                return err_set(err, ERR_SYSTEM, "the result of run %s cannot be read", run->run_id);
        *ret_text = take_ptr(text);
        *ret_size = size;
        return 0;
}

static int read_result(struct journal *journal, const struct journal_run *run, json_t **ret_result, struct err *err) {
        _cleanup_free_ char *text = NULL;
        size_t size;
        if (read_result_text(journal, run, &text, &size, err) < 0)
                return -1;
        *ret_result = json_loadb(text, size, JSON_ALLOW_NUL, NULL);
        return *ret_result ? 0 : err_set(err, ERR_SYSTEM, "the result of run %s cannot be read", run->run_id);
}

/* A run that is over, from the journal, as fast as the asker reads. */
static int send_events(struct asker *asker, struct journal *journal, const struct journal_run *run, struct err *err) {
        _cleanup_free_ char *text = NULL;
        size_t size;
        if (read_result_text(journal, run, &text, &size, err) < 0)
                return -1;
        if (asker->type->accepted)
                asker->type->accepted(asker, run->run_id);
        return spill_run(asker, journal, run->run_id, text, size, err);
}

/* The session's journal; *ret_owned is to be closed, unless it is NULL. */
static struct journal *journal_of(struct session *session, struct journal **ret_owned, struct err *err) {
        *ret_owned = NULL;
        if (session->kernel && session->kernel->journal)
                return session->kernel->journal;
        return session_open_journal(session, ret_owned, err) < 0 ? NULL : *ret_owned;
}

static int read_run(struct asker *asker, json_t *json, struct err *err) {
        struct session *session = operation_session(asker, json, err);
        const char *run_id = session ? operation_text(json, "run", err) : NULL;
        if (!run_id)
                return -1;
        json_int_t from = json_integer_value(json_object_get(json, "from"));
        asker->stream = true;
        asker->cursor = from > 0 ? (uint64_t) from : 1;
        for (struct run *run = session->runs; run; run = run->next)
                if (strcmp(run->id, run_id) == 0) {
                        run_add_asker(run, asker);
                        return 0;
                }
        struct journal *owned, *journal = journal_of(session, &owned, err);
        struct journal_run found;
        int code = journal ? journal_find(journal, run_id, &found, err) : -1;
        if (code == 0)
                code = send_events(asker, journal, &found, err);
        journal_close(owned);
        return code;
}

/* What a run printed, bounded, as part of its result. */
static void add_output(struct journal *journal, const struct journal_run *run, json_t *result) {
        static const char *const keys[] = { "stdout", "stderr" };
        static const char *const cut_keys[] = { "stdout_cut_bytes", "stderr_cut_bytes" };
        for (int i = 0; i < JOURNAL_STREAMS; i++) {
                _cleanup_free_ char *bytes = NULL, *clean = NULL;
                size_t size = 0;
                (void) journal_read_stream(journal, run->run_id, (enum journal_stream) i, RUN_INLINE_MAX, &bytes, &size,
                                           NULL);
                uint64_t cut = run->cut[i] + run->bytes[i] - (size < run->bytes[i] ? size : run->bytes[i]);
                json_t *text = json_stringn(bytes ? bytes : "", size);
                if (!text && utf8_repair(bytes, size, &clean, &size) == 0)
                        text = json_stringn(clean, size);
                json_object_set_new(result, keys[i], text ? text : json_string(""));
                json_object_set_new(result, cut_keys[i], json_integer((json_int_t) cut));
        }
}

/* The result of a run that is over, with its output; of one that is not, only that. */
static int show_run(struct asker *asker, json_t *json, struct err *err) {
        struct session *session = operation_session(asker, json, err);
        const char *run_id = session ? operation_text(json, "run", err) : NULL;
        if (!run_id)
                return -1;
        for (struct run *run = session->runs; run; run = run->next)
                if (strcmp(run->id, run_id) == 0) {
                        asker_answer(asker, json_pack("{s:s, s:s}", "run_id", run_id, "status",
                                                      run->started ? "running" : "waiting"));
                        return 0;
                }
        struct journal *owned, *journal = journal_of(session, &owned, err);
        struct journal_run found;
        json_t *result = NULL;
        int code = journal ? journal_find(journal, run_id, &found, err) : -1;
        if (code == 0)
                code = read_result(journal, &found, &result, err);
        if (code == 0) {
                add_output(journal, &found, result);
                asker_answer(asker, result);
        }
        journal_close(owned);
        return code;
}

static int cancel_run(struct asker *asker, json_t *json, struct err *err) {
        struct session *session = operation_session(asker, json, err);
        const char *run_id = session ? operation_text(json, "run", err) : NULL;
        if (!run_id)
                return -1;
        bool on = session->runs && session->runs->started && strcmp(session->runs->id, run_id) == 0;
        asker_answer(asker, json_pack("{s:b}", "interrupted", (int) (on && session_interrupt(session))));
        return 0;
}

const struct operation operations_run[] = {
        { "execute", execute },   { "command", command },       { "run.read", read_run },
        { "run.show", show_run },
        { "run.cancel", cancel_run }, { NULL, NULL },
};
