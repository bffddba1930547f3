#include "daemon/remote_move.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/helper_job.h"
#include "base/memory.h"
#include "daemon/instance_sweep.h"
#include "daemon/remote.h"
#include "daemon/remote_client.h"
#include "session/caller.h"
#include "session/manager.h"
#include "session/recovery.h"
#include "session/remote_place.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "session/session_engine.h"
#include "session/session_info.h"
#include "session/session_move.h"
#include "session/sleep_file.h"
#include "store/janitor.h"
#include "store/workspace.h"

enum { DEPTH_MAX = 64, LEFT_MAX = 50, MOVE_MS = 3600 * 1000, SWEEP_MS = 60000 };

struct carry {
        struct remote_client remote;
        const char *name; /* of the session there */
        int workspace_fd;
        json_t *left_behind;
};

/* ---- in the child: there ---- */

static void leave_behind(struct carry *carry, const char *path) {
        if (json_array_size(carry->left_behind) < LEFT_MAX)
                (void) json_array_append_new(carry->left_behind, json_string(path));
}

static int send_directory(struct carry *carry, const char *directory, int depth, struct err *err);

static int send_entry(struct carry *carry, const char *path, const char *type, int depth, struct err *err) {
        json_t *answer = NULL;
        struct stat status;
        if (strcmp(type, "directory") == 0) {
                json_t *request =
                        json_pack("{s:s, s:s, s:s}", "op", "file.mkdir", "session", carry->name, "path", path);
                int code = remote_client_ask(&carry->remote, request, NULL, NULL, &answer, err);
                json_decref(answer);
                return code < 0 ? -1 : send_directory(carry, path, depth + 1, err);
        }
        if (strcmp(type, "file") != 0) {
                leave_behind(carry, path);
                return 0;
        }
        _cleanup_fd_ int fd = workspace_open(carry->workspace_fd, path, WORKSPACE_NO_LINKS, &status, err);
        if (fd < 0)
                return -1;
        return remote_client_send_file(
                &carry->remote, json_pack("{s:s, s:s, s:s}", "op", "file.write", "session", carry->name, "path", path),
                fd, err);
}

static int join(const char *directory, const char *name, char ret_path[static 4096], struct err *err) {
        const char *base = strrchr(name, '/');
        bool is_top = strcmp(directory, ".") == 0;
        int size =
                snprintf(ret_path, 4096, "%s%s%s", is_top ? "" : directory, is_top ? "" : "/", base ? base + 1 : name);
        return size < 4096 ? 0 : err_set(err, ERR_LIMIT, "a path is too long: %.200s", ret_path);
}

static int send_directory(struct carry *carry, const char *directory, int depth, struct err *err) {
        bool is_cut = false;
        json_t *entries = depth < DEPTH_MAX
                                  ? workspace_list(carry->workspace_fd, directory, WORKSPACE_LIST_MAX, &is_cut, err)
                                  : NULL;
        json_t *entry;
        size_t i;
        int code = entries && !is_cut ? 0
                                      : err_set(err, ERR_LIMIT,
                                                "%.200s has more files or directories than can be moved", directory);
        json_array_foreach (entries, i, entry) {
                char path[4096];
                const char *name = json_string_value(json_object_get(entry, "path"));
                const char *type = json_string_value(json_object_get(entry, "type"));
                if (code == 0 && name && type)
                        code = join(directory, name, path, err) < 0 ? -1 : send_entry(carry, path, type, depth, err);
        }
        json_decref(entries);
        return code;
}

static int send_sleep_file(struct carry *carry, const char *state_dir, struct err *err) {
        char path[1100];
        json_t *answer = NULL;
        (void) snprintf(path, sizeof(path), "%s/kernel/" SLEEP_FILE, state_dir);
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0 && errno == ENOENT)
                return 0;
        if (fd < 0)
                return err_sys(err, errno, "opening what the session's kernel wrote");
        if (remote_client_send_file(&carry->remote,
                                    json_pack("{s:s, s:s, s:s, s:b}", "op", "file.write", "session", carry->name,
                                              "path", SLEEP_FILE, "input", 1),
                                    fd, err) < 0 ||
            remote_client_ask(&carry->remote, json_pack("{s:s, s:s}", "op", "session.adopt", "session", carry->name),
                              NULL, NULL, &answer, err) < 0)
                return -1;
        json_decref(answer);
        return 0;
}

