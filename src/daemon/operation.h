/* The operations of the daemon, each implemented once, with typed requests and results. Front ends only translate: the
 * UNIX socket (socket_request.h) from the JSON of docs/PROTOCOL.md, REST (src/api) from paths, queries and bodies.
 *
 * How to call one: make a struct caller (session/caller.h), fill a request, call the function. - A function without a
 * ret_ argument answers the caller itself, once, from within the call or later:
 *    caller->type->answer with a JSON object, as docs/PROTOCOL.md has it, or ->refuse.
 *  - A function with a ret_ argument has its result at once. The front end writes it in its own way and ends the
 *    request with caller_answer.
 * - -1: nothing was changed, and err says why. The front end ends the request with caller_refuse. Each request is
 * recorded in the audit log when it ends, by caller_answer or caller_refuse.
 *
 * Requests, and the texts and JSON values in them, are borrowed for the time of the call. A text that is NULL was not
 * given. `session` is a session's name or id, as the caller sees it. `options` is a JSON object with options of
 * session.create (docs/PROTOCOL.md), or NULL for the daemon's own; other members are ignored. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/json_writer.h"
#include "session/artifact_listing.h"
#include "session/program.h"
#include "session/session_info.h"

struct caller;
struct session;

/* ---- runs (run_operation.c) ---- */

enum { RUN_CODE_MAX = 4 << 20 };

struct run_request {
        const char *session;
        bool is_ephemeral; /* a box of its own, which ends with the run; `session` is ignored */
        bool must_exist;   /* the session must exist */
        json_t *options;   /* of a session that is made for it, or of the ephemeral box */

        /* code, for operation_execute */
        const char *code;
        size_t code_size;
        const char *context;    /* a namespace of variables in the session; NULL: the usual one */
        const char *file;       /* its name in tracebacks */
        json_t *args;           /* a list: sys.argv[1:] */
        bool is_not_counted;    /* no execution count, no history */
        const char *install_hint; /* a front end's own instead of operation_install_hint; or NULL */

        /* a command, for operation_command: one of the two */
        json_t *argv; /* a list of texts */
        const char *shell;
        const char *cwd;
        const char *user;       /* who runs it, in a sandbox with users; NULL: the sandbox's own user */
        const char *stdin_path; /* a file in the box; NULL: the input is empty */

        /* a one-shot run (operation_one_shot, which sets is_one_shot) */
        const char *language;   /* of `code`: "python", "bash" or "sh"; NULL: Python */
        const char *stdin_text; /* its standard input; NULL: as in the members above */
        json_t *files;          /* an object: names below the workspace, and a text or {"base64"} of each */
        bool is_one_shot;       /* code ends as a program: threads are joined, exit handlers are called */
        bool wants_contents;    /* the result has the contents of its artifacts; ephemeral runs only */

        /* both */
        const char *run_id; /* chosen by the caller: a run of this id in the session is not executed again */
        json_t *env;       /* an object of texts, for this run */
        const char *input; /* a token: the caller has an input to offer (docs/PROTOCOL.md) */
        uint64_t timeout_ms; /* 0: that of the session */
        bool is_light;       /* an ephemeral run that needs no preloaded modules */
        bool stream;         /* output comes as it is written (caller.h) */
        bool detach;         /* answered with its run_id as soon as it is recorded */
        bool cancel_on_disconnect;
};

/* Fills a request from the members of `execute` and `command` (docs/PROTOCOL.md), which all JSON front ends share.
 * `options` stays NULL. The texts are those of `json`. */
int run_request_read_json(json_t *json, struct run_request *ret_request, struct err *err);

/* How a package is added to this session; the name of the package follows. For the traceback of a missing module. */
enum { OPERATION_INSTALL_HINT_MAX = 200 };
void operation_install_hint(const struct caller *caller, const char *session,
                            char ret_hint[static OPERATION_INSTALL_HINT_MAX]);

/* Runs code, or a command. The answer is the run's result. */
int operation_execute(struct caller *caller, const struct run_request *request, struct err *err);
int operation_command(struct caller *caller, const struct run_request *request, struct err *err);

/* Runs code in its language, or a command, in a box of its own. The box is removed before the answer. The run is
 * cancelled if its caller disconnects. `options` are those of the box. */
int operation_one_shot(struct caller *caller, const struct run_request *request, struct err *err);

/* Checks the members of such a run. */
int one_shot_check(const struct run_request *request, struct err *err);

struct run_reference {
        const char *session, *run_id;
        uint64_t from; /* number of the first event; 0: all */
};

/* The events of a run again, then its result. */
int operation_run_read(struct caller *caller, const struct run_reference *reference, struct err *err);
/* The result of an ended run, with its output, or {"run_id", "status": "running" or "waiting"}. */
int operation_run_show(struct caller *caller, const struct run_reference *reference, struct err *err);
/* {"interrupted"} */
int operation_run_cancel(struct caller *caller, const struct run_reference *reference, struct err *err);

/* The box of a `glovebox run`, and its usage so far (session/program.h). */
int operation_program(struct caller *caller, const struct program_request *request, struct err *err);
int operation_program_usage(struct caller *caller, const char *id, struct err *err);

/* ---- packages (install_operation.c) ---- */

struct install_request {
        const char *session; /* made where it is not there */
        json_t *options;
        json_t *packages; /* a list of requirements such as "attrs>=23" */
        uint64_t timeout_ms;
        bool stream, cancel_on_disconnect;
};

