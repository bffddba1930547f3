#include "cli/run_code.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "image/store.h"

enum { SHELL_TEXT_MAX = 100 << 10 }; /* one argument may not be much longer */

static const struct {
        const char *ending;
        enum run_language language;
        const char *interpreter;
} endings[] = {
        { ".py", RUN_PYTHON, NULL },    { ".sh", RUN_BASH, NULL },      { ".bash", RUN_BASH, NULL },
        { ".js", RUN_OTHER, "node" },   { ".mjs", RUN_OTHER, "node" },  { ".cjs", RUN_OTHER, "node" },
        { ".R", RUN_OTHER, "Rscript" }, { ".r", RUN_OTHER, "Rscript" }, { ".rb", RUN_OTHER, "ruby" },
        { ".pl", RUN_OTHER, "perl" },
};

static bool choose_by_ending(struct run_request *request, const char *name) {
        const char *ending = strrchr(name, '.');
        for (size_t i = 0; ending && i < ELEMENTS(endings); i++)
                if (strcmp(ending, endings[i].ending) == 0) {
                        request->language = endings[i].language;
                        (void) snprintf(request->interpreter, sizeof(request->interpreter), "%s",
                                        endings[i].interpreter ? endings[i].interpreter : "");
                        return true;
                }
        return false;
}

/* The interpreter's path in "#!/path/to/NAME [ARGUMENT]" or "#!/usr/bin/env [-S] NAME", or NULL; `line` is what follows
 * the "#!", and is cut up. */
static char *find_interpreter(char *line, char **rest, const char **ret_name) {
        char *path = strtok_r(line, " \t", rest);
        const char *slash = path ? strrchr(path, '/') : NULL;
        *ret_name = slash ? slash + 1 : path;
        if (!path || strcmp(*ret_name, "env") != 0)
                return path;
        path = strtok_r(NULL, " \t", rest);
        if (path && strcmp(path, "-S") == 0)
                path = strtok_r(NULL, " \t", rest);
        *ret_name = path;
        return path;
}

/* Python and shells are those of the image, wherever they are. */
static void choose_interpreter(struct run_request *request, const char *name, const char *path) {
        static const char *const shells[] = { "sh", "bash", "dash" };
        for (size_t i = 0; i < ELEMENTS(shells); i++)
                if (strcmp(name, shells[i]) == 0)
                        request->language = RUN_BASH;
        if (strncmp(name, "python", 6) == 0 || request->language == RUN_BASH)
                return;
        request->language = RUN_OTHER;
        (void) snprintf(request->interpreter, sizeof(request->interpreter), "%s", path);
}

static int choose_by_first_line(struct run_request *request, struct err *err) {
        char line[256], *rest = NULL;
        const char *name;
        if (request->code_size < 2 || strncmp(request->code, "#!", 2) != 0)
                return 0;
        (void) snprintf(line, sizeof(line), "%.*s", (int) strcspn(request->code + 2, "\r\n"), request->code + 2);
        const char *path = find_interpreter(line, &rest, &name);
        if (!path)
                return 0;
        choose_interpreter(request, name, path);
        while (rest && (*rest == ' ' || *rest == '\t'))
                rest++;
        if (!rest || !*rest)
                return 0;
        request->interpreter_argument = request->owned_argument = strdup(rest);
        return request->owned_argument ? 0 : err_set(err, ERR_SYSTEM, "out of memory");
}

/* `shown` is its name in messages. */
static int read_code(struct run_request *request, int fd, const char *shown, struct err *err) {
        struct stat status;
        if (fstat(fd, &status) < 0)
                return err_sys(err, errno, "cannot read %.300s", shown);
        if (S_ISDIR(status.st_mode))
                return err_set(err, ERR_USAGE,
                               "%.300s is a directory; name a file in it, or give the directory with "
                               "--workspace or --mount",
                               shown);
        int code = fd_read_to_end(fd, RUN_CODE_MAX_BYTES, &request->owned_code, &request->code_size);
        if (code == -E2BIG)
                return err_set(err, ERR_USAGE,
                               "%.300s is larger than %d MiB, too large for code; pass data with --data or --mount",
                               shown, RUN_CODE_MAX_BYTES >> 20);
        if (code < 0)
                return err_sys(err, -code, "cannot read %.300s", shown);
        request->code = request->owned_code;
        const char *nul = memchr(request->code, '\0', request->code_size);
        if (nul && memmem(request->code, request->code_size, "PK\003\004", 4))
                return err_set(err, ERR_USAGE,
                               "%.300s is a zip archive, not source text; show its directory and run it as a command: "
                               "--data DIRECTORY -- python3 /data/%s",
                               shown, basename(shown));
        if (nul)
                return err_set(err, ERR_USAGE,
                               "%.300s has a NUL byte at offset %zu, so it is not source text; check that "
                               "it is the right file and is saved as UTF-8",
                               shown, (size_t) (nul - request->code));
        return 0;
}

