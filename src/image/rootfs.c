#include "image/rootfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/memory.h"
#include "base/open_beneath.h"
#include "image/path.h"

/* The box brings these itself. */
static const char *const not_shown[] = {
        "proc", "sys", "dev", "tmp", "run", "workspace", "session", "sandbox", "work", "data", ".dockerenv",
};

static bool is_shown(const char *name) {
        for (size_t i = 0; i < ELEMENTS(not_shown); i++)
                if (strcmp(name, not_shown[i]) == 0)
                        return false;
        return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int too_much(const char *name, const char *what, struct err *err) {
        char shown[204];
        return err_set(err, ERR_LIMIT, "the image's top directory cannot be shown: \"%s\" %s",
                       path_for_message(name, shown), what);
}

static int add_link(int root_fd, const char *name, struct image *image, struct err *err) {
        struct image_link link = { 0 };
        if (image->n_links == IMAGE_LINKS_MAX)
                return too_much(name, "is one symbolic link too many", err);
        if ((size_t) snprintf(link.path, sizeof(link.path), "/%s", name) >= sizeof(link.path))
                return too_much(name, "has too long a name", err);
        ssize_t n = readlinkat(root_fd, name, link.target, sizeof(link.target));
        if (n < 0)
                return err_sys(err, errno, "cannot read a link of the image");
        if ((size_t) n >= sizeof(link.target))
                return too_much(name, "has too long a target", err);
        image->links[image->n_links++] = link;
        return 0;
}

static int rootfs_add_tree(int root_fd, const char *name, struct image *image, struct err *err) {
        if (image->n_trees == IMAGE_TREES_MAX)
                return too_much(name, "is one entry too many", err);
        struct image_tree *tree = &image->trees[image->n_trees];
        if ((size_t) snprintf(tree->path, sizeof(tree->path), "/%s", name) >= sizeof(tree->path))
                return too_much(name, "has too long a name", err);
        tree->fd = open_beneath(root_fd, name, O_PATH);
        if (tree->fd < 0)
                return err_sys(err, -tree->fd, "cannot open %s of the image", tree->path);
        image->n_trees++;
        return 0;
}

static int add_entry(int root_fd, const char *name, struct image *image, struct err *err) {
        struct stat st;
        if (fstatat(root_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return err_sys(err, errno, "cannot look at the image");
        bool etc = strcmp(name, "etc") == 0;
        if (S_ISLNK(st.st_mode))
                return etc ? 0
                           : add_link(root_fd, name, image, err); /* a link elsewhere: Glovebox's own /etc instead */
        if (etc && S_ISDIR(st.st_mode))
                image->own_etc = false;
        return S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && !etc) ? rootfs_add_tree(root_fd, name, image, err) : 0;
}

int rootfs_show(int root_fd, struct image *image, struct err *err) {
        _cleanup_fd_ int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_dir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (!dir)
                return err_sys(err, errno, "cannot list the image");
        (void) take_fd(&fd);
        image->own_etc = true;
        for (;;) {
                errno = 0;
                struct dirent *entry = readdir(dir);
                if (!entry)
                        return errno ? err_sys(err, errno, "cannot list the image") : 0;
                if (is_shown(entry->d_name) && add_entry(root_fd, entry->d_name, image, err) < 0)
                        return -1;
        }
}

static bool is_program(int root_fd, const char *path) {
        _cleanup_fd_ int fd = open_beneath_as_root(root_fd, path, O_PATH);
        struct stat st;
        return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0100);
}

/* Goes through a PATH for `name`; the box must see the place at all. */
static bool search_path(int root_fd, const char *directories, const char *name, char ret_path[static 256]) {
        while (*directories) {
                size_t size = strcspn(directories, ":");
                char path[256], clean[BOUND_PATH + 1];
                int length =
                        snprintf(path, sizeof(path), "%.*s/%s", (int) (size < 256 ? size : 255), directories, name);
                directories += size + (directories[size] == ':');
                if (length >= (int) sizeof(path) || path[0] != '/' || path_clean(path, clean, NULL) < 0)
                        continue;
                clean[strcspn(clean, "/")] = '\0';
                if (is_shown(clean) && is_program(root_fd, path)) {
                        strcpy(ret_path, path);
                        return true;
                }
        }
        return false;
}

/* A python3.N of a directory that has no plain python3. */
static bool search_versions(int root_fd, const char *directories, char ret_path[static 256]) {
        for (int minor = 15; minor >= 6; minor--) {
                char name[16];
                (void) snprintf(name, sizeof(name), "python3.%d", minor);
                if (search_path(root_fd, directories, name, ret_path))
                        return true;
        }
        return false;
}

static bool search_python(int root_fd, const char *directories, char ret_path[static 256]) {
        return search_path(root_fd, directories, "python3", ret_path) ||
               search_path(root_fd, directories, "python", ret_path) || search_versions(root_fd, directories, ret_path);
}

/* /opt/NAME/bin and the like: usual places of a Python that was installed by hand. In order, so that the result is
 * always the same. */
static bool search_below(int root_fd, const char *parent, char ret_path[static 256]) {
        enum { NAMES_MAX = 256 };
        struct dirent **names = NULL;
        _cleanup_fd_ int fd = open_beneath_as_root(root_fd, parent, O_RDONLY | O_DIRECTORY);
        int n = fd < 0 ? 0 : scandirat(fd, ".", &names, NULL, alphasort);
        bool found = false;
        for (int i = 0; i < n; i++) {
                char directory[600];
                (void) snprintf(directory, sizeof(directory), "%s/%s/bin", parent, names[i]->d_name);
                found = found || (i < NAMES_MAX && names[i]->d_name[0] != '.' && !strchr(directory, ':') &&
                                  search_python(root_fd, directory, ret_path));
                free(names[i]);
        }
        free(names);
        return found;
}

static const char *path_of_env(const json_t *env) {
        size_t i;
        json_t *variable;
        json_array_foreach (env, i, variable) {
                const char *text = json_string_value(variable);
                if (text && strncmp(text, "PATH=", 5) == 0)
                        return text + 5;
        }
        return "";
}

void rootfs_find_programs(int root_fd, const json_t *env, char ret_python[static 256], char ret_shell[static 256]) {
        static const char usual[] = "/usr/local/bin:/usr/bin:/bin:/opt/conda/bin:/opt/venv/bin:/venv/bin";
        static const char *const parents[] = {
                "/opt", "/usr/local", "/srv", "/home", "/root", "/app", "/var/lang", ""
        };
        static const char *const shells[] = { "bash", "sh", "ash", "dash" };
        ret_python[0] = ret_shell[0] = '\0';
        if (!search_python(root_fd, path_of_env(env), ret_python) && !search_python(root_fd, usual, ret_python))
                for (size_t i = 0; i < ELEMENTS(parents) && !*ret_python; i++)
                        (void) search_below(root_fd, parents[i], ret_python);
        for (size_t i = 0; i < ELEMENTS(shells) && !*ret_shell; i++)
                (void) search_path(root_fd, "/bin:/usr/bin:/usr/local/bin", shells[i], ret_shell);
}
