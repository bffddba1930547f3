#include "cli/run_script_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/data_dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "box/policy.h"
#include "box/spec.h"
#include "cli/run_leftovers.h"

enum { LINKS_MAX = 1000, NAME_SHOWN_MAX = 255 };

static void be_alone(struct run_request *request, const char *reason) {
        request->is_alone = true;
        (void) snprintf(request->alone_reason, sizeof(request->alone_reason), "%.199s", reason);
}

/* A read-only mount does not prevent a connect to a socket in it. Only the top is examined: a deeper search could take
 * long. */
static void refuse_sockets(struct run_request *request) {
        DIR *directory = request->is_alone ? NULL : opendir(request->script_dir);
        struct dirent *entry;
        while (directory && (entry = readdir(directory))) {
                struct stat status;
                if (entry->d_type != DT_SOCK &&
                    (entry->d_type != DT_UNKNOWN ||
                     fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
                     !S_ISSOCK(status.st_mode)))
                        continue;
                char reason[NAME_SHOWN_MAX + 64];
                (void) snprintf(reason, sizeof(reason), "the UNIX socket %.120s is in it", entry->d_name);
                be_alone(request, reason);
                break;
        }
        if (directory)
                (void) closedir(directory);
}

static int ask_policy(struct run_request *request, bool is_first_look, struct err *err) {
        char data_dir[4096];
        if (!request->code_source || request->is_alone)
                return 0;
        if (data_dir_open(data_dir, err) < 0)
                return -1;
        const struct policy policy = { .is_operator = true, .is_first_look = is_first_look, .state_dir = data_dir };
        struct err why;
        _cleanup_fd_ int fd = -1;
        if (policy_open_source(&policy, request->script_dir, false, &fd, &why) < 0)
                be_alone(request, why.message);
        return 0;
}

int run_script_files_choose(struct run_request *request, struct err *err) {
        if (!request->code_source)
                return 0;
        const char *slash = strrchr(request->code_source, '/');
        request->script_dir = strndup(request->code_source,
                                      slash == request->code_source ? 1 : (size_t) (slash - request->code_source));
        if (!request->script_dir)
                return err_set(err, ERR_SYSTEM, "out of memory");
        struct stat status;
        if (!request->is_alone && stat(request->script_dir, &status) == 0 && (status.st_mode & S_ISVTX) &&
            (status.st_mode & S_IWOTH))
                be_alone(request, "all users can write to it");
        refuse_sockets(request);
        return ask_policy(request, true, err);
}

int run_script_files_confirm(struct run_request *request, struct err *err) {
        return ask_policy(request, false, err);
}

void run_script_files_link(const struct run_request *request, int workspace_fd) {
        if (!request->code_source || request->is_alone || request->workspace)
                return;
        DIR *directory = opendir(request->script_dir);
        struct dirent *entry;
        for (size_t n = 0; directory && n < LINKS_MAX && (entry = readdir(directory));) {
                char target[sizeof(BOX_CODE_DIR) + sizeof(entry->d_name) + 1];
                if (run_leftovers_passes_over(entry->d_name))
                        continue;
                (void) snprintf(target, sizeof(target), BOX_CODE_DIR "/%s", entry->d_name);
                n += symlinkat(target, workspace_fd, entry->d_name) == 0; /* a link that cannot be made is no error */
        }
        if (directory)
                (void) closedir(directory);
}
