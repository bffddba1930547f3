#include "session/outputs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "session/manager.h"
#include "session/serve_options.h"

enum { LOOKS_EACH = 10, LOOK_MS_MAX = 3600 * 1000 };

/* The time of day when the daemon started plus the time since, so that a jump of the clock does not age outputs. */
static int64_t steady_ms(const struct session_manager *manager) {
        return manager->started_wall_ms + (int64_t) (loop_now_ms() - manager->started_ms);
}

void outputs_stamp(const struct session_manager *manager, const char *path) {
        int64_t now = steady_ms(manager);
        const struct timespec when = { .tv_sec = now / 1000, .tv_nsec = now % 1000 * 1000000 };
        (void) utimensat(AT_FDCWD, path, (const struct timespec[]) { when, when }, AT_SYMLINK_NOFOLLOW);
}

void outputs_sweep(struct session_manager *manager) {
        uint64_t keep_ms = manager->options->keep_outputs_ms, now = loop_now_ms();
        uint64_t every_ms = keep_ms / LOOKS_EACH < LOOK_MS_MAX ? keep_ms / LOOKS_EACH : LOOK_MS_MAX;
        if (!keep_ms || (manager->outputs_swept_ms && now - manager->outputs_swept_ms < every_ms))
                return;
        manager->outputs_swept_ms = now;
        char path[4200];
        (void) snprintf(path, sizeof(path), "%s/outputs", manager->data_dir);
        DIR *directory = opendir(path);
        struct dirent *entry;
        while (directory && (entry = readdir(directory))) {
                struct stat status;
                if (entry->d_name[0] == '.' ||
                    fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
                    steady_ms(manager) - (int64_t) status.st_mtim.tv_sec * 1000 < (int64_t) keep_ms)
                        continue;
                char old[4500];
                (void) snprintf(old, sizeof(old), "%s/%.255s", path, entry->d_name);
                janitor_remove(&manager->janitor, old);
        }
        if (directory)
                (void) closedir(directory);
}
