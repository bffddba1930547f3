#include "base/private_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"

int private_dir_mark(int dir_fd) {
        static const char text[] = "This directory belongs to Glovebox. No box is shown it, nor a directory above it.\n"
                                   "Remove this file only if nothing of Glovebox is in here any more.\n";
        if (private_dir_is_marked(dir_fd))
                return 0;
        _cleanup_fd_ int fd =
                openat(dir_fd, PRIVATE_DIR_MARKER, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
        if (fd < 0)
                return errno == EEXIST ? 0 : -errno;
        return fd_write_all(fd, text, sizeof(text) - 1);
}

bool private_dir_is_marked(int dir_fd) {
        return faccessat(dir_fd, PRIVATE_DIR_MARKER, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool private_dir_is_socket_name(const char *name) {
        static const char *const names[] = { "glovebox.sock", "glovebox-api.sock", "kernel.sock", "kernel-api.sock",
                                             "vault.sock" };
        for (size_t i = 0; i < ELEMENTS(names); i++)
                if (strcmp(name, names[i]) == 0)
                        return true;
        size_t length = strlen(name);
        return strncmp(name, "project-", 8) == 0 && length > 5 && strcmp(name + length - 5, ".sock") == 0;
}
