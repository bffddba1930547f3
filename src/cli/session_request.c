#include "cli/session_request.h"
#include "box/policy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/box_rows.h"
#include "cli/exec_verb.h"
#include "cli/ui/terminal.h"

#define FIELD(field) offsetof(struct session_options, field)

static const struct option_choice languages[] = {
        { "python", RUN_PYTHON },
        { "bash", RUN_BASH },
        { "sh", RUN_BASH },
        { NULL, 0 },
};

static const struct option_choice modes[] = {
        { "fast", SESSION_MODE_FAST },
        { "fresh", SESSION_MODE_FRESH },
        { NULL, 0 },
};

#define CREATION_ROWS                                                                                                  \
        BOX_IMAGE_ROW(FIELD(run.request.image), UNSHOWN), BOX_ENV_ROW(FIELD(run.request)),                             \
                { .name = "mode",                                                                                      \
                  .kind = OPTION_CHOICE,                                                                               \
                  .offset = FIELD(mode),                                                                               \
                  .argument = "MODE",                                                                                  \
                  .group = "Code",                                                                                     \
                  .choices = modes,                                                                                    \
                  .help = "fast: forked from a warm interpreter; fresh: a new process with its own memory layout" },   \
                LIMIT_ROWS(FIELD(run.request.limits), UNSHOWN),                                                        \
                BOX_FILE_ROWS(FIELD(run.request), "the session has its own directory"),                                \
                BOX_NETWORK_ROWS(FIELD(run.request), UNSHOWN), BOX_ENGINE_ROWS(FIELD(run.request)),                    \
                { .name = "users",                                                                                     \
                  .kind = OPTION_FLAG,                                                                                 \
                  .offset = FIELD(users),                                                                              \
                  .group = "Isolation",                                                                                \
                  .help = "the session has root and other users, for exec --user; needs a daemon of root" },           \
                BOX_WEAKER_ROW(FIELD(run.request.allow_weaker))

#define JSON_ROW                                                                                                       \
        { .name = "json",                                                                                              \
          .kind = OPTION_FLAG,                                                                                         \
          .offset = FIELD(run.request.json),                                                                           \
          .group = "Output",                                                                                           \
          .help = "print JSON" }

static const struct option_row exec_rows[] = {
        { .name = "code",
          .letter = 'c',
          .kind = OPTION_CODE,
          .offset = FIELD(run.code_text),
          .argument = "CODE",
          .group = "Code",
          .once = true,
          .help = "run this text" },
        { .name = "language",
          .letter = 'l',
          .kind = OPTION_CHOICE,
          .offset = FIELD(run.language),
          .argument = "LANGUAGE",
          .group = "Code",
          .choices = languages,
          .help = "python, bash or sh; default: by the file's suffix (.py, .sh, .bash), else Python" },
        { .name = "user",
          .letter = 'u',
          .kind = OPTION_TEXT,
          .offset = FIELD(user),
          .argument = "USER",
          .group = "Code",
          .help = "run a command as this user of the session, which must have been made with --users" },
        CREATION_ROWS,
        JSON_ROW,
        { .name = "quiet",
          .letter = 'q',
          .kind = OPTION_FLAG,
          .offset = FIELD(run.request.quiet),
          .group = "Output",
          .help = "print only the program's output, its value, and errors" },
        SOCKET_ROWS(FIELD(run.where)),
};

/* Of docker exec. */
#define TERMINAL_HABIT "standard input and output are passed on always; for lines typed one by one: glovebox repl NAME"
#define WORKDIR_HABIT "a session is in /workspace; for a command: -- sh -c 'cd DIR && COMMAND'"
static const struct option_habit exec_habits[] = {
        { "it", TERMINAL_HABIT },     { "ti", TERMINAL_HABIT },
        { "i", TERMINAL_HABIT },      { "interactive", TERMINAL_HABIT },
        { "tty", TERMINAL_HABIT },    { "w", WORKDIR_HABIT },
        { "workdir", WORKDIR_HABIT }, { NULL, NULL },
};
const struct option_table exec_option_table = {
        .rows = exec_rows, .n_rows = ELEMENTS(exec_rows), .n_leading = 1, .habits = exec_habits
};

static const struct option_row repl_rows[] = {
        CREATION_ROWS,
        { .name = "quiet",
          .letter = 'q',
          .kind = OPTION_FLAG,
          .offset = FIELD(run.request.quiet),
          .group = "Output",
          .help = "print only the program's output, its value, and errors" },
        SOCKET_ROWS(FIELD(run.where)),
};
const struct option_table repl_option_table = { .rows = repl_rows,
                                                .n_rows = ELEMENTS(repl_rows),
                                                .operands_anywhere = true };

