#include "spawn/kernel_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

int kernel_files_find(char *ret_path, size_t room, struct err *err) {
        static const char *const beside[] = { "../guest/kernel", "../share/glovebox/kernel", "../../guest/kernel" };
        char program[4096], path[4300];
        const char *given = getenv("GLOVEBOX_KERNEL_DIR");
        if (given && *given) {
                (void) snprintf(ret_path, room, "%s", given);
                return 0;
        }
        ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
        if (length < 0)
                return err_sys(err, errno, "finding this program");
        program[length] = '\0';
        *strrchr(program, '/') = '\0';
        for (size_t i = 0; i < ELEMENTS(beside); i++) {
                (void) snprintf(path, sizeof(path), "%s/%s/glovebox_kernel/main.py", program, beside[i]);
                if (access(path, R_OK) < 0)
                        continue;
                (void) snprintf(path, sizeof(path), "%s/%s", program, beside[i]);
                _cleanup_free_ char *real = realpath(path, NULL);
                (void) snprintf(ret_path, room, "%s", real ? real : path);
                return 0;
        }
        return err_set(err, ERR_NOT_FOUND,
                       "the kernel's Python files are not beside %s; reinstall, or set GLOVEBOX_KERNEL_DIR", program);
}
