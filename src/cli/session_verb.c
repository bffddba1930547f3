/* `glovebox session ...`: the sessions that the daemon keeps. */
#include "cli/session_verb.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "cli/limit_note.h"
#include "cli/process_verb.h"
#include "cli/session_action.h"
#include "cli/session_print.h"
#include "cli/session_request.h"
#include "cli/ui/json_print.h"
#include "cli/ui/suggest.h"
#include "cli/ui/terminal.h"

static int print_created(const json_t *answer) {
        const char *name = json_string_value(json_object_get(answer, "name"));
        (void) printf("session %s %s\n", name ? name : "",
                      json_is_false(json_object_get(answer, "created")) ? "is there already" : "is made");
        return 0;
}

static int do_new(const struct session_options *options, char **names, struct err *err) {
        struct socket_place place;
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        json_t *body = json_pack("{s:s, s:s}", "op", "session.create", "session", names[0]), *answer = NULL;
        const struct daemon_request request = { .body = body };
        int code = body ? 0 : err_set(err, ERR_USAGE, "the session's name is not valid UTF-8");
        if (code == 0)
                code = run_options_check(&options->run, err);
        limit_note_print(&options->run.request);
        if (code == 0)
                code = session_request_put(options, body, err);
        if (code == 0)
                code = socket_place_choose(&options->run.where, true, &place, err);
        if (code == 0)
                code = daemon_client_open(&place, DAEMON_START, &client, err);
        if (code == 0)
                code = daemon_client_call(&client, &request, &answer, err);
        if (code == 0)
                code = options->run.request.json ? json_print_answer(answer, err) : print_created(answer);
        if (code == 0 && !options->run.request.json)
                session_request_warn(options, names[0], answer);
        json_decref(answer);
        json_decref(body);
        return code;
}

static int do_ls(struct daemon_client *client, const struct session_line *line, char **names, struct err *err) {
        (void) names;
        json_t *answer = NULL;
        if (daemon_client_ask(client, "session.list", NULL, &answer, err) < 0)
                return -1;
        const json_t *sessions = json_object_get(answer, "sessions");
        int code = 0;
        if (line->json)
                code = json_print_answer(answer, err);
        else if (line->names)
                session_print_names(sessions);
        else
                session_print_list(sessions);
        json_decref(answer);
        return code;
}

static int do_show(struct daemon_client *client, const struct session_line *line, char **names, struct err *err) {
        json_t *answer = NULL;
        if (daemon_client_ask(client, "session.show", names[0], &answer, err) < 0)
                return -1;
        int code = 0;
        if (line->json)
                code = json_print_answer(answer, err);
        else
                session_print_one(answer);
        json_decref(answer);
        return code;
}

/* The names of sessions in the operator's form, as an array of texts. With a key, only that key's. */
int session_list_names(struct daemon_client *client, const char *key, bool awake_only, json_t **ret_names,
                       struct err *err) {
        json_t *answer = NULL, *session;
        size_t i;
        if (daemon_client_ask(client, "session.list", NULL, &answer, err) < 0)
                return -1;
        *ret_names = json_array();
        json_array_foreach (json_object_get(answer, "sessions"), i, session) {
                const char *name = json_string_value(json_object_get(session, "name"));
                const char *owner = json_string_value(json_object_get(session, "key"));
                json_int_t pid = json_integer_value(json_object_get(session, "pid"));
                char text[140];
                if (!name || (key && (!owner || strcmp(owner, key) != 0)) || (awake_only && pid <= 0))
                        continue;
                (void) snprintf(text, sizeof(text), "%s%s%s", owner ? owner : "", owner ? "/" : "", name);
                (void) json_array_append_new(*ret_names, json_string(text));
        }
        json_decref(answer);
        return 0;
}

/* Every name is tried, and each that failed is reported: the last of them is the error. */
static int remove_named(struct daemon_client *client, const struct session_line *line, char **names, struct err *err) {
        int result = 0;
        for (; *names; names++) {
                json_t *body = json_pack("{s:s, s:s, s:b}", "op", "session.remove", "session", *names, "keep_files",
                                         line->keep_files),
                       *answer = NULL;
                struct err why = { 0 };
                int code = daemon_client_request(client, body, &answer, &why);
                if (code < 0 && result < 0)
                        (void) terminal_fail(err);
                if (code < 0)
                        *err = why;
                if (code == 0 && line->json)
                        code = json_print_answer(answer, err);
                result = code < 0 ? -1 : result;
                json_decref(answer);
        }
        return result;
}

