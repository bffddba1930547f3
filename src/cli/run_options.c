#include "cli/run_options.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/units.h"
#include "cli/box_rows.h"

#define FIELD(field) offsetof(struct run_options, field)

static const struct option_choice languages[] = {
        { "python", RUN_PYTHON },
        { "bash", RUN_BASH },
        { "sh", RUN_BASH },
        { NULL, 0 },
};

static const struct option_row rows[] = {
        { .name = "code",
          .letter = 'c',
          .kind = OPTION_CODE,
          .offset = FIELD(code_text),
          .argument = "CODE",
          .group = "Code",
          .once = true,
          .help = "run this text; operands become its arguments" },
        { .name = "module",
          .letter = 'm',
          .kind = OPTION_TEXT,
          .offset = FIELD(module),
          .argument = "MODULE",
          .group = "Code",
          .once = true,
          .is_last = true,
          .help = "run this Python module, as python3 -m does; all that follows are its arguments" },
        { .name = "language",
          .letter = 'l',
          .kind = OPTION_CHOICE,
          .offset = FIELD(language),
          .argument = "LANGUAGE",
          .group = "Code",
          .choices = languages,
          .help = "python, bash or sh; default: by the file's suffix (.py, .sh, .bash, .js, .R, .rb, .pl), then by "
                  "its #! line, else Python" },
        { .name = "alone",
          .kind = OPTION_FLAG,
          .offset = FIELD(alone),
          .group = "Code",
          .help = "mount only the script, not the files beside it" },
        BOX_IMAGE_ROW(FIELD(request.image), SHOWN),
        BOX_ENV_ROW(FIELD(request)),

        LIMIT_ROWS(FIELD(request.limits), SHOWN),
        { .name = "disk-files",
          .kind = OPTION_COUNT,
          .offset = FIELD(request.limits.disk_files),
          .argument = "NUMBER",
          .group = "Limits",
          .variable = "GLOVEBOX_DISK_FILES",
          .standard = "100000",
          .min = 16,
          .max = 100000000,
          .help = "files and directories in an empty workspace" },

        BOX_FILE_ROWS(FIELD(request), "it is empty and is deleted afterwards"),
        { .name = "output-dir",
          .kind = OPTION_TEXT,
          .offset = FIELD(request.output_dir),
          .argument = "DIR",
          .group = "Files",
          .completion = COMPLETE_DIRECTORIES,
          .help = "at the end, copy the artifacts (files that the run created or changed in /workspace/artifacts) to "
                  "DIR instead of Glovebox's data directory" },

        BOX_NETWORK_ROWS(FIELD(request), SHOWN),
        EGRESS_ROWS(FIELD(request.egress)),
        BOX_ENGINE_ROWS(FIELD(request)),
        BOX_WEAKER_ROW(FIELD(request.allow_weaker)),

        { .name = "json",
          .kind = OPTION_FLAG,
          .offset = FIELD(request.json),
          .group = "Output",
          .help = "print the whole result as one JSON object: status, output, usage, artifacts, isolation" },
        { .name = "quiet",
          .letter = 'q',
          .kind = OPTION_FLAG,
          .offset = FIELD(request.quiet),
          .group = "Output",
          .help = "print only the program's output, and errors" },
        { .name = "verbose",
          .letter = 'v',
          .kind = OPTION_FLAG,
          .offset = FIELD(request.verbose),
          .group = "Output",
          .help = "print on standard error how the box was made, and the time of each step" },

        SOCKET_ROWS(FIELD(where)),
        { .name = "warm",
          .kind = OPTION_FLAG,
          .offset = FIELD(warm),
          .group = "Daemon",
          .variable = "GLOVEBOX_WARM",
          .help = "start a daemon if none is running, so that this and later runs get a warm box" },
        { .name = "no-daemon",
          .kind = OPTION_FLAG,
          .offset = FIELD(no_daemon),
          .group = "Daemon",
          .variable = "GLOVEBOX_NO_DAEMON",
          .help = "do not use a daemon, even if one is running" },
};

