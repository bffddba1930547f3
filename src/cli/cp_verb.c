/* `glovebox cp`: files and directories between the host and a session's workspace. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "cli/box_rows.h"
#include "cli/process_verb.h"
#include "cli/ui/terminal.h"
#include "client/daemon_client.h"

enum { DEPTH_MAX = 64 };

struct line {
        struct socket_choice where;
};

static const struct option_row cp_rows[] = { SOCKET_ROWS(offsetof(struct line, where)) };
const struct option_table cp_option_table = { .rows = cp_rows, .n_rows = ELEMENTS(cp_rows), .operands_anywhere = true };

/* One side of the copy: "NAME:PATH" and "KEY/NAME:PATH" are a session's, all else is the host's. "./a:b" and "/a:b" are
 * files, and so is "a/b:c" if it is there. */
struct side {
        char session[170]; /* "": the host */
        const char *path;
};

/* The length of "NAME" or "KEY/NAME" before a colon; 0 if the text does not begin so. */
static size_t session_size(const char *text) {
        static const char key_letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";
        struct stat status;
        size_t size = strcspn(text, ":/");
        if (text[size] == ':')
                return size;
        if (text[size] != '/' || strspn(text, key_letters) != size || lstat(text, &status) == 0)
                return 0;
        size_t name = strcspn(text + size + 1, ":/");
        return name > 0 && text[size + 1] != '.' && text[size + 1 + name] == ':' ? size + 1 + name : 0;
}

static void read_side(const char *text, struct side *ret_side) {
        size_t size = session_size(text);
        bool is_session = size > 0 && size < sizeof(ret_side->session) && *text != '.' && *text != '/';
        (void) snprintf(ret_side->session, sizeof(ret_side->session), "%.*s", is_session ? (int) size : 0, text);
        ret_side->path = is_session ? text + size + 1 : text;
        if (is_session && !*ret_side->path)
                ret_side->path = ".";
}

static const char *base_name(const char *path) {
        const char *slash = strrchr(path, '/');
        return slash && slash[1] ? slash + 1 : path;
}

static int join(const char *directory, const char *name, char ret_path[static PATH_MAX], struct err *err) {
        size_t size = strlen(directory);
        const char *between = size == 0 || directory[size - 1] == '/' ? "" : "/";
        if ((size_t) snprintf(ret_path, PATH_MAX, "%s%s%s", directory, between, name) >= PATH_MAX)
                return err_set(err, ERR_USAGE, "the path of %.200s is too long", name);
        return 0;
}

static int cp_call(struct daemon_client *client, const char *operation, const char *session, const char *path,
                   struct daemon_request *request, json_t **ret_answer, struct err *err) {
        json_t *body = json_pack("{s:s, s:s, s:s}", "op", operation, "session", session, "path", path);
        json_t *answer = NULL;
        request->body = body;
        int code = body ? daemon_client_call(client, request, &answer, err)
                        : err_set(err, ERR_USAGE, "a name is not valid UTF-8: %.200s", path);
        json_decref(body);
        if (code == 0 && ret_answer)
                *ret_answer = answer;
        else
                json_decref(answer);
        return code == DAEMON_CALL_LEFT ? err_set(err, ERR_SYSTEM, "the copy was broken off") : code;
}

static int find_type(struct daemon_client *client, const char *session, const char *path, char ret_type[static 16],
                     struct err *err) {
        struct daemon_request request = { 0 };
        json_t *answer = NULL;
        int code = cp_call(client, "file.stat", session, path, &request, &answer, err);
        const char *type = json_string_value(json_object_get(answer, "type"));
        (void) snprintf(ret_type, 16, "%s", code == 0 && type ? type : "");
        json_decref(answer);
        return code;
}

static bool is_directory_of(struct daemon_client *client, const struct side *side) {
        char type[16];
        struct err ignored;
        return find_type(client, side->session, side->path, type, &ignored) == 0 && strcmp(type, "directory") == 0;
}

/* A missing file is a usage error, as on the host; a missing session is not. */
static int find_source_type(struct daemon_client *client, const struct side *from, char ret_type[static 16],
                            struct err *err) {
        char type[16];
        struct err ignored;
        int code = find_type(client, from->session, from->path, ret_type, err);
        if (code < 0 && err->code == ERR_NOT_FOUND && find_type(client, from->session, ".", type, &ignored) == 0)
                return err_set(err, ERR_USAGE, "there is no file %.300s in session %s", from->path, from->session);
        return code;
}

