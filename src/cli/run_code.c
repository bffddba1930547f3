#include "cli/run_code.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

static int language_of_name(const char *name) {
        const char *ending = strrchr(name, '.');
        return ending && (strcmp(ending, ".sh") == 0 || strcmp(ending, ".bash") == 0) ? RUN_BASH : RUN_PYTHON;
}

/* `shown` is what the messages call it. */
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
                               "%.300s is larger than %d MiB, too large for code; pass data with --data or "
                               "--mount",
                               shown, RUN_CODE_MAX_BYTES >> 20);
        if (code < 0)
                return err_sys(err, -code, "cannot read %.300s", shown);
        request->code = request->owned_code;
        const char *nul = memchr(request->code, '\0', request->code_size);
        if (nul)
                return err_set(err, ERR_USAGE,
                               "%.300s has a NUL byte at offset %zu, so it is not source text; check that "
                               "it is the right file and is saved as UTF-8",
                               shown, (size_t) (nul - request->code));
        return 0;
}

static int read_file(struct run_request *request, const char *path, struct err *err) {
        if (*path == '\0')
                return err_set(err, ERR_USAGE, "the name of the file to run is empty; give a file, or -c CODE");
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (fd < 0 && errno == ENOENT)
                return err_set(err, ERR_NOT_FOUND,
                               "there is no file %.300s; to run code write -c CODE, to run a command "
                               "of the image write -- COMMAND",
                               path);
        if (fd < 0 && errno == EACCES)
                return err_set(err, ERR_PERMISSION, "you may not read %.300s; \"ls -l\" shows who may", path);
        if (fd < 0)
                return err_sys(err, errno, "cannot read %.300s", path);
        return read_code(request, fd, path, err);
}

static int read_stdin(struct run_request *request, struct err *err) {
        request->stdin_is_code = true;
        return read_code(request, STDIN_FILENO, "standard input", err);
}

static void name_code(struct run_options *options, const char *path) {
        struct run_request *request = &options->request;
        int language = options->language;
        if (language == RUN_LANGUAGE_BY_NAME)
                language = path ? language_of_name(path) : RUN_PYTHON;
        request->language = (enum run_language) language;
        const char *slash = path ? strrchr(path, '/') : NULL;
        if (path)
                request->code_name = slash ? slash + 1 : path;
        else
                request->code_name = language == RUN_BASH ? "main.sh" : "main.py";
}

static int choose_command(struct run_options *options, char **words, struct err *err) {
        if (!*words)
                return err_set(err, ERR_USAGE,
                               "no command follows --; write for example: -- gcc --version");
        if (**words == '\0')
                return err_set(err, ERR_USAGE, "the command after -- is empty; name a command of the image");
        if (options->language != RUN_LANGUAGE_BY_NAME)
                return err_set(err, ERR_USAGE, "--language is for code, and %.60s is a command; leave one of them out",
                               *words);
        options->request.language = RUN_COMMAND;
        options->request.args = words;
        return RUN_CODE_CHOSEN;
}

int run_code_choose(struct run_options *options, const struct option_rest *rest, struct err *err) {
        struct run_request *request = &options->request;
        char **words = rest->operands;
        request->args = words;
        if (options->code_text) {
                request->code = options->code_text;
                request->code_size = strlen(options->code_text);
                name_code(options, NULL);
                return RUN_CODE_CHOSEN;
        }
        if (rest->after_dashes)
                return choose_command(options, words, err);
        if (*words && strcmp(*words, "-") != 0) {
                name_code(options, *words);
                request->args = words + 1;
                return read_file(request, *words, err) < 0 ? -1 : RUN_CODE_CHOSEN;
        }
        if (!*words && isatty(STDIN_FILENO))
                return RUN_CODE_NONE;
        if (*words)
                request->args = words + 1;
        name_code(options, NULL);
        if (read_stdin(request, err) < 0)
                return -1;
        if (!*words && request->code_size == 0)
                return err_set(err, ERR_USAGE,
                               "no code was given and standard input is empty; give -c CODE, a file, or "
                               "-- COMMAND");
        return RUN_CODE_CHOSEN;
}
