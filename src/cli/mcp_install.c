/* Settings files of MCP clients. Each client is a row: where its file is, and under which members the server stands.
 *
 * A file is changed as a whole: written beside itself and renamed, with the mode that it had. A file that it cannot
 * keep as it is (JSON with comments) is not touched: it prints what to add by hand. */
#include "cli/mcp_install.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"

enum { FILE_MAX = 16 << 20 };
#define SERVER "glovebox"

enum form { FORM_JSON, FORM_TOML };

static const struct client {
        const char *name;
        const char *path; /* below the home directory; with "$XDG_CONFIG_HOME/" instead of ".config/" where it is set */
        const char *parent; /* the member that holds the servers */
        enum form form;
        bool has_type; /* an entry says "type": "stdio" */
        const char *after; /* what to do then */
} clients[] = {
        { "claude-code", ".claude.json", "mcpServers", FORM_JSON, true, "start claude again; /mcp shows the server" },
        { "claude-desktop", ".config/Claude/claude_desktop_config.json", "mcpServers", FORM_JSON, false,
          "start Claude Desktop again" },
        { "cursor", ".cursor/mcp.json", "mcpServers", FORM_JSON, false, "Cursor shows it in Settings, MCP" },
        { "vscode", ".config/Code/User/mcp.json", "servers", FORM_JSON, true, "run \"MCP: List Servers\" in VS Code" },
        { "codex", ".codex/config.toml", "mcp_servers", FORM_TOML, false, "start codex again" },
        { "zed", ".config/zed/settings.json", "context_servers", FORM_JSON, false, "Zed reads its settings at once" },
};

static const struct client *find_client(const char *name, struct err *err) {
        for (size_t i = 0; i < ELEMENTS(clients); i++)
                if (strcmp(clients[i].name, name) == 0)
                        return &clients[i];
        (void) err_set(err, ERR_USAGE,
                       "there is no client \"%.60s\"; there are claude-code, claude-desktop, cursor, vscode, "
                       "codex and zed, and docs/MCP.md has the set-up of others by hand",
                       name);
        return NULL;
}

static int settings_path(const struct client *client, char ret_path[static PATH_MAX], struct err *err) {
        static const char below[] = ".config/";
        const char *home = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME");
        int n;
        if (!home || *home != '/')
                return err_set(err, ERR_USAGE, "HOME is not set, so the settings of %s cannot be found", client->name);
        if (config && *config == '/' && strncmp(client->path, below, strlen(below)) == 0)
                n = snprintf(ret_path, PATH_MAX, "%s/%s", config, client->path + strlen(below));
        else
                n = snprintf(ret_path, PATH_MAX, "%s/%s", home, client->path);
        return n < PATH_MAX ? 0 : err_set(err, ERR_USAGE, "the path of the settings is too long");
}

/* ---- the entry ---- */

/* The client starts the server from a directory of its own: paths are made absolute. */
static char *absolute_argument(const char *argument, bool is_path) {
        const char *equals = strncmp(argument, "--workspace=", 12) == 0 ? argument + 12 : NULL;
        const char *path = equals ? equals : is_path ? argument : NULL;
        size_t size = path ? strlen(path) : 0;
        bool is_ro = size > 3 && strcmp(path + size - 3, ":ro") == 0;
        _cleanup_free_ char *plain = path ? strndup(path, is_ro ? size - 3 : size) : NULL;
        _cleanup_free_ char *resolved = plain ? realpath(plain, NULL) : NULL;
        char *text = NULL;
        if (!resolved)
                return strdup(argument);
        if (asprintf(&text, "%s%s%s", equals ? "--workspace=" : "", resolved, is_ro ? ":ro" : "") < 0)
                return NULL;
        return text;
}

static json_t *make_arguments(char **arguments) {
        json_t *list = json_array();
        json_array_append_new(list, json_string("mcp"));
        for (size_t i = 0; arguments[i]; i++) {
                _cleanup_free_ char *text =
                        absolute_argument(arguments[i], i > 0 && strcmp(arguments[i - 1], "--workspace") == 0);
                json_array_append_new(list, json_string(text ? text : arguments[i]));
        }
        return list;
}

