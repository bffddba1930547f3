/* Operations that run something, or read a run again. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "session/client.h"
#include "session/operation.h"
#include "session/row.h"
#include "session/session.h"
#include "session/upload.h"

enum { CODE_MAX = 16 << 20, QUEUE_MAX = 64 };

static struct session *session_for(struct client *client, json_t *json, struct err *err) {
        if (!json_is_true(json_object_get(json, "ephemeral"))) {
                bool created;
                return row_find_or_create(client->daemon, json, &created, err);
        }
        struct registry_session row;
        if (row_from_json(client->daemon, json, &row, err) < 0 || registry_make_id(row.id, err) < 0)
                return NULL;
        return session_make(client->daemon, &row, true, err);
}

static uint64_t timeout_of(const struct session *session, json_t *json) {
        json_int_t asked = json_integer_value(json_object_get(json, "timeout_ms"));
        return asked > 0 ? (uint64_t) asked : session->row.limits.timeout_ms;
}

/* `what` is the payload of EXECUTE but for its id; taken. */
static int submit(struct client *client, uint16_t request, json_t *json, json_t *what, struct err *err) {
        struct session *session = session_for(client, json, err);
        struct subscription *subscription = calloc(1, sizeof(*subscription));
        struct run *run = session ? run_make(session, what, timeout_of(session, json)) : NULL;
        json_decref(what);
        size_t waiting = 0;
        for (struct run *other = session ? session->runs : NULL; other; other = other->next)
                waiting++;
        if (session && waiting >= QUEUE_MAX)
                (void) err_set(err, ERR_LIMIT, "%d runs already wait in session %s; wait for some to end", QUEUE_MAX,
                               session->row.name);
        else if (session && (!run || !subscription))
                (void) err_set(err, ERR_SYSTEM, "out of memory");
        if (!run || !subscription || waiting >= QUEUE_MAX) {
                run_free(run);
                free(subscription);
                if (session && session->ephemeral)
                        session_remove(session, false);
                return -1;
        }
        subscription->client = client;
        subscription->request = request;
        subscription->stream = json_is_true(json_object_get(json, "stream"));
        subscription->cancel_on_disconnect = json_is_true(json_object_get(json, "cancel_on_disconnect"));
        subscription->cursor = 1;
        if (json_is_true(json_object_get(json, "detach"))) {
                client_answer(client, request, json_pack("{s:s, s:s}", "run_id", run->id, "session", session->row.id));
                free(subscription);
        } else
                run_subscribe(run, subscription);
        session_submit(session, run);
        return 0;
}

static int submit_code(struct client *client, uint16_t request, json_t *json, json_t *code, struct err *err) {
        json_t *what = json_object();
        json_object_set_new(what, "code", code);
        json_t *context = json_object_get(json, "context");
        if (context)
                json_object_set(what, "context", context);
        return submit(client, request, json, what, err);
}

/* ---- code that follows as DATA ---- */

struct code_upload {
        struct upload upload;
        char *bytes;
        size_t size;
};

static int on_piece(struct upload *upload, struct client *client, const char *bytes, size_t size, struct err *err) {
        (void) client;
        struct code_upload *code = (struct code_upload *) upload;
        char *grown = realloc(code->bytes, code->size + size + 1);
        if (!grown)
                return err_set(err, ERR_SYSTEM, "out of memory");
        memcpy(grown + code->size, bytes, size);
        code->bytes = grown;
        code->size += size;
        return 0;
}

static void on_finish(struct upload *upload, struct client *client) {
        struct code_upload *code = (struct code_upload *) upload;
        struct err err;
        json_t *text = json_stringn(code->bytes ? code->bytes : "", code->size);
        if (!text)
                (void) err_set(&err, ERR_USAGE, "the code is not UTF-8 text");
        if (!text || submit_code(client, upload->request, upload->json, text, &err) < 0)
                client_refuse(client, upload->request, &err);
}

static void on_abandon(struct upload *upload) {
        free(((struct code_upload *) upload)->bytes);
}

