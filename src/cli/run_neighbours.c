#include "cli/run_neighbours.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/data_dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "box/policy.h"
#include "box/spec.h"
#include "cli/ui/terminal.h"

enum { LINKS_MAX = 1000, NAME_SHOWN_MAX = 255 };

static void be_alone(struct run_request *request, const char *reason) {
        request->is_alone = true;
        (void) snprintf(request->alone_reason, sizeof(request->alone_reason), "%.199s", reason);
}

/* A read-only mount does not prevent a connect to a socket in it. Only the top is examined: a deeper search could take
 * long. */
static void refuse_sockets(struct run_request *request) {
        DIR *directory = request->is_alone ? NULL : opendir(request->script_dir);
        struct dirent *entry;
        while (directory && (entry = readdir(directory))) {
                struct stat status;
                if (entry->d_type != DT_SOCK &&
                    (entry->d_type != DT_UNKNOWN ||
                     fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
                     !S_ISSOCK(status.st_mode)))
                        continue;
                char reason[NAME_SHOWN_MAX + 64];
                (void) snprintf(reason, sizeof(reason), "the UNIX socket %.120s is in it", entry->d_name);
                be_alone(request, reason);
                break;
        }
        if (directory)
                (void) closedir(directory);
}

static int ask_policy(struct run_request *request, bool is_first_look, struct err *err) {
        char data_dir[4096];
        if (!request->code_source || request->is_alone)
                return 0;
        if (data_dir_open(data_dir, err) < 0)
                return -1;
        const struct policy policy = { .is_operator = true, .is_first_look = is_first_look, .state_dir = data_dir };
        struct err why;
        _cleanup_fd_ int fd = -1;
        if (policy_open_source(&policy, request->script_dir, false, &fd, &why) < 0)
                be_alone(request, why.message);
        return 0;
}

int run_neighbours_choose(struct run_request *request, struct err *err) {
        if (!request->code_source)
                return 0;
        const char *slash = strrchr(request->code_source, '/');
        request->script_dir = strndup(request->code_source,
                                      slash == request->code_source ? 1 : (size_t) (slash - request->code_source));
        if (!request->script_dir)
                return err_set(err, ERR_SYSTEM, "out of memory");
        struct stat status;
        if (!request->is_alone && stat(request->script_dir, &status) == 0 && (status.st_mode & S_ISVTX) &&
            (status.st_mode & S_IWOTH))
                be_alone(request, "all users can write to it");
        refuse_sockets(request);
        return ask_policy(request, true, err);
}

int run_neighbours_confirm(struct run_request *request, struct err *err) {
        return ask_policy(request, false, err);
}

void run_neighbours_link(const struct run_request *request, int workspace_fd) {
        if (!request->code_source || request->is_alone || request->workspace)
                return;
        DIR *directory = opendir(request->script_dir);
        struct dirent *entry;
        for (size_t n = 0; directory && n < LINKS_MAX && (entry = readdir(directory));) {
                char target[sizeof(BOX_CODE_DIR) + sizeof(entry->d_name) + 1];
                if (entry->d_name[0] == '.' || strcmp(entry->d_name, "artifacts") == 0 ||
                    strcmp(entry->d_name, "__pycache__") == 0)
                        continue;
                (void) snprintf(target, sizeof(target), BOX_CODE_DIR "/%s", entry->d_name);
                n += symlinkat(target, workspace_fd, entry->d_name) == 0; /* a link that cannot be made is no error */
        }
        if (directory)
                (void) closedir(directory);
}

/* ---- hints ---- */

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

static bool is_beside(const struct run_request *request, const char *name, char ret_path[static 4096]) {
        struct stat status;
        if (strstr(name, "..") || *name == '/')
                return false;
        (void) snprintf(ret_path, 4096, "%s/%s", request->script_dir, name);
        return stat(ret_path, &status) == 0;
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
        if (request->quiet)
                return;
        terminal_make_harmless(name);
        (void) fprintf(stderr,
                       "glovebox: image %s has no module %s; to have it in a session: glovebox session new NAME, "
                       "glovebox session install NAME %s, glovebox exec NAME\n",
                       request->image, name, name);
}

/* pip's own advice (apt, a virtual environment) does not work in a box. */
static void hint_at_pip(const struct run_request *request) {
        if (!request->quiet)
                (void) fprintf(stderr,
                               "glovebox: pip installs nothing in a box; to have a package in a session: glovebox "
                               "session new NAME, glovebox session install NAME PACKAGE, glovebox exec NAME\n");
}

void run_neighbours_hint(const struct run_request *request, const char *last_words, size_t size) {
        char name[NAME_SHOWN_MAX + 1], path[4096];
        _cleanup_free_ char *words = strndup(last_words, size);
        if (!words)
                return;
        if (strstr(words, RUN_PIP_REFUSAL)) {
                hint_at_pip(request);
                return;
        }
        if (find_name(words, "No module named '", name)) {
                hint_at_module(request, name);
                return;
        }
        if (!request->script_dir)
                return;
        if (find_name(words, "No such file or directory: '", name) && is_beside(request, name, path)) {
                if (request->is_alone)
                        report_hidden(request, path);
                else {
                        terminal_make_harmless(path);
                        terminal_make_harmless(name);
                        (void) fprintf(stderr,
                                       "glovebox: %s lies beside the script, which the box shows as " BOX_CODE_DIR
                                       "/%s; the run's own directory is " BOX_WORKSPACE "\n",
                                       path, name);
                }
        } else if (find_name(words, "Read-only file system: '", name) && is_beside(request, name, path)) {
                terminal_make_harmless(path);
                (void) fprintf(stderr,
                               "glovebox: %s lies beside the script and can only be read there; write to a file of "
                               "another name, or give the directory with --workspace\n",
                               path);
        }
}
