#include "mcp/ask.h"

#include <string.h>

#include "base/fd.h"
#include "session/disk.h"
#include "session/session.h"
#include "session/session_config.h"
#include "store/audit.h"
#include "store/workspace.h"

int ask_require(const struct mcp_call *call, const char *name, struct err *err) {
        if (session_find(call->peer->manager, call->peer->owner, name))
                return 0;
        return err_set(err, ERR_NOT_FOUND, "there is no sandbox \"%s\": it was closed, has expired or was never made; "
                       "leave \"sandbox\" out and run something to get the default one, or use create_sandbox",
                       call->sandbox);
}

int ask_check_timeout(const struct mcp_call *call, uint64_t timeout_ms, struct err *err) {
        return session_config_check_ceiling(&call->caller, &(const struct limits) { .timeout_ms = timeout_ms }, err);
}

/* ---- operations ---- */

static void add_options(const struct mcp_call *call, json_t *operation) {
        if (call->peer->options)
                (void) json_object_update_missing(operation, (json_t *) (uintptr_t) call->peer->options);
}

static void begin_run(struct mcp_call *call, json_t *operation, const char *name, uint64_t timeout_ms,
                      ask_finish *finish) {
        json_object_set_new(operation, "session", json_string(name));
        json_object_set_new(operation, "stream", json_true());
        if (timeout_ms)
                json_object_set_new(operation, "timeout_ms", json_integer((json_int_t) timeout_ms));
        add_options(call, operation);
        mcp_call_ask(call, operation, finish);
}

void ask_python(struct mcp_call *call, const char *name, json_t *code, uint64_t timeout_ms, ask_finish *finish) {
        begin_run(call, json_pack("{s:s, s:O}", "op", "execute", "code", code), name, timeout_ms, finish);
}

void ask_shell(struct mcp_call *call, const char *name, json_t *command, uint64_t timeout_ms, ask_finish *finish) {
        begin_run(call, json_pack("{s:s, s:O}", "op", "command", "shell", command), name, timeout_ms, finish);
}

void ask_install(struct mcp_call *call, const char *name, json_t *packages, uint64_t timeout_ms, ask_finish *finish) {
        begin_run(call, json_pack("{s:s, s:O, s:b}", "op", "session.install", "packages", packages,
                                  "cancel_on_disconnect", 1), name, timeout_ms, finish);
}

void ask_read_run(struct mcp_call *call, const char *name, const char *run_id, ask_finish *finish) {
        mcp_call_ask(call, json_pack("{s:s, s:s, s:s}", "op", "run.read", "session", name, "run", run_id), finish);
}

void ask_cancel_run(struct mcp_call *call, const char *name, const char *run_id, ask_finish *finish) {
        mcp_call_ask(call, json_pack("{s:s, s:s, s:s}", "op", "run.cancel", "session", name, "run", run_id), finish);
}

void ask_interrupt(struct mcp_call *call, const char *name, ask_finish *finish) {
        mcp_call_ask(call, json_pack("{s:s, s:s}", "op", "session.interrupt", "session", name), finish);
}

void ask_create(struct mcp_call *call, const char *name, ask_finish *finish) {
        json_t *operation = json_pack("{s:s, s:s}", "op", "session.create", "session", name);
        add_options(call, operation);
        mcp_call_ask(call, operation, finish);
}

void ask_list(struct mcp_call *call, ask_finish *finish) {
        mcp_call_ask(call, json_pack("{s:s}", "op", "session.list"), finish);
}

void ask_remove(struct mcp_call *call, const char *name, ask_finish *finish) {
        mcp_call_ask(call, json_pack("{s:s, s:s}", "op", "session.remove", "session", name), finish);
}

/* ---- files ---- */

/* The first call just works: the default sandbox is made where there is none. */
static struct session *find_session(struct mcp_call *call, const char *name, bool is_made, struct err *err) {
        bool is_created;
        struct session *session = session_find(call->peer->manager, call->peer->owner, name);
        if (session)
                return session;
        if (!is_made || strcmp(call->sandbox, "default") != 0) {
                (void) ask_require(call, name, err);
                return NULL;
        }
        if (call->link->admit_sandbox && call->link->admit_sandbox(call, name, err) < 0)
                return NULL;
        json_t *options = json_pack("{s:s}", "session", name);
        add_options(call, options);
        session = session_config_find_or_create(&call->caller, options, &is_created, err);
        json_decref(options);
        return session;
}

int ask_open_file(struct mcp_call *call, const char *name, const char *path, char ret_relative[static 4096],
                  struct stat *ret_status, struct err *err) {
        if (workspace_check_path(path, ret_relative, err) < 0)
                return -1;
        const struct session *session = find_session(call, name, !call->is_resource, err);
        if (!session)
                return -1;
        _cleanup_fd_ int workspace = session_open_workspace(session);
        if (workspace < 0)
                return err_sys(err, -workspace, "opening the files of the sandbox");
        return workspace_open(workspace, ret_relative, WORKSPACE_FOLLOW, ret_status, err);
}

json_t *ask_list_directory(int directory_fd, bool *ret_cut, struct err *err) {
        return workspace_list(directory_fd, ".", ret_cut, err);
}

static int write_file(struct session_manager *manager, struct session *session, const char *relative, const char *bytes,
                      size_t size, struct err *err) {
        struct workspace_file file;
        _cleanup_fd_ int workspace = session_open_workspace(session);
        if (workspace < 0)
                return err_sys(err, -workspace, "opening the files of the sandbox");
        if (disk_admit(manager, session, size, err) < 0)
                return -1;
        int code = workspace_create_file(workspace, relative, &file, err);
        if (code == 0) {
                int wrote = fd_write_all(file.fd, bytes, size);
                code = wrote < 0 ? err_sys(err, -wrote, "writing %.200s", relative) : workspace_finish_file(&file, err);
                workspace_drop_file(&file);
        }
        if (code < 0)
                disk_give_back(session, size);
        return code;
}

int ask_write_file(struct mcp_call *call, const char *name, const char *path, const char *bytes, size_t size,
                   struct err *err) {
        char relative[4096];
        struct session *session =
                workspace_check_path(path, relative, err) < 0 ? NULL : find_session(call, name, true, err);
        int code = session ? write_file(call->peer->manager, session, relative, bytes, size, err) : -1;
        const struct audit_entry entry = { .key = call->peer->owner, .via = "mcp", .from = call->peer->from,
                                           .what = "file.write", .session = name,
                                           .status = code == 0 ? "ok" : err_code_name(err->code),
                                           .duration_ms = loop_now_ms() - call->started_ms };
        audit_write(&call->peer->manager->audit, &entry);
        return code;
}