const struct option_row session_new_rows[] = { CREATION_ROWS, JSON_ROW, SOCKET_ROWS(FIELD(run.where)) };

_Static_assert(ELEMENTS(session_new_rows) == SESSION_NEW_ROWS, "the header says how many there are");
_Static_assert(ELEMENTS(exec_rows) <= OPTION_ROWS_MAX, "the parser remembers what it has seen in one word");

void session_options_release(struct session_options *options) {
        run_request_release(&options->run.request);
}

/* Takes `value`; a NULL one is text that is not UTF-8, or memory that ran out. */
static int put_field(json_t *object, const char *key, json_t *value, const char *what, struct err *err) {
        if (value && json_object_set_new(object, key, value) == 0)
                return 0;
        return err_set(err, ERR_USAGE, "%s is not valid UTF-8 text; rename it", what);
}

static int put_limits(const struct limits *limits, json_t *body, struct err *err) {
        json_t *object = json_object();
        const struct {
                const char *key;
                uint64_t value;
        } numbers[] = {
                { "memory_bytes", limits->memory_bytes }, { "pids", limits->pids },
                { "timeout_ms", limits->timeout_ms },     { "tmp_bytes", limits->tmp_bytes },
                { "disk_bytes", limits->disk_bytes },     { "disk_files", limits->disk_files },
        };
        for (size_t i = 0; i < ELEMENTS(numbers); i++)
                if (numbers[i].value)
                        (void) json_object_set_new(object, numbers[i].key, json_integer((json_int_t) numbers[i].value));
        if (limits->cpu_thousandths)
                (void) json_object_set_new(object, "cpus", json_real((double) limits->cpu_thousandths / 1000));
        if (json_object_size(object) > 0)
                return put_field(body, "limits", object, "a limit", err);
        json_decref(object);
        return 0;
}

static int put_env(const struct run_request *request, json_t *body, struct err *err) {
        if (request->n_env == 0)
                return 0;
        json_t *object = json_object();
        for (size_t i = 0; i < request->n_env; i++) {
                char *pair = request->env[i], *equals = strchr(pair, '=');
                _cleanup_free_ char *name = strndup(pair, (size_t) (equals - pair));
                if (!name || put_field(object, name, json_string(equals + 1), "a variable of --env", err) < 0) {
                        json_decref(object);
                        return -1;
                }
        }
        return put_field(body, "env", object, "--env", err);
}

static int put_path(json_t *object, const char *key, const char *what, const char *path, struct err *err) {
        _cleanup_free_ char *absolute = realpath(path, NULL);
        if (!absolute)
                return policy_fail_missing(path, errno, err);
        return put_field(object, key, json_string(absolute), what, err);
}

static int put_mounts(const struct run_request *request, json_t *body, struct err *err) {
        if (request->n_mounts == 0)
                return 0;
        json_t *array = json_array();
        for (size_t i = 0; i < request->n_mounts; i++) {
                const struct run_mount *mount = &request->mounts[i];
                json_t *object = json_object();
                int code = put_path(object, "source", "--mount", mount->source, err);
                if (code == 0)
                        code = put_field(object, "destination", json_string(mount->destination), "--mount", err);
                if (code == 0)
                        code = put_field(object, "writable", json_boolean(mount->writable), "--mount", err);
                (void) json_array_append_new(array, object);
                if (code < 0) {
                        json_decref(array);
                        return -1;
                }
        }
        return put_field(body, "mounts", array, "--mount", err);
}

static int put_network(const struct run_request *request, json_t *body, struct err *err) {
        if (request->network == RUN_NETWORK_FULL)
                return put_field(body, "network", json_string("full"), "--network", err);
        if (request->n_hosts == 0)
                return 0;
        json_t *hosts = json_array();
        for (size_t i = 0; i < request->n_hosts; i++)
                (void) json_array_append_new(hosts, json_string(request->hosts[i]));
        return put_field(body, "network", json_pack("{s:o}", "allow", hosts), "--allow-host", err);
}

static int put_texts(const struct session_options *options, json_t *body, struct err *err) {
        static const char *const mode_names[] = { NULL, "fast", "fresh" };
        const struct run_request *request = &options->run.request;
        const struct {
                const char *key, *value, *option;
        } texts[] = {
                { "image", request->image, "--image" },
                { "engine", request->engine, "--engine" },
                { "isolation", request->isolation, "--isolation" },
                { "mode", mode_names[options->mode], "--mode" },
        };
        for (size_t i = 0; i < ELEMENTS(texts); i++)
                if (texts[i].value &&
                    put_field(body, texts[i].key, json_string(texts[i].value), texts[i].option, err) < 0)
                        return -1;
        return 0;
}

