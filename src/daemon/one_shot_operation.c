/* One-shot runs: a request brings code or a command, its input and its files; its box is removed at the end. */
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/memory.h"
#include "daemon/operation.h"
#include "session/caller.h"

enum { FILES_MAX = 100, FILE_NAME_MAX = 255 };

/* ---- files ---- */

/* "a/b.csv": below the workspace, without "..", "." or empty parts. */
static bool is_file_name(const char *name) {
        size_t length = strlen(name);
        if (length == 0 || length > FILE_NAME_MAX)
                return false;
        for (const char *part = name;; part++) {
                size_t size = strcspn(part, "/");
                if (size == 0 || (size == 1 && part[0] == '.') || (size == 2 && strncmp(part, "..", 2) == 0))
                        return false;
                part += size;
                if (!*part)
                        return true;
        }
}

static bool is_base64(const json_t *value) {
        const char *text = json_string_value(value);
        size_t size = json_string_length(value), ret_size;
        _cleanup_free_ char *bytes = text ? malloc(size / 4 * 3 + 3) : NULL;
        return bytes && base64_decode(text, size, bytes, &ret_size) == 0;
}

static int check_files(json_t *files, struct err *err) {
        const char *name;
        json_t *content;
        if (!files)
                return 0;
        if (!json_is_object(files) || json_object_size(files) > FILES_MAX)
                return err_set(err, ERR_USAGE, "\"files\" must be an object with at most %d files", FILES_MAX);
        json_object_foreach (files, name, content) {
                if (!is_file_name(name))
                        return err_set(err, ERR_USAGE,
                                       "\"%.60s\" is not a file name; write a path below /workspace, such as "
                                       "\"data/a.csv\"",
                                       name);
                if (!json_is_string(content) &&
                    (json_object_size(content) != 1 || !is_base64(json_object_get(content, "base64"))))
                        return err_set(err, ERR_USAGE, "the file \"%.60s\" must be a text, or {\"base64\": \"…\"}",
                                       name);
        }
        return 0;
}

int one_shot_check(const struct run_request *request, struct err *err) {
        if (!request->is_ephemeral && (request->is_one_shot || request->wants_contents))
                return err_set(err, ERR_USAGE, "\"one_shot\" and \"contents\" are for ephemeral runs");
        return check_files(request->files, err);
}

/* ---- what is run ---- */

static int check_texts(const json_t *list, const char *name, struct err *err) {
        size_t i;
        json_t *text;
        if (list && !json_is_array(list))
                return err_set(err, ERR_USAGE, "\"%s\" must be a list of texts", name);
        json_array_foreach (list, i, text)
                if (!json_is_string(text))
                        return err_set(err, ERR_USAGE, "\"%s\" must be a list of texts", name);
        return 0;
}

/* ret_is_shell: the code is not Python. */
static int read_language(const struct run_request *request, bool *ret_is_shell, struct err *err) {
        const char *language = request->language ? request->language : "python";
        *ret_is_shell = strcmp(language, "bash") == 0 || strcmp(language, "sh") == 0;
        if (!*ret_is_shell && strcmp(language, "python") != 0)
                return err_set(err, ERR_USAGE, "the language \"%.40s\" is not known; write python, bash or sh",
                               language);
        return 0;
}

static int check_whole(const struct run_request *request, bool is_python, struct err *err) {
        if ((request->code != NULL) + (request->shell != NULL) + (request->argv != NULL) != 1)
                return err_set(err, ERR_USAGE, "give one of \"code\", \"command\" and \"argv\"");
        if (!request->code && (request->args || request->language))
                return err_set(err, ERR_USAGE, "\"args\" and \"language\" belong to \"code\"");
        if (is_python && (request->cwd || request->user))
                return err_set(err, ERR_USAGE, "\"cwd\" and \"user\" are for commands and bash, not for Python");
        if (request->detach)
                return err_set(err, ERR_USAGE,
                               "this run cannot be detached: its box is gone at its end, and it could not be read "
                               "later; detach a run of a sandbox");
        return 0;
}

/* `bash -c CODE bash ARGS`, with the shell that the image has. A new reference. */
static json_t *shell_words(const struct run_request *request) {
        json_t *words = json_pack("[s, s, s%, s]", "", "-c", request->code, request->code_size, "bash"), *word;
        size_t i;
        json_array_foreach (request->args, i, word)
                (void) json_array_append(words, word);
        return words;
}

int operation_one_shot(struct caller *caller, const struct run_request *request, struct err *err) {
        struct run_request run = *request;
        bool is_shell;
        caller_begin(caller, request->code ? "execute" : "command", NULL);
        if (read_language(request, &is_shell, err) < 0 || check_whole(request, request->code && !is_shell, err) < 0 ||
            check_texts(request->args, "args", err) < 0 || check_texts(request->argv, "argv", err) < 0)
                return -1;
        run.is_ephemeral = run.is_one_shot = run.cancel_on_disconnect = true;
        run.stdin_text = request->stdin_text ? request->stdin_text : "";
        if (!run.code)
                return operation_command(caller, &run, err);
        if (!is_shell)
                return operation_execute(caller, &run, err);
        run.argv = shell_words(request);
        run.code = NULL;
        int code =
                run.argv ? operation_command(caller, &run, err) : err_set(err, ERR_USAGE, "the code is not UTF-8 text");
        json_decref(run.argv);
        return code;
}
