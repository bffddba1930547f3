#include "cli/run_hint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "box/spec.h"
#include "cli/missing_module.h"
#include "cli/ui/terminal.h"
#include "image/store.h"

enum { NAME_SHOWN_MAX = 255 };

/* The last quoted name after `phrase`; false: there is none. */
static bool find_name(const char *words, const char *phrase, char ret_name[static NAME_SHOWN_MAX + 1]) {
        const char *found = NULL;
        for (const char *at = words; (at = strstr(at, phrase)); at++)
                found = at + strlen(phrase);
        const char *end = found ? strchr(found, '\'') : NULL;
        if (!end || end == found || end - found > NAME_SHOWN_MAX)
                return false;
        (void) snprintf(ret_name, NAME_SHOWN_MAX + 1, "%.*s", (int) (end - found), found);
        return true;
}

/* Beside the script, or without a script in the current directory. */
static bool is_beside(const struct run_request *request, const char *name, char ret_path[static 4096]) {
        struct stat status;
        if (strstr(name, "..") || *name == '/')
                return false;
        (void) snprintf(ret_path, 4096, "%s/%s", request->script_dir ? request->script_dir : ".", name);
        return stat(ret_path, &status) == 0;
}

static bool shows_nothing(const struct run_request *request) {
        return !request->script_dir && !request->workspace && !request->quiet;
}

/* -c, -m and standard input show no directory, unlike python3. */
static void report_outside(char *path) {
        terminal_make_harmless(path);
        (void) fprintf(stderr,
                       "glovebox: %s is in this directory, which the box does not show; add --workspace . to show it, "
                       "writable, as " BOX_WORKSPACE "\n",
                       path + strlen("./"));
}

static void report_hidden(const struct run_request *request, char *path) {
        terminal_make_harmless(path);
        if (*request->alone_reason)
                (void) fprintf(stderr, "glovebox: %s lies beside the script, but its directory is not shown: %s\n",
                               path, request->alone_reason);
        else
                (void) fprintf(stderr, "glovebox: %s lies beside the script, but --alone hides it; leave --alone out\n",
                               path);
}

/* The image lacks it: in a session it can be installed, and some come with the host's layer of packages. */
static void report_missing(const struct run_request *request, char *name) {
        const char *package = missing_module_package(name);
        terminal_make_harmless(name);
        if (!package)
                (void) fprintf(
                        stderr,
                        "glovebox: image %s has no module %s; it is a part of Python that this image leaves out, "
                        "and pip does not have it\n",
                        request->image, name);
        else if (strcmp(request->image, IMAGE_HOST) == 0 && missing_module_is_standard(package))
                (void) fprintf(
                        stderr,
                        "glovebox: image %s has no module %s; \"glovebox image build\" adds it and other packages "
                        "for data analysis, once for all boxes\n",
                        request->image, name);
        else
                (void) fprintf(stderr,
                               "glovebox: image %s has no module %s; to have it in a session: glovebox session new "
                               "NAME, glovebox session install NAME %s, glovebox exec NAME\n",
                               request->image, name, package);
}

/* A module that is beside the script, or missing in the image. */
static void hint_at_module(const struct run_request *request, char *name) {
        char file[NAME_SHOWN_MAX + 8], path[4096];
        name[strcspn(name, ".")] = '\0';
        (void) snprintf(file, sizeof(file), "%s.py", name);
        if (request->script_dir && request->is_alone &&
            (is_beside(request, file, path) || is_beside(request, name, path))) {
                report_hidden(request, path);
                return;
        }
        if (shows_nothing(request) && (is_beside(request, file, path) || is_beside(request, name, path))) {
                report_outside(path);
                return;
        }
        if (!request->quiet)
                report_missing(request, name);
}

/* pip's own advice (apt, a virtual environment) does not work in a box. */
static void hint_at_pip(const struct run_request *request) {
        if (!request->quiet)
                (void) fprintf(stderr,
                               "glovebox: pip installs nothing in a box; to have a package in a session: glovebox "
                               "session new NAME, glovebox session install NAME PACKAGE, glovebox exec NAME\n");
}

/* Lines of notebooks: "!ls", "%pip install", "df?", and await outside a function. */
static bool is_cell(const struct run_request *request, const char *words) {
        if (strstr(words, "'await' outside function"))
                return true;
        if (!request->code || !strstr(words, "SyntaxError: "))
                return false;
        for (const char *at = request->code; *at; at += strcspn(at, "\n"), at += *at == '\n') {
                size_t size = strcspn(at, "\n");
                if (*at == '!' || *at == '%' || (size > 1 && at[size - 1] == '?'))
                        return true;
        }
        return false;
}

static void hint_at_sessions(const struct run_request *request) {
        if (!request->quiet)
                (void) fprintf(stderr,
                               "glovebox: a run is a program, as with python3; !, %%, ? and a top-level await work in "
                               "a session: glovebox exec NAME; a command runs with -- COMMAND\n");
}

bool run_hint_is_about_network(const char *words, size_t size) {
        static const char *const signs[] = { "Temporary failure in name resolution",
                                             "Could not resolve host",
                                             "Name or service not known",
                                             "Network is unreachable",
                                             "unable to resolve host address",
                                             RUN_HINT_PROXY "403" };
        for (size_t i = 0; i < ELEMENTS(signs); i++)
                if (memmem(words, size, signs[i], strlen(signs[i])))
                        return true;
        return false;
}

