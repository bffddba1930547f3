#include "client/socket_place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/sha256.h"

#define PROJECT_SOCKET "/.sandbox/kernel.sock"

static const char *socket_place_variable(const char *name) {
        const char *value = getenv(name);
        return value && *value ? value : NULL;
}

static int set_path(struct socket_place *place, const char *directory, const char *name, struct err *err) {
        int length = snprintf(place->path, sizeof(place->path), "%s%s%s", directory, *directory ? "/" : "", name);
        return length < 0 || (size_t) length >= sizeof(place->path)
                       ? err_set(err, ERR_USAGE, "the socket's path is too long; choose a shorter one")
                       : 0;
}

/* A relative path counts from here. */
static int set_relative(struct socket_place *place, const char *path, const char *name, struct err *err) {
        char here[DATA_DIR_PATH_MAX], whole[2 * DATA_DIR_PATH_MAX];
        if (*path != '/' && !getcwd(here, sizeof(here)))
                return err_sys(err, errno, "finding the current directory");
        int length = snprintf(whole, sizeof(whole), "%s%s%s%s%s", *path == '/' ? "" : here, *path == '/' ? "" : "/",
                              path, *name ? "/" : "", name);
        if (length < 0 || (size_t) length >= sizeof(whole))
                return err_set(err, ERR_USAGE, "the socket's path is too long; choose a shorter one");
        return set_path(place, "", whole, err);
}

static int set_project(struct socket_place *place, const char *project, struct err *err) {
        _cleanup_free_ char *resolved = realpath(project, NULL);
        if (!resolved)
                return err_sys(err, errno, "the project directory %.300s", project);
        struct stat status;
        if (stat(resolved, &status) < 0 || !S_ISDIR(status.st_mode))
                return err_set(err, ERR_USAGE, "--project: %.300s is not a directory", project);
        if (strlen(resolved) >= sizeof(place->project))
                return err_set(err, ERR_USAGE, "--project: the path %.300s… is too long", resolved);
        (void) strcpy(place->project, resolved);
        return 0;
}

/* Another user's socket in /tmp must not receive what is meant for this user's daemon. */
static bool is_own_socket(const char *path) {
        struct stat status;
        return lstat(path, &status) == 0 && S_ISSOCK(status.st_mode) && status.st_uid == geteuid();
}

/* Could a socket be made there? */
static bool is_usable(const char *runtime_dir) {
        char parent[DATA_DIR_PATH_MAX];
        struct stat status;
        if (lstat(runtime_dir, &status) == 0)
                return S_ISDIR(status.st_mode) && status.st_uid == geteuid();
        (void) snprintf(parent, sizeof(parent), "%s", runtime_dir);
        *strrchr(parent, '/') = '\0';
        return access(parent, W_OK | X_OK) == 0;
}

/* The socket of the project: an existing one, or the path for a new one. True if it exists. */
static bool find_address(const char *project, char ret_address[static SOCKET_PATH_MAX]) {
        char directories[RUNTIME_DIRS][RUNTIME_MAX], hash[2 * SHA256_SIZE + 1];
        size_t n = runtime_dirs(directories);
        bool chosen = false;
        (void) sha256_hex(project, strlen(project), hash);
        for (size_t i = 0; i < n; i++) {
                char path[SOCKET_PATH_MAX];
                (void) snprintf(path, sizeof(path), "%.*s/project-%.16s.sock", RUNTIME_MAX - 1, directories[i], hash);
                bool there = is_own_socket(path);
                if (there || (!chosen && is_usable(directories[i])) || (!chosen && i + 1 == n)) {
                        (void) strcpy(ret_address, path);
                        chosen = true;
                }
                if (there)
                        return true;
        }
        return false;
}

