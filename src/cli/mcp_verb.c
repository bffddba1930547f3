#include "cli/mcp_verb.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/box_rows.h"
#include "cli/mcp_install.h"
#include "cli/mcp_relay.h"
#include "cli/session_request.h"
#include "cli/ui/terminal.h"
#include "cli/verb.h"
#include "store/registry.h"

struct line {
        struct session_options session;
        const char *workspace, *name, *install, *uninstall;
        bool yes;
};

#define FIELD(field) offsetof(struct line, field)
#define PROJECT_AT "/project"

static const struct option_row rows[] = {
        { .name = "workspace",
          .kind = OPTION_TEXT,
          .offset = FIELD(workspace),
          .argument = "DIR[:ro]",
          .group = "Files",
          .completion = COMPLETE_DIRECTORIES,
          .once = true,
          .help = "mount this directory in the sandboxes: writable as /workspace, or with :ro read-only as " PROJECT_AT
                  "; by default they see none of your files" },
        BOX_NETWORK_ROWS(FIELD(session.run.request), UNSHOWN),
        BOX_IMAGE_ROW(FIELD(session.run.request.image), UNSHOWN),
        LIMIT_ROWS(FIELD(session.run.request.limits), UNSHOWN),
        { .name = "session",
          .kind = OPTION_TEXT,
          .offset = FIELD(name),
          .argument = "NAME",
          .group = "Sandboxes",
          .help = "keep the sandboxes under this name; by default they are removed when the client disconnects" },
        { .name = "install",
          .kind = OPTION_TEXT,
          .offset = FIELD(install),
          .argument = "CLIENT",
          .group = "Set-up",
          .help = "add this server, with the other options, to the settings of claude-code, claude-desktop, cursor, "
                  "vscode, codex or zed: shows the change and asks" },
        { .name = "uninstall",
          .kind = OPTION_TEXT,
          .offset = FIELD(uninstall),
          .argument = "CLIENT",
          .group = "Set-up",
          .help = "remove this server from the settings" },
        { .name = "yes",
          .letter = 'y',
          .kind = OPTION_FLAG,
          .offset = FIELD(yes),
          .group = "Set-up",
          .help = "do not ask" },
        SOCKET_ROWS(FIELD(session.run.where)),
};
const struct option_table mcp_option_table = { .rows = rows, .n_rows = ELEMENTS(rows), .operands_anywhere = true };

/* "DIR" becomes the workspace; "DIR:ro" is mounted beside it. */
static int take_workspace(struct line *line, struct err *err) {
        struct run_request *request = &line->session.run.request;
        size_t size = line->workspace ? strlen(line->workspace) : 0;
        _cleanup_free_ char *mount = NULL;
        if (size == 0)
                return 0;
        if (size <= 3 || strcmp(line->workspace + size - 3, ":ro") != 0) {
                request->workspace = line->workspace;
                return 0;
        }
        if (asprintf(&mount, "%.*s:" PROJECT_AT ":ro", (int) (size - 3), line->workspace) < 0) {
                mount = NULL;
                return err_set(err, ERR_SYSTEM, "out of memory");
        }
        return run_request_add_mount(request, "--workspace", mount, err);
}

static int fill_opening(struct line *line, json_t *opening, struct err *err) {
        char id[27], name[40];
        if (take_workspace(line, err) < 0 || session_request_put(&line->session, opening, err) < 0 ||
            registry_make_id(id, err) < 0)
                return -1;
        (void) snprintf(name, sizeof(name), "mcp-%s", id);
        json_object_set_new(opening, "op", json_string("mcp"));
        json_object_set_new(opening, "name", json_string(line->name ? line->name : name));
        json_object_set_new(opening, "keep", json_boolean(line->name != NULL));
        return line->name ? registry_check_name(line->name, err) : 0;
}

static int mcp_serve(struct line *line, struct err *err) {
        struct socket_place place;
        json_t *opening = json_object();
        int code = fill_opening(line, opening, err);
        if (code == 0)
                code = socket_place_choose(&line->session.run.where, true, &place, err);
        if (code == 0)
                code = mcp_relay_run(&place, opening, err);
        json_decref(opening);
        return code;
}

/* The arguments without those of the set-up itself: the client starts the server with them. */
static char **server_arguments(char **args) {
        size_t n = 0, kept = 0;
        while (args[n])
                n++;
        char **list = calloc(n + 1, sizeof(*list));
        for (size_t i = 0; list && i < n; i++) {
                static const char *const own[] = { "--install", "--uninstall" };
                bool is_own = strcmp(args[i], "--yes") == 0 || strcmp(args[i], "-y") == 0;
                for (size_t k = 0; k < ELEMENTS(own); k++) {
                        size_t size = strlen(own[k]);
                        if (strncmp(args[i], own[k], size) == 0 && (args[i][size] == '=' || !args[i][size])) {
                                is_own = true;
                                i += !args[i][size] && i + 1 < n;
                                break;
                        }
                }
                if (!is_own)
                        list[kept++] = args[i];
        }
        return list;
}

/* Typed by a person, who would otherwise see nothing. */
static void explain_on_terminal(void) {
        if (isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
                (void) fprintf(stderr,
                               "glovebox: this is an MCP server on standard input and output, which an agent's "
                               "client starts; \"glovebox mcp --install CLIENT\" sets that up; Ctrl-D ends it\n");
}

static int run_line(struct line *line, const char *operand, char **arguments, struct err *err) {
        const struct mcp_install order = { .client = line->install ? line->install : line->uninstall,
                                           .arguments = arguments,
                                           .is_removal = line->uninstall != NULL,
                                           .is_sure = line->yes };
        if (operand)
                return err_set(err, ERR_USAGE, "mcp takes no operand; leave \"%.60s\" out", operand);
        if (line->install && line->uninstall)
                return err_set(err, ERR_USAGE, "--install and --uninstall exclude each other");
        if (order.client)
                return mcp_install_run(&order, err);
        explain_on_terminal();
        return mcp_serve(line, err);
}

int verb_mcp(int argc, char **argv) {
        struct line line = { .session = SESSION_OPTIONS_DEFAULT };
        struct option_rest rest;
        struct err err = { 0 };
        _cleanup_free_ char **arguments = argc > 0 ? server_arguments(argv + 1) : NULL;
        int code = arguments ? option_parse(&mcp_option_table, &line, argv + 1, &rest, &err)
                             : err_set(&err, ERR_SYSTEM, "out of memory");
        if (code == 0 && rest.help) {
                verb_print_help(stdout, verb_find("mcp"));
                session_options_release(&line.session);
                return 0;
        }
        if (code == 0)
                code = run_line(&line, rest.operands[0], arguments, &err);
        session_options_release(&line.session);
        return code < 0 ? terminal_fail(&err) : code;
}
