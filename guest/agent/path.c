#include "path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

int path_get(struct frame_reader *fields, char **ret_path) {
        char *path = NULL;
        if (!frame_get_text(fields, &path))
                return -EPROTO;
        int code = path[0] != '/' ? -EINVAL : strlen(path) >= PATH_MAX ? -ENAMETOOLONG : 0;
        if (code < 0)
                free(path);
        else
                *ret_path = path;
        return code;
}

int path_open_parent(const char *path, const char **ret_name) {
        const char *slash = strrchr(path, '/');
        if (!slash || strlen(path) >= PATH_MAX)
                return -EINVAL;
        const char *name = slash + 1;
        if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
                return -EINVAL;
        char parent[PATH_MAX];
        size_t size = slash == path ? 1 : (size_t) (slash - path);
        memcpy(parent, path, size);
        parent[size] = '\0';
        int fd = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        *ret_name = name;
        return fd;
}
