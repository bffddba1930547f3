/* Whatever /proc and the control groups' files say must be read without harm. Every reader
 * sees every input. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "box/cgroup/cgroup_text.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition) {
        if (!condition)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        char *text = text_of(data, size);
        static const char *const controllers[] = { NULL, "memory", "cpu" };
        for (size_t i = 0; i < 3; i++) {
                struct cgroup_mount mount;
                char path[CGROUP_PATH_MAX], dir[CGROUP_PATH_MAX];
                int has_mount = cgroup_text_find_mount(text, controllers[i], &mount) == 0;
                if (has_mount)
                        must(mount.point[0] == '/' && mount.root[0] == '/');
                if (cgroup_text_find_own(text, controllers[i], path) == 0 && has_mount &&
                    cgroup_text_locate(&mount, path, dir) == 0) {
                        size_t point = strlen(mount.point);
                        must(strncmp(dir, mount.point, point) == 0 && !strstr(dir + point, "/../"));
                        char common[CGROUP_PATH_MAX];
                        cgroup_text_common(dir, mount.point, common);
                        must(common[0] == '/' && strlen(common) <= strlen(dir));
                }
        }
        uint64_t number;
        int pid;
        (void) cgroup_text_find_number(text, "oom_kill", &number);
        (void) cgroup_text_has_word(text, "memory");
        for (const char *at = text; cgroup_text_next_pid(&at, &pid);)
                must(pid > 0);
        if (cgroup_text_is_relative(text))
                must(text[0] != '/' && strncmp(text, "../", 3) != 0 && !strstr(text, "/../"));
        free(text);
        return 0;
}
