#include "cli/run_program.h"

#include <stdio.h>
#include <stdlib.h>

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
