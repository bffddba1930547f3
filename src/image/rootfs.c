#include "image/rootfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "image/beneath.h"
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

static int add_tree(int root_fd, const char *name, struct image *image, struct err *err) {
        if (image->n_trees == IMAGE_TREES_MAX)
                return too_much(name, "is one entry too many", err);
        struct image_tree *tree = &image->trees[image->n_trees];
        if ((size_t) snprintf(tree->path, sizeof(tree->path), "/%s", name) >= sizeof(tree->path))
                return too_much(name, "has too long a name", err);
        tree->fd = beneath_open(root_fd, name, O_PATH);
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
                return etc ? 0 : add_link(root_fd, name, image, err); /* an /etc that points elsewhere: ours instead */
        if (etc && S_ISDIR(st.st_mode))
                image->own_etc = false;
        return S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && !etc) ? add_tree(root_fd, name, image, err) : 0;
}

static void close_directory(DIR **dir) {
        if (*dir)
                (void) closedir(*dir);
}

int rootfs_show(int root_fd, struct image *image, struct err *err) {
        _cleanup_fd_ int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_(close_directory) DIR *dir = fd < 0 ? NULL : fdopendir(fd);
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
        _cleanup_fd_ int fd = beneath_open_as_root(root_fd, path, O_PATH);
        struct stat st;
        return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0100);
}

/* Goes through a PATH for `name`; the box must see the place at all. */
static bool search(int root_fd, const char *directories, const char *name, char ret_path[static 256]) {
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

static const char *path_of_env(const json_t *env) {
        size_t i;
        json_t *variable;
        json_array_foreach(env, i, variable) {
                const char *text = json_string_value(variable);
                if (text && strncmp(text, "PATH=", 5) == 0)
                        return text + 5;
        }
        return "";
}

void rootfs_find_programs(int root_fd, const json_t *env, char ret_python[static 256], char ret_shell[static 256]) {
        static const char usual[] = "/usr/local/bin:/usr/bin:/bin:/opt/conda/bin:/opt/venv/bin:/venv/bin";
        static const char *const pythons[] = { "python3", "python" }, *const shells[] = { "bash", "sh" };
        const char *own = path_of_env(env);
        ret_python[0] = ret_shell[0] = '\0';
        for (size_t i = 0; i < ELEMENTS(pythons) && !*ret_python; i++)
                if (!search(root_fd, own, pythons[i], ret_python))
                        (void) search(root_fd, usual, pythons[i], ret_python);
        for (size_t i = 0; i < ELEMENTS(shells) && !*ret_shell; i++)
                (void) search(root_fd, "/bin:/usr/bin:/usr/local/bin", shells[i], ret_shell);
}
