#include "daemon/file_receiver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/helper_job.h"
#include "base/memory.h"
#include "daemon/file_operation.h"
#include "daemon/operation.h"
#include "session/caller.h"
#include "session/session.h"

/* The session may be removed while the file arrives: it is looked up each time. */
static struct session *receiver_session(const struct file_receiver *receiver) {
        return session_find(receiver->manager, "", receiver->session_id);
}

int file_receiver_begin(struct caller *caller, const struct file_request *request, uint64_t max_bytes,
                        struct file_receiver *ret_receiver, struct err *err) {
        char relative[4096];
        struct session *session = NULL;
        caller_begin(caller, "file.write", request->session);
        _cleanup_fd_ int workspace = file_operation_open_workspace(caller, request, relative, &session, err);
        if (workspace < 0 || disk_admit(caller->manager, session, 0, err) < 0)
                return -1;
        struct file_receiver receiver = { .manager = caller->manager, .max = session->row.limits.disk_bytes };
        if (max_bytes && max_bytes < receiver.max)
                receiver.max = max_bytes;
        (void) snprintf(receiver.session_id, sizeof(receiver.session_id), "%s", session->row.id);
        _cleanup_free_ char *path = strdup(relative);
        if (!path)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (workspace_create_file(workspace, relative, &receiver.file, err) < 0)
                return -1;
        receiver.path = take_ptr(path);
        *ret_receiver = receiver;
        return 0;
}

int file_receiver_check_size(const struct file_receiver *receiver, uint64_t size, struct err *err) {
        if (size > receiver->max - receiver->size)
                return err_set(err, ERR_LIMIT, "the file is larger than %llu bytes, which is the most it may have",
                               (unsigned long long) receiver->max);
        return 0;
}

int file_receiver_piece(struct file_receiver *receiver, const char *bytes, size_t size, struct err *err) {
        if (file_receiver_check_size(receiver, size, err) < 0 ||
            disk_admit(receiver->manager, receiver_session(receiver), size, err) < 0)
                return -1;
        receiver->size += size;
        int code = fd_write_all(receiver->file.fd, bytes, size);
        return code < 0 ? err_sys(err, -code, "writing %.200s", receiver->path) : 0;
}

static int check_session(const struct file_receiver *receiver, struct err *err) {
        return receiver_session(receiver)
                       ? 0
                       : err_set(err, ERR_GONE, "the session was removed while %.200s arrived", receiver->path);
}

int file_receiver_finish(struct file_receiver *receiver, struct err *err) {
        if (check_session(receiver, err) < 0 || workspace_finish_file(&receiver->file, err) < 0)
                return -1;
        receiver->replaced = receiver->file.replaced;
        disk_give_back(receiver_session(receiver), receiver->file.replaced_bytes);
        receiver->is_finished = true;
        return 0;
}

void file_receiver_abandon(struct file_receiver *receiver) {
        struct session *session = receiver->manager && !receiver->is_finished ? receiver_session(receiver) : NULL;
        if (!receiver->manager)
                return;
        if (session)
                disk_give_back(session, receiver->size);
        workspace_drop_file(&receiver->file);
        free(take_ptr(receiver->path));
        receiver->manager = NULL;
}

/* ---- durably: the disk may be slow, so a child process waits for it ---- */

struct durable_write {
        struct caller *caller; /* NULL when it has gone */
        struct workspace_file file;
        uint64_t size;
};

static int write_durably(const int *fds, int out_fd, void *context) {
        struct durable_write *durable = context;
        struct err err = { 0 };
        durable->file.fd = fds[0];
        durable->file.workspace_fd = fds[1];
        (void) workspace_finish_file_durably(&durable->file, &err);
        return fd_write_all(out_fd, &err, sizeof(err));
}

static void on_written_durably(void *context, const char *bytes, size_t size) {
        struct durable_write *durable = context;
        struct err err;
        struct caller *caller = durable->caller;
        uint64_t written = durable->size;
        (void) err_set(&err, ERR_SYSTEM, "the file may not have been written: the process that did it died; try again");
        if (size == sizeof(err))
                memcpy(&err, bytes, sizeof(err));
        workspace_drop_file(&durable->file); /* the daemon's side of it: its temporary name is gone */
        free(durable);
        if (!caller)
                return;
        caller->held_by = NULL;
        if (err.code != ERR_NONE)
                caller_refuse(caller, &err);
        else
                caller_answer(caller, json_pack("{s:I}", "size", (json_int_t) written));
}

int file_receiver_finish_durably(struct file_receiver *receiver, struct caller *caller, struct err *err) {
        if (check_session(receiver, err) < 0)
                return -1;
        struct durable_write *durable = malloc(sizeof(*durable));
        if (!durable)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        *durable = (struct durable_write) { caller, receiver->file, receiver->size };
        const struct helper_job_order order = { .fds = { durable->file.fd, durable->file.workspace_fd },
                                                .n_fds = 2,
                                                .work = write_durably,
                                                .done = on_written_durably,
                                                .context = durable,
                                                manager_job_of(caller->manager, caller->owner) };
        if (!helper_job_start(caller->manager->loop, &order, err)) {
                free(durable);
                return -1;
        }
        caller->held_by = &durable->caller;
        receiver->file = (struct workspace_file) { .fd = -1, .workspace_fd = -1 };
        receiver->is_finished = true;
        return 0;
}