/* ---- in the child: back ---- */

static int remote_move_on_piece(void *context, const char *bytes, size_t size, struct err *err) {
        int code = fd_write_all(*(const int *) context, bytes, size);
        return code < 0 ? err_sys(err, -code, "writing a file") : 0;
}

static int fetch_file(struct carry *carry, const char *path, struct err *err) {
        struct workspace_file file;
        json_t *answer = NULL;
        if (workspace_create_file(carry->workspace_fd, path, &file, err) < 0)
                return -1;
        if (remote_client_ask(&carry->remote,
                              json_pack("{s:s, s:s, s:s}", "op", "file.read", "session", carry->name, "path", path),
                              remote_move_on_piece, &file.fd, &answer, err) < 0) {
                workspace_drop_file(&file);
                return -1;
        }
        json_decref(answer);
        return workspace_finish_file(&file, err);
}

static int fetch_directory(struct carry *carry, const char *directory, int depth, struct err *err) {
        json_t *answer = NULL, *entry;
        size_t i;
        if (depth >= DEPTH_MAX)
                return err_set(err, ERR_LIMIT, "%.200s is nested too deeply to be moved", directory);
        int code = remote_client_ask(
                &carry->remote,
                json_pack("{s:s, s:s, s:s}", "op", "file.list", "session", carry->name, "path", directory), NULL, NULL,
                &answer, err);
        json_array_foreach (json_object_get(answer, "entries"), i, entry) {
                char path[4096], relative[4096];
                const char *name = json_string_value(json_object_get(entry, "path"));
                const char *type = json_string_value(json_object_get(entry, "type"));
                if (code < 0 || !name || !type)
                        continue;
                if (join(directory, name, path, err) < 0 || workspace_check_path(path, relative, err) < 0)
                        code = -1;
                else if (strcmp(type, "directory") == 0)
                        code = workspace_make_directories(carry->workspace_fd, relative, err) < 0
                                       ? -1
                                       : fetch_directory(carry, path, depth + 1, err);
                else if (strcmp(type, "file") == 0)
                        code = fetch_file(carry, relative, err);
                else
                        leave_behind(carry, path);
        }
        json_decref(answer);
        return code;
}

static int fetch_sleep_file(struct carry *carry, const char *state_dir, struct err *err) {
        char path[1100], part[1110];
        json_t *answer = NULL;
        (void) snprintf(path, sizeof(path), "%s/kernel/" SLEEP_FILE, state_dir);
        (void) snprintf(part, sizeof(part), "%s.part", path);
        (void) unlink(part);
        _cleanup_fd_ int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return err_sys(err, errno, "making %.300s", part);
        int code = remote_client_ask(&carry->remote,
                                     json_pack("{s:s, s:s, s:s, s:b}", "op", "file.read", "session", carry->name,
                                               "path", SLEEP_FILE, "input", 1),
                                     remote_move_on_piece, &fd, &answer, err);
        json_decref(answer);
        if (code < 0) {
                (void) unlink(part);
                return err->code == ERR_NOT_FOUND ? 0 : -1; /* it never had variables */
        }
        return rename(part, path) < 0 ? err_sys(err, errno, "putting %.300s in place", path) : 0;
}

/* ---- the job ---- */

struct move {
        struct caller *caller; /* NULL: it has left */
        struct session_manager *manager;
        char session_id[32], name[REMOTE_NAME_MAX], state_dir[1024], workspace[1024];
        json_t *create;  /* the request that makes it there; NULL: it comes from there */
        json_t *options; /* of the move */
        struct remote_place place; /* where it goes, or comes from */
};