/* Answered with the install's result. */
int operation_install(struct caller *caller, const struct install_request *request, struct err *err);

/* ---- sessions (session_operation.c) ---- */

struct session_created {
        struct session_info info;
        bool is_new;
        json_t *unchanged; /* names of options in which an existing session differs; owned, or NULL */
};

struct session_details {
        struct session_info info;
        json_t *runs, *isolation; /* its last runs and its isolation; owned */
};

int operation_session_create(struct caller *caller, const char *session, json_t *options,
                             struct session_created *ret_created, struct err *err);

/* Calls `each` for all that the caller may see. */
typedef void session_visit(void *context, const struct session_info *info);
void operation_session_list(struct caller *caller, session_visit *each, void *context);

int operation_session_show(struct caller *caller, const char *session, struct session_details *ret_details,
                           struct err *err);

/* {"runs"}, newest first; 0: 20 of them */
int operation_session_log(struct caller *caller, const char *session, size_t limit, struct err *err);

/* {} */
int operation_session_remove(struct caller *caller, const char *session, bool keep_files, struct err *err);
/* Removes all named sessions of the operator whose names `is_meant` accepts: their client has left. No answer. */
void operation_session_remove_all(struct session_manager *manager, bool (*is_meant)(const char *name, void *context),
                                  void *context);
/* {"interrupted"}: true if a run was active */
int operation_session_interrupt(struct caller *caller, const char *session, struct err *err);
/* {}: a new kernel; variables are lost, files stay */
int operation_session_restart(struct caller *caller, const char *session, struct err *err);
/* {"state", …} */
int operation_session_hibernate(struct caller *caller, const char *session, bool trim_only, struct err *err);

/* Moves it to another engine, by "engine", "isolation" and "image". ERR_BUSY while it has a box. */
int operation_session_move(struct caller *caller, const char *session, json_t *options, struct session_info *ret_info,
                           struct err *err);

/* Makes the session sleep, with the sleep file that was written as the file "sleep" with "input". */
int operation_session_adopt(struct caller *caller, const char *session, struct session_info *ret_info, struct err *err);

/* Changes limits of a session that may be running: an object as that of session.create. */
int operation_session_set(struct caller *caller, const char *session, json_t *limits, struct session_info *ret_info,
                          struct err *err);

/* ---- files of a session (file_operation.c, file_receiver.h for what is written) ---- */

struct file_request {
        const char *session;
        const char *path; /* below the workspace, as the box or the caller names it (store/workspace.h) */
        const char *to;   /* of a move */
        bool recursive;   /* of a removal: a directory with its contents */
        bool no_links;    /* of opening: refuse a path through a symbolic link */
        bool follows;     /* of stat: follow a link, and report the tag */
        bool is_input;    /* standard input of a run: below the kernel's own directory, not the workspace */
        bool creates;     /* a missing session is made, */
        json_t *options;  /* with these */
};

/* A file or a directory, open for reading. */
struct open_file {
        int fd; /* owned */
        struct stat status;
        char path[4096]; /* below the workspace; "." is the workspace itself */
};

/* Writes the answer, a JSON object. `entries` are [{"path", "type", "size", "modified"}] by name, and may be changed;
 * with `is_cut` there are more. `path` is that of the directory, below the workspace. It may be called in a child. */
typedef void file_list_writer(json_t *entries, bool is_cut, const char *path, struct json_writer *text);

int operation_file_open(struct caller *caller, const struct file_request *request, struct open_file *ret_file,
                        struct err *err);
int operation_file_list(struct caller *caller, const struct file_request *request, file_list_writer *write,
                        struct err *err);
/* The same for a directory that is open; it is borrowed for the call. */
int open_file_list(struct caller *caller, const struct open_file *directory, file_list_writer *write, struct err *err);

/* {"path", "type", "size", "modified"}: a new reference. Of a link, itself. */
int operation_file_stat(struct caller *caller, const struct file_request *request, json_t **ret_entry, struct err *err);

/* With its parents. ret_path: below the workspace. */
int operation_file_make_directory(struct caller *caller, const struct file_request *request, char ret_path[static 4096],
                                  struct err *err);
int operation_file_move(struct caller *caller, const struct file_request *request, char ret_path[static 4096],
                        struct err *err);

/* {} */
int operation_file_remove(struct caller *caller, const struct file_request *request, struct err *err);

/* The artifacts: answered with what `write` makes of the list, now or in a child where they are many. `context` is a
 * text for it. With `is_located`, each has its host_path, where the caller may know it. */
typedef void artifact_list_writer(const struct artifact_list *list, const char *context, struct json_writer *text);
int operation_artifact_list(struct caller *caller, const char *session, artifact_list_writer *write,
                            const char *context, bool is_located, struct err *err);

/* The same list, and the workspace, for further use (session/artifact_listing.h). */
int operation_artifact_scan(struct caller *caller, const char *session, artifact_listed *done, struct err *err);

/* ---- what runs now (process_operation.c) ---- */

/* {"processes"} */
int operation_ps(struct caller *caller, struct err *err);
/* By name or id, or the beginning of an id, of a session or of a run. {"done", …} */
int operation_kill(struct caller *caller, const char *target, bool hard, struct err *err);

/* ---- the daemon itself (daemon_operation.c) ---- */

int operation_ping(struct caller *caller, struct err *err);
int operation_status(struct caller *caller, struct err *err);
int operation_shutdown(struct caller *caller, bool end_sessions, struct err *err);
