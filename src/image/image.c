#include "image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/data_dir.h"
#include "base/memory.h"
#include "base/open_beneath.h"
#include "image/host.h"
#include "image/layer.h"
#include "image/record.h"
#include "image/rootfs.h"
#include "image/store.h"

/* <dir>/images/<name>: a descriptor or -errno. */
static int open_in(const char *dir, const char *name) {
        char path[100];
        _cleanup_fd_ int data_fd = *dir ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
        (void) snprintf(path, sizeof(path), "images/%s", name);
        return data_fd < 0 ? -ENOENT : open_beneath(data_fd, path, O_RDONLY | O_DIRECTORY);
}

int image_open_directory(const char *data_dir, const char *name, bool *ret_shared) {
        int fd = open_in(data_dir, name);
        *ret_shared = fd == -ENOENT;
        return fd == -ENOENT ? open_in(data_dir_shared(), name) : fd;
}

int image_open_shared_host(int host_fd) {
        _cleanup_fd_ int own_fd = host_fd < 0 ? -ENOENT : open_beneath(host_fd, LAYER_DIR, O_PATH | O_DIRECTORY);
        return own_fd == -ENOENT ? open_in(data_dir_shared(), IMAGE_HOST) : -ENOENT;
}

/* images/host holds the layer and a record of the interpreter; without it the host image is only slower. */
static int open_host(const char *data_dir, struct image *image, struct err *err) {
        _cleanup_fd_ int data_fd = open(data_dir, O_PATH | O_DIRECTORY | O_CLOEXEC), host_fd = -1;
        if (data_fd >= 0)
                host_fd = make_directories_beneath(data_fd, "images/" IMAGE_HOST);
        if (data_fd >= 0 && host_fd < 0 && host_fd != -EACCES && host_fd != -EROFS && host_fd != -ENOENT)
                return err_sys(err, -host_fd, "cannot open %.600s/images/host", data_dir);
        _cleanup_fd_ int shared_fd = image_open_shared_host(host_fd);
        return host_show(host_fd, shared_fd, image, err);
}

static int copy_program(const json_t *record, const char *key, char to[static 256], struct err *err) {
        const char *path = record_string(record, key);
        if (strlen(path) >= 256 || (*path && *path != '/'))
                return err_set(err, ERR_PROTOCOL, "image.json is damaged (\"%s\"); import the image again", key);
        strcpy(to, path);
        return 0;
}

static bool is_variable(const char *text) {
        static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
        size_t length = text ? strspn(text, letters) : 0;
        return length > 0 && text[length] == '=' && !strchr("0123456789", *text);
}

/* Variables beyond the limit are left out; `image import` reported that. */
static void copy_env(const json_t *env, struct image *image) {
        size_t i, used = 0;
        json_t *variable;
        json_array_foreach (env, i, variable) {
                const char *text = json_string_value(variable);
                size_t size = is_variable(text) ? strlen(text) + 1 : 0;
                if (size == 0 || used + size + 1 > sizeof(image->env))
                        continue;
                memcpy(image->env + used, text, size);
                used += size;
        }
        image->env[used] = '\0';
}

size_t image_count_lost_env(const json_t *env) {
        struct image image = { 0 };
        size_t kept = 0;
        copy_env(env, &image);
        for (const char *at = image.env; *at; at += strlen(at) + 1)
                kept++;
        return json_array_size(env) - kept;
}

static int open_imported(const char *data_dir, const char *name, struct image *image, struct err *err) {
        bool is_shared;
        _cleanup_fd_ int image_fd = image_open_directory(data_dir, name, &is_shared), root_fd = -1;
        if (image_fd == -ENOENT)
                return err_set(
                        err, ERR_NOT_FOUND,
                        "there is no image \"%s\"; see glovebox image list, or make it: glovebox image import %s "
                        "FILE.tar",
                        name, name);
        if (image_fd < 0)
                return err_sys(err, -image_fd, "cannot open the image \"%s\"", name);
        _cleanup_json_ json_t *record = NULL;
        if (record_read(image_fd, "image.json", &record, err) < 0 ||
            copy_program(record, "python", image->python, err) < 0 ||
            copy_program(record, "shell", image->shell, err) < 0)
                return err_prefix(err, "the image \"%s\" is damaged", name);
        copy_env(json_object_get(json_object_get(record, "config"), "Env"), image);
        root_fd = open_beneath(image_fd, "rootfs", O_RDONLY | O_DIRECTORY);
        if (root_fd < 0)
                return err_sys(err, -root_fd, "the image \"%s\" is damaged: cannot open its rootfs", name);
        return rootfs_show(root_fd, image, err);
}

int image_open(const char *data_dir, const char *name, struct image *ret_image, struct err *err) {
        _cleanup_(image_close) struct image image = { 0 };
        if (image_check_name(name, err) < 0)
                return -1;
        strcpy(image.name, name);
        int code = strcmp(name, IMAGE_HOST) == 0 ? open_host(data_dir, &image, err)
                                                 : open_imported(data_dir, name, &image, err);
        if (code < 0)
                return -1;
        *ret_image = image;
        image.n_trees = 0; /* the descriptors are the caller's now */
        return 0;
}

void image_close(struct image *image) {
        for (size_t i = 0; i < image->n_trees; i++)
                fd_close(&image->trees[i].fd);
        image->n_trees = image->n_links = 0;
}

int image_copy(const struct image *image, struct image *ret_copy, struct err *err) {
        *ret_copy = *image;
        for (ret_copy->n_trees = 0; ret_copy->n_trees < image->n_trees; ret_copy->n_trees++) {
                int fd = fcntl(image->trees[ret_copy->n_trees].fd, F_DUPFD_CLOEXEC, 3);
                if (fd < 0) {
                        (void) err_sys(err, errno, "copying the descriptors of image %s", image->name);
                        image_close(ret_copy);
                        return -1;
                }
                ret_copy->trees[ret_copy->n_trees].fd = fd;
        }
        return 0;
}
