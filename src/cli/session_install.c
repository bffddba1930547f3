/* `glovebox session install`. */
#include <signal.h>
#include <stdio.h>

#include "base/memory.h"
#include "cli/remote_run.h"
#include "cli/session_action.h"
#include "cli/ui/terminal.h"

static void print_installed(const json_t *result) {
        const json_t *installed = json_object_get(result, "installed");
        const json_t *stale = json_object_get(result, "restart_needed");
        for (size_t i = 0; i < json_array_size(stale); i++)
                (void) fprintf(stderr,
                               "glovebox: %s is imported in another version; \"glovebox session restart\" "
                               "makes the new one visible\n",
                               json_string_value(json_array_get(stale, i)));
        if (json_array_size(installed) == 0 && remote_run_exit_status(result) == 0)
                (void) fprintf(stderr, "glovebox: all packages are installed already\n");
}

/* A misspelt name is an error here, not a new session. */
static int check_exists(struct daemon_client *client, const char *name, struct err *err) {
        json_t *answer = NULL;
        int code = daemon_client_ask(client, "session.show", name, &answer, err);
        json_decref(answer);
        return code;
}

static int fail_interrupted(const char *session, int signal_number, struct err *err) {
        if (signal_number == SIGPIPE)
                return 128 + signal_number;
        (void) err_set(err, ERR_GONE, "the install was interrupted; the packages of session %.200s are as they were",
                       session);
        return terminal_fail_with(err, 128 + signal_number);
}

/* Hanging up, by Ctrl-C for instance, ends the install; the packages are then as they were. */
int session_action_install(struct daemon_client *client, const struct session_line *line, char **names,
                           struct err *err) {
        if (check_exists(client, names[0], err) < 0)
                return -1;
        json_t *body = json_pack("{s:s, s:s, s:b, s:b}", "op", "session.install", "session", names[0], "stream",
                                 !line->json, "cancel_on_disconnect", 1),
               *packages = json_array(), *result = NULL;
        int code = body ? 0 : err_set(err, ERR_USAGE, "the session's name is not valid UTF-8");
        for (char **name = names + 1; code == 0 && *name; name++)
                if (json_array_append_new(packages, json_string(*name)) < 0)
                        code = err_set(err, ERR_USAGE, "the name of a package is not valid UTF-8");
        struct daemon_request request = { .body = body };
        struct remote_run remote = { .client = client, .json = line->json };
        (void) json_object_set_new(body, "packages", packages);
        if (line->timeout_ms)
                (void) json_object_set_new(body, "timeout_ms", json_integer((json_int_t) line->timeout_ms));
        if (code == 0)
                code = remote_run_call(&remote, &request, &result, err);
        if (code == DAEMON_CALL_LEFT)
                code = fail_interrupted(names[0], remote.end_signal, err);
        else if (code == DAEMON_CALL_ANSWERED) {
                code = remote_run_report(&remote, result, err);
                if (!line->json)
                        print_installed(result);
        }
        json_decref(result);
        json_decref(body);
        return code;
}

int session_install(struct daemon_client *client, const char *session, char **packages, bool json, struct err *err) {
        const struct session_line line = { .json = json };
        char *names[256] = { (char *) (uintptr_t) session };
        for (size_t i = 0; i + 2 < ELEMENTS(names) && packages[i]; i++)
                names[i + 1] = packages[i];
        return session_action_install(client, &line, names, err);
}