/* Common mistakes: a command or code instead of a file, an interpreter before its file, -v as in docker. */
static int refuse_missing(const char *path, struct err *err) {
        static const char *const mounted[] = { "/", "./", "../", "~/" };
        if (strcmp(path, "python3") == 0 || strcmp(path, "python") == 0)
                return err_set(err, ERR_USAGE,
                               "there is no file %s; leave \"%s\" out: Python runs a FILE, -c CODE and -m MODULE by "
                               "default",
                               path, path);
        for (size_t i = 0; strchr(path, ':') && i < ELEMENTS(mounted); i++)
                if (strncmp(path, mounted[i], strlen(mounted[i])) == 0)
                        return err_set(err, ERR_USAGE,
                                       "there is no file %.300s; to mount a directory write --mount %.300s", path,
                                       path);
        if (strpbrk(path, "(=\n\"'"))
                return err_set(err, ERR_USAGE, "there is no file %.300s; if it is code, write -c before it", path);
        if (!strpbrk(path, "/."))
                return err_set(err, ERR_USAGE,
                               "there is no file %.300s; to run the command write -- before it: -- %.300s; to run code "
                               "write -c CODE",
                               path, path);
        return err_set(err, ERR_USAGE,
                       "there is no file %.300s; to run code write -c CODE, to run a command of the image write -- "
                       "COMMAND",
                       path);
}

static int read_file(struct run_request *request, const char *path, struct err *err) {
        if (*path == '\0')
                return err_set(err, ERR_USAGE, "the name of the file to run is empty; give a file, or -c CODE");
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (fd < 0 && errno == ENOENT)
                return refuse_missing(path, err);
        if (fd < 0 && errno == EACCES)
                return err_set(err, ERR_PERMISSION, "you may not read %.300s; \"ls -l\" shows who may", path);
        if (fd < 0)
                return err_sys(err, errno, "cannot read %.300s", path);
        return read_code(request, fd, path, err);
}

static void name_code(struct run_options *options, const char *path) {
        struct run_request *request = &options->request;
        const char *slash = strrchr(path, '/');
        request->code_name = slash ? slash + 1 : path;
}

/* Text and standard input have no name: without --language they are Python. */
static void choose_plain_language(struct run_options *options, enum run_source source) {
        options->request.language =
                options->language == RUN_LANGUAGE_BY_NAME ? RUN_PYTHON : (enum run_language) options->language;
        options->request.source = source;
}

#define MAIN_NAME "__main__.py"

/* As in python3: a directory means the __main__.py in it. */
static char *find_main(const char *path) {
        struct stat status;
        char *main = NULL;
        if (stat(path, &status) == 0 && S_ISDIR(status.st_mode) && asprintf(&main, "%s/" MAIN_NAME, path) < 0)
                return NULL;
        if (main && access(main, F_OK) < 0) {
                free(main);
                return NULL;
        }
        return main;
}

/* JSON is nearly Python: some notebooks would end without an error, and without having run. */
static int refuse_notebook(const struct run_request *request, const char *path, struct err *err) {
        size_t size = strlen(path);
        if (size < 6 || strcmp(path + size - 6, ".ipynb") != 0 || request->code_size == 0 ||
            request->code[strspn(request->code, " \t\r\n")] != '{')
                return 0;
        return err_set(err, ERR_USAGE,
                       "%.300s is a notebook, not a program; convert it first: jupyter nbconvert --to script %.300s",
                       path, path);
}

