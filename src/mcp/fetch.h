/* Files of a sandbox that another Glovebox has (engine remote), for tools and resources. They show at most a few MiB of
 * a file, so that much is fetched into memory, and they go on as with a local file. */
#pragma once

#include <stdbool.h>

#include "mcp/ask.h"

enum { FETCH_MAX = 4 << 20 }; /* of a file: as much as is searched for a line, or given as a resource */

/* True if the sandbox is on the remote, or would be if it were made for this call. */
bool fetch_is_needed(const struct mcp_call *call, const char *name);

/* As ask_open. */
void fetch_open(struct mcp_call *call, const char *name, const char *path, json_t *arguments, ask_opened *then);

/* As ask_write. */
void fetch_write(struct mcp_call *call, const char *name, const char *path, const struct ask_bytes *content,
                 ask_written *then);