static int remove_of_key(struct daemon_client *client, const struct session_line *line, struct err *err) {
        json_t *names = NULL, *name;
        size_t i;
        int code = session_list_names(client, line->key, false, &names, err);
        json_array_foreach (names, i, name) {
                char text[140], *one[] = { text, NULL };
                (void) snprintf(text, sizeof(text), "%s", json_string_value(name));
                if (code == 0)
                        code = remove_named(client, line, one, err);
        }
        if (code == 0 && !line->json)
                (void) printf("%zu sandbox%s of %s %s removed\n", json_array_size(names),
                              json_array_size(names) == 1 ? "" : "es", line->key,
                              json_array_size(names) == 1 ? "is" : "are");
        json_decref(names);
        return code;
}

static int do_rm(struct daemon_client *client, const struct session_line *line, char **names, struct err *err) {
        if (line->key && names[0])
                return err_set(err, ERR_USAGE, "session rm takes names or --key, not both");
        if (!line->key && !names[0])
                return err_set(err, ERR_USAGE, "session rm needs a session's name; \"glovebox session ls\" lists them");
        return line->key ? remove_of_key(client, line, err) : remove_named(client, line, names, err);
}

static int do_interrupt(struct daemon_client *client, const struct session_line *line, char **names, struct err *err) {
        json_t *answer = NULL;
        if (daemon_client_ask(client, "session.interrupt", names[0], &answer, err) < 0)
                return -1;
        int code = 0;
        bool interrupted = json_is_true(json_object_get(answer, "interrupted"));
        if (line->json)
                code = json_print_answer(answer, err);
        else
                (void) puts(interrupted ? "interrupted" : "nothing was running");
        json_decref(answer);
        return code;
}

static int do_restart(struct daemon_client *client, const struct session_line *line, char **names, struct err *err) {
        json_t *answer = NULL;
        if (daemon_client_ask(client, "session.restart", names[0], &answer, err) < 0)
                return -1;
        int code = line->json ? json_print_answer(answer, err) : 0;
        json_decref(answer);
        return code;
}

static int do_log(struct daemon_client *client, const struct session_line *line, char **names, struct err *err) {
        if (line->run)
                return process_follow_run(client, names[0], line->run, line->json, err);
        json_t *body = json_pack("{s:s, s:s, s:I}", "op", "session.log", "session", names[0], "limit",
                                 (json_int_t) line->limit),
               *answer = NULL;
        int code = daemon_client_request(client, body, &answer, err);
        if (code == 0 && line->json)
                code = json_print_answer(answer, err);
        else if (code == 0)
                session_print_runs(json_object_get(answer, "runs"));
        json_decref(answer);
        return code;
}

static int do_set(struct daemon_client *client, const struct session_line *line, char **names, struct err *err) {
        const struct limits *limits = &line->limits;
        json_t *body = json_pack("{s:s, s:s}", "op", "session.set", "session", names[0]), *answer = NULL;
        json_t *wanted = json_object();
        const struct {
                const char *key;
                uint64_t value;
        } numbers[] = { { "memory_bytes", limits->memory_bytes },
                        { "pids", limits->pids },
                        { "timeout_ms", limits->timeout_ms },
                        { "disk_bytes", limits->disk_bytes } };
        for (size_t i = 0; i < ELEMENTS(numbers); i++)
                if (numbers[i].value)
                        (void) json_object_set_new(wanted, numbers[i].key, json_integer((json_int_t) numbers[i].value));
        if (limits->cpu_thousandths)
                (void) json_object_set_new(wanted, "cpus", json_real((double) limits->cpu_thousandths / 1000));
        bool says_something = json_object_size(wanted) > 0;
        (void) json_object_set_new(body, "limits", wanted);
        const struct daemon_request request = { .body = body };
        int code = !body             ? err_set(err, ERR_USAGE, "the session's name is not valid UTF-8")
                   : !says_something ? err_set(err, ERR_USAGE,
                                               "session set: say what is to change, for example "
                                               "--memory 2g; --cpus, --pids, --timeout and --disk can change too")
                                     : daemon_client_call(client, &request, &answer, err);
        if (code == 0 && line->json)
                code = json_print_answer(answer, err);
        json_decref(answer);
        json_decref(body);
        return code;
}

/* ---- the words ---- */

/* In the order of session_parts. `new` has options of its own. */
/* Verbs that change a session start a daemon, as `exec` does. Those that only show sessions or runs start none: without
 * a daemon nothing runs. */
static const struct {
        int (*run)(struct daemon_client *client, const struct session_line *line, char **names, struct err *err);
        size_t min_names, max_names;
        unsigned open_flags;
} actions[SESSION_PARTS] = {
        { do_ls, 0, 0, 0 },
        { do_show, 1, 1, 0 },
        { NULL, 1, 1, 0 },
        { do_rm, 0, SIZE_MAX, DAEMON_START },
        { do_interrupt, 1, 1, 0 },
        { do_restart, 1, 1, 0 },
        { session_action_hibernate, 0, 1, 0 },
        { do_log, 1, 1, 0 },
        { session_action_install, 2, SIZE_MAX, DAEMON_START },
        { do_set, 1, 1, DAEMON_START },
        { session_action_move, 1, 1, DAEMON_START },
};

