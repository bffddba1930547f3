/* `glovebox mcp`: an MCP server on standard input and output. */
#pragma once

#include "cli/ui/option.h"

extern const struct option_table mcp_option_table;
int verb_mcp(int argc, char **argv);
