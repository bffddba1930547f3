#include "cli/run_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "box/spec.h"

enum { WORDS_MAX = 6 }; /* before the arguments */

void run_program_path(const struct run_request *request, char *ret_path, size_t room) {
        (void) snprintf(ret_path, room, BOX_CODE_DIR "/%s", request->code_name ? request->code_name : "");
}

/* The words between the interpreter and the arguments. */
static size_t put_words(const struct run_request *request, const char *path, const char **words) {
        bool is_shell = request->language == RUN_BASH;
        size_t n = 0;
        switch (request->source) {
        case RUN_FROM_TEXT:
                words[n++] = "-c";
                words[n++] = request->code;
                if (is_shell)
                        words[n++] = "bash"; /* $0 */
                break;
        case RUN_FROM_INPUT:
                words[n++] = is_shell ? "-s" : "-";
                if (is_shell)
                        words[n++] = "--";
                break;
        case RUN_FROM_FILE:
                if (request->interpreter_argument)
                        words[n++] = request->interpreter_argument;
                words[n++] = path;
                break;
        case RUN_FROM_MODULE:
                words[n++] = "-m";
                words[n++] = request->module;
                break;
        case RUN_FROM_COMMAND:
                break;
        }
        return n;
}

char **run_program_argv(const struct run_request *request, const char *interpreter, const char *path, struct err *err) {
        const char *words[WORDS_MAX];
        size_t n_args = 0, n = 0;
        while (request->args && request->args[n_args])
                n_args++;
        if (request->source != RUN_FROM_COMMAND)
                words[n++] = interpreter;
        n += put_words(request, path, words + n);
        char **argv = calloc(n + n_args + 1, sizeof(*argv));
        if (!argv) {
                (void) err_set(err, ERR_SYSTEM, "out of memory");
                return NULL;
        }
        for (size_t i = 0; i < n; i++)
                argv[i] = (char *) (uintptr_t) words[i];
        for (size_t i = 0; i < n_args; i++)
                argv[n + i] = request->args[i];
        return argv;
}

static size_t add_word(char *text, size_t room, size_t used, const char *word) {
        int n = used < room ? snprintf(text + used, room - used, "%s%s", used ? " " : "", word) : 0;
        return used + (n > 0 ? (size_t) n : 0);
}

void run_program_describe(const struct run_request *request, char *ret_text, size_t room) {
        size_t used = 0;
        *ret_text = '\0';
        if (request->source == RUN_FROM_MODULE) {
                used = add_word(ret_text, room, used, "-m");
                used = add_word(ret_text, room, used, request->module);
        } else if (request->source == RUN_FROM_TEXT && request->code) {
                const char *line = request->code + strspn(request->code, " \t\r\n");
                (void) snprintf(ret_text, room, "%.*s", (int) strcspn(line, "\r\n"), line);
        } else if (request->source == RUN_FROM_INPUT)
                used = add_word(ret_text, room, used, "(standard input)");
        else if (request->source == RUN_FROM_FILE)
                used = add_word(ret_text, room, used, request->script_name ? request->script_name : request->code_name);
        if (request->source != RUN_FROM_TEXT)
                for (size_t i = 0; request->args && request->args[i]; i++)
                        used = add_word(ret_text, room, used, request->args[i]);
        for (char *at = ret_text; *at; at++)
                if ((unsigned char) *at < ' ' || *at == 0x7f)
                        *at = ' ';
        /* Half a character is dropped. */
        while (*ret_text && !utf8_is_valid(ret_text, strlen(ret_text)))
                ret_text[strlen(ret_text) - 1] = '\0';
}