/* A path on the command line carries its own permission, as with `run`: its user is the operator. */
static int put_paths(const struct run_request *request, json_t *body, struct err *err) {
        if (put_mounts(request, body, err) < 0 ||
            (request->workspace && put_path(body, "workspace", "--workspace", request->workspace, err) < 0) ||
            (request->data && put_path(body, "data", "--data", request->data, err) < 0))
                return -1;
        bool has_path = request->n_mounts || request->workspace || request->data;
        return has_path ? put_field(body, "operator", json_true(), "--mount", err) : 0;
}

int session_request_put(const struct session_options *options, json_t *body, struct err *err) {
        const struct run_request *request = &options->run.request;
        if (put_texts(options, body, err) < 0 || put_limits(&request->limits, body, err) < 0 ||
            put_env(request, body, err) < 0 || put_network(request, body, err) < 0 || put_paths(request, body, err) < 0)
                return -1;
        if (options->users && put_field(body, "users", json_true(), "--users", err) < 0)
                return -1;
        return request->allow_weaker ? put_field(body, "allow_weaker", json_true(), "--allow-weaker", err) : 0;
}

/* ---- what an existing session keeps ---- */

struct note {
        char words[300], settable[200]; /* "memory, env"; " --memory 1g" */
        bool has_others;                /* some that `session set` cannot change */
};

/* As an option takes it: "1g", "1536m", "1000". */
static const char *format_size(uint64_t bytes, char ret_text[static 32]) {
        static const struct {
                uint64_t bytes;
                const char *unit;
        } units[] = { { GIB, "g" }, { MIB, "m" }, { 1 << 10, "k" }, { 1, "" } };
        size_t i = 0;
        while (bytes % units[i].bytes)
                i++;
        (void) snprintf(ret_text, 32, "%" PRIu64 "%s", bytes / units[i].bytes, units[i].unit);
        return ret_text;
}

/* The option of `session set` that does what was asked for, or "". */
static void find_option(const struct limits *limits, const char *key, char ret_option[static 64]) {
        char size[32];
        ret_option[0] = '\0';
        if (strcmp(key, "memory_bytes") == 0)
                (void) snprintf(ret_option, 64, " --memory %s", format_size(limits->memory_bytes, size));
        else if (strcmp(key, "disk_bytes") == 0)
                (void) snprintf(ret_option, 64, " --disk %s", format_size(limits->disk_bytes, size));
        else if (strcmp(key, "cpus") == 0)
                (void) snprintf(ret_option, 64, " --cpus %g", (double) limits->cpu_thousandths / 1000);
        else if (strcmp(key, "pids") == 0)
                (void) snprintf(ret_option, 64, " --pids %" PRIu64, limits->pids);
        else if (strcmp(key, "timeout_ms") == 0)
                (void) snprintf(ret_option, 64, " --timeout %" PRIu64 "ms", limits->timeout_ms);
}

static void note_add(struct note *note, const struct limits *limits, const char *key) {
        const char *unit = strstr(key, "_bytes"); /* shown as memory, not memory_bytes; the same for _ms */
        size_t used = strlen(note->words);
        char option[64];
        if (!unit)
                unit = strstr(key, "_ms");
        (void) snprintf(note->words + used, sizeof(note->words) - used, "%s%.*s", used ? ", " : "",
                        unit ? (int) (unit - key) : 100, key);
        find_option(limits, key, option);
        used = strlen(note->settable);
        (void) snprintf(note->settable + used, sizeof(note->settable) - used, "%s", option);
        note->has_others |= !*option;
}

void session_request_warn(const struct session_options *options, const char *name, const json_t *answer) {
        const json_t *unchanged = json_object_get(answer, "unchanged");
        struct note note = { 0 };
        for (size_t i = 0; i < json_array_size(unchanged); i++) {
                const char *key = json_string_value(json_array_get(unchanged, i));
                if (key)
                        note_add(&note, &options->run.request.limits, key);
        }
        if (!*note.words)
                return;
        terminal_make_harmless(note.words);
        (void) fprintf(stderr, "glovebox: session %s is there already and stays as it was made; not changed: %s", name,
                       note.words);
        if (note.has_others)
                (void) fprintf(stderr,
                               "; use another name, or remove it with its variables and files first: glovebox session "
                               "rm %s",
                               name);
        if (*note.settable)
                (void) fprintf(stderr, "; to change %s and keep its variables: glovebox session set %s%s",
                               note.has_others ? "limits" : "that", name, note.settable);
        (void) fputc('\n', stderr);
}