static json_t *make_entry(const struct client *client, char **arguments, struct err *err) {
        char program[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
        if (n <= 0) {
                (void) err_sys(err, errno, "finding this program");
                return NULL;
        }
        program[n] = '\0';
        json_t *entry = json_object();
        if (client->has_type)
                json_object_set_new(entry, "type", json_string("stdio"));
        json_object_set_new(entry, "command", json_string(program));
        json_object_set_new(entry, "args", make_arguments(arguments));
        return entry;
}

/* ---- the file ---- */

static int read_settings(const char *path, char **ret_text, size_t *ret_size, mode_t *ret_mode, struct err *err) {
        struct stat status;
        *ret_mode = 0600;
        *ret_text = NULL;
        *ret_size = 0;
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
                return 0;
        if (fd < 0 || fstat(fd, &status) < 0)
                return err_sys(err, errno, "reading %.300s", path);
        *ret_mode = status.st_mode & 0777;
        int code = fd_read_to_end(fd, FILE_MAX, ret_text, ret_size);
        return code < 0 ? err_sys(err, -code, "reading %.300s", path) : 0;
}

static int mcp_install_make_parents(const char *path, struct err *err) {
        char part[PATH_MAX];
        for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
                (void) snprintf(part, sizeof(part), "%.*s", (int) (slash - path), path);
                if (mkdir(part, 0700) < 0 && errno != EEXIST)
                        return err_sys(err, errno, "making the directory %.300s", part);
        }
        return 0;
}

/* A link stays a link: its target is replaced. */
static int write_settings(const char *given, const char *text, mode_t mode, struct err *err) {
        char temporary[PATH_MAX + 32];
        _cleanup_free_ char *resolved = realpath(given, NULL);
        const char *path = resolved ? resolved : given;
        if (mcp_install_make_parents(path, err) < 0)
                return -1;
        (void) snprintf(temporary, sizeof(temporary), "%s.glovebox-%d", path, (int) getpid());
        _cleanup_fd_ int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
                return err_sys(err, errno, "writing %.300s", temporary);
        int code = fd_write_all(fd, text, strlen(text));
        if (code == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0 || rename(temporary, path) < 0))
                code = -errno;
        if (code < 0)
                (void) unlink(temporary);
        return code < 0 ? err_sys(err, -code, "writing %.300s", path) : 0;
}

/* ---- JSON ---- */

/* *ret_text is NULL if nothing has to change. */
static int change_json(const struct client *client, const char *old, size_t size, json_t *entry, char **ret_text,
                       struct err *err) {
        json_error_t where = { 0 };
        bool is_empty = size == 0 || strspn(old, " \t\r\n") == size;
        json_t *root = is_empty ? json_object() : json_loadb(old, size, JSON_REJECT_DUPLICATES, &where);
        json_t *servers = json_object_get(root, client->parent);
        if (!json_is_object(root) || (servers && !json_is_object(servers))) {
                json_decref(root);
                return err_set(err, ERR_UNSUPPORTED,
                               "the settings are not plain JSON (line %d: %.100s), perhaps because of "
                               "comments, which would be lost: change them by hand, as shown above",
                               where.line, where.text);
        }
        if (entry && !servers) {
                servers = json_object();
                json_object_set_new(root, client->parent, servers);
        }
        bool is_same = entry ? json_equal(json_object_get(servers, SERVER), entry) : !json_object_get(servers, SERVER);
        if (!is_same && entry)
                json_object_set(servers, SERVER, entry);
        else if (!is_same)
                json_object_del(servers, SERVER);
        _cleanup_free_ char *text = is_same ? NULL : json_dumps(root, JSON_INDENT(2));
        if (text && asprintf(ret_text, "%s\n", text) < 0)
                *ret_text = NULL;
        json_decref(root);
        return 0;
}

/* ---- TOML ---- */

static void toml_put_text(FILE *file, const char *text) {
        (void) fputc('"', file);
        for (; *text; text++) {
                if (*text == '"' || *text == '\\')
                        (void) fputc('\\', file);
                if ((unsigned char) *text < ' ')
                        (void) fprintf(file, "\\u%04x", *text);
                else
                        (void) fputc(*text, file);
        }
        (void) fputc('"', file);
}

