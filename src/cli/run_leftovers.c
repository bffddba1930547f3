#include "cli/run_leftovers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "box/spec.h"
#include "cli/ui/terminal.h"

enum { VISITS_MAX = 4096, NAMED_MAX = 3, NAME_SHOWN_MAX = 80 };

bool run_leftovers_passes_over(const char *name) {
        return name[0] == '.' || strcmp(name, "artifacts") == 0 || strcmp(name, "__pycache__") == 0;
}

/* A --mount below the workspace: its files are the host's. */
static bool leftovers_is_mount(const struct run_request *request, const char *name) {
        static const char below[] = BOX_WORKSPACE "/";
        size_t size = strlen(name);
        for (size_t i = 0; i < request->n_mounts; i++) {
                const char *destination = request->mounts[i].destination;
                if (strncmp(destination, below, sizeof(below) - 1) != 0)
                        continue;
                destination += sizeof(below) - 1;
                if (strncmp(destination, name, size) == 0 && (!destination[size] || destination[size] == '/'))
                        return true;
        }
        return false;
}

/* Links lead to the files beside the script. */
static bool leftovers_count(const struct run_request *request, int directory_fd, const struct dirent *entry) {
        struct stat status;
        if (run_leftovers_passes_over(entry->d_name) || leftovers_is_mount(request, entry->d_name))
                return false;
        if (entry->d_type != DT_UNKNOWN)
                return entry->d_type == DT_REG || entry->d_type == DT_DIR;
        return fstatat(directory_fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
               (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
}

static void leftovers_name(char *text, size_t room, size_t n, const char *name) {
        char shown[NAME_SHOWN_MAX + 4];
        size_t used = strlen(text);
        (void) snprintf(shown, sizeof(shown), strlen(name) > NAME_SHOWN_MAX ? "%.*s..." : "%.*s", NAME_SHOWN_MAX, name);
        terminal_make_harmless(shown);
        (void) snprintf(text + used, room - used, "%s%s", n ? ", " : "", shown);
}

bool run_leftovers_describe(const struct run_request *request, int workspace_fd,
                            char ret_text[static RUN_LEFTOVERS_TEXT_MAX]) {
        char names[NAMED_MAX * (NAME_SHOWN_MAX + 6)] = "", more[40] = "";
        size_t n = 0;
        int fd = workspace_fd < 0 ? -1 : openat(workspace_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *directory = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *entry;
        for (size_t visits = 0; directory && visits < VISITS_MAX && (entry = readdir(directory)); visits++) {
                if (!leftovers_count(request, fd, entry))
                        continue;
                if (n < NAMED_MAX)
                        leftovers_name(names, sizeof(names), n, entry->d_name);
                n++;
        }
        if (directory)
                (void) closedir(directory);
        else
                fd_close(&fd);
        if (n > NAMED_MAX)
                (void) snprintf(more, sizeof(more), " and %zu more", n - NAMED_MAX);
        (void) snprintf(ret_text, RUN_LEFTOVERS_TEXT_MAX,
                        "%s%s %s written to the box's workspace, which is gone: \"--workspace .\" keeps %s, or write "
                        "below artifacts/",
                        names, more, n == 1 ? "was" : "were", n == 1 ? "it" : "them");
        return n > 0;
}
