/* `glovebox mcp --install CLIENT`: puts this server into the settings of an MCP client, and takes it out again. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct mcp_install {
        const char *client; /* "claude-code", … */
        char **arguments;   /* of `glovebox mcp`, NULL-terminated; relative paths are made absolute */
        bool is_removal;
        bool is_sure;       /* do not ask */
};

/* The exit status: 0, or 1 if the user declined. -1: it failed, and nothing was changed. */
int mcp_install_run(const struct mcp_install *order, struct err *err);
