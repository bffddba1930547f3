#include "engine/entry_arguments.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/spec.h"
#include "engine/programs.h"

static json_t *number_text(uint64_t number) {
        char text[32];
        (void) snprintf(text, sizeof(text), "%" PRIu64, number);
        return json_string(text);
}

json_t *entry_arguments(const struct engine_order *order) {
        static const char *const writable[] = { BOX_WORKSPACE, "/tmp", BOX_HOME, "/dev/shm" };
        json_t *list = json_pack("[s]", ENGINE_PROGRAMS "/entry");
        json_array_append_new(list, number_text(order->network ? BOX_PROXY_PORT : 0));
        json_array_append_new(list, number_text(order->limits.memory_bytes));
        json_array_append_new(list, number_text(order->limits.pids));
        json_array_append_new(list, number_text(order->limits.disk_bytes));
        json_array_append_new(list, json_sprintf("%s%s", order->has_bounds ? "" : ENTRY_UNBOUNDED,
                                                 order->ret_workspace_fd ? ENTRY_SENDS_WORKSPACE : ""));
        for (size_t i = 0; i < ELEMENTS(writable); i++)
                json_array_append_new(list, json_string(writable[i]));
        for (size_t i = 0; i < order->n_mounts; i++)
                if (order->mounts[i].writable)
                        json_array_append_new(list, json_string(order->mounts[i].destination));
        return list;
}

int entry_arguments_write(const struct engine_order *order, struct err *err) {
        char path[600];
        (void) snprintf(path, sizeof(path), "%s/in/" ENGINE_ARGUMENTS_NAME, order->mount_dir);
        _cleanup_fd_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        int code = fd < 0 || fchmod(fd, 0644) < 0 ? -errno : 0; /* the umask may have cleared bits */
        json_t *list = entry_arguments(order), *text;
        size_t i;
        json_array_foreach (list, i, text)
                if (code == 0)
                        code = fd_write_all(fd, json_string_value(text), json_string_length(text) + 1);
        json_decref(list);
        return code < 0 ? err_sys(err, -code, "writing %.300s", path) : 0;
}