static int execute(struct client *client, uint16_t request, json_t *json, struct err *err) {
        if (!json_is_true(json_object_get(json, "code_follows"))) {
                json_t *code = json_object_get(json, "code");
                if (!json_is_string(code))
                        return err_set(err, ERR_USAGE, "\"code\" must be given, as text");
                return submit_code(client, request, json, json_incref(code), err);
        }
        struct code_upload *code = calloc(1, sizeof(*code));
        if (!code)
                return err_set(err, ERR_SYSTEM, "out of memory");
        code->upload = (struct upload) { .request = request, .max = CODE_MAX, .piece = on_piece, .finish = on_finish,
                                         .abandon = on_abandon, .json = json_incref(json) };
        if (upload_begin(client, &code->upload, err) < 0) {
                json_decref(json);
                free(code);
                return -1;
        }
        return 0;
}

static int command(struct client *client, uint16_t request, json_t *json, struct err *err) {
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
        return submit(client, request, json, what, err);
}

/* ---- reading again ---- */

static int send_events(struct client *client, uint16_t request, struct journal *journal, const struct journal_run *run,
                       uint64_t from, struct err *err) {
        _cleanup_free_ char *chunk = malloc(MESSAGE_OUTPUT_MAX);
        if (!chunk)
                return err_set(err, ERR_SYSTEM, "out of memory");
        for (uint64_t number = from; number <= run->events; number++) {
                struct journal_event event;
                if (journal_event(journal, run->run_id, number, &event, err) < 0)
                        return -1;
                if (event.kind == JOURNAL_EVENT_RESULT) {
                        _cleanup_free_ char *text = malloc(event.size + 1);
                        size_t size = 0;
                        if (!text || journal_read(journal, &event, 0, text, event.size, &size, err) < 0)
                                return err_set(err, ERR_SYSTEM, "the result of run %s cannot be read", run->run_id);
                        json_t *result = json_loadb(text, size, 0, NULL);
                        client_answer(client, request, result ? result : json_object());
                        return 0;
                }
                for (size_t at = 0; at < event.size;) {
                        size_t size = 0;
                        if (journal_read(journal, &event, at, chunk, MESSAGE_OUTPUT_MAX, &size, err) < 0)
                                return -1;
                        if (size == 0)
                                break;
                        client_send_output(client, event.kind == JOURNAL_EVENT_ERR, request, (uint32_t) number, chunk,
                                           size);
                        at += size;
                }
        }
        return err_set(err, ERR_GONE, "run %s has no result: the daemon that ran it was lost", run->run_id);
}

static int read_run(struct client *client, uint16_t request, json_t *json, struct err *err) {
        struct session *session = operation_session(client, json, err);
        const char *run_id = session ? operation_text(json, "run", err) : NULL;
        if (!run_id)
                return -1;
        json_int_t from = json_integer_value(json_object_get(json, "from"));
        for (struct run *run = session->runs; run; run = run->next) {
                if (strcmp(run->id, run_id) != 0)
                        continue;
                struct subscription *subscription = calloc(1, sizeof(*subscription));
                if (!subscription)
                        return err_set(err, ERR_SYSTEM, "out of memory");
                *subscription = (struct subscription) { .client = client, .request = request, .stream = true,
                                                        .cursor = from > 0 ? (uint64_t) from : 1 };
                run_subscribe(run, subscription);
                return 0;
        }
        struct journal *owned = NULL;
        struct journal *journal = session->kernel ? session->kernel->journal : NULL;
        if (!journal) {
                if (session_open_journal(session, &owned, err) < 0)
                        return -1;
                journal = owned;
        }
        struct journal_run found;
        int code = journal_find(journal, run_id, &found, err);
        if (code == 0)
                code = send_events(client, request, journal, &found, from > 0 ? (uint64_t) from : 1, err);
        journal_close(owned);
        return code;
}

static int cancel_run(struct client *client, uint16_t request, json_t *json, struct err *err) {
        struct session *session = operation_session(client, json, err);
        const char *run_id = session ? operation_text(json, "run", err) : NULL;
        if (!run_id)
                return -1;
        bool on = session->runs && session->runs->started && strcmp(session->runs->id, run_id) == 0;
        client_answer(client, request, json_pack("{s:b}", "interrupted", (int) (on && session_interrupt(session))));
        return 0;
}

const struct operation operations_run[] = {
        { "execute", execute },   { "command", command },       { "run.read", read_run },
        { "run.cancel", cancel_run }, { NULL, NULL },
};