static int choose_file(struct run_options *options, const char *path, struct err *err) {
        struct run_request *request = &options->request;
        request->source = RUN_FROM_FILE;
        request->is_alone = options->alone;
        name_code(options, path);
        _cleanup_free_ char *main = find_main(path);
        if (main) {
                request->code_name = MAIN_NAME;
                path = main;
        }
        if (read_file(request, path, err) < 0 || refuse_notebook(request, path, err) < 0)
                return -1;
        if (options->language != RUN_LANGUAGE_BY_NAME)
                request->language = (enum run_language) options->language;
        else if (!choose_by_ending(request, path) && choose_by_first_line(request, err) < 0)
                return -1;
        struct stat status;
        request->code_source = realpath(path, NULL);
        if (!request->code_source || stat(request->code_source, &status) < 0 || !S_ISREG(status.st_mode)) {
                free(request->code_source);
                request->code_source = NULL;
                request->is_alone = request->needs_own_box = true;
                return RUN_CODE_CHOSEN;
        }
        /* A link's neighbours are those of the file that it leads to, as for Python. */
        request->code_name = request->script_name = strdup(strrchr(request->code_source, '/') + 1);
        return request->script_name ? RUN_CODE_CHOSEN : err_set(err, ERR_SYSTEM, "out of memory");
}

static int choose_command(struct run_options *options, char **words, struct err *err) {
        if (!*words && strcmp(options->request.image, IMAGE_HOST) == 0)
                return err_set(err, ERR_USAGE, "no command follows --; write for example: -- gcc --version");
        if (*words && **words == '\0')
                return err_set(err, ERR_USAGE, "the command after -- is empty; name a command of the image");
        if (options->language != RUN_LANGUAGE_BY_NAME)
                return err_set(err, ERR_USAGE, "--language is for code, and %.60s is a command; leave one of them out",
                               *words ? *words : "--");
        options->request.language = RUN_COMMAND;
        options->request.source = RUN_FROM_COMMAND;
        options->request.args = words;
        return RUN_CODE_CHOSEN;
}

static int choose_text(struct run_options *options) {
        options->request.code = options->code_text;
        options->request.code_size = strlen(options->code_text);
        choose_plain_language(options, RUN_FROM_TEXT);
        return RUN_CODE_CHOSEN;
}

static int choose_module(struct run_options *options, struct err *err) {
        if (options->language != RUN_LANGUAGE_BY_NAME && options->language != RUN_PYTHON)
                return err_set(err, ERR_USAGE, "-m names a Python module; leave --language out");
        options->request.module = options->module;
        choose_plain_language(options, RUN_FROM_MODULE);
        return RUN_CODE_CHOSEN;
}

/* Reads standard input: `is_named` by "-", or because nothing else was given. */
static int choose_input(struct run_options *options, bool is_named, struct err *err) {
        struct run_request *request = &options->request;
        choose_plain_language(options, RUN_FROM_INPUT);
        request->stdin_is_code = true;
        if (read_code(request, STDIN_FILENO, "standard input", err) < 0)
                return -1;
        if (!is_named && request->code_size == 0)
                return err_set(err, ERR_USAGE,
                               "no code was given and standard input is empty; give -c CODE, a file, or -- COMMAND");
        if (request->language == RUN_BASH && request->code_size < SHELL_TEXT_MAX)
                request->source = RUN_FROM_TEXT; /* otherwise commands that read would read the script */
        return RUN_CODE_CHOSEN;
}

int run_code_choose(struct run_options *options, const struct option_rest *rest, struct err *err) {
        struct run_request *request = &options->request;
        char **words = rest->operands;
        request->args = words;
        if (options->alone && (options->code_text || options->module || rest->after_dashes || !*words))
                return err_set(err, ERR_USAGE, "--alone is for a script: name its file");
        if (options->code_text)
                return choose_text(options);
        if (options->module)
                return choose_module(options, err);
        if (rest->after_dashes)
                return choose_command(options, words, err);
        if (!*words)
                return isatty(STDIN_FILENO) ? RUN_CODE_NONE : choose_input(options, false, err);
        request->args = words + 1;
        return strcmp(*words, "-") == 0 ? choose_input(options, true, err) : choose_file(options, *words, err);
}