/* ---- into a session ---- */

static int copy_file_in(struct daemon_client *client, int fd, const char *session, const char *path, struct err *err) {
        struct daemon_request request = { .with_input = true, .input_fd = fd };
        return cp_call(client, "file.write", session, path, &request, NULL, err);
}

static int copy_in(struct daemon_client *client, const char *from, const char *session, const char *to, int depth,
                   struct err *err);

static int copy_directory_in(struct daemon_client *client, const char *from, const char *session, const char *to,
                             int depth, struct err *err) {
        struct daemon_request request = { 0 };
        struct err exists = { 0 };
        if (cp_call(client, "file.mkdir", session, to, &request, NULL, &exists) < 0 && exists.code != ERR_EXISTS) {
                *err = exists;
                return -1;
        }
        _cleanup_dir_ DIR *directory = opendir(from);
        if (!directory)
                return err_sys(err, errno, "cannot list %.300s", from);
        for (struct dirent *entry; (entry = dir_next(directory));) {
                char source[PATH_MAX], target[PATH_MAX];
                if (join(from, entry->d_name, source, err) < 0 || join(to, entry->d_name, target, err) < 0 ||
                    copy_in(client, source, session, target, depth + 1, err) < 0)
                        return -1;
        }
        return 0;
}

static int copy_in(struct daemon_client *client, const char *from, const char *session, const char *to, int depth,
                   struct err *err) {
        if (depth > DEPTH_MAX)
                return err_set(err, ERR_LIMIT, "%.300s lies deeper than %d directories", from, DEPTH_MAX);
        _cleanup_fd_ int fd = strcmp(from, "-") == 0 && depth == 0
                                      ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                      : open(from, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        struct stat status;
        if (fd < 0 && errno == ENOENT)
                return err_set(err, ERR_USAGE, "there is no file %.300s", from);
        if (fd < 0 || fstat(fd, &status) < 0)
                return err_sys(err, errno, "cannot read %.300s", from);
        if (S_ISDIR(status.st_mode))
                return copy_directory_in(client, from, session, to, depth, err);
        if (depth > 0 && !S_ISREG(status.st_mode))
                return 0; /* sockets, devices */
        return copy_file_in(client, fd, session, to, err);
}

/* As cp: into an existing directory, under the same name. */
static int copy_to_session(struct daemon_client *client, const struct side *from, const struct side *to,
                           struct err *err) {
        char path[PATH_MAX];
        size_t size = strlen(to->path);
        bool into = to->path[size - 1] == '/' || is_directory_of(client, to);
        if (into && strcmp(from->path, "-") == 0)
                return err_set(err, ERR_USAGE, "standard input has no name; write %s:FILE", to->session);
        if (!into)
                return copy_in(client, from->path, to->session, to->path, 0, err);
        char name[PATH_MAX];
        (void) snprintf(name, sizeof(name), "%s", base_name(from->path));
        name[strcspn(name, "/")] = '\0';
        return join(strcmp(to->path, ".") == 0 ? "" : to->path, name, path, err) < 0
                       ? -1
                       : copy_in(client, from->path, to->session, path, 0, err);
}

/* ---- from a session: its file names are untrusted ---- */

struct arrival {
        int fd, code;
};

static int cp_take_data(void *context, const char *bytes, size_t size) {
        struct arrival *arrival = context;
        arrival->code = fd_write_all(arrival->fd, bytes, size);
        return arrival->code < 0;
}

static int copy_file_out(struct daemon_client *client, const char *session, const char *path, int parent_fd,
                         const char *name, struct err *err) {
        _cleanup_fd_ int fd =
                parent_fd < 0 ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                              : openat(parent_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0)
                return err_sys(err, errno, "cannot write %.300s", name);
        struct arrival arrival = { .fd = fd };
        struct daemon_request request = { .calls = { .data = cp_take_data, .context = &arrival } };
        int code = cp_call(client, "file.read", session, path, &request, NULL, err);
        return arrival.code < 0 ? err_sys(err, -arrival.code, "cannot write %.300s", name) : code;
}

static bool is_plain_name(const char *name) {
        return name && *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int copy_directory_out(struct daemon_client *client, const char *session, const char *path, int parent_fd,
                              const char *name, int depth, struct err *err) {
        struct daemon_request request = { 0 };
        json_t *answer = NULL, *entry;
        size_t i;
        if (depth > DEPTH_MAX)
                return err_set(err, ERR_LIMIT, "%.300s lies deeper than %d directories", path, DEPTH_MAX);
        if (mkdirat(parent_fd, name, 0755) < 0 && errno != EEXIST)
                return err_sys(err, errno, "cannot make the directory %.300s", name);
        _cleanup_fd_ int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return err_sys(err, errno, "cannot open the directory %.300s", name);
        int code = cp_call(client, "file.list", session, path, &request, &answer, err);
        json_array_foreach (json_object_get(answer, "entries"), i, entry) {
                const char *type = json_string_value(json_object_get(entry, "type"));
                const char *at = json_string_value(json_object_get(entry, "path"));
                const char *inner = at ? base_name(at) : NULL;
                char inner_path[PATH_MAX];
                if (code < 0 || !type || !is_plain_name(inner) || join(path, inner, inner_path, err) < 0)
                        continue;
                if (strcmp(type, "directory") == 0)
                        code = copy_directory_out(client, session, inner_path, fd, inner, depth + 1, err);
                else if (strcmp(type, "file") == 0) /* links are left out: code in the box chose where they lead */
                        code = copy_file_out(client, session, inner_path, fd, inner, err);
        }
        json_decref(answer);
        return code;
}

/* "a" -> ".", "/a" -> "/", "a/b" -> "a". NULL: out of memory. */
static char *parent_of(const char *path) {
        const char *slash = strrchr(path, '/');
        if (!slash)
                return strdup(".");
        return slash == path ? strdup("/") : strndup(path, (size_t) (slash - path));
}

static int copy_from_session(struct daemon_client *client, const struct side *from, const char *to, struct err *err) {
        char type[16], name[PATH_MAX];
        if (find_source_type(client, from, type, err) < 0)
                return -1;
        bool is_directory = strcmp(type, "directory") == 0;
        if (strcmp(to, "-") == 0)
                return is_directory ? err_set(err, ERR_USAGE, "%s is a directory; name a directory to copy it to",
                                              from->path)
                                    : copy_file_out(client, from->session, from->path, -1, "-", err);
        struct stat status;
        bool into = (stat(to, &status) == 0 && S_ISDIR(status.st_mode)) || to[strlen(to) - 1] == '/';
        (void) snprintf(name, sizeof(name), "%s", base_name(into ? from->path : to));
        name[strcspn(name, "/")] = '\0';
        _cleanup_free_ char *parent = into ? strdup(to) : parent_of(to);
        if (!parent)
                return err_set(err, ERR_SYSTEM, "out of memory");
        if (into && (strcmp(name, ".") == 0 || strcmp(name, "workspace") == 0))
                (void) snprintf(name, sizeof(name), "%s", from->session);
        _cleanup_fd_ int parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (parent_fd < 0)
                return err_sys(err, errno, "cannot open the directory %.300s", parent);
        return is_directory ? copy_directory_out(client, from->session, from->path, parent_fd, name, 0, err)
                            : copy_file_out(client, from->session, from->path, parent_fd, name, err);
}

int verb_cp(int argc, char **argv) {
        (void) argc;
        struct line line = { 0 };
        struct option_rest rest;
        struct socket_place place;
        struct err err = { 0 };
        struct side from, to;
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        if (option_parse(&cp_option_table, &line, argv + 1, &rest, &err) < 0)
                return terminal_fail(&err);
        if (rest.help) {
                verb_print_help(stdout, verb_find("cp"));
                return 0;
        }
        if (!rest.operands[0] || !rest.operands[1] || rest.operands[2] || !*rest.operands[0] || !*rest.operands[1]) {
                (void) err_set(&err, ERR_USAGE,
                               "cp needs a source and a destination, one of them in a session: glovebox cp data.csv "
                               "demo:data.csv, or glovebox cp demo:artifacts .");
                return terminal_fail(&err);
        }
        read_side(rest.operands[0], &from);
        read_side(rest.operands[1], &to);
        int code;
        if (!*from.session == !*to.session)
                code = err_set(&err, ERR_USAGE, "%s; write SESSION:PATH for the one in the session",
                               *from.session ? "cp does not copy from session to session"
                                             : "both are files of the host");
        else if ((code = socket_place_choose(&line.where, true, &place, &err)) == 0 &&
                 (code = daemon_client_open(&place, DAEMON_START, &client, &err)) == 0)
                code = *to.session ? copy_to_session(&client, &from, &to, &err)
                                   : copy_from_session(&client, &from, to.path, &err);
        return code < 0 ? terminal_fail(&err) : 0;
}
