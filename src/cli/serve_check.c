#include "cli/serve_check.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/memory.h"
#include "image/image.h"

/* "DIR:DIR:…": each must be there, or no mount below it ever is. */
static int check_directories(const char *option, const char *list, struct err *err) {
        while (list && *list) {
                char path[4096];
                struct stat status;
                size_t size = strcspn(list, ":");
                if (size >= sizeof(path))
                        return err_set(err, ERR_USAGE, "%s: a path is too long", option);
                memcpy(path, list, size);
                path[size] = '\0';
                if (size > 0 && *path != '/')
                        return err_set(err, ERR_USAGE, "%s: \"%.200s\" is not an absolute path", option, path);
                if (size > 0 && (stat(path, &status) < 0 || !S_ISDIR(status.st_mode)))
                        return err_set(err, ERR_USAGE, "%s: there is no directory \"%.200s\"; make it, or leave it out",
                                       option, path);
                list += size + (list[size] == ':');
        }
        return 0;
}

/* The project is the workspace of its sessions, and no mount may hold Glovebox's own files. Its directory .sandbox is
 * covered in boxes. */
static int check_project(const struct serve_options *options, struct err *err) {
        size_t size = strlen(options->project);
        _cleanup_free_ char *data_dir = size > 0 ? realpath(options->data_dir, NULL) : NULL;
        if (!data_dir || strncmp(data_dir, options->project, size) != 0 || (data_dir[size] != '/' && data_dir[size]))
                return 0;
        if (strncmp(data_dir + size, "/.sandbox/", strlen("/.sandbox/")) == 0)
                return 0;
        return err_set(err, ERR_USAGE,
                       "the data directory %.300s lies in the project %.300s, where boxes could reach it; name one "
                       "elsewhere with GLOVEBOX_DATA_DIR",
                       data_dir, options->project);
}

static int check_image(const struct serve_options *options, struct err *err) {
        bool is_shared;
        if (strcmp(options->image, "host") == 0)
                return 0;
        if (image_check_name(options->image, err) < 0)
                return -1;
        int fd = image_open_directory(options->data_dir, options->image, &is_shared);
        if (fd < 0)
                return err_set(err, ERR_USAGE,
                               "--image: there is no image \"%s\"; \"glovebox image list\" shows those there are",
                               options->image);
        fd_close(&fd);
        return 0;
}

/* A ceiling below what every sandbox gets by default would refuse them all. */
static int check_ceiling(const struct serve_options *options, struct err *err) {
        static const struct {
                const char *ceiling, *standard;
                size_t offset;
        } pairs[] = { { "--max-memory", "--memory", offsetof(struct limits, memory_bytes) },
                      { "--max-cpus", "--cpus", offsetof(struct limits, cpu_thousandths) },
                      { "--max-timeout", "--timeout", offsetof(struct limits, timeout_ms) } };
        for (size_t i = 0; i < ELEMENTS(pairs); i++) {
                uint64_t most = *(const uint64_t *) ((const char *) &options->ceiling + pairs[i].offset);
                uint64_t standard = *(const uint64_t *) ((const char *) &options->limits + pairs[i].offset);
                if (most && most < standard)
                        return err_set(err, ERR_USAGE,
                                       "%s is less than %s, which every sandbox gets that asks for "
                                       "nothing else; lower %s as well",
                                       pairs[i].ceiling, pairs[i].standard, pairs[i].standard);
        }
        return 0;
}

/* Host names as a Host header has them, without its port. */
static int check_names(const char *names, struct err *err) {
        static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
        while (names && *names) {
                size_t size = strcspn(names, ", ");
                if (strspn(names, letters) < size)
                        return err_set(err, ERR_USAGE,
                                       "--names: \"%.*s\" is not a host name; leave scheme, port and path out",
                                       (int) (size < 100 ? size : 100), names);
                names += size;
                names += strspn(names, ", ");
        }
        return 0;
}

/* Names of modules, which Python could import. */
static int check_preload(const char *list, struct err *err) {
        static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
        while (list && *list) {
                size_t size = strcspn(list, ", ");
                if (strspn(list, letters) < size || (size > 0 && strchr("0123456789.", *list)))
                        return err_set(err, ERR_USAGE,
                                       "--preload: \"%.*s\" is not a module's name; separate names by commas",
                                       (int) (size < 100 ? size : 100), list);
                list += size;
                list += strspn(list, ", ");
        }
        return 0;
}

int serve_check(const struct serve_options *options, const struct service_settings *service, struct err *err) {
        if (check_directories("--allow-read", options->allow_read, err) < 0 ||
            check_directories("--allow-write", options->allow_write, err) < 0 || check_project(options, err) < 0 ||
            check_image(options, err) < 0 || check_ceiling(options, err) < 0 || check_names(service->names, err) < 0 ||
            check_preload(options->preload, err) < 0)
                return -1;
        if (service->quota.sandboxes > service->sandboxes_max)
                return err_set(err, ERR_USAGE,
                               "--key-sandboxes (%llu) is more than --max-sandboxes (%llu), which all keys "
                               "have together",
                               (unsigned long long) service->quota.sandboxes,
                               (unsigned long long) service->sandboxes_max);
        return 0;
}
