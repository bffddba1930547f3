/* `glovebox repl NAME`: lines typed by a person, run in a session one after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/data_dir.h"
#include "base/memory.h"
#include "cli/exec_verb.h"
#include "cli/session_request.h"
#include "cli/ui/line_editor.h"
#include "cli/ui/terminal.h"
#include "cli/verb.h"
#include "client/daemon_client.h"

enum { BLOCK_MAX = 1 << 20, COMPLETION_WAIT_MS = 3000 };

struct repl {
        struct session_options *options;
        const char *session;
        struct socket_place place;
};

/* ---- completion: the kernel has the names ---- */

struct collected {
        char bytes[16 << 10];
        size_t size;
};

static int repl_collect(void *context, enum message_type type, const char *bytes, size_t size) {
        struct collected *collected = context;
        size_t room = sizeof(collected->bytes) - collected->size - 2;
        if (type == MESSAGE_OUT) {
                size = size < room ? size : room;
                memcpy(collected->bytes + collected->size, bytes, size);
                collected->size += size;
        }
        return 0;
}

/* Of a dotted name. */
static bool is_name_byte(char c) {
        return c == '_' || c == '.' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

/* Runs the code in the session and keeps what it prints. */
static void ask_session(const struct repl *repl, const char *code, struct collected *collected) {
        json_t *body = json_pack("{s:s, s:s, s:s, s:b, s:b}", "op", "execute", "session", repl->session, "code", code,
                                 "stream", 1, "store_history", 0),
               *answer = NULL;
        const struct daemon_request request = { .body = body,
                                                .timeout_ms = COMPLETION_WAIT_MS,
                                                .calls = { .output = repl_collect, .context = collected } };
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        struct err ignored;
        if (body && daemon_client_open(&repl->place, 0, &client, &ignored) == 0)
                (void) daemon_client_call(&client, &request, &answer, &ignored);
        json_decref(answer);
        json_decref(body);
}

static char *repl_complete(void *context, const char *text, size_t *ret_size) {
        const char *word = text + strlen(text);
        while (word > text && is_name_byte(word[-1]))
                word--;
        char code[600];
        if (strlen(word) == 0 || strlen(word) > 200)
                return NULL;
        (void) snprintf(code, sizeof(code),
                        "__import__('glovebox_kernel.complete', fromlist=['complete']).complete('%s')", word);
        _cleanup_free_ struct collected *collected = calloc(1, sizeof(*collected));
        if (!collected)
                return NULL;
        ask_session(context, code, collected);
        char *words = calloc(1, collected->size + 2);
        for (size_t i = 0; words && i < collected->size; i++) { /* code in the box chose these bytes */
                char c = collected->bytes[i];
                words[i] = c == '\n' ? '\0' : is_name_byte(c) ? c : '?';
        }
        *ret_size = strlen(word);
        return words;
}

/* ---- one block ---- */

/* The end of the string that begins here. NULL: a string of several lines is still open. */
static const char *skip_string(const char *at) {
        char quote = *at;
        bool is_long = at[1] == quote && at[2] == quote;
        for (at += is_long ? 3 : 1; *at; at++) {
                if (*at == '\\' && at[1])
                        at++;
                else if (is_long && at[0] == quote && at[1] == quote && at[2] == quote)
                        return at + 3;
                else if (!is_long && (*at == quote || *at == '\n'))
                        return at + 1;
        }
        return is_long ? NULL : at;
}

/* True if brackets or a string of several lines are still open. */
static bool is_open(const char *code) {
        int depth = 0;
        for (const char *at = code; *at;) {
                if (*at == '"' || *at == '\'') {
                        at = skip_string(at);
                        if (!at)
                                return true;
                } else if (*at == '#') {
                        at += strcspn(at, "\n");
                } else {
                        depth += strchr("([{", *at) ? 1 : strchr(")]}", *at) ? -1 : 0;
                        at++;
                }
        }
        return depth > 0;
}

/* True if a line ends with ":" or begins with "@". Such a block ends at an empty line, as in Python. */
static bool has_block(const char *code) {
        for (const char *line = code; *line;) {
                size_t size = strcspn(line, "\n"), end = size;
                while (end > 0 && (line[end - 1] == ' ' || line[end - 1] == '\t'))
                        end--;
                if (end > 0 && (line[end - 1] == ':' || line[0] == '@'))
                        return true;
                line += size + (line[size] == '\n');
        }
        return false;
}

static bool wants_more(const char *code) {
        size_t size = strlen(code);
        bool is_continued = size > 0 && code[size - 1] == '\\';
        return is_open(code) || is_continued || strncmp(code, "%%", 2) == 0 || has_block(code);
}

/* A block, to be freed; NULL at the end. An interrupted one is "". */
static char *read_block(struct line_editor *editor, const char *first_prompt, const char *next_prompt) {
        char *code = calloc(1, BLOCK_MAX);
        size_t used = 0;
        for (bool first = true; code; first = false) {
                _cleanup_free_ char *line = NULL;
                enum line_result result = line_editor_read(editor, first ? first_prompt : next_prompt, &line);
                if (result == LINE_END && used == 0) {
                        free(code);
                        return NULL;
                }
                if (result == LINE_INTERRUPTED) {
                        code[0] = '\0';
                        return code;
                }
                if (result == LINE_END || used + strlen(line) + 2 > BLOCK_MAX)
                        return code;
                line_editor_remember(editor, line);
                bool is_empty = !line[strspn(line, " \t")];
                used += (size_t) snprintf(code + used, BLOCK_MAX - used, "%s%s", first ? "" : "\n", line);
                if (is_empty || !wants_more(code))
                        return code;
        }
        return NULL;
}

static bool is_exit(const char *code) {
        static const char *const words[] = { "exit", "quit", "exit()", "quit()" };
        for (size_t i = 0; i < ELEMENTS(words); i++)
                if (strcmp(code, words[i]) == 0)
                        return true;
        return false;
}

static int converse(struct repl *repl, struct line_editor *editor, struct err *err) {
        bool person = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
        if (person)
                (void) printf("session %s; Tab completes, exit or Ctrl-D leaves it as it is\n", repl->session);
        int status = 0;
        for (char *code; (code = read_block(editor, ">>> ", "... ")); free(code)) {
                struct run_request *request = &repl->options->run.request;
                if (!code[strspn(code, " \t\n")])
                        continue;
                if (is_exit(code)) {
                        free(code);
                        break;
                }
                request->code = code;
                request->code_size = strlen(code);
                status = exec_run_or_install(repl->options, repl->session, err);
                if (status < 0) {
                        free(code);
                        return -1;
                }
        }
        return person ? 0 : status;
}

int verb_repl(int argc, char **argv) {
        (void) argc;
        _cleanup_(session_options_release) struct session_options options = SESSION_OPTIONS_DEFAULT;
        struct option_rest rest;
        struct err err = { 0 };
        char data_dir[DATA_DIR_PATH_MAX], history[DATA_DIR_PATH_MAX + 32] = "";
        if (option_parse(&repl_option_table, &options, argv + 1, &rest, &err) < 0)
                return terminal_fail(&err);
        if (rest.help) {
                verb_print_help(stdout, verb_find("repl"));
                return 0;
        }
        if (!rest.operands[0] || rest.operands[1]) {
                (void) err_set(&err, ERR_USAGE, "repl needs one session's name: glovebox repl demo");
                return terminal_fail(&err);
        }
        struct repl repl = { .options = &options, .session = rest.operands[0] };
        struct line_editor editor = { .complete = repl_complete, .context = &repl };
        char *no_arguments[] = { NULL };
        options.run.code_text = ""; /* nothing is a file here */
        options.run.request.language = RUN_PYTHON;
        options.run.request.args = no_arguments;
        options.run.request.code = "";
        options.run.request.stdin_is_code = !isatty(STDIN_FILENO);
        int status = run_options_check(&options.run, &err);
        if (status == 0)
                status = socket_place_choose(&options.run.where, true, &repl.place, &err);
        if (status == 0 && data_dir_open(data_dir, NULL) == 0)
                (void) snprintf(history, sizeof(history), "%s/repl-history", data_dir);
        if (status == 0) {
                line_editor_open(&editor, isatty(STDIN_FILENO) ? history : "");
                status = exec_run(&options, repl.session, &err); /* makes the session, and prints any error */
        }
        if (status == 0)
                status = converse(&repl, &editor, &err);
        line_editor_close(&editor);
        return status < 0 ? terminal_fail(&err) : status;
}
