#include "image/path.h"

#include <limits.h>
#include <string.h>

const char *path_for_message(const char *path, char buffer[static 204]) {
        size_t i;
        for (i = 0; i < 200 && path[i]; i++)
                buffer[i] = path[i] >= ' ' && path[i] < 127 ? path[i] : '?';
        strcpy(buffer + i, path[i] ? "..." : "");
        return buffer;
}

int path_clean(const char *path, char ret_clean[static BOUND_PATH + 1], struct err *err) {
        char shown[204];
        size_t length = 0;
        int depth = 0;
        if (strlen(path) > BOUND_PATH)
                return err_set(err, ERR_LIMIT, "a path of the archive is longer than %d bytes", BOUND_PATH);
        ret_clean[0] = '\0';
        for (const char *at = path; *at;) {
                size_t size = strcspn(at, "/");
                const char *component = at;
                at += size + (at[size] == '/');
                if (size == 0 || (size == 1 && component[0] == '.'))
                        continue;
                if (size == 2 && component[0] == '.' && component[1] == '.')
                        return err_set(err, ERR_REFUSED,
                                       "the archive's entry \"%s\" has \"..\" in its path; nothing was imported",
                                       path_for_message(path, shown));
                if (size > NAME_MAX || ++depth > BOUND_DEPTH)
                        return err_set(err, ERR_LIMIT,
                                       "the archive's entry \"%s\" has a name that is too long or too deep",
                                       path_for_message(path, shown));
                if (length > 0)
                        ret_clean[length++] = '/';
                memcpy(ret_clean + length, component, size);
                length += size;
                ret_clean[length] = '\0';
        }
        return 0;
}

const char *path_split(const char *clean, char ret_parent[static BOUND_PATH + 1]) {
        const char *slash = strrchr(clean, '/');
        size_t length = slash ? (size_t) (slash - clean) : 0;
        memcpy(ret_parent, clean, length);
        ret_parent[length] = '\0';
        return slash ? slash + 1 : clean;
}
