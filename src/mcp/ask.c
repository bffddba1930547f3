#include "mcp/ask.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "daemon/file_receiver.h"
#include "mcp/fetch.h"
#include "mcp/tool.h"
#include "session/session.h"
#include "session/session_config.h"
#include "store/workspace.h"

enum { LIST_MAX = 1000 }; /* entries; what is shown of them is shorter */

int ask_require(const struct mcp_call *call, const char *name, struct err *err) {
        if (session_find(call->peer->manager, call->peer->owner, name))
                return 0;
        return err_set(err, ERR_NOT_FOUND,
                       "there is no sandbox \"%s\": it was closed, has expired or was never made; "
                       "leave \"sandbox\" out and run something to get the default one, or use create_sandbox",
                       call->sandbox);
}

int ask_check_timeout(const struct mcp_call *call, uint64_t timeout_ms, struct err *err) {
        return session_config_check_ceiling(&call->caller, &(const struct limits) { .timeout_ms = timeout_ms }, err);
}

/* ---- operations ---- */

/* Of a sandbox that is made for the call. */
static json_t *options_of(const struct mcp_call *call) {
        return (json_t *) (uintptr_t) call->peer->options;
}

void ask_python(struct mcp_call *call, const char *name, json_t *code, uint64_t timeout_ms, ask_finish *finish) {
        const struct run_request request = { .session = name,
                                             .options = options_of(call),
                                             .code = json_string_value(code),
                                             .code_size = json_string_length(code),
                                             .install_hint = "install_packages with",
                                             .timeout_ms = timeout_ms,
                                             .stream = true };
        struct err err;
        mcp_call_expect(call, finish);
        mcp_call_settle(call, operation_execute(&call->caller, &request, &err), &err);
}

void ask_shell(struct mcp_call *call, const char *name, json_t *command, uint64_t timeout_ms, ask_finish *finish) {
        const struct run_request request = { .session = name,
                                             .options = options_of(call),
                                             .shell = json_string_value(command),
                                             .timeout_ms = timeout_ms,
                                             .stream = true };
        struct err err;
        mcp_call_expect(call, finish);
        mcp_call_settle(call, operation_command(&call->caller, &request, &err), &err);
}

void ask_install(struct mcp_call *call, const char *name, json_t *packages, uint64_t timeout_ms, ask_finish *finish) {
        const struct install_request request = { .session = name,
                                                 .options = options_of(call),
                                                 .packages = packages,
                                                 .timeout_ms = timeout_ms,
                                                 .stream = true,
                                                 .cancel_on_disconnect = true };
        struct err err;
        mcp_call_expect(call, finish);
        mcp_call_settle(call, operation_install(&call->caller, &request, &err), &err);
}

const char *ask_find_waited_for(const struct mcp_call *call) {
        char name[TOOL_NAME_ROOM];
        (void) snprintf(name, sizeof(name), "%s%s", call->peer->prefix, call->sandbox);
        const struct session *session = session_find(call->peer->manager, call->peer->owner, name);
        for (const struct run *run = session ? session->runs : NULL; run; run = run->next)
                if (strcmp(run->id, call->run_id) == 0)
                        return run == session->runs ? NULL : session->runs->id;
        return NULL;
}

void ask_read_run(struct mcp_call *call, const char *name, const char *run_id, ask_finish *finish) {
        const struct run_reference reference = { .session = name, .run_id = run_id };
        struct err err;
        mcp_call_expect(call, finish);
        mcp_call_settle(call, operation_run_read(&call->caller, &reference, &err), &err);
}

void ask_cancel_run(struct mcp_call *call, const char *name, const char *run_id, ask_finish *finish) {
        const struct run_reference reference = { .session = name, .run_id = run_id };
        struct err err;
        mcp_call_expect(call, finish);
        mcp_call_settle(call, operation_run_cancel(&call->caller, &reference, &err), &err);
}

