#include "image/python.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "image/record.h"

/* The program prints the real interpreter behind a shim or a virtual environment. */
static const char question[] =
        "import json, os, sys\n"
        "base = getattr(sys, '_base_executable', None) or sys.executable\n"
        "print(json.dumps({'path': os.path.realpath(base), 'prefix': os.path.realpath(sys.base_prefix),\n"
        "                  'version': '%d.%d' % sys.version_info[:2]}))\n";

static bool is_executable(const char *path) {
        struct stat st;
        return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool find_in_path(char ret_path[static 256]) {
        const char *path = getenv("PATH");
        while (path && *path) {
                size_t size = strcspn(path, ":");
                int length = snprintf(ret_path, 256, "%.*s/python3", (int) (size < 256 ? size : 255), path);
                if (*path == '/' && length < 256 && is_executable(ret_path))
                        return true;
                path += size + (path[size] == ':');
        }
        return false;
}

static int choose_candidate(struct python *python, struct err *err) {
        const char *named = getenv("GLOVEBOX_PYTHON");
        if (named && *named) {
                if (*named != '/' || strlen(named) >= sizeof(python->path) || !is_executable(named))
                        return err_set(err, ERR_USAGE,
                                       "$GLOVEBOX_PYTHON is \"%.200s\", which is not the absolute path of a program; "
                                       "correct or unset it",
                                       named);
                strcpy(python->path, named);
                strcpy(python->why, "$GLOVEBOX_PYTHON names it");
                return 0;
        }
        if (is_executable(PYTHON_OF_SYSTEM)) {
                strcpy(python->path, PYTHON_OF_SYSTEM);
                strcpy(python->why, "it is this system's own");
                return 0;
        }
        strcpy(python->why, "it is the first python3 in PATH");
        if (find_in_path(python->path))
                return 0;
        return err_set(err, ERR_NOT_FOUND,
                       "this host has no python3; install it (apt install python3) or set GLOVEBOX_PYTHON");
}

/* /usr/bin/python3 -> python3.11: the name has the version, so a cold start need not run it. */
static bool know_by_name(struct python *python) {
        char real[PATH_MAX];
        static const char stem[] = "/usr/bin/python";
        if (!realpath(python->path, real) || strncmp(real, stem, strlen(stem)) != 0)
                return false;
        const char *version = real + strlen(stem);
        size_t length = strlen(version);
        if (strncmp(version, "3.", 2) != 0 || length < 3 || length >= sizeof(python->version) ||
            strspn(version + 2, "0123456789") != length - 2)
                return false;
        strcpy(python->path, real);
        strcpy(python->version, version);
        return true;
}

/* Directories that are private, or that a box has itself: they are never used as an interpreter's prefix, which a box
 * sees whole. */
static int check_prefix(const struct python *python, struct err *err) {
        static const char *const too_wide[] = { "/",    "/bin", "/boot", "/etc",  "/home", "/lib", "/media",
                                                "/mnt", "/opt", "/root", "/sbin", "/srv",  "/var", "/usr" };
        static const char *const covered[] = { "/dev",       "/proc",    "/run",     "/sys",  "/tmp",
                                               "/workspace", "/session", "/sandbox", "/work", "/data" };
        const char *prefix = python->prefix;
        const struct passwd *user = getpwuid(geteuid());
        bool wide = user && user->pw_dir && strcmp(user->pw_dir, prefix) == 0;
        wide = wide || (strncmp(prefix, "/home/", 6) == 0 && !strchr(prefix + 6, '/'));
        for (size_t i = 0; i < ELEMENTS(too_wide); i++)
                wide = wide || strcmp(prefix, too_wide[i]) == 0;
        if (wide)
                return err_set(err, ERR_REFUSED,
                               "the interpreter %s is in %s, all of which the box would see; use one with a directory "
                               "of its own, or set GLOVEBOX_PYTHON to /usr/bin/python3",
                               python->path, prefix);
        for (size_t i = 0; i < ELEMENTS(covered); i++) {
                size_t size = strlen(covered[i]);
                if (strncmp(prefix, covered[i], size) == 0 && (prefix[size] == '/' || prefix[size] == '\0'))
                        return err_set(err, ERR_REFUSED,
                                       "the interpreter %s is below %s, which every box has of its own; use one "
                                       "elsewhere, or set GLOVEBOX_PYTHON to /usr/bin/python3",
                                       python->path, covered[i]);
        }
        return 0;
}

static bool lies_below(const char *path, const char *directory) {
        size_t size = strlen(directory);
        return strncmp(path, directory, size) == 0 && path[size] == '/';
}

/* Takes over the interpreter's own answer, fresh or kept. */
static int accept_answer(const json_t *answer, struct python *python, struct err *err) {
        const char *path = record_string(answer, "path"), *prefix = record_string(answer, "prefix");
        const char *version = record_string(answer, "version");
        if (*path != '/' || *prefix != '/' || !*version || strlen(path) >= sizeof(python->path) ||
            strlen(prefix) >= sizeof(python->prefix) || strlen(version) >= sizeof(python->version))
                return err_set(err, ERR_PROTOCOL,
                               "%s did not report a Python prefix; is it an interpreter? set GLOVEBOX_PYTHON",
                               python->path);
        strcpy(python->path, path);
        strcpy(python->version, version);
        python->prefix[0] = '\0';
        if (lies_below(prefix, "/usr") || strcmp(prefix, "/usr") == 0)
                prefix = "/usr";
        if (!lies_below(path, prefix))
                return err_set(err, ERR_UNSUPPORTED,
                               "the interpreter %s lies outside its own prefix %s and cannot be shown in a box; set "
                               "GLOVEBOX_PYTHON to another",
                               path, prefix);
        if (strcmp(prefix, "/usr") == 0)
                return 0;
        strcpy(python->prefix, prefix);
        return check_prefix(python, err);
}

/* Runs the interpreter once. -I: it ignores the environment and the current directory. */
static int python_ask(const char *path, json_t **ret_answer, struct err *err) {
        int pipe_fds[2];
        if (pipe2(pipe_fds, O_CLOEXEC) < 0)
                return err_sys(err, errno, "cannot make a pipe");
        _cleanup_fd_ int read_fd = pipe_fds[0], write_fd = pipe_fds[1];
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, write_fd, 1);
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
        char *argv[] = { (char *) path, (char *) "-I", (char *) "-c", (char *) question, NULL };
        pid_t pid;
        int code = posix_spawn(&pid, path, &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        if (code != 0)
                return err_sys(err, code, "cannot run %s", path);
        fd_close(&write_fd);
        _cleanup_free_ char *bytes = NULL;
        size_t size = 0;
        code = fd_read_to_end(read_fd, 1 << 16, &bytes, &size);
        fd_close(&read_fd);
        int status = 0;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        if (code < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return err_set(err, ERR_UNSUPPORTED,
                               "%s does not run as a Python 3 should; set GLOVEBOX_PYTHON to one that does", path);
        return record_parse(bytes, size, "the interpreter's answer", ret_answer, err);
}

static json_t *key_of(const char *path, const struct stat *st) {
        return json_pack("{s:s, s:I, s:I, s:I}", "asked", path, "mtime", (json_int_t) st->st_mtim.tv_sec, "mtime_ns",
                         (json_int_t) st->st_mtim.tv_nsec, "size", (json_int_t) st->st_size);
}

static int ask_or_remember(int host_fd, struct python *python, struct err *err) {
        struct stat st;
        if (stat(python->path, &st) < 0)
                return err_sys(err, errno, "cannot look at %s", python->path);
        _cleanup_json_ json_t *key = key_of(python->path, &st), *kept = NULL, *answer = NULL;
        if (!key)
                return err_set(err, ERR_USAGE, "the path %s is not valid UTF-8", python->path);
        /* A shim stays the same file while what it starts changes (pyenv global): the answer is good only as long as
         * the interpreter that it names is there. */
        if (host_fd >= 0 && record_read(host_fd, "python.json", &kept, NULL) == 0 &&
            json_equal(json_object_get(kept, "key"), key) &&
            is_executable(record_string(json_object_get(kept, "answer"), "path")))
                return accept_answer(json_object_get(kept, "answer"), python, err);
        if (python_ask(python->path, &answer, err) < 0 || accept_answer(answer, python, err) < 0)
                return -1;
        _cleanup_json_ json_t *fresh = json_pack("{s:O, s:O}", "key", key, "answer", answer);
        if (host_fd >= 0 && fresh)
                (void) record_write(host_fd, "python.json", fresh, NULL); /* only a shortcut */
        return 0;
}

int python_choose(int host_fd, struct python *ret_python, struct err *err) {
        struct python python = { 0 };
        if (choose_candidate(&python, err) < 0 ||
            (!know_by_name(&python) && ask_or_remember(host_fd, &python, err) < 0))
                return -1;
        *ret_python = python;
        return 0;
}
