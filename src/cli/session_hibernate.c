/* `glovebox session hibernate` and `glovebox session move`, which puts a session to sleep first. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/session_action.h"
#include "cli/ui/json_print.h"
#include "cli/ui/terminal.h"

enum { MOVE_TRIES = 100, MOVE_PAUSE_MS = 50 };

/* Written by the box. */
static const char *harmless(const char *text, char room[static 400]) {
        (void) snprintf(room, 400, "%s", text ? text : "");
        terminal_make_harmless(room);
        return room;
}

static void print_hibernated(const json_t *answer) {
        const char *state = json_string_value(json_object_get(answer, "state"));
        json_int_t bytes = json_integer_value(json_object_get(answer, "bytes"));
        char text[32], name[400], why[400];
        (void) printf("%s, %s on the disk\n", state ? state : "done",
                      units_format_bytes(bytes > 0 ? (uint64_t) bytes : 0, text));
        const json_t *held_back = json_object_get(answer, "held_back"), *lost = json_object_get(answer, "not_carried");
        for (size_t i = 0; i < json_array_size(held_back); i++) {
                const json_t *held = json_array_get(held_back, i);
                (void) harmless(json_string_value(json_object_get(held, "name")), name);
                (void) harmless(json_string_value(json_object_get(held, "why")), why);
                if (strcmp(name, "*") == 0) /* no variable: a thread, an open file, a child */
                        (void) printf("held awake: %s\n", why);
                else
                        (void) printf("held awake by %s: %s\n", name, why);
        }
        for (size_t i = 0; i < json_array_size(lost); i++)
                (void) printf("not carried: %s\n", harmless(json_string_value(json_array_get(lost, i)), why));
}

static bool is_identifier(const char *name) {
        return *name && strspn(name, "_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == strlen(name);
}

/* It was to free its memory, and did not: a script that ends the daemon next would lose its variables. */
static int check_asleep(const json_t *answer, const char *session, struct err *err) {
        const char *state = json_string_value(json_object_get(answer, "state"));
        const json_t *held = json_array_get(json_object_get(answer, "held_back"), 0);
        const char *name = json_string_value(json_object_get(held, "name"));
        if (!state || strcmp(state, "asleep") == 0)
                return 0;
        if (name && is_identifier(name))
                return err_set(err, ERR_REFUSED,
                               "session %s is not hibernated: it stays in memory with its variables; to hibernate it, "
                               "delete what holds it (glovebox exec %s -c 'del %.100s'), then try again",
                               session, session, name);
        return err_set(err, ERR_REFUSED,
                       "session %s is not hibernated: it stays in memory with its variables; end what holds it, then "
                       "try again, or restart it without them: glovebox session restart %s",
                       session, session);
}

static int hibernate_one(struct daemon_client *client, const struct session_line *line, char **names, struct err *err) {
        json_t *body = json_pack("{s:s, s:s, s:s}", "op", "session.hibernate", "session", names[0], "depth",
                                 line->trim ? "trim" : "sleep"),
               *answer = NULL;
        int code = daemon_client_request(client, body, &answer, err);
        if (code == 0 && line->json)
                code = json_print_answer(answer, err);
        else if (code == 0)
                print_hibernated(answer);
        if (code == 0 && !line->trim)
                code = check_asleep(answer, names[0], err);
        json_decref(answer);
        return code;
}

/* Sessions with an active run are listed, and are no failure: interrupt them first to hibernate them. */
static int hibernate_all(struct daemon_client *client, const struct session_line *line, struct err *err) {
        json_t *names = NULL, *name;
        size_t i;
        int code = session_list_names(client, NULL, true, &names, err);
        json_array_foreach (names, i, name) {
                char text[140], *one[] = { text, NULL };
                struct err why = { 0 };
                (void) snprintf(text, sizeof(text), "%s", json_string_value(name));
                if (!line->json) {
                        (void) printf("%s: ", text);
                        (void) fflush(stdout);
                }
                if (hibernate_one(client, line, one, &why) == 0)
                        continue;
                if (!line->json)
                        (void) printf("%s\n", why.message);
                if (why.code != ERR_BUSY && why.code != ERR_GONE) {
                        *err = why; /* the others are hibernated nevertheless */
                        code = -1;
                }
        }
        json_decref(names);
        return code;
}

int session_action_hibernate(struct daemon_client *client, const struct session_line *line, char **names,
                             struct err *err) {
        if (line->all && names[0])
                return err_set(err, ERR_USAGE, "session hibernate takes a name or --all, not both");
        if (!line->all && !names[0])
                return err_set(err, ERR_USAGE, "session hibernate needs a session's name, or --all");
        return line->all ? hibernate_all(client, line, err) : hibernate_one(client, line, names, err);
}

/* Its box ends a moment after the answer. */
static int ask_to_move(struct daemon_client *client, json_t *body, json_t **ret_answer, struct err *err) {
        const struct daemon_request request = { .body = body };
        for (int i = 0;; i++) {
                if (daemon_client_call(client, &request, ret_answer, err) == 0)
                        return 0;
                if (err->code != ERR_BUSY || i == MOVE_TRIES)
                        return -1;
                (void) poll(NULL, 0, MOVE_PAUSE_MS);
        }
}

/* If a variable cannot be saved, it is named, and the session is not moved. */
static int put_to_sleep(struct daemon_client *client, const char *name, struct err *err) {
        json_t *body = json_pack("{s:s, s:s}", "op", "session.hibernate", "session", name), *answer = NULL;
        int code = daemon_client_request(client, body, &answer, err);
        const char *state = json_string_value(json_object_get(answer, "state"));
        if (code < 0 && err->code == ERR_BUSY && strstr(err->message, "no kernel"))
                code = 0;
        else if (code == 0 && state && strcmp(state, "asleep") != 0) {
                char which[400];
                const json_t *held = json_array_get(json_object_get(answer, "held_back"), 0);
                code = err_set(err, ERR_REFUSED,
                               "session %s stays where it is: \"%s\" cannot come along; delete it, or "
                               "restart the session",
                               name, harmless(json_string_value(json_object_get(held, "name")), which));
        }
        json_decref(answer);
        return code;
}

static void print_moved(const json_t *answer, const char *name, const char *engine) {
        const json_t *left = json_object_get(answer, "left_behind");
        (void) printf("session %s is on %s\n", name, engine);
        for (size_t i = 0; i < json_array_size(left); i++) {
                char which[400];
                (void) printf("left behind: %s\n", harmless(json_string_value(json_array_get(left, i)), which));
        }
}

int session_action_move(struct daemon_client *client, const struct session_line *line, char **names, struct err *err) {
        if (!line->engine)
                return err_set(err, ERR_USAGE, "session move needs --engine NAME");
        json_t *body = json_pack("{s:s, s:s, s:s, s:s*}", "op", "session.move", "session", names[0], "engine",
                                 line->engine, "image", line->image),
               *answer = NULL;
        int code = body ? put_to_sleep(client, names[0], err) : err_set(err, ERR_USAGE, "a name is not valid UTF-8");
        if (code == 0)
                code = ask_to_move(client, body, &answer, err);
        if (code == 0 && line->json)
                code = json_print_answer(answer, err);
        else if (code == 0)
                print_moved(answer, names[0], line->engine);
        json_decref(answer);
        json_decref(body);
        return code;
}
