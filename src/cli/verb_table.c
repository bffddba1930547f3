#include "base/memory.h"
#include "cli/exec_verb.h"
#include "cli/key_verb.h"
#include "cli/mcp_verb.h"
#include "cli/process_verb.h"
#include "cli/run_options.h"
#include "cli/serve_verb.h"
#include "cli/session_request.h"
#include "cli/session_verb.h"
#include "cli/verb.h"

/* `image` and `doctor` read their own options; these rows tell the help, the completion and the man page. */
#define JSON_ROW { .name = "json", .kind = OPTION_FLAG, .group = "Options", .help = "print JSON" }
#define TABLE(array) { .rows = (array), .n_rows = ELEMENTS(array), .operands_anywhere = true }

static const struct option_row json_rows[] = { JSON_ROW };
static const struct option_table json_table = TABLE(json_rows);

static const struct option_row image_list_rows[] = {
        JSON_ROW,
        { .name = "names", .kind = OPTION_FLAG, .group = "Options", .help = "print names only, one to a line" },
};
static const struct option_row image_import_rows[] = {
        { .name = "max-size", .kind = OPTION_BYTES, .argument = "SIZE", .group = "Options", .standard = "20g",
          .help = "refuse what unpacks to more than this" },
};
static const struct option_row image_build_rows[] = {
        { .name = "packages", .kind = OPTION_TEXT, .argument = "LIST", .group = "Options",
          .help = "install these, separated by commas or blanks, instead of the standard scientific ones" },
        { .name = "requirements", .kind = OPTION_TEXT, .argument = "FILE", .group = "Options",
          .completion = COMPLETE_FILES, .help = "install what this requirements file lists" },
        { .name = "allow-source", .kind = OPTION_FLAG, .group = "Options",
          .help = "build what has no wheel, which runs the packages' own code on this host" },
};

static const struct option_row image_rm_rows[] = {
        { .name = "force", .letter = 'f', .kind = OPTION_FLAG, .group = "Options",
          .help = "do not ask, although sessions use it" },
};

static const struct verb_part image_parts[] = {
        { .name = "list", .operands = "", .summary = "what images there are", .options = TABLE(image_list_rows) },
        { .name = "show", .operands = "NAME", .summary = "what an image is and where it came from",
          .options = TABLE(json_rows), .completion = COMPLETE_IMAGES },
        { .name = "import", .operands = "NAME FILE.tar|DIR|-",
          .summary = "unpack a docker save, docker export, OCI or plain root file system",
          .options = TABLE(image_import_rows), .completion = COMPLETE_FILES },
        { .name = "build", .operands = "[NAME]", .summary = "install the layer of Python packages with pip",
          .options = TABLE(image_build_rows), .completion = COMPLETE_IMAGES },
        { .name = "rm", .operands = "NAME", .summary = "delete an image; asks first when sessions use it",
          .options = TABLE(image_rm_rows), .completion = COMPLETE_IMAGES },
};

static const struct verb_part completion_parts[] = {
        { .name = "bash", .operands = "", .summary = "for bash" },
        { .name = "zsh", .operands = "", .summary = "for zsh" },
        { .name = "fish", .operands = "", .summary = "for fish" },
};

