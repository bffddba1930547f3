#include "cli/wait_note.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "cli/ui/terminal.h"
#include "client/daemon_client.h"

enum { ANSWER_MS = 1000 };

static const char *text_at(const json_t *object, const char *key) {
        const char *text = json_string_value(json_object_get(object, key));
        return text ? text : "";
}

/* The run of this id if it waits, with the number of runs before it and the first of them. */
static const json_t *find_waiting(const json_t *runs, const char *run_id, size_t *ret_before,
                                  const json_t **ret_first) {
        const json_t *run;
        size_t i;
        json_array_foreach (runs, i, run) {
                if (strcmp(text_at(run, "run_id"), run_id) != 0)
                        continue;
                *ret_before = i;
                *ret_first = json_array_get(runs, 0);
                return i > 0 && strcmp(text_at(run, "status"), "waiting") == 0 ? run : NULL;
        }
        return NULL;
}

static void print_note(const char *session, size_t before, const json_t *first) {
        char what[200];
        (void) snprintf(what, sizeof(what), "%s", text_at(first, "what"));
        terminal_make_harmless(what);
        (void) fprintf(stderr, "glovebox: waiting for %zu run%s of session %s%s%s%s; Ctrl-C stops waiting\n", before,
                       before == 1 ? "" : "s", session, *what ? " (" : "", what, *what ? ")" : "");
}

void wait_note_print(const char *socket, const char *run_id) {
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        json_t *body = json_pack("{s:s}", "op", "ps"), *answer = NULL;
        const struct daemon_request request = { .body = body, .timeout_ms = ANSWER_MS };
        struct err err;
        if (body && daemon_client_connect(socket, &client, &err) == 0 &&
            daemon_client_call(&client, &request, &answer, &err) == DAEMON_CALL_ANSWERED) {
                const json_t *process, *first = NULL;
                size_t i, before = 0;
                json_array_foreach (json_object_get(answer, "processes"), i, process)
                        if (find_waiting(json_object_get(process, "runs"), run_id, &before, &first))
                                print_note(text_at(process, "name"), before, first);
        }
        json_decref(answer);
        json_decref(body);
}
