/* The tools: one table, one row each. Names, schemas and checks of arguments come from the rows. */
#pragma once

#include "mcp/mcp.h"

enum tool_kind { TOOL_TEXT, TOOL_INTEGER, TOOL_NUMBER, TOOL_TRUTH, TOOL_TEXTS };

enum { TOOL_ARGUMENTS_MAX = 6 };

struct tool_argument {
        const char *name; /* NULL ends the row */
        enum tool_kind kind;
        bool is_required;
        double min, max; /* of a number; of a text, max is its bytes; 0: no bound of its own */
        const char *about;
};

enum tool_hint { TOOL_READS = 1, TOOL_IDEMPOTENT = 2, TOOL_HARMLESS = 4, TOOL_OPEN_WORLD = 8 };

struct mcp_tool {
        const char *name, *title, *about;
        bool describes_place; /* what the sandbox can reach follows its description */
        int hints;
        struct tool_argument arguments[TOOL_ARGUMENTS_MAX];
        /* The arguments have been checked against the row. */
        void (*run)(struct mcp_call *call, json_t *arguments);
};

extern const struct mcp_tool tools[];
extern const size_t n_tools;

/* The session's name behind a handle (NULL: the default). ERR_USAGE: no handle. Sets call->sandbox. */
enum { TOOL_NAME_ROOM = 144 };
int tool_name_sandbox(struct mcp_call *call, const char *handle, char ret_name[static TOOL_NAME_ROOM], struct err *err);

/* "SANDBOX.RUN" taken apart: the session's name, and call->sandbox and call->run_id are set. */
int tool_name_run(struct mcp_call *call, const char *text, char ret_name[static TOOL_NAME_ROOM], struct err *err);

void tool_run_python(struct mcp_call *call, json_t *arguments);
void tool_run_shell(struct mcp_call *call, json_t *arguments);
void tool_install(struct mcp_call *call, json_t *arguments);
void tool_read_output(struct mcp_call *call, json_t *arguments);
void tool_interrupt(struct mcp_call *call, json_t *arguments);
void tool_read_file(struct mcp_call *call, json_t *arguments);
void tool_write_file(struct mcp_call *call, json_t *arguments);
void tool_list_files(struct mcp_call *call, json_t *arguments);
void tool_create_sandbox(struct mcp_call *call, json_t *arguments);
void tool_list_sandboxes(struct mcp_call *call, json_t *arguments);
void tool_close_sandbox(struct mcp_call *call, json_t *arguments);
