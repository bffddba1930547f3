#include "base/memory.h"
#include "cli/docker_build_verb.h"
#include "cli/exec_verb.h"
#include "cli/key_verb.h"
#include "cli/mcp_verb.h"
#include "cli/process_verb.h"
#include "cli/run_options.h"
#include "cli/serve_verb.h"
#include "cli/session_request.h"
#include "cli/session_verb.h"
#include "cli/verb.h"

/* `image` and `doctor` read their own options; these rows are for the help, the completion and the man page. */
#define JSON_ROW { .name = "json", .kind = OPTION_FLAG, .group = "Options", .help = "print JSON" }
#define TABLE(array) { .rows = (array), .n_rows = ELEMENTS(array), .operands_anywhere = true }

static const struct option_row json_rows[] = { JSON_ROW };
static const struct option_table json_table = TABLE(json_rows);

static const struct option_row image_list_rows[] = {
        JSON_ROW,
        { .name = "names", .kind = OPTION_FLAG, .group = "Options", .help = "print names only, one per line" },
};
static const struct option_row image_import_rows[] = {
        { .name = "max-size",
          .kind = OPTION_BYTES,
          .argument = "SIZE",
          .group = "Options",
          .standard = "20g",
          .help = "refuse an image larger than this" },
};
static const struct option_row image_build_rows[] = {
        { .name = "packages",
          .kind = OPTION_TEXT,
          .argument = "LIST",
          .group = "Options",
          .help = "install these, separated by commas or blanks, instead of the standard scientific ones" },
        { .name = "requirements",
          .kind = OPTION_TEXT,
          .argument = "FILE",
          .group = "Options",
          .completion = COMPLETE_FILES,
          .help = "install the packages in this requirements file" },
        { .name = "allow-source",
          .kind = OPTION_FLAG,
          .group = "Options",
          .help = "build packages that have no wheel, which runs their code on this host" },
};

static const struct option_row image_rm_rows[] = {
        { .name = "force",
          .letter = 'f',
          .kind = OPTION_FLAG,
          .group = "Options",
          .help = "do not ask, even if sessions use it" },
};

static const struct verb_part image_parts[] = {
        { .name = "list", .operands = "", .summary = "list the images", .options = TABLE(image_list_rows) },
        { .name = "show",
          .operands = "NAME",
          .summary = "show an image and its origin",
          .options = TABLE(json_rows),
          .completion = COMPLETE_IMAGES },
        { .name = "import",
          .operands = "NAME FILE.tar|DIR|-",
          .summary = "unpack the output of docker save or docker export, an OCI layout or a root file system",
          .options = TABLE(image_import_rows),
          .completion = COMPLETE_FILES },
        { .name = "build",
          .operands = "[NAME]",
          .summary = "install the layer of Python packages with pip",
          .options = TABLE(image_build_rows),
          .completion = COMPLETE_IMAGES },
        { .name = "docker-build",
          .operands = "",
          .summary = "build the standard image of boxes with docker or podman",
          .options = { .rows = docker_build_rows, .n_rows = DOCKER_BUILD_ROWS, .operands_anywhere = true } },
        { .name = "rm",
          .operands = "NAME",
          .summary = "delete an image; asks first if sessions use it",
          .options = TABLE(image_rm_rows),
          .completion = COMPLETE_IMAGES },
};

static const struct verb_part completion_parts[] = {
        { .name = "bash", .operands = "", .summary = "for bash" },
        { .name = "zsh", .operands = "", .summary = "for zsh" },
        { .name = "fish", .operands = "", .summary = "for fish" },
};

static const struct option_row help_rows[] = {
        { .name = "tables",
          .kind = OPTION_FLAG,
          .group = "Options",
          .help = "print the tables of verbs and options as JSON, for tools" },
};
static const struct option_table help_table = TABLE(help_rows);

static const char run_synopsis[] = "glovebox run [OPTION...] FILE [ARGUMENT...]\n"
                                   "glovebox run [OPTION...] -c CODE [ARGUMENT...]\n"
                                   "glovebox run [OPTION...] -m MODULE [ARGUMENT...]\n"
                                   "glovebox run [OPTION...] - [ARGUMENT...]          code from standard input\n"
                                   "glovebox run [OPTION...] -- COMMAND [ARGUMENT...]\n";

