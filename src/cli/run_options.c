#include "cli/run_options.h"

#include <string.h>

#include "base/memory.h"

#define FIELD(field) offsetof(struct run_options, field)

static const struct option_choice languages[] = {
        { "python", RUN_PYTHON }, { "bash", RUN_BASH }, { "sh", RUN_BASH }, { NULL, 0 },
};

static const struct option_choice networks[] = { { "none", RUN_NETWORK_NONE }, { NULL, 0 } };

static int parse_mount(const char *what, const char *text, void *target, struct err *err) {
        return run_request_add_mount(&((struct run_options *) target)->request, what, text, err);
}

static int parse_env(const char *what, const char *text, void *target, struct err *err) {
        return run_request_add_env(&((struct run_options *) target)->request, what, text, err);
}

#define MS_PER_DAY (24ull * 60 * 60 * 1000)

static const struct option_row rows[] = {
        { .name = "code", .letter = 'c', .kind = OPTION_CODE, .offset = FIELD(code_text), .argument = "CODE",
          .group = "Code", .once = true, .help = "run this text; operands become its arguments" },
        { .name = "language", .letter = 'l', .kind = OPTION_CHOICE, .offset = FIELD(language), .argument = "LANGUAGE",
          .group = "Code", .choices = languages,
          .help = "python, bash or sh; without it the ending of the file's name decides (.py, .sh, .bash), "
                  "and anything else is Python" },
        { .name = "image", .kind = OPTION_TEXT, .offset = FIELD(request.image), .argument = "NAME", .group = "Code",
          .variable = "GLOVEBOX_IMAGE", .standard = "host", .completion = COMPLETE_IMAGES,
          .help = "the file system to run in; \"glovebox image list\" shows what there is" },
        { .name = "env", .letter = 'e', .kind = OPTION_PARSED, .parse = parse_env, .argument = "NAME[=VALUE]",
          .group = "Code",
          .help = "set a variable inside, or pass your own on when there is no value; may be repeated. "
                  "Nothing else of your environment is visible inside" },

        { .name = "memory", .kind = OPTION_BYTES, .offset = FIELD(request.limits.memory_bytes), .argument = "SIZE",
          .group = "Limits", .variable = "GLOVEBOX_MEMORY", .standard = "512m", .min = 8 * MIB, .max = 1024 * GIB,
          .hint = "a Python interpreter alone needs about 16m", .help = "memory of everything in the box together" },
        { .name = "cpus", .kind = OPTION_THOUSANDTHS, .offset = FIELD(request.limits.cpu_thousandths),
          .argument = "NUMBER", .group = "Limits", .variable = "GLOVEBOX_CPUS", .standard = "1", .min = 10,
          .max = 1024 * 1000, .help = "processors, for example 0.5 or 2; thread pools inside are sized by it" },
        { .name = "pids", .kind = OPTION_COUNT, .offset = FIELD(request.limits.pids), .argument = "NUMBER",
          .group = "Limits", .variable = "GLOVEBOX_PIDS", .standard = "50", .min = 1, .max = 32768,
          .help = "processes and threads together" },
        { .name = "timeout", .kind = OPTION_DURATION, .offset = FIELD(request.limits.timeout_ms), .argument = "TIME",
          .group = "Limits", .variable = "GLOVEBOX_TIMEOUT", .standard = "60s", .min = 1, .max = 7 * MS_PER_DAY,
          .help = "wall-clock time, in seconds or for example 500ms, 2m, 1h" },
        { .name = "tmp-size", .kind = OPTION_BYTES, .offset = FIELD(request.limits.tmp_bytes), .argument = "SIZE",
          .group = "Limits", .variable = "GLOVEBOX_TMP_SIZE", .standard = "100m", .min = 1 * MIB, .max = 64 * GIB,
          .help = "size of /tmp" },
        { .name = "disk", .kind = OPTION_BYTES, .offset = FIELD(request.limits.disk_bytes), .argument = "SIZE",
          .group = "Limits", .variable = "GLOVEBOX_DISK", .standard = "1g", .min = 1 * MIB, .max = 1024 * GIB,
          .help = "size of an empty workspace, and of the largest file anywhere" },
        { .name = "disk-files", .kind = OPTION_COUNT, .offset = FIELD(request.limits.disk_files), .argument = "NUMBER",
          .group = "Limits", .variable = "GLOVEBOX_DISK_FILES", .standard = "100000", .min = 16, .max = 100000000,
          .help = "files and directories in an empty workspace" },

        { .name = "workspace", .kind = OPTION_TEXT, .offset = FIELD(request.workspace), .argument = "DIR",
          .group = "Files", .completion = COMPLETE_DIRECTORIES,
          .help = "show this directory, writable, as /workspace; without it the workspace is empty and is deleted "
                  "afterwards" },
        { .name = "data", .kind = OPTION_TEXT, .offset = FIELD(request.data), .argument = "DIR", .group = "Files",
          .completion = COMPLETE_DIRECTORIES, .help = "show this directory, read-only, as /data" },
        { .name = "mount", .kind = OPTION_PARSED, .parse = parse_mount, .argument = "SRC:DST[:ro|rw]", .group = "Files",
          .completion = COMPLETE_FILES,
          .help = "show a file or directory of the host at DST, read-only unless rw is asked for; may be repeated" },
        { .name = "output-dir", .kind = OPTION_TEXT, .offset = FIELD(request.output_dir), .argument = "DIR",
          .group = "Files", .completion = COMPLETE_DIRECTORIES,
          .help = "at the end, copy the artifacts (files that the run created or changed in /workspace) to DIR, and "
                  "not to a directory of this run in Glovebox's data directory" },

        { .name = "network", .kind = OPTION_CHOICE, .offset = FIELD(request.network), .argument = "MODE",
          .group = "Isolation", .variable = "GLOVEBOX_NETWORK", .standard = "none", .choices = networks,
          .hint = "lists of allowed hosts arrive with the service",
          .help = "none: no network but the box's own loopback" },
        { .name = "allow-weaker", .kind = OPTION_FLAG, .offset = FIELD(request.allow_weaker), .group = "Isolation",
          .variable = "GLOVEBOX_ALLOW_WEAKER",
          .help = "run although this host cannot enforce everything (\"glovebox doctor\" says what); the isolation "
                  "report then names what is missing" },

        { .name = "json", .kind = OPTION_FLAG, .offset = FIELD(request.json), .group = "Output",
          .help = "print the whole result as one JSON object: status, output, usage, artifacts, isolation" },
        { .name = "quiet", .letter = 'q', .kind = OPTION_FLAG, .offset = FIELD(request.quiet), .group = "Output",
          .help = "print nothing but what the program prints, and errors" },
        { .name = "verbose", .letter = 'v', .kind = OPTION_FLAG, .offset = FIELD(request.verbose), .group = "Output",
          .help = "say on standard error how long each phase took" },
};

const struct option_table run_option_table = { .rows = rows, .n_rows = ELEMENTS(rows) };

_Static_assert(ELEMENTS(rows) <= OPTION_ROWS_MAX, "the parser remembers what it has seen in one word");

int run_options_check(const struct run_options *options, struct err *err) {
        const struct run_request *request = &options->request;
        if (request->quiet && request->verbose)
                return err_set(err, ERR_USAGE, "--quiet and --verbose contradict each other; give one of them");
        for (size_t i = 0; i < request->n_mounts; i++) {
                const char *destination = request->mounts[i].destination;
                if ((request->data && strcmp(destination, "/data") == 0) ||
                    (request->workspace && strcmp(destination, "/workspace") == 0))
                        return err_set(err, ERR_USAGE, "--mount and --%s have the same destination; give one of them",
                                       destination + 1);
        }
        return 0;
}