static void toml_put_entry(FILE *file, const struct client *client, const json_t *entry) {
        size_t i;
        json_t *argument;
        (void) fprintf(file, "[%s." SERVER "]\ncommand = ", client->parent);
        toml_put_text(file, json_string_value(json_object_get(entry, "command")));
        (void) fprintf(file, "\nargs = [");
        json_array_foreach (json_object_get(entry, "args"), i, argument) {
                (void) fprintf(file, "%s", i ? ", " : "");
                toml_put_text(file, json_string_value(argument));
        }
        (void) fprintf(file, "]\n");
}

/* Leaves out the table of Glovebox: from its heading to the next. */
static void toml_copy_others(FILE *file, const struct client *client, const char *old) {
        char heading[100];
        bool is_ours = false;
        (void) snprintf(heading, sizeof(heading), "[%s." SERVER, client->parent);
        while (*old) {
                size_t size = strcspn(old, "\n");
                const char *at = old + strspn(old, " \t");
                if (*at == '[')
                        is_ours = strncmp(at, heading, strlen(heading)) == 0 &&
                                  (at[strlen(heading)] == ']' || at[strlen(heading)] == '.');
                size += old[size] == '\n';
                if (!is_ours)
                        (void) fwrite(old, 1, size, file);
                old += size;
        }
}

static int change_toml(const struct client *client, const char *old, json_t *entry, char **ret_text, struct err *err) {
        char *text = NULL;
        size_t size = 0;
        FILE *file = open_memstream(&text, &size);
        if (!file)
                return err_set(err, ERR_SYSTEM, "out of memory");
        toml_copy_others(file, client, old ? old : "");
        (void) fflush(file);
        while (size > 1 && text[size - 1] == '\n' && text[size - 2] == '\n') /* blank lines before ours */
                size--;
        (void) fseek(file, (long) size, SEEK_SET);
        if (entry && size > 0)
                (void) fprintf(file, "%s\n", text[size - 1] == '\n' ? "" : "\n");
        if (entry)
                toml_put_entry(file, client, entry);
        if (fclose(file) != 0) {
                free(text);
                return err_set(err, ERR_SYSTEM, "out of memory");
        }
        text[size] = '\0'; /* what was written before the seek may be longer */
        if (strcmp(text, old ? old : "") == 0)
                free(text);
        else
                *ret_text = text;
        return 0;
}

/* ---- with the person ---- */

static void mcp_install_show(const struct client *client, const char *path, json_t *entry) {
        (void) printf("%s: %s\n\n", client->name, path);
        if (!entry)
                (void) printf("  the server \"" SERVER "\" is taken out of \"%s\"\n\n", client->parent);
        else if (client->form == FORM_TOML) {
                toml_put_entry(stdout, client, entry);
                (void) printf("\n");
        } else {
                json_t *whole = json_pack("{s:{s:O}}", client->parent, SERVER, entry);
                _cleanup_free_ char *text = json_dumps(whole, JSON_INDENT(2));
                (void) printf("%s\n\n", text ? text : "");
                json_decref(whole);
        }
        (void) fflush(stdout);
}

static bool is_agreed(const struct mcp_install *order) {
        char answer[16] = "";
        if (order->is_sure)
                return true;
        (void) printf("Write this? [y/N] ");
        (void) fflush(stdout);
        return fgets(answer, sizeof(answer), stdin) && tolower((unsigned char) answer[0]) == 'y';
}

int mcp_install_run(const struct mcp_install *order, struct err *err) {
        char path[PATH_MAX];
        const struct client *client = find_client(order->client, err);
        _cleanup_free_ char *old = NULL, *text = NULL;
        size_t size;
        mode_t mode;
        if (!client || settings_path(client, path, err) < 0 || read_settings(path, &old, &size, &mode, err) < 0)
                return -1;
        json_t *entry = order->is_removal ? NULL : make_entry(client, order->arguments, err);
        if (!entry && !order->is_removal)
                return -1;
        mcp_install_show(client, path, entry);
        int code = client->form == FORM_TOML ? change_toml(client, old, entry, &text, err)
                                             : change_json(client, old ? old : "", size, entry, &text, err);
        json_decref(entry);
        if (code < 0)
                return -1;
        if (!text) {
                (void) printf("nothing to change\n");
                return 0;
        }
        if (!is_agreed(order)) {
                (void) printf("nothing was changed\n");
                return 1;
        }
        if (write_settings(path, text, mode, err) < 0)
                return -1;
        (void) printf("written; %s\n", order->is_removal ? "glovebox mcp --install puts it back" : client->after);
        return 0;
}