static const char run_description[] =
        "Runs code in a fresh sealed box: its own file system, processes and users, no network, no privileges, hard "
        "limits. Output appears as it is written. When the run ends, the box is removed.\n"
        "\"glovebox run FILE\" behaves like \"python3 FILE\", with or without a daemon. The files beside FILE are "
        "readable in the box.\n"
        "Options come before FILE; the words after it are arguments of the program. Sizes are written 512m or 1g, in "
        "powers of 1024. The variable beside an option sets its default.\n";

static const char run_epilogue[] =
        "Examples\n"
        "  glovebox run -c 'print(6*7)'\n"
        "  glovebox run --memory 2g --timeout 5m --data ./datasets analysis.py --fast\n"
        "  glovebox run -l bash -c 'ls -la; id'\n"
        "  generate-code | glovebox run --json | jq .status\n"
        "  glovebox run --workspace . -- gcc -o hello hello.c\n"
        "  glovebox run --mount ~/models:/models --env API_MODE=test script.py\n"
        "  glovebox run --image NAME --                   the image's own ENTRYPOINT and CMD\n"
        "\n"
        "Exit status\n"
        "  that of the program, and\n"
        "  2      wrong usage: nothing was run\n"
        "  124    the time limit was reached\n"
        "  125    the box could not be made: nothing was run\n"
        "  126    the command was found and cannot be executed\n"
        "  127    the image has no such command\n"
        "  128+N  signal N ended the program\n"
        "  137    the memory limit was reached (a line on standard error says so), or signal 9\n";

static const char exec_synopsis[] = "glovebox exec [OPTION...] SESSION [OPTION...] -c CODE [ARGUMENT...]\n"
                                    "glovebox exec [OPTION...] SESSION [OPTION...] FILE [ARGUMENT...]\n"
                                    "glovebox exec [OPTION...] SESSION [OPTION...] -        code from standard input\n"
                                    "glovebox exec [OPTION...] SESSION [OPTION...] -- COMMAND [ARGUMENT...]\n";

static const char exec_description[] =
        "Runs code or a command in a session: a sealed box that keeps its files and its Python variables. Creates the "
        "session with the limits given here if it does not exist, and starts a daemon if none is running. Output "
        "appears as it is written, then the value of the last expression. Code can read your standard input. As in a "
        "notebook, _ is the last value, and !ls, %timeit, %%bash and df? work.\n"
        "Ctrl-C interrupts the code, and variables stay. Code that does not react within 2 s is killed, and they are "
        "lost. After a second Ctrl-C the command does not wait for that; the next call reports the outcome.\n";

static const char exec_epilogue[] =
        "Examples\n"
        "  glovebox exec demo -c 'import pandas as pd; df = pd.DataFrame({\"x\": [1, 2, 3]})'\n"
        "  glovebox exec demo -c 'df.x.sum()'\n"
        "  glovebox exec demo --memory 4g --data ./datasets analysis.py\n"
        "  glovebox exec demo -- ls -la\n"
        "\n"
        "Exit status\n"
        "  as for run: 0; 1 if the code raised an exception; that of the command; and\n"
        "  124    the time limit was reached\n"
        "  130    it was interrupted\n"
        "  153    the disk limit was reached\n"
        "  137    the memory limit was reached, or it was killed\n";