static int check_names(size_t part, char **names, struct err *err) {
        size_t count = 0;
        while (names[count])
                count++;
        const char *name = session_parts[part].name;
        if (count == 1 && actions[part].min_names == 2)
                return err_set(err, ERR_USAGE, "session %s needs a package as well, for example \"humanize\"", name);
        if (count < actions[part].min_names && !actions[part].run)
                return err_set(err, ERR_USAGE,
                               "session %s needs a name for the session, for example: glovebox session "
                               "%s demo",
                               name, name);
        if (count < actions[part].min_names)
                return err_set(err, ERR_USAGE, "session %s needs a session's name; \"glovebox session ls\" lists them",
                               name);
        if (count > actions[part].max_names)
                return err_set(err, ERR_USAGE, "session %s takes %s; leave \"%.60s\" out", name,
                               actions[part].max_names ? "one name" : "no name", names[actions[part].max_names]);
        return 0;
}

static int run_new(size_t part, char **args, struct err *err) {
        _cleanup_(session_options_release) struct session_options options = SESSION_OPTIONS_DEFAULT;
        struct option_rest rest;
        if (option_parse(&session_parts[part].options, &options, args, &rest, err) < 0)
                return -1;
        if (rest.help) {
                verb_print_part_help(stdout, verb_find("session"), &session_parts[part]);
                return 0;
        }
        return check_names(part, rest.operands, err) < 0 ? -1 : do_new(&options, rest.operands, err);
}

static int run_part(size_t part, char **args, struct err *err) {
        struct session_line line = { .limit = 20 };
        struct option_rest rest;
        struct socket_place place;
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        if (option_parse(&session_parts[part].options, &line, args, &rest, err) < 0)
                return -1;
        if (rest.help) {
                verb_print_part_help(stdout, verb_find("session"), &session_parts[part]);
                return 0;
        }
        if (check_names(part, rest.operands, err) < 0 || socket_place_choose(&line.where, true, &place, err) < 0 ||
            daemon_client_open(&place, actions[part].open_flags, &client, err) < 0)
                return -1;
        return actions[part].run(&client, &line, rest.operands, err);
}

/* Words of other tools, and verbs that stand elsewhere. */
static const struct {
        const char *typed, *instead;
} other_words[] = {
        { "attach", "glovebox repl NAME" },
        { "cp", "glovebox cp FILE NAME:" },
        { "exec", "glovebox exec NAME" },
        { "kill", "glovebox kill NAME, to end its run, or glovebox session rm NAME" },
        { "pause", "glovebox session hibernate NAME" },
        { "ps", "glovebox ps" },
        { "repl", "glovebox repl NAME" },
        { "run", "glovebox exec NAME" },
        { "stop", "glovebox session hibernate NAME, to keep its variables on disk, or glovebox session rm NAME" },
        { "top", "glovebox top" },
};

static const char *find_other_word(const char *word) {
        for (size_t i = 0; i < ELEMENTS(other_words); i++)
                if (strcmp(other_words[i].typed, word) == 0)
                        return other_words[i].instead;
        return NULL;
}

static int fail_unknown(const char *word, const char *name) {
        struct err err;
        struct suggestion near = { .word = word };
        for (size_t i = 0; i < SESSION_PARTS; i++)
                suggestion_consider(&near, session_parts[i].name);
        const char *best = suggestion_best(&near), *instead = find_other_word(word);
        if (instead)
                (void) err_set(&err, ERR_USAGE, "session: unknown verb \"%s\"; write: %s", word, instead);
        else if (strcmp(word, "wake") == 0 || strcmp(word, "start") == 0 || strcmp(word, "unpause") == 0)
                (void) err_set(&err, ERR_USAGE,
                               "session: there is no verb \"%s\": the next call wakes a session, for example "
                               "glovebox exec %.60s -c pass",
                               word, name ? name : "NAME");
        else if (best)
                (void) err_set(&err, ERR_USAGE, "session: unknown verb \"%.60s\"; did you mean \"%s\"?", word, best);
        else
                (void) err_set(&err, ERR_USAGE, "session: %s%.60s%s; \"glovebox session --help\" lists what there is",
                               *word ? "unknown verb \"" : "say what to do", word, *word ? "\"" : "");
        return terminal_fail(&err);
}

int verb_session(int argc, char **argv) {
        const char *word = argc > 1 ? argv[1] : "";
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
                verb_print_help(stdout, verb_find("session"));
                return 0;
        }
        for (size_t i = 0; i < SESSION_PARTS; i++) {
                if (!verb_part_is(session_parts[i].name, word))
                        continue;
                struct err err = { 0 };
                int status = actions[i].run ? run_part(i, argv + 2, &err) : run_new(i, argv + 2, &err);
                return status < 0 ? terminal_fail(&err) : status;
        }
        return fail_unknown(word, argc > 2 ? argv[2] : NULL);
}
