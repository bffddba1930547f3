/* All calls of MCP to the layers below: operations (daemon/operation.h). `name` is a session's name; the call's owner
 * decides whether it may be seen. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <sys/stat.h>

#include "daemon/operation.h"
#include "mcp/mcp.h"

typedef void ask_finish(struct mcp_call *call, const char *text, size_t size);

/* Sets ERR_NOT_FOUND with a message for a model: there is no such sandbox. */
int ask_require(const struct mcp_call *call, const char *name, struct err *err);

/* Checks that the caller may have a run of this length. ERR_REFUSED: it may not. */
int ask_check_timeout(const struct mcp_call *call, uint64_t timeout_ms, struct err *err);

/* Runs; timeout_ms 0: the sandbox's own. A sandbox that is not there is made. The texts are borrowed. */
void ask_python(struct mcp_call *call, const char *name, json_t *code, uint64_t timeout_ms, ask_finish *finish);
void ask_shell(struct mcp_call *call, const char *name, json_t *command, uint64_t timeout_ms, ask_finish *finish);
void ask_install(struct mcp_call *call, const char *name, json_t *packages, uint64_t timeout_ms, ask_finish *finish);

/* The id of the run that the call's own run waits for in its sandbox; NULL: it is on, or over. */
const char *ask_find_waited_for(const struct mcp_call *call);

void ask_read_run(struct mcp_call *call, const char *name, const char *run_id, ask_finish *finish);
void ask_cancel_run(struct mcp_call *call, const char *name, const char *run_id, ask_finish *finish);
void ask_interrupt(struct mcp_call *call, const char *name, ask_finish *finish);

void ask_create(struct mcp_call *call, const char *name, ask_finish *finish);
void ask_list(struct mcp_call *call, session_visit *each, void *context); /* at once */
void ask_remove(struct mcp_call *call, const char *name, ask_finish *finish);

/* ---- files ---- */

/* A file or a directory that was opened for reading. Of one that another Glovebox has, at most its first 4 MiB are in
 * `fd`, and a directory has its entries here. */
struct ask_file {
        int fd; /* the descriptor is the caller's of `then`; of a directory elsewhere -1 */
        struct stat status;
        char relative[4096]; /* its path below the workspace */
        json_t *entries;     /* of a directory: see ask_list_directory */
        bool is_cut;
};

/* Opens it, and goes on at once or later: with `file`, or NULL and why. `arguments` are kept for that long. Tools make
 * the default sandbox where there is none. */
typedef void ask_opened(struct mcp_call *call, json_t *arguments, struct ask_file *file, const struct err *err);
void ask_open(struct mcp_call *call, const char *name, const char *path, json_t *arguments, ask_opened *then);

/* The entries of a directory that was opened: a new reference, or NULL. */
json_t *ask_list_directory(const struct ask_file *file, bool *ret_cut, struct err *err);

/* The whole file, or nothing; goes on as above. The default sandbox is made where there is none. */
struct ask_bytes {
        const char *bytes;
        size_t size;
};
typedef void ask_written(struct mcp_call *call, const char *path, size_t size, const struct err *err);
void ask_write(struct mcp_call *call, const char *name, const char *path, const struct ask_bytes *content,
               ask_written *then);

/* The request of an operation on the file; admits a sandbox that has to be made. */
int ask_file_request(struct mcp_call *call, const char *name, const char *path, bool may_create,
                     struct file_request *ret_request, struct err *err);