static void hint_at_network(const struct run_request *request) {
        if (!request->quiet && request->network == RUN_NETWORK_NONE && request->n_hosts == 0)
                (void) fprintf(stderr,
                               "glovebox: a box has no network; --allow-host HOST lets it reach that host, by HTTP and "
                               "HTTPS\n");
}

/* curl shows the status of the proxy's refusal and not its reason. */
static void hint_at_proxy(const struct run_request *request, const char *words) {
        if (request->quiet)
                return;
        if (strstr(words, RUN_HINT_PROXY "403"))
                (void) fprintf(stderr, "glovebox: the proxy refused a host that no --allow-host names, perhaps after a "
                                       "redirection; \"curl -v\" shows which\n");
        else
                (void) fprintf(stderr, "glovebox: --allow-host allows the host, and the proxy could not reach it; "
                                       "\"curl -v\" shows why\n");
}

/* A file that was to be read. */
static void hint_at_file(const struct run_request *request, char *name) {
        char path[4096];
        if (!is_beside(request, name, path) || (!request->script_dir && !shows_nothing(request)))
                return;
        if (!request->script_dir)
                report_outside(path);
        else if (request->is_alone)
                report_hidden(request, path);
        else {
                terminal_make_harmless(path);
                terminal_make_harmless(name);
                (void) fprintf(stderr,
                               "glovebox: %s lies beside the script, which the box shows as " BOX_CODE_DIR
                               "/%s; the run's own directory is " BOX_WORKSPACE "\n",
                               path, name);
        }
}

/* A file that was to be written: below the script's directory as the box shows it, or by the name of a neighbour, which
 * is a link to there. */
static void hint_at_writing(const struct run_request *request, char *name) {
        char path[4096];
        bool is_code_dir = strncmp(name, BOX_CODE_DIR "/", strlen(BOX_CODE_DIR "/")) == 0;
        terminal_make_harmless(name);
        if (is_code_dir)
                (void) fprintf(stderr,
                               "glovebox: " BOX_CODE_DIR " is the script's directory, which a box can only read; write "
                               "to \"artifacts/%s\", which is kept, or to \"%s\" with --workspace .\n",
                               name + strlen(BOX_CODE_DIR "/"), name + strlen(BOX_CODE_DIR "/"));
        else if (is_beside(request, name, path)) {
                terminal_make_harmless(path);
                (void) fprintf(stderr,
                               "glovebox: %s lies beside the script and can only be read there; write to a file of "
                               "another name, or give the directory with --workspace\n",
                               path);
        }
}

/* -m names it in another form. */
static bool find_module(const struct run_request *request, const char *words,
                        char ret_name[static NAME_SHOWN_MAX + 1]) {
        if (find_name(words, "No module named '", ret_name))
                return true;
        if (!request->module || strlen(request->module) > NAME_SHOWN_MAX || !strstr(words, ": No module named ") ||
            strstr(words, "cannot be directly executed"))
                return false;
        (void) strcpy(ret_name, request->module);
        return true;
}

void run_hint_print(const struct run_request *request, const char *last_words, size_t size) {
        char name[NAME_SHOWN_MAX + 1];
        _cleanup_free_ char *words = strndup(last_words, size);
        if (!words)
                return;
        if (strstr(words, RUN_HINT_PIP_REFUSAL))
                hint_at_pip(request);
        else if (find_module(request, words, name))
                hint_at_module(request, name);
        else if (request->language == RUN_PYTHON && is_cell(request, words))
                hint_at_sessions(request);
        else if (strstr(words, RUN_HINT_PROXY))
                hint_at_proxy(request, words);
        else if (run_hint_is_about_network(words, strlen(words)))
                hint_at_network(request);
        else if (find_name(words, "No such file or directory: '", name))
                hint_at_file(request, name);
        else if (request->script_dir && find_name(words, "Read-only file system: '", name))
                hint_at_writing(request, name);
}

void run_hint_print_in_session(const struct run_request *request, const char *session, const char *traceback) {
        char name[NAME_SHOWN_MAX + 1], file[NAME_SHOWN_MAX + 8], path[4096];
        _cleanup_free_ char *directory = request->code_source ? strdup(request->code_source) : NULL;
        if (directory)
                *strrchr(directory, '/') = '\0';
        const struct run_request beside = { .script_dir = directory };
        if (find_name(traceback, "No module named '", name)) {
                name[strcspn(name, ".")] = '\0';
                (void) snprintf(file, sizeof(file), "%s.py", name);
                if (!is_beside(&beside, file, path) && !is_beside(&beside, name, path))
                        return;
        } else if (find_name(traceback, "No such file or directory: '", name)) {
                if (!is_beside(&beside, name, path))
                        return;
                char *rest = path + strlen(path) - strlen(name); /* the directory that it is in is copied whole */
                rest[strcspn(rest, "/")] = '\0';
        } else
                return;
        terminal_make_harmless(path);
        const char *shown = strncmp(path, "./", 2) == 0 ? path + 2 : path;
        (void) fprintf(stderr,
                       "glovebox: only the code's text is sent to a session, not the files beside it; to copy them: "
                       "glovebox cp %s %s:\n",
                       shown, session);
}
