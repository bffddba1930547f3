#include "image/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/data_dir.h"
#include "base/dir.h"
#include "base/memory.h"
#include "base/open_beneath.h"
#include "base/remove_tree.h"
#include "image/image.h"

#define WORK_PREFIX ".tmp-"

int image_check_name(const char *name, struct err *err) {
        static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
        size_t length = strlen(name);
        bool good = length >= 1 && length <= 64 && strchr(letters, name[0]);
        for (size_t i = 0; good && i < length; i++)
                good = strchr(letters, name[i]) || strchr("._-", name[i]);
        if (!good)
                return err_set(err, ERR_USAGE,
                               "\"%.70s\" is not an image name: use 1 to 64 of a-z, 0-9, \".\", \"_\" and \"-\", "
                               "beginning with a letter or digit",
                               name);
        return 0;
}

int store_open(const char *data_dir, int *ret_images_fd, struct err *err) {
        _cleanup_fd_ int data_fd = open(data_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (data_fd < 0)
                return err_sys(err, errno, "cannot open the data directory %.600s", data_dir);
        bool made = mkdirat(data_fd, "images", 0700) == 0;
        if (!made && errno != EEXIST)
                return err_sys(err, errno, "cannot make %.600s/images", data_dir);
        if (made && data_dir_mark(data_dir, err) < 0)
                return -1;
        int fd = open_beneath(data_fd, "images", O_RDONLY | O_DIRECTORY);
        if (fd < 0)
                return err_sys(err, -fd, "cannot open %.600s/images", data_dir);
        *ret_images_fd = fd;
        return 0;
}

static int compare_names(const void *a, const void *b) {
        return strcmp(a, b);
}

static DIR *read_images(int images_fd, struct err *err) {
        _cleanup_fd_ int fd = openat(images_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (!dir) {
                err_sys(err, errno, "cannot list the images");
                return NULL;
        }
        (void) take_fd(&fd);
        return dir;
}

int store_list(int images_fd, char (**ret_names)[65], size_t *ret_n, struct err *err) {
        _cleanup_dir_ DIR *dir = read_images(images_fd, err);
        if (!dir)
                return -1;
        _cleanup_free_ char(*names)[65] = NULL;
        size_t n = 0, room = 0;
        for (struct dirent *entry; (entry = readdir(dir));) {
                if (image_check_name(entry->d_name, NULL) < 0 || strcmp(entry->d_name, IMAGE_HOST) == 0)
                        continue;
                if (n == room) {
                        room = room ? room * 2 : 16;
                        char(*grown)[65] = reallocarray(names, room, sizeof(*names));
                        if (!grown)
                                return err_sys(err, ENOMEM, "cannot list the images");
                        names = grown;
                }
                strcpy(names[n++], entry->d_name); /* the check above bounds it */
        }
        if (n > 0)
                qsort(names, n, sizeof(*names), compare_names);
        *ret_names = take_ptr(names);
        *ret_n = n;
        return 0;
}

/* If a work directory can be locked, its process has ended. */
static void sweep_work_dirs(int images_fd) {
        _cleanup_dir_ DIR *dir = read_images(images_fd, NULL);
        for (struct dirent *entry; dir && (entry = readdir(dir));) {
                if (strncmp(entry->d_name, WORK_PREFIX, strlen(WORK_PREFIX)) != 0)
                        continue;
                _cleanup_fd_ int fd = open_beneath(images_fd, entry->d_name, O_RDONLY | O_DIRECTORY);
                if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
                        (void) remove_tree_at(images_fd, entry->d_name);
        }
}

int store_begin(int images_fd, struct store_work *ret_work, struct err *err) {
        /* Held only here: between another's mkdir and its lock, the sweep must not see the directory. */
        _cleanup_fd_ int lock_fd = openat(images_fd, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (lock_fd < 0)
                return err_sys(err, errno, "cannot lock the image store");
        while (flock(lock_fd, LOCK_EX) < 0)
                if (errno != EINTR)
                        return err_sys(err, errno, "cannot lock the image store");
        sweep_work_dirs(images_fd);
        struct store_work work = { .images_fd = images_fd, .fd = -1 };
        uint64_t random;
        if (getrandom(&random, sizeof(random), 0) != sizeof(random))
                return err_sys(err, errno, "cannot get random bytes");
        (void) snprintf(work.name, sizeof(work.name), WORK_PREFIX "%016" PRIx64, random);
        if (mkdirat(images_fd, work.name, 0700) < 0)
                return err_sys(err, errno, "cannot make a directory for the new image");
        work.fd = open_beneath(images_fd, work.name, O_RDONLY | O_DIRECTORY);
        if (work.fd < 0 || flock(work.fd, LOCK_EX | LOCK_NB) < 0) {
                int code = work.fd < 0 ? -work.fd : errno;
                store_end(&work);
                return err_sys(err, code, "cannot lock the directory for the new image");
        }
        *ret_work = work;
        return 0;
}

void store_end(struct store_work *work) {
        if (work->name[0])
                (void) remove_tree_at(work->images_fd, work->name);
        work->name[0] = '\0';
        fd_close(&work->fd);
}

int store_publish(struct store_work *work, const char *name, struct err *err) {
        /* A plain rename is enough: it never replaces a directory that has something in it, and an image has. */
        if (renameat(work->images_fd, work->name, work->images_fd, name) < 0) {
                if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)
                        return err_set(err, ERR_EXISTS,
                                       "there is an image \"%s\" already; remove it first (glovebox image rm %s) or "
                                       "choose another name",
                                       name, name);
                return err_sys(err, errno, "cannot put the image \"%s\" in its place", name);
        }
        work->name[0] = '\0';
        fd_close(&work->fd);
        return 0;
}

int store_replace(struct store_work *work, const char *image, const char *item, struct err *err) {
        _cleanup_fd_ int image_fd = make_directories_beneath(work->images_fd, image);
        if (image_fd < 0)
                return err_sys(err, -image_fd, "cannot open the image \"%s\"", image);
        if (renameat2(work->fd, item, image_fd, item, RENAME_EXCHANGE) == 0)
                return 0;
        /* EINVAL: a file system without RENAME_EXCHANGE. Then for a moment there is neither. */
        if (errno == EINVAL && renameat(image_fd, item, work->fd, "old") < 0 && errno != ENOENT)
                return err_sys(err, errno, "cannot move the old %s of the image \"%s\" away", item, image);
        if (renameat(work->fd, item, image_fd, item) < 0)
                return err_sys(err, errno, "cannot put the new %s of the image \"%s\" in its place", item, image);
        return 0;
}

int store_remove(int images_fd, const char *image, const char *item, struct err *err) {
        _cleanup_(store_end) struct store_work work = { .fd = -1 };
        if (store_begin(images_fd, &work, err) < 0)
                return -1;
        _cleanup_fd_ int from_fd = open_beneath(images_fd, item ? image : "", O_RDONLY | O_DIRECTORY);
        if (from_fd < 0 && from_fd != -ENOENT)
                return err_sys(err, -from_fd, "cannot open the image \"%s\"", image);
        if (from_fd < 0 || renameat(from_fd, item ? item : image, work.fd, "removed") < 0)
                return err_sys(err, from_fd < 0 ? ENOENT : errno, "cannot remove the image \"%s\"", image);
        return 0;
}