void ask_interrupt(struct mcp_call *call, const char *name, ask_finish *finish) {
        struct err err;
        mcp_call_expect(call, finish);
        mcp_call_settle(call, operation_session_interrupt(&call->caller, name, &err), &err);
}

void ask_create(struct mcp_call *call, const char *name, ask_finish *finish) {
        struct session_created created;
        struct err err;
        mcp_call_expect(call, finish);
        int code = operation_session_create(&call->caller, name, options_of(call), &created, &err);
        if (code == 0) {
                json_decref(created.unchanged);
                caller_answer(&call->caller, json_object());
        } else
                mcp_call_settle(call, code, &err);
}

void ask_list(struct mcp_call *call, session_visit *each, void *context) {
        operation_session_list(&call->caller, each, context);
}

void ask_remove(struct mcp_call *call, const char *name, ask_finish *finish) {
        struct err err;
        mcp_call_expect(call, finish);
        mcp_call_settle(call, operation_session_remove(&call->caller, name, false, &err), &err);
}

/* ---- files ---- */

/* The first call needs no set-up: the default sandbox is made if there is none and the quota allows it. */
int ask_file_request(struct mcp_call *call, const char *name, const char *path, bool may_create,
                     struct file_request *ret_request, struct err *err) {
        *ret_request = (struct file_request) { .session = name, .path = path };
        if (session_find(call->peer->manager, call->peer->owner, name))
                return 0;
        if (!may_create || strcmp(call->sandbox, "default") != 0)
                return ask_require(call, name, err);
        ret_request->creates = true;
        ret_request->options = options_of(call);
        return call->link->admit_sandbox ? call->link->admit_sandbox(call, name, err) : 0;
}

static int open_here(struct mcp_call *call, const char *name, const char *path, struct ask_file *ret_file,
                     struct err *err) {
        struct file_request request;
        struct open_file file;
        if (ask_file_request(call, name, path, !call->is_resource, &request, err) < 0 ||
            operation_file_open(&call->caller, &request, &file, err) < 0)
                return -1;
        (void) memcpy(ret_file->relative, file.path, sizeof(file.path));
        ret_file->status = file.status;
        ret_file->fd = file.fd;
        return 0;
}

void ask_open(struct mcp_call *call, const char *name, const char *path, json_t *arguments, ask_opened *then) {
        struct ask_file file = { .fd = -1 };
        struct err err;
        if (fetch_is_needed(call, name)) {
                fetch_open(call, name, path, arguments, then);
                return;
        }
        int code = open_here(call, name, path, &file, &err);
        int fd = file.fd;
        then(call, arguments, code == 0 ? &file : NULL, &err);
        fd_close(&fd);
}

json_t *ask_list_directory(const struct ask_file *file, bool *ret_cut, struct err *err) {
        *ret_cut = file->is_cut;
        return file->entries ? json_incref(file->entries) : workspace_list(file->fd, ".", LIST_MAX, ret_cut, err);
}

static int write_here(struct mcp_call *call, const char *name, const char *path, const struct ask_bytes *content,
                      struct err *err) {
        struct file_request request;
        struct file_receiver receiver = { 0 };
        int code = ask_file_request(call, name, path, true, &request, err);
        if (code == 0)
                code = file_receiver_begin(&call->caller, &request, 0, &receiver, err);
        if (code == 0)
                code = file_receiver_piece(&receiver, content->bytes, content->size, err);
        if (code == 0)
                code = file_receiver_finish(&receiver, err);
        file_receiver_abandon(&receiver);
        caller_done(&call->caller, code == 0 ? "ok" : err_code_name(err->code)); /* the tool answers by itself */
        return code;
}

void ask_write(struct mcp_call *call, const char *name, const char *path, const struct ask_bytes *content,
               ask_written *then) {
        struct err err;
        if (fetch_is_needed(call, name)) {
                fetch_write(call, name, path, content, then);
                return;
        }
        int code = write_here(call, name, path, content, &err);
        then(call, path, content->size, code == 0 ? NULL : &err);
}
