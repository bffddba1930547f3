#include "image/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/data_dir.h"
#include "base/memory.h"
#include "image/layer.h"
#include "image/python.h"
#include "image/store.h"

/* /opt, /home, /root, /srv, /var are not here, on purpose: they may hold private data of the machine's owner. Of /etc
 * there are only files that are the same on every such machine, and those to which libraries in /usr link. Links at the
 * top stay links (/bin -> usr/bin). */
static const char *const host_places[] = {
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib64",
        "/lib32",
        "/libx32",
        "/etc/alternatives",
        "/etc/ld.so.cache",
        "/etc/ld.so.conf",
        "/etc/ld.so.conf.d",
        "/etc/ssl/certs",
        "/etc/ssl/openssl.cnf",
        "/etc/ca-certificates",
        "/etc/fonts",
        "/etc/mime.types",
        "/etc/terminfo",
};

static int host_add_tree(struct image *image, const char *path, int fd, struct err *err) {
        if (image->n_trees == IMAGE_TREES_MAX) {
                (void) close(fd);
                return err_set(err, ERR_LIMIT, "the host image has more than %d places", IMAGE_TREES_MAX);
        }
        struct image_tree *tree = &image->trees[image->n_trees++];
        tree->fd = fd;
        (void) snprintf(tree->path, sizeof(tree->path), "%s", path);
        return 0;
}

static int add_link(struct image *image, const char *path, int fd, struct err *err) {
        struct image_link link = { 0 };
        ssize_t n = readlinkat(fd, "", link.target, sizeof(link.target));
        if (n < 0 || (size_t) n >= sizeof(link.target) || image->n_links == IMAGE_LINKS_MAX)
                return err_set(err, ERR_UNSUPPORTED, "the link %s of this host cannot be shown in a box", path);
        (void) snprintf(link.path, sizeof(link.path), "%s", path);
        image->links[image->n_links++] = link;
        return 0;
}

static int add_place(struct image *image, const char *path, struct err *err) {
        _cleanup_fd_ int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;
        if (fd < 0 && errno == ENOENT)
                return 0;
        if (fd < 0 || fstat(fd, &st) < 0)
                return err_sys(err, errno, "cannot open %s", path);
        if (!S_ISLNK(st.st_mode))
                return S_ISDIR(st.st_mode) || S_ISREG(st.st_mode) ? host_add_tree(image, path, take_fd(&fd), err) : 0;
        return strncmp(path, "/etc/", 5) == 0 ? 0 : add_link(image, path, fd, err);
}

static void choose_shell(struct image *image) {
        static const char *const shells[] = { "/bin/bash", "/bin/sh" };
        for (size_t i = 0; i < ELEMENTS(shells) && !*image->shell; i++)
                if (access(shells[i], X_OK) == 0)
                        (void) snprintf(image->shell, sizeof(image->shell), "%s", shells[i]);
}

int host_show(int host_fd, int shared_fd, struct image *image, struct err *err) {
        image->own_etc = true;
        for (size_t i = 0; i < ELEMENTS(host_places); i++)
                if (add_place(image, host_places[i], err) < 0)
                        return -1;
        choose_shell(image);
        struct python python;
        struct err why = { 0 };
        if (python_choose(host_fd, &python, &why) < 0) {
                if (why.code == ERR_NOT_FOUND)
                        return 0; /* shell and commands still run */
                return err_set(err, why.code, "%s", why.message);
        }
        (void) snprintf(image->python, sizeof(image->python), "%s", python.path);
        if (*python.prefix) {
                int fd = open(python.prefix, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (fd < 0)
                        return err_sys(err, errno, "cannot open the interpreter's directory %s", python.prefix);
                if (host_add_tree(image, python.prefix, fd, err) < 0)
                        return -1;
        }
        int layer_fd = -1;
        if (layer_open(host_fd, &python, &layer_fd, err) < 0)
                return -1;
        if (layer_fd < 0 && shared_fd >= 0)
                (void) layer_open(shared_fd, &python, &layer_fd, NULL); /* a layer for another Python is not an error */
        if (layer_fd < 0)
                return 0;
        image->has_layer = true;
        return host_add_tree(image, IMAGE_LAYER_PATH, layer_fd, err);
}

int host_stat(struct stat_snapshot *list, const char *data_dir) {
        static const char *const below[] = { "", "/" LAYER_DIR, "/" LAYER_DIR "/" LAYER_RECORD };
        static const char *const programs[] = { "/bin/bash", "/bin/sh", PYTHON_OF_SYSTEM };
        int code = 0;
        for (size_t i = 0; i < ELEMENTS(host_places) && code == 0; i++)
                code = stat_snapshot_add(list, host_places[i], false);
        for (size_t i = 0; i < ELEMENTS(programs) && code == 0; i++)
                code = stat_snapshot_add(list, programs[i], true);
        if (code == 0)
                code = stat_snapshot_add(list, PYTHON_OF_SYSTEM, false); /* the link's target has the version */
        const char *const stores[] = { data_dir, data_dir_shared() };
        for (size_t i = 0; i < ELEMENTS(below) * ELEMENTS(stores) && code == 0; i++) {
                _cleanup_free_ char *path = NULL;
                const char *store = stores[i / ELEMENTS(below)];
                if (!*store)
                        continue;
                if (asprintf(&path, "%s/images/" IMAGE_HOST "%s", store, below[i % ELEMENTS(below)]) < 0)
                        return -ENOMEM;
                code = stat_snapshot_add(list, path, false);
        }
        return code;
}