const struct verb verbs[] = {
        { .name = "run",
          .summary = "run code or a command in a fresh sealed box",
          .run = verb_run,
          .synopsis = run_synopsis,
          .description = run_description,
          .options = &run_option_table,
          .completion = COMPLETE_FILES,
          .epilogue = run_epilogue },
        { .name = "exec",
          .summary = "run code or a command in a session that keeps its variables",
          .run = verb_exec,
          .synopsis = exec_synopsis,
          .description = exec_description,
          .options = &exec_option_table,
          .completion = COMPLETE_SESSIONS,
          .epilogue = exec_epilogue },
        { .name = "repl",
          .summary = "an interactive Python prompt in a session",
          .run = verb_repl,
          .synopsis = "glovebox repl [OPTION...] SESSION\n",
          .description = "Runs each line, or block up to an empty line, in the session, like \"glovebox exec\". Arrow "
                         "keys recall earlier lines, Tab completes names, Ctrl-C interrupts, exit or Ctrl-D leaves; "
                         "the session stays.\n",
          .options = &repl_option_table,
          .completion = COMPLETE_SESSIONS },
        { .name = "session",
          .summary = "list, show, create, remove, interrupt and hibernate sessions; install packages",
          .run = verb_session,
          .synopsis = "glovebox session VERB [OPTION...] [NAME...]\n",
          .description = "A session is a box with a Python interpreter that keeps its variables. It survives a restart "
                         "of the daemon, and hibernates when it is idle.\n",
          .parts = session_parts,
          .n_parts = SESSION_PARTS,
          .epilogue = "Examples\n"
                      "  glovebox session new demo --memory 2g --workspace ./project\n"
                      "  glovebox session log demo\n"
                      "  glovebox session rm demo\n" },
        { .name = "ps",
          .summary = "list sessions and runs, those without a daemon included",
          .run = verb_ps,
          .synopsis = "glovebox ps [OPTION...]\n",
          .description = "Memory does not include page cache that Linux can drop. Runs without a daemon are listed if "
                         "they use the same data directory.\n",
          .options = &ps_option_table },
        { .name = "top",
          .summary = "the same, updated, with the CPU usage",
          .run = verb_top,
          .synopsis = "glovebox top [OPTION...]\n",
          .description = "q, Enter or Ctrl-C ends it.\n",
          .options = &top_option_table },
        { .name = "kill",
          .summary = "end a run",
          .run = verb_kill,
          .synopsis = "glovebox kill [-9] NAME|ID...\n",
          .description = "Ends an ephemeral run. Interrupts the current run of a session; if it does not react within "
                         "three seconds, ends its interpreter, and the variables are lost. The session and its files "
                         "stay. \"glovebox ps\" shows names and ids; six characters of an id are enough.\n",
          .options = &kill_option_table,
          .completion = COMPLETE_SESSIONS },
        { .name = "logs",
          .summary = "print the output of a session's last runs",
          .run = verb_logs,
          .synopsis = "glovebox logs [OPTION...] NAME\n",
          .description = "Follows an active run to its end. \"glovebox session log NAME\" lists the runs.\n",
          .options = &logs_option_table,
          .completion = COMPLETE_SESSIONS },
        { .name = "cp",
          .summary = "copy files between the host and a session",
          .run = verb_cp,
          .synopsis = "glovebox cp FILE|DIR|- SESSION:PATH\n"
                      "glovebox cp SESSION:PATH FILE|DIR|-\n",
          .description = "PATH is in the session's workspace, with or without a leading /workspace. Directories are "
                         "copied with their contents; symbolic links of a session are skipped. - is standard input or "
                         "output. The operator writes KEY/NAME:PATH for a sandbox of a key.\n",
          .options = &cp_option_table,
          .completion = COMPLETE_FILES,
          .epilogue = "Examples\n"
                      "  glovebox cp data.csv demo:data/\n"
                      "  glovebox cp demo:artifacts ./results\n"
                      "  glovebox cp demo:report.txt - | less\n" },
        { .name = "key",
          .summary = "create, list and revoke keys of the REST API",
          .run = verb_key,
          .synopsis = "glovebox key VERB [OPTION...] [NAME...]\n",
          .description = "A key lets a program use the REST API, and has its own sandboxes. A running service applies "
                         "changes within a second; open requests finish.\n",
          .parts = key_parts,
          .n_parts = KEY_PARTS,
          .epilogue = "Examples\n"
                      "  KEY=$(glovebox key new build)\n"
                      "  glovebox key ls\n"
                      "  glovebox key rm build && glovebox session rm --key build\n" },
        { .name = "serve",
          .summary = "run the daemon: sessions, warm interpreters, the REST API",
          .run = verb_serve,
          .synopsis = "glovebox serve [OPTION...]\n",
          .description =
                  "Serves on a UNIX socket that only its owner may use. \"glovebox exec\" starts a daemon in the "
                  "background if none is running. Limits and image are the defaults of sessions.\n"
                  "With --port it also serves the REST API over TCP to clients with a key; see docs/API.md and "
                  "the page /docs of the service. To change options, stop the daemon and start it again; "
                  "sessions stay.\n",
          .options = &serve_option_table,
          .epilogue = "Examples\n"
                      "  glovebox serve --background --pool 8\n"
                      "  glovebox serve --new-key build\n"
                      "  glovebox serve --background --port 8080\n" },
        { .name = "status",
          .summary = "show the daemon, its processes, its pool and its sessions",
          .run = verb_status,
          .synopsis = "glovebox status [OPTION...]\n",
          .description = "Exits with 0 if a daemon is running and with 1 if not.\n",
          .options = &status_option_table },
        { .name = "stop",
          .summary = "stop the daemon; its sessions stay",
          .run = verb_stop,
          .synopsis = "glovebox stop [--end-sessions]\n",
          .description = "Returns when the daemon has ended. Sessions keep their variables for the next daemon, unless "
                         "--end-sessions is given, which also ends those that an ended daemon left in memory.\n",
          .options = &stop_option_table },
        { .name = "mcp",
          .summary = "an MCP server for agents: sandboxes as tools, on standard input and output",
          .run = verb_mcp,
          .synopsis = "glovebox mcp [OPTION...]\n"
                      "glovebox mcp --install CLIENT [OPTION...]\n"
                      "glovebox mcp --uninstall CLIENT\n",
          .description =
                  "Serves the Model Context Protocol to the program that started it, such as Claude Code, "
                  "Cursor or VS Code: its model can run Python and shell commands, and read and write files, in "
                  "sandboxes without a network and without your files, unless options say otherwise. It starts a "
                  "daemon if none is running. When the client disconnects, its sandboxes are removed.\n"
                  "The same server is at POST /mcp of the REST service, with its keys.\n",
          .options = &mcp_option_table,
          .epilogue = "Examples\n"
                      "  glovebox mcp --install claude-code\n"
                      "  glovebox mcp --install cursor --workspace ~/project:ro --allow-host pypi.org\n"
                      "  glovebox mcp --uninstall claude-code\n" },
        { .name = "image",
          .summary = "list, show, import, build and remove images",
          .run = verb_image,
          .synopsis = "glovebox image VERB [OPTION...] [NAME]\n",
          .description = "An image is the file system that a box sees. \"host\" always exists: it is this machine's "
                         "/usr, read-only, with a layer of Python packages after \"glovebox image build\".\n",
          .parts = image_parts,
          .n_parts = ELEMENTS(image_parts),
          .epilogue = "Examples\n"
                      "  glovebox image build\n"
                      "  docker save python:3.12-slim -o slim.tar && glovebox image import slim slim.tar\n"
                      "  glovebox run --image slim -c 'import sys; print(sys.version)'\n" },
        { .name = "doctor",
          .summary = "show what this host can enforce, and how to fix the rest",
          .run = verb_doctor,
          .synopsis = "glovebox doctor [--json]\n",
          .description = "Checks the host without changing it. Exits with 0 if a box with full limits can be made, and "
                         "with 1 if not, or only with --allow-weaker.\n",
          .options = &json_table },
        { .name = "completion",
          .summary = "print a completion script for a shell",
          .run = verb_completion,
          .synopsis = "glovebox completion bash|zsh|fish\n",
          .description = "The script completes verbs, options, image names, files and directories.\n",
          .parts = completion_parts,
          .n_parts = ELEMENTS(completion_parts),
          .epilogue = "Examples\n"
                      "  source <(glovebox completion bash)\n"
                      "  source <(glovebox completion zsh)\n"
                      "  glovebox completion fish | source\n" },
        { .name = "help",
          .summary = "explain a verb",
          .run = verb_help,
          .synopsis = "glovebox help [VERB]\n",
          .description = "Without a verb it lists the verbs.\n",
          .options = &help_table },
};
const size_t n_verbs = ELEMENTS(verbs);
