#include "client/socket_place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

static const char *variable(const char *name) {
        const char *value = getenv(name);
        return value && *value ? value : NULL;
}

/* <directory>/<name>, or <name> alone when it is absolute. */
static int set_path(struct socket_place *place, const char *directory, const char *name, struct err *err) {
        char whole[2 * PLACE_PATH_MAX];
        bool absolute = *name == '/';
        (void) snprintf(whole, sizeof(whole), "%s%s%s", absolute ? "" : directory, absolute ? "" : "/", name);
        if (strlen(whole) >= sizeof(place->path))
                return err_set(
                        err, ERR_USAGE,
                        "the socket's path %.300s has more than the %d bytes that a UNIX socket may have; choose "
                        "a shorter one with --socket PATH or --socket-dir DIR",
                        whole, SOCKET_PATH_MAX - 1);
        (void) strcpy(place->path, whole);
        return 0;
}

/* A relative path counts from here. */
static int set_relative(struct socket_place *place, const char *path, const char *name, struct err *err) {
        char here[PLACE_PATH_MAX], whole[2 * PLACE_PATH_MAX];
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

/* Somebody else's socket in a parent directory (/tmp, say) must not catch what is meant for our own daemon. */
static bool is_own_socket(const char *path) {
        struct stat status;
        return lstat(path, &status) == 0 && S_ISSOCK(status.st_mode) && status.st_uid == geteuid();
}

static bool find_project(struct socket_place *place) {
        char at[PLACE_PATH_MAX], path[PLACE_PATH_MAX + 32];
        if (!getcwd(at, sizeof(at)) || *at != '/')
                return false;
        for (;;) {
                bool root = at[1] == '\0';
                (void) snprintf(path, sizeof(path), "%s/.sandbox/kernel.sock", root ? "" : at);
                if (strlen(path) < sizeof(place->path) && is_own_socket(path)) {
                        (void) strcpy(place->path, path);
                        (void) strcpy(place->project, at);
                        return true;
                }
                if (root)
                        return false;
                char *slash = strrchr(at, '/');
                slash[slash == at] = '\0';
        }
}

static int set_default(struct socket_place *place, struct err *err) {
        static const char name[] = "glovebox.sock";
        const char *data = variable("GLOVEBOX_DATA_DIR");
        if (!data)
                data = variable("SANDBOX_DATA_DIR");
        if (data && *data == '/')
                return set_path(place, data, name, err);
        if (geteuid() == 0)
                return set_path(place, "/run/glovebox", name, err);
        char directory[PLACE_PATH_MAX];
        const char *runtime = variable("XDG_RUNTIME_DIR");
        if (runtime && *runtime == '/')
                (void) snprintf(directory, sizeof(directory), "%s/glovebox", runtime);
        else
                (void) snprintf(directory, sizeof(directory), "/tmp/glovebox-%u", (unsigned) geteuid());
        return set_path(place, directory, name, err);
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
                code = set_path(&place, place.project, ".sandbox/kernel.sock", err);
        else if (variable("GLOVEBOX_SOCKET"))
                code = set_relative(&place, variable("GLOVEBOX_SOCKET"), "", err);
        else if (!search_upwards || !find_project(&place))
                code = set_default(&place, err);
        if (code == 0)
                *ret_place = place;
        return code;
}