static int carry_over(const struct move *move, struct carry *carry, struct err *err) {
        json_t *answer = NULL;
        carry->workspace_fd = open(move->workspace, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (carry->workspace_fd < 0)
                return err_sys(err, errno, "opening %.300s", move->workspace);
        if (!move->create)
                return fetch_directory(carry, ".", 0, err) < 0 ? -1 : fetch_sleep_file(carry, move->state_dir, err);
        int code = remote_client_ask(&carry->remote, json_incref(move->create), NULL, NULL, &answer, err);
        json_decref(answer);
        if (code == 0 && send_directory(carry, ".", 0, err) == 0 && send_sleep_file(carry, move->state_dir, err) == 0)
                return 0;
        struct err ignored;
        answer = NULL;
        (void) remote_client_ask(&carry->remote, json_pack("{s:s, s:s}", "op", "session.remove", "session", move->name),
                                 NULL, NULL, &answer, &ignored);
        json_decref(answer);
        return -1;
}

/* The child writes 'a' and a list of what was not moved, or 'e' and the error. */
static int do_move(const int *fds, int out_fd, void *context) {
        const struct move *move = context;
        struct carry carry = { .remote = remote_client_make(fds[0]), .name = move->name, .left_behind = json_array() };
        struct err err = { 0 };
        if (carry_over(move, &carry, &err) < 0)
                return fd_write_all(out_fd, "e", 1) < 0 || fd_write_all(out_fd, &err, sizeof(err)) < 0 ? -1 : 0;
        char *text = json_dumps(carry.left_behind, JSON_COMPACT);
        return !text || fd_write_all(out_fd, "a", 1) < 0 ? -1 : fd_write_all(out_fd, text, strlen(text));
}

static void move_free(struct move *move) {
        if (move->caller)
                move->caller->held_by = NULL;
        json_decref(move->create);
        json_decref(move->options);
        free(move);
}

/* The files are there now. A workspace that the caller chose stays. */
static void drop_local_files(struct session *session) {
        char gone[1200];
        sleep_file_remove(session);
        if (*session->row.workspace)
                return;
        (void) snprintf(gone, sizeof(gone), "%s/" SESSION_REMOVED_WORKSPACE, session->state_dir);
        if (rename(session->workspace, gone) == 0)
                janitor_remove(&session->manager->janitor, gone);
}

/* The row changes: from here on the session is at its new place. */
static int settle_move(const struct move *move, struct session **ret_session, struct err *err) {
        struct session *session = session_find(move->manager, "", move->session_id);
        if (!session)
                return err_set(err, ERR_GONE, "the session was removed while it was moved");
        if (session_move_engine(&session, move->options, err) < 0)
                return -1;
        *ret_session = session;
        if (move->create) {
                drop_local_files(session);
                (void) snprintf(session->remote.state, sizeof(session->remote.state), "asleep");
                return 0;
        }
        if (move->place.is_instance)
                (void) unlink(move->place.order.marker);
        remote_sweep(move->manager); /* no session has the instance now */
        return sleep_file_exists(session) ? recovery_take_sleep_file(session, err) : 0;
}

/* The move failed: an instance that was made for it is removed. */
static void stay(const struct move *move) {
        struct session *session = session_find(move->manager, "", move->session_id);
        if (session)
                session->remote.is_moving_there = false;
        if (!move->create || !move->place.is_instance || (session && session->is_remote))
                return;
        (void) unlink(move->place.order.marker);
        remote_place_remove(&move->place);
}

static void on_moved(void *context, const char *bytes, size_t size) {
        struct move *move = context;
        struct caller *caller = move->caller;
        struct session *session = NULL;
        struct err err = { 0 };
        bool is_carried = size > 1 && bytes[0] == 'a';
        if (size == 1 + sizeof(err) && bytes[0] == 'e')
                memcpy(&err, bytes + 1, sizeof(err));
        else if (!is_carried)
                (void) err_set(&err, ERR_GONE, "the session was not moved: the helper that carries it over has died");
        int code = is_carried ? settle_move(move, &session, &err) : -1;
        if (code < 0)
                stay(move);
        json_t *left = is_carried ? json_loadb(bytes + 1, size - 1, 0, NULL) : NULL;
        move_free(move);
        if (caller && code == 0) {
                static const struct session_info_form form;
                const struct session_info info = session_info_of(session);
                json_t *answer = session_info_to_json(&info, &form);
                if (json_array_size(left) > 0)
                        (void) json_object_set(answer, "left_behind", left);
                caller_answer(caller, answer);
        } else if (caller)
                caller_refuse(caller, &err);
        json_decref(left);
}

/* The request that makes the session there, with its limits; a remote gets those that any Glovebox accepts. */
static json_t *write_create(const struct session *session, const char *name, const struct remote_place *place) {
        if (place->is_instance)
                return json_pack("{s:s, s:s, s:o}", "op", "session.create", "session", name, "limits",
                                 remote_write_limits(&session->row.limits));
        const struct limits *limits = &session->row.limits;
        return json_pack("{s:s, s:s, s:{s:I, s:f, s:I, s:I}}", "op", "session.create", "session", name, "limits",
                         "memory_bytes", (json_int_t) limits->memory_bytes, "cpus",
                         (double) limits->cpu_thousandths / 1000, "pids", (json_int_t) limits->pids, "timeout_ms",
                         (json_int_t) limits->timeout_ms);
}

bool remote_move_is_meant(const struct caller *caller, const char *name, json_t *options) {
        const char *engine = json_string_value(json_object_get(options, "engine"));
        bool is_asked = engine || json_object_get(options, "isolation");
        return remote_find(caller, name) || (is_asked && remote_is_wanted(caller->manager, options));
}

static int refuse_remote_move(const struct session *session, json_t *options, struct err *err) {
        const struct session_engine has = session_engine_of(&session->row);
        struct session_engine wanted;
        if (session_engine_read(session->manager, options, &wanted, err) < 0)
                return -1;
        if (strcmp(has.name, wanted.name) == 0)
                return err_set(err, ERR_EXISTS, "session %s is on engine %s already", session->row.name, has.name);
        return err_set(err, ERR_UNSUPPORTED,
                       "session %s is on engine %s: move it to an engine of this host first (native), then to %s",
                       session->row.name, has.name, wanted.name);
}

/* Where it is to go, or is now. */
static int find_place(const struct session *session, json_t *options, struct remote_place *ret_place, struct err *err) {
        static struct registry_session row; /* large */
        if (session->is_remote) {
                *ret_place = remote_place_of(session);
                return 0;
        }
        if (session_move_plan(session, options, &row, err) < 0)
                return -1;
        *ret_place = remote_place_of_row(session, &row);
        return 0;
}

/* NULL: no memory. */
static struct move *move_make(struct caller *caller, struct session *session, json_t *options, bool is_there,
                              const struct remote_place *place) {
        struct move *move = calloc(1, sizeof(*move));
        if (!move)
                return NULL;
        move->manager = caller->manager;
        move->options = json_copy(options);
        (void) snprintf(move->session_id, sizeof(move->session_id), "%s", session->row.id);
        remote_name(session, move->name);
        (void) snprintf(move->state_dir, sizeof(move->state_dir), "%s", session->state_dir);
        (void) snprintf(move->workspace, sizeof(move->workspace), "%s", session->workspace);
        move->place = *place;
        move->create = is_there ? write_create(session, move->name, &move->place) : NULL;
        if (is_there)
                (void) json_object_set(move->options, "limits", json_object_get(move->create, "limits"));
        else
                (void) mkdir(move->workspace, 0755);
        move->caller = caller;
        caller->held_by = &move->caller;
        return move;
}

int remote_move(struct caller *caller, const char *name, json_t *options, struct err *err) {
        struct session_manager *manager = caller->manager;
        caller_begin(caller, "session.move", name);
        struct session *session = caller_find_session(caller, name, err);
        bool is_there = session && remote_is_wanted(manager, options);
        if (!session)
                return -1;
        if (session->is_remote && is_there)
                return refuse_remote_move(session, options, err);
        if (!session->is_remote && !is_there)
                return err_set(err, ERR_EXISTS, "session %s is on this host already", session->row.name);
        if (session->kernel || session->runs || session->install || session->caller)
                return err_set(err, ERR_BUSY, "session %s has a box: hibernate it first, then move it",
                               session->row.name);
        struct remote_place from_or_to;
        if (find_place(session, options, &from_or_to, err) < 0)
                return -1;
        struct move *move = move_make(caller, session, options, is_there, &from_or_to);
        if (!move)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        session->remote.is_moving_there = is_there;
        _cleanup_fd_ int fd = -1;
        bool is_fresh;
        if (remote_link_take(manager, &move->place, &fd, &is_fresh, err) == 0) {
                const struct helper_job_order order = { .fds = { fd },
                                                        .n_fds = 1,
                                                        .timeout_ms = MOVE_MS,
                                                        .work = do_move,
                                                        .done = on_moved,
                                                        .context = move,
                                                        manager_job_of(manager, caller->owner) };
                if (helper_job_start(manager->loop, &order, err))
                        return 0;
        }
        session->remote.is_moving_there = false;
        move_free(move);
        return -1;
}

/* ---- what was left there ---- */

struct sweep {
        struct session_manager *manager;
        json_t *requests; /* in turn */
};

/* A list of the answers; null for a refused request. */
static int do_sweep(const int *fds, int out_fd, void *context) {
        const struct sweep *sweep = context;
        struct remote_client remote = remote_client_make(fds[0]);
        json_t *answers = json_array(), *request;
        size_t i;
        json_array_foreach (sweep->requests, i, request) {
                json_t *answer = NULL;
                struct err err = { 0 };
                if (remote_client_ask(&remote, json_incref(request), NULL, NULL, &answer, &err) < 0 &&
                    err.code == ERR_GONE)
                        return -1;
                (void) json_array_append_new(answers, answer ? answer : json_null());
        }
        char *text = json_dumps(answers, JSON_COMPACT);
        return text ? fd_write_all(out_fd, text, strlen(text)) : -1;
}

static void start_sweep(struct session_manager *manager, json_t *requests);

/* A session is registered here before it is made there: one that is not registered is left over. */
static void on_swept(void *context, const char *bytes, size_t size) {
        struct sweep *sweep = context;
        struct session_manager *manager = sweep->manager;
        json_t *answers = bytes ? json_loadb(bytes, size, 0, NULL) : NULL, *entry;
        json_t *removals = json_array();
        size_t i, prefix = strlen(manager->data_id);
        json_array_foreach (json_object_get(json_array_get(answers, 0), "sessions"), i, entry) {
                const char *name = json_string_value(json_object_get(entry, "name"));
                if (!name || strncmp(name, manager->data_id, prefix) != 0 || name[prefix] != '-')
                        continue;
                const struct session *session = session_find(manager, "", name + prefix + 1);
                if (!session || !session->is_remote)
                        (void) json_array_append_new(removals,
                                                     json_pack("{s:s, s:s}", "op", "session.remove", "session", name));
        }
        json_decref(answers);
        json_decref(sweep->requests);
        free(sweep);
        if (json_array_size(removals) > 0)
                start_sweep(manager, removals);
        else
                json_decref(removals);
}

/* Takes the reference. */
static void start_sweep(struct session_manager *manager, json_t *requests) {
        struct sweep *sweep = calloc(1, sizeof(*sweep));
        _cleanup_fd_ int fd = -1;
        bool is_fresh;
        struct err ignored;
        const struct remote_place place = { .is_instance = false };
        if (sweep && remote_link_take(manager, &place, &fd, &is_fresh, &ignored) == 0) {
                *sweep = (struct sweep) { manager, requests };
                const struct helper_job_order order = { .fds = { fd },
                                                        .n_fds = 1,
                                                        .timeout_ms = SWEEP_MS,
                                                        .work = do_sweep,
                                                        .done = on_swept,
                                                        .context = sweep };
                if (helper_job_start(manager->loop, &order, &ignored))
                        return;
        }
        free(sweep);
        json_decref(requests);
}

void remote_sweep(struct session_manager *manager) {
        instance_sweep(manager);
        if (engine_has_remote(&manager->options->engines) && *manager->options->engines.remote_key)
                start_sweep(manager, json_pack("[{s:s}]", "op", "session.list"));
}