static bool find_project(struct socket_place *place) {
        char at[DATA_DIR_PATH_MAX];
        if (!getcwd(at, sizeof(at)) || *at != '/')
                return false;
        for (;;) {
                bool root = at[1] == '\0';
                if (strlen(at) + sizeof(PROJECT_SOCKET) <= sizeof(place->path) && find_address(at, place->address)) {
                        (void) strcpy(place->project, at);
                        (void) snprintf(place->path, sizeof(place->path), "%s" PROJECT_SOCKET, root ? "" : at);
                        return true;
                }
                if (root)
                        return false;
                char *slash = strrchr(at, '/');
                slash[slash == at] = '\0';
        }
}

static bool is_in_runtime_dir(const char *path) {
        char directories[RUNTIME_DIRS][RUNTIME_MAX];
        const size_t length = (size_t) (strrchr(path, '/') - path);
        for (size_t n = runtime_dirs(directories); n > 0; n--)
                if (strlen(directories[n - 1]) == length && strncmp(path, directories[n - 1], length) == 0)
                        return true;
        return false;
}

/* In a project there is only a link. */
static int set_address(struct socket_place *place, struct err *err) {
        size_t length = strlen(place->path), tail = sizeof(PROJECT_SOCKET) - 1;
        if (length > tail && strcmp(place->path + length - tail, PROJECT_SOCKET) == 0) {
                char directory[DATA_DIR_PATH_MAX];
                (void) snprintf(directory, sizeof(directory), "%.*s", (int) (length - tail), place->path);
                _cleanup_free_ char *resolved = realpath(directory, NULL);
                if (!resolved)
                        return err_sys(err, errno, "the project directory %.300s", directory);
                (void) find_address(resolved, place->address);
                return 0;
        }
        size_t within = strlen(place->project);
        if (within > 1 && strncmp(place->path, place->project, within) == 0 && place->path[within] == '/')
                return err_set(err, ERR_USAGE,
                               "the socket %.300s would lie in the project, where boxes could reach it; leave --socket "
                               "and --socket-dir out, or name a directory elsewhere",
                               place->path);
        if (length >= sizeof(place->address))
                return err_set(
                        err, ERR_USAGE,
                        "the socket's path %.300s has more than the %d bytes that a UNIX socket may have; choose "
                        "a shorter one with --socket PATH or --socket-dir DIR",
                        place->path, SOCKET_PATH_MAX - 1);
        (void) strcpy(place->address, place->path);
        return 0;
}

static int set_default(struct socket_place *place, struct err *err) {
        static const char name[] = "glovebox.sock";
        const char *data = socket_place_variable("GLOVEBOX_DATA_DIR");
        if (!data)
                data = socket_place_variable("SANDBOX_DATA_DIR");
        if (data && *data == '/')
                return set_path(place, data, name, err);
        char directories[RUNTIME_DIRS][RUNTIME_MAX];
        size_t n = runtime_dirs(directories);
        /* Without the variable, other programs do not look in /run/user/<uid>. */
        bool has_first = geteuid() == 0 || socket_place_variable("XDG_RUNTIME_DIR");
        return set_path(place, directories[has_first ? 0 : n - 1], name, err);
}

int socket_place_choose(const struct socket_choice *choice, bool search_upwards, struct socket_place *ret_place,
                        struct err *err) {
        struct socket_place place = { 0 };
        int code = 0;
        if (choice->socket && choice->socket_dir)
                return err_set(err, ERR_USAGE,
                               "--socket and --socket-dir both say where the socket is; give one of them");
        if (choice->project && set_project(&place, choice->project, err) < 0)
                return -1;
        if (choice->socket)
                code = set_relative(&place, choice->socket, "", err);
        else if (choice->socket_dir)
                code = set_relative(&place, choice->socket_dir, "kernel.sock", err);
        else if (choice->project)
                code = set_path(&place, place.project, &PROJECT_SOCKET[1], err);
        else if (socket_place_variable("GLOVEBOX_SOCKET"))
                code = set_relative(&place, socket_place_variable("GLOVEBOX_SOCKET"), "", err);
        else if (!search_upwards || !find_project(&place))
                code = set_default(&place, err);
        if (code < 0 || set_address(&place, err) < 0)
                return -1;
        place.in_runtime_dir = is_in_runtime_dir(place.address);
        *ret_place = place;
        return 0;
}