/* Of docker run. */
#define TERMINAL_HABIT "standard input and output are passed on always; for lines typed one by one: glovebox repl NAME"
#define PUBLISH_HABIT "a box takes no connections from outside"
#define WORKDIR_HABIT "a run starts in /workspace: --workspace DIR shows a directory there"
#define USER_HABIT "a box has one user, without privileges; in a session: glovebox session new NAME --users"
#define PRIVILEGE_HABIT "leave it out: a box never has privileges"
#define DETACH_HABIT "for a box that stays: glovebox exec NAME"
static const struct option_habit habits[] = {
        { "it", TERMINAL_HABIT },
        { "ti", TERMINAL_HABIT },
        { "i", TERMINAL_HABIT },
        { "t", TERMINAL_HABIT },
        { "interactive", TERMINAL_HABIT },
        { "tty", TERMINAL_HABIT },
        { "rm", "leave it out: the box is removed at the end anyway" },
        { "d", DETACH_HABIT },
        { "detach", DETACH_HABIT },
        { "name", DETACH_HABIT },
        { "p", PUBLISH_HABIT },
        { "publish", PUBLISH_HABIT },
        { "volume", "to mount a directory: --mount HOST-DIRECTORY:DIRECTORY" },
        { "gpus", "a box has no GPU" },
        { "w", WORKDIR_HABIT },
        { "workdir", WORKDIR_HABIT },
        { "u", USER_HABIT },
        { "user", USER_HABIT },
        { "read-only", "leave it out: of the host, a box writes only to --workspace and to --mount …:rw" },
        { "cap-drop", PRIVILEGE_HABIT },
        { "cap-add", PRIVILEGE_HABIT },
        { "privileged", PRIVILEGE_HABIT },
        { "security-opt", PRIVILEGE_HABIT },
        { "entrypoint", "to run a command: -- COMMAND" },
        { NULL, NULL },
};

const struct option_table run_option_table = { .rows = rows, .n_rows = ELEMENTS(rows), .habits = habits };

_Static_assert(ELEMENTS(rows) <= OPTION_ROWS_MAX, "the parser remembers what it has seen in one word");

/* The mount policy reports paths that do not exist. */
static int check_directory(const char *option, const char *path, const char *instead, struct err *err) {
        struct stat status;
        bool is_there = path && stat(path, &status) == 0;
        if (!path || (is_there && S_ISDIR(status.st_mode)) || (!is_there && errno != ENOTDIR))
                return 0;
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
        if (!instead || !is_there)
                return err_set(err, ERR_USAGE, "--%s: %.400s is not a directory", option, path);
        return err_set(err, ERR_USAGE,
                       "--%s: %.400s is not a directory; to show a single file: --mount %.400s:%s%.200s", option, path,
                       path, instead, name);
}

/* A size where a module's name belongs: `docker run -m 512m` limits the memory. */
static int check_module(const struct run_options *options, struct err *err) {
        uint64_t bytes;
        if (!options->module)
                return 0;
        if (options->code_text)
                return err_set(err, ERR_USAGE, "-c gives code and -m names a module; give one of them");
        if (strchr("0123456789", *options->module) &&
            units_parse_bytes("-m", options->module, 0, UINT64_MAX, &bytes, NULL) == 0)
                return err_set(err, ERR_USAGE, "-m names a Python module; to limit the memory: --memory %.20s",
                               options->module);
        return 0;
}

static int check_mounts(const struct run_request *request, struct err *err) {
        for (size_t i = 0; i < request->n_mounts; i++) {
                const char *destination = request->mounts[i].destination;
                if ((request->data && strcmp(destination, "/data") == 0) ||
                    (request->workspace && strcmp(destination, "/workspace") == 0))
                        return err_set(err, ERR_USAGE, "--mount and --%s have the same destination; give one of them",
                                       destination + 1);
        }
        if (check_directory("data", request->data, "/data/", err) < 0)
                return -1;
        return check_directory("workspace", request->workspace, NULL, err);
}

int run_options_check(const struct run_options *options, struct err *err) {
        const struct run_request *request = &options->request;
        if (request->quiet && request->verbose)
                return err_set(err, ERR_USAGE, "--quiet and --verbose contradict each other; give one of them");
        if (request->network == RUN_NETWORK_FULL && request->n_hosts)
                return err_set(err, ERR_USAGE,
                               "--network full reaches every public host already; leave --allow-host "
                               "out, or --network full");
        if (check_module(options, err) < 0)
                return -1;
        if (options->warm && options->no_daemon)
                return err_set(err, ERR_USAGE, "--warm and --no-daemon contradict each other; give one of them");
        return check_mounts(request, err);
}
