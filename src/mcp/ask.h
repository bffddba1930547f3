/* Everything that MCP asks of the layers below, in one place: operations (daemon/operation.h). `name` is a session's
 * name; the call's owner decides whether it may be seen. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <sys/stat.h>

#include "daemon/operation.h"
#include "mcp/mcp.h"

typedef void ask_finish(struct mcp_call *call, const char *text, size_t size);

/* ERR_NOT_FOUND, in words for a model: there is no such sandbox. */
int ask_require(const struct mcp_call *call, const char *name, struct err *err);

/* May the caller have a run of so long? ERR_REFUSED: no. */
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

/* ---- files, at once ---- */

/* A file or a directory for reading; ret_relative is its path below the workspace. A descriptor, or -1. Tools make the
 * default sandbox where there is none. */
int ask_open_file(struct mcp_call *call, const char *name, const char *path, char ret_relative[static 4096],
                  struct stat *ret_status, struct err *err);

/* The entries of a directory that ask_open_file opened: a new reference, or NULL. */
json_t *ask_list_directory(int directory_fd, bool *ret_cut, struct err *err);

/* The whole file, or nothing. The default sandbox is made where there is none. */
int ask_write_file(struct mcp_call *call, const char *name, const char *path, const char *bytes, size_t size,
                   struct err *err);