static const struct option_row help_rows[] = {
        { .name = "tables", .kind = OPTION_FLAG, .group = "Options",
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
        "limits. Output appears as it is written. When the run ends, however it ends, the box is gone.\n"
        "A run is a program: python3 FILE, with the files beside FILE there to be read, and with the same meaning "
        "whether a daemon has a warm box for it or not.\n"
        "Options come before FILE: what follows it belongs to the program. Sizes are written 512m or 1g, in powers of "
        "1024. A variable named with an option gives its default.\n";

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
        "  the program's own, and\n"
        "  2      wrong usage: nothing was run\n"
        "  124    the time limit was reached\n"
        "  125    the box could not be made: nothing was run\n"
        "  126    the command was found and cannot be run\n"
        "  127    there is no such command in the image\n"
        "  128+N  signal N ended the program\n"
        "  137    the memory limit was reached (a line on standard error says so), or signal 9\n";

static const char exec_synopsis[] = "glovebox exec [OPTION...] SESSION [OPTION...] -c CODE [ARGUMENT...]\n"
                                    "glovebox exec [OPTION...] SESSION [OPTION...] FILE [ARGUMENT...]\n"
                                    "glovebox exec [OPTION...] SESSION [OPTION...] -        code from standard input\n"
                                    "glovebox exec [OPTION...] SESSION [OPTION...] -- COMMAND [ARGUMENT...]\n";

static const char exec_description[] =
        "Runs code or a command in a session: a sealed box that stays, with its files, and for Python with its "
        "variables. A session that does not exist is made, with the limits given here; a daemon that is not running is "
        "started. "
        "Output appears as it is written, then the value of the last expression. Code that reads standard input gets "
        "yours, when it asks for it. As in a notebook, _ is the last value, and !ls, %timeit, %%bash and df? work.\n"
        "Ctrl-C interrupts the code, and its variables stay; code that does not react within 2 s is ended, and they are "
        "lost. A second Ctrl-C does not wait for that; the next call says what came of it.\n";

static const char exec_epilogue[] =
        "Examples\n"
        "  glovebox exec demo -c 'import pandas as pd; df = pd.DataFrame({\"x\": [1, 2, 3]})'\n"
        "  glovebox exec demo -c 'df.x.sum()'\n"
        "  glovebox exec demo --memory 4g --data ./datasets analysis.py\n"
        "  glovebox exec demo -- ls -la\n"
        "\n"
        "Exit status\n"
        "  as for run: 0, 1 when the code raised an exception, the command's own, and\n"
        "  124    the time limit was reached\n"
        "  130    it was interrupted\n"
        "  153    the disk limit was reached\n"
        "  137    the memory limit was reached, or it was killed\n";

const struct verb verbs[] = {
        { .name = "run", .summary = "run code or a command in a fresh sealed box", .run = verb_run,
          .synopsis = run_synopsis, .description = run_description, .options = &run_option_table,
          .completion = COMPLETE_FILES, .epilogue = run_epilogue },
        { .name = "exec", .summary = "run code or a command in a session that keeps its variables", .run = verb_exec,
          .synopsis = exec_synopsis, .description = exec_description, .options = &exec_option_table,
          .completion = COMPLETE_SESSIONS, .epilogue = exec_epilogue },
        { .name = "repl", .summary = "type Python into a session, with history and completion", .run = verb_repl,
          .synopsis = "glovebox repl [OPTION...] SESSION\n",
          .description = "Each line, or block up to an empty line, runs in the session as \"glovebox exec\" does. "
                         "Arrow keys bring back what was typed before, Tab completes names, Ctrl-C interrupts, exit "
                         "or Ctrl-D leaves the session as it is.\n",
          .options = &repl_option_table, .completion = COMPLETE_SESSIONS },
        { .name = "session", .summary = "list, show, make, remove, interrupt and hibernate sessions, install into them",
          .run = verb_session, .synopsis = "glovebox session VERB [OPTION...] [NAME...]\n",
          .description = "A session is a box that stays, with a Python interpreter that keeps its variables. It "
                         "belongs to the daemon, outlives it, and sleeps when nobody needs it.\n",
          .parts = session_parts, .n_parts = SESSION_PARTS,
          .epilogue = "Examples\n"
                      "  glovebox session new demo --memory 2g --workspace ./project\n"
                      "  glovebox session log demo\n"
                      "  glovebox session rm demo\n" },
        { .name = "ps", .summary = "what runs now: sessions and runs, with a daemon or without", .run = verb_ps,
          .synopsis = "glovebox ps [OPTION...]\n",
          .description = "Memory is what a box really uses, without what the kernel keeps of files and can drop. Of "
                         "runs without a daemon those are listed that share your data directory.\n",
          .options = &ps_option_table },
        { .name = "top", .summary = "the same, again and again, with the share of a processor", .run = verb_top,
          .synopsis = "glovebox top [OPTION...]\n", .description = "Enter or Ctrl-C ends it.\n",
          .options = &top_option_table },
        { .name = "kill", .summary = "end a run", .run = verb_kill, .synopsis = "glovebox kill [-9] NAME|ID...\n",
          .description = "An ephemeral run is ended. What a session runs is interrupted, and its variables stay; if it "
                         "has not reacted after three seconds its interpreter is ended, and they are lost. Either way "
                         "the session and its files stay. \"glovebox ps\" shows names and ids; six characters of an "
                         "id are enough.\n",
          .options = &kill_option_table, .completion = COMPLETE_SESSIONS },
        { .name = "logs", .summary = "what the last runs of a session printed", .run = verb_logs,
          .synopsis = "glovebox logs [OPTION...] NAME\n",
          .description = "A run that is on is followed to its end. \"glovebox session log NAME\" lists the runs.\n",
          .options = &logs_option_table, .completion = COMPLETE_SESSIONS },
        { .name = "cp", .summary = "copy files between the host and a session", .run = verb_cp,
          .synopsis = "glovebox cp FILE|DIR|- SESSION:PATH\n"
                      "glovebox cp SESSION:PATH FILE|DIR|-\n",
          .description = "PATH is in the session's workspace, with or without /workspace before it. Directories are "
                         "copied with what is in them; symbolic links of a session are left out. - is standard input "
                         "or output.\n",
          .options = &cp_option_table, .completion = COMPLETE_FILES,
          .epilogue = "Examples\n"
                      "  glovebox cp data.csv demo:data/\n"
                      "  glovebox cp demo:artifacts ./results\n"
                      "  glovebox cp demo:report.txt - | less\n" },
        { .name = "key", .summary = "make, list and revoke keys of the REST API", .run = verb_key,
          .synopsis = "glovebox key VERB [OPTION...] [NAME...]\n",
          .description = "A key lets a program use the REST API, and has sandboxes of its own. A service that runs "
                         "takes what changes within a second; requests that are under way go on.\n",
          .parts = key_parts, .n_parts = KEY_PARTS,
          .epilogue = "Examples\n"
                      "  KEY=$(glovebox key new build)\n"
                      "  glovebox key ls\n"
                      "  glovebox key rm build && glovebox session rm --key build\n" },
        { .name = "serve", .summary = "the daemon that keeps sessions and warm interpreters, and the REST API",
          .run = verb_serve, .synopsis = "glovebox serve [OPTION...]\n",
          .description = "Serves on a UNIX socket that only its owner may use. \"glovebox exec\" starts one in the "
                         "background when none is running. Limits and image are the defaults of sessions.\n"
                         "With --port it also serves the REST API over TCP, to whoever has a key; docs/API.md and the "
                         "page /docs of the service explain it. Options count when the daemon starts: to change them, "
                         "stop it and start it again; sessions live on.\n",
          .options = &serve_option_table,
          .epilogue = "Examples\n"
                      "  glovebox serve --background --pool 8\n"
                      "  glovebox serve --new-key build\n"
                      "  glovebox serve --background --port 8080\n" },
        { .name = "status", .summary = "the daemon, its pool and its sessions", .run = verb_status,
          .synopsis = "glovebox status [OPTION...]\n",
          .description = "Exits with 0 when a daemon is running and with 1 when none is.\n",
          .options = &status_option_table },
        { .name = "stop", .summary = "end the daemon; its sessions live on", .run = verb_stop,
          .synopsis = "glovebox stop [--end-sessions]\n",
          .description = "Returns when the daemon has ended. Sessions keep their variables for the next daemon, unless "
                         "--end-sessions is given.\n",
          .options = &stop_option_table },
        { .name = "mcp", .summary = "an MCP server for agents: sandboxes as tools, on standard input and output",
          .run = verb_mcp,
          .synopsis = "glovebox mcp [OPTION...]\n"
                      "glovebox mcp --install CLIENT [OPTION...]\n"
                      "glovebox mcp --uninstall CLIENT\n",
          .description = "Speaks the Model Context Protocol with the program that started it, such as Claude Code, "
                         "Cursor or VS Code: its model can run Python and shell commands, and read and write files, in "
                         "sandboxes without a network and without your files, unless options say otherwise. A daemon "
                         "that is not running is started. When the client leaves, its sandboxes are removed.\n"
                         "The same server is at POST /mcp of the REST service, with its keys.\n",
          .options = &mcp_option_table,
          .epilogue = "Examples\n"
                      "  glovebox mcp --install claude-code\n"
                      "  glovebox mcp --install cursor --workspace ~/project:ro --allow-host pypi.org\n"
                      "  glovebox mcp --uninstall claude-code\n" },
        { .name = "image", .summary = "list, show, import, build and remove images", .run = verb_image,
          .synopsis = "glovebox image VERB [OPTION...] [NAME]\n",
          .description = "An image is the file system that a box sees. \"host\" is always there: this machine's own "
                         "/usr, read-only, and a layer of Python packages once \"glovebox image build\" has "
                         "installed one.\n",
          .parts = image_parts, .n_parts = ELEMENTS(image_parts),
          .epilogue = "Examples\n"
                      "  glovebox image build\n"
                      "  docker save python:3.12-slim -o slim.tar && glovebox image import slim slim.tar\n"
                      "  glovebox run --image slim -c 'import sys; print(sys.version)'\n" },
        { .name = "doctor", .summary = "what this host can enforce, what it cannot, and how to mend it",
          .run = verb_doctor, .synopsis = "glovebox doctor [--json]\n",
          .description = "Looks at the host without changing it. Exits with 0 when a box with full limits can be made, "
                         "and with 1 when not, or only with --allow-weaker.\n",
          .options = &json_table },
        { .name = "completion", .summary = "print a completion script for a shell", .run = verb_completion,
          .synopsis = "glovebox completion bash|zsh|fish\n",
          .description = "The script completes verbs, options, image names, files and directories.\n",
          .parts = completion_parts, .n_parts = ELEMENTS(completion_parts),
          .epilogue = "Examples\n"
                      "  source <(glovebox completion bash)\n"
                      "  source <(glovebox completion zsh)\n"
                      "  glovebox completion fish | source\n" },
        { .name = "help", .summary = "explain a verb", .run = verb_help, .synopsis = "glovebox help [VERB]\n",
          .description = "Without a verb: what verbs there are.\n", .options = &help_table },
};
const size_t n_verbs = ELEMENTS(verbs);
