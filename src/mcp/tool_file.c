/* Tools for files below /workspace. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/fd.h"
#include "base/memory.h"
#include "mcp/ask.h"
#include "mcp/content.h"
#include "mcp/tool.h"
#include "store/artifact.h"

enum {
        LOOK_MAX = 4 << 20,  /* of a file that is searched for a line */
        IMAGE_MAX = 1 << 20, /* of one that is shown */
};

static const char *get_argument(json_t *arguments, const char *name) {
        return json_string_value(json_object_get(arguments, name));
}

/* ---- read ---- */

struct file_view {
        int fd;
        const char *relative;
        uint64_t size;
        uint64_t line, lines; /* the first line, and their number; 0: all */
};

/* Up to max bytes from the beginning of the file: a fresh text. */
static char *read_beginning(int fd, size_t max, size_t *ret_size, struct err *err) {
        char *bytes = malloc(max);
        ssize_t n = bytes ? fd_read_at(fd, bytes, max, 0) : -ENOMEM;
        if (n >= 0) {
                *ret_size = (size_t) n;
                return bytes;
        }
        (void) (bytes ? err_sys(err, (int) -n, "reading the file") : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY));
        free(bytes);
        return NULL;
}

static void answer_link(struct mcp_call *call, const struct file_view *view, const char *why) {
        _cleanup_json_writer_ struct json_writer members = { 0 };
        char words[300];
        int n = snprintf(words, sizeof(words), "%s (%" PRIu64 " bytes); use run_python or run_shell to look into it",
                         why, view->size);
        json_writer_put_literal(&members, "\"content\":[{\"type\":\"text\",\"text\":");
        json_writer_put_string(&members, words, (size_t) n);
        json_writer_put_literal(&members, "},");
        content_put_link(call, &members, view->relative, (int64_t) view->size, artifact_mime(view->relative));
        json_writer_put_literal(&members, "]");
        mcp_call_result(call, &members, NULL);
}

static void answer_image(struct mcp_call *call, const struct file_view *view, const char *mime, struct err *err) {
        _cleanup_json_writer_ struct json_writer members = { 0 }, data = { 0 };
        size_t size;
        _cleanup_free_ char *bytes = read_beginning(view->fd, IMAGE_MAX, &size, err);
        if (!bytes) {
                mcp_call_refuse(call, err);
                return;
        }
        json_writer_put_literal(&data, "\"");
        base64_put(&data, bytes, size);
        json_writer_put_literal(&data, "\"");
        json_writer_put_literal(&members, "\"content\":[");
        content_put_image(&members, mime, data.bytes, data.size);
        json_writer_put_literal(&members, "]");
        members.failed |= data.failed;
        mcp_call_result(call, &members, NULL);
}

/* The beginning of this line, or NULL. */
static const char *find_line(const char *bytes, size_t size, uint64_t line) {
        const char *at = bytes, *end = bytes + size;
        if (line == 1)
                return bytes;
        while (line > 1 && at < end) {
                const char *feed = memchr(at, '\n', (size_t) (end - at));
                if (!feed)
                        return NULL;
                at = feed + 1;
                line--;
        }
        return at < end ? at : NULL;
}

static uint64_t count_lines(const char *bytes, size_t size) {
        uint64_t n = size > 0 && bytes[size - 1] != '\n';
        for (size_t i = 0; i < size; i++)
                n += bytes[i] == '\n';
        return n;
}

static void refuse_line(struct mcp_call *call, const struct file_view *view, const char *bytes, size_t size) {
        char words[200];
        int length = view->size > size ? snprintf(words, sizeof(words),
                                                  "line %" PRIu64
                                                  " is beyond the first %d MiB of the file; use run_shell with sed",
                                                  view->line, LOOK_MAX >> 20)
                                       : snprintf(words, sizeof(words), "the file has only %" PRIu64 " lines",
                                                  count_lines(bytes, size));
        mcp_call_say(call, words, (size_t) length, true);
}

static void answer_lines(struct mcp_call *call, const struct file_view *view, const char *bytes, size_t size) {
        const char *begin = find_line(bytes, size, view->line), *end = bytes + size, *at = begin;
        _cleanup_json_writer_ struct json_writer plain = { 0 };
        char words[200];
        uint64_t n = 0;
        if (!begin) {
                refuse_line(call, view, bytes, size);
                return;
        }
        while (at < end && (view->lines == 0 || n < view->lines)) {
                const char *feed = memchr(at, '\n', (size_t) (end - at));
                size_t length = (size_t) ((feed ? feed + 1 : end) - at);
                if ((size_t) (at - begin) + length > MCP_FILE_TEXT_MAX && n > 0)
                        break;
                at += length;
                n++;
        }
        size_t shown = (size_t) (at - begin) < MCP_FILE_TEXT_MAX ? (size_t) (at - begin) : MCP_FILE_TEXT_MAX;
        json_writer_put(&plain, begin, shown);
        bool is_all = view->lines > 0 && n == view->lines; /* that was asked for */
        if (!is_all && (begin + shown < end || view->size > size)) {
                int length = snprintf(words, sizeof(words),
                                      "\n[more follows: read_file line=%" PRIu64 "; the file has %" PRIu64 " bytes]",
                                      view->line + n, view->size);
                json_writer_put(&plain, words, (size_t) length);
        }
        if (plain.size == 0)
                json_writer_put_literal(&plain, "[the file is empty]");
        mcp_call_say(call, plain.bytes ? plain.bytes : "", plain.size, false);
}

static void answer_file(struct mcp_call *call, const struct file_view *view, struct err *err) {
        const char *mime = artifact_mime(view->relative);
        static const char *const images[] = { "image/png", "image/jpeg", "image/gif", "image/webp" };
        for (size_t i = 0; i < ELEMENTS(images); i++)
                if (strcmp(images[i], mime) == 0 && view->size <= IMAGE_MAX) {
                        answer_image(call, view, mime, err);
                        return;
                }
        size_t size;
        _cleanup_free_ char *bytes =
                read_beginning(view->fd, view->size < LOOK_MAX ? (size_t) view->size + 1 : LOOK_MAX, &size, err);
        if (!bytes)
                mcp_call_refuse(call, err);
        else if (memchr(bytes, '\0', size < 8192 ? size : 8192))
                answer_link(call, view, "this is not a text file");
        else
                answer_lines(call, view, bytes, size);
}

static void on_opened_to_read(struct mcp_call *call, json_t *arguments, struct ask_file *file, const struct err *err) {
        struct err is_directory;
        if (file && S_ISDIR(file->status.st_mode))
                (void) err_set(&is_directory, ERR_USAGE, "%.200s is a directory; use list_files", file->relative);
        if (!file || S_ISDIR(file->status.st_mode)) {
                mcp_call_refuse(call, file ? &is_directory : err);
                return;
        }
        json_int_t line = json_integer_value(json_object_get(arguments, "line"));
        const struct file_view view = { .fd = file->fd,
                                        .relative = file->relative,
                                        .size = (uint64_t) file->status.st_size,
                                        .line = line > 0 ? (uint64_t) line : 1,
                                        .lines = (uint64_t) json_integer_value(json_object_get(arguments, "lines")) };
        struct err failed;
        answer_file(call, &view, &failed);
}

void tool_read_file(struct mcp_call *call, json_t *arguments) {
        char name[TOOL_NAME_ROOM];
        struct err err;
        if (tool_name_sandbox(call, get_argument(arguments, "sandbox"), name, &err) < 0)
                mcp_call_refuse(call, &err);
        else
                ask_open(call, name, get_argument(arguments, "path"), arguments, on_opened_to_read);
}

/* ---- write ---- */

static void on_written(struct mcp_call *call, const char *path, size_t size, const struct err *err) {
        char words[4300];
        if (err) {
                mcp_call_refuse(call, err);
                return;
        }
        int n = snprintf(words, sizeof(words), "wrote %zu bytes to %.4096s", size, path);
        mcp_call_say(call, words, (size_t) n, false);
}

void tool_write_file(struct mcp_call *call, json_t *arguments) {
        char name[TOOL_NAME_ROOM];
        struct err err;
        struct ask_bytes content = { get_argument(arguments, "content"),
                                     json_string_length(json_object_get(arguments, "content")) };
        _cleanup_free_ char *decoded = NULL;
        int code = tool_name_sandbox(call, get_argument(arguments, "sandbox"), name, &err);
        if (code == 0 && json_is_true(json_object_get(arguments, "base64"))) {
                decoded = malloc(content.size / 4 * 3 + 4);
                if (!decoded || base64_decode(content.bytes, content.size, decoded, &content.size) < 0)
                        code = err_set(&err, ERR_USAGE, "write_file: \"content\" is not base64");
                content.bytes = decoded;
        }
        if (code < 0)
                mcp_call_refuse(call, &err);
        else
                ask_write(call, name, get_argument(arguments, "path"), &content, on_written);
}

/* ---- list ---- */

static void answer_entries(struct mcp_call *call, json_t *entries, bool is_cut) {
        _cleanup_json_writer_ struct json_writer plain = { 0 };
        json_t *entry;
        size_t i, n = json_array_size(entries), shown = 0;
        json_array_foreach (entries, i, entry) {
                const char *name = json_string_value(json_object_get(entry, "path"));
                const char *type = json_string_value(json_object_get(entry, "type"));
                char words[64];
                if (plain.size > MCP_TEXT_MAX)
                        break;
                if (!name || !type)
                        continue;
                bool is_directory = strcmp(type, "directory") == 0;
                int length = is_directory ? snprintf(words, sizeof(words), "/\n")
                                          : snprintf(words, sizeof(words), "  %lld%s%s\n",
                                                     (long long) json_integer_value(json_object_get(entry, "size")),
                                                     strcmp(type, "file") == 0 ? "" : "  ",
                                                     strcmp(type, "file") == 0 ? "" : type);
                json_writer_put(&plain, name, strlen(name));
                json_writer_put(&plain, words, (size_t) length);
                shown++;
        }
        if (shown < n || is_cut) {
                char words[100];
                int length = snprintf(words, sizeof(words), "[%zu%s entries; use run_shell with ls or find]", n,
                                      is_cut ? " and more" : "");
                json_writer_put(&plain, words, (size_t) length);
        }
        if (plain.size == 0)
                json_writer_put_literal(&plain, "[the directory is empty]");
        mcp_call_say(call, plain.bytes ? plain.bytes : "", plain.size, false);
}

static void on_opened_to_list(struct mcp_call *call, json_t *arguments, struct ask_file *file, const struct err *err) {
        struct err failed;
        bool is_cut = false;
        (void) arguments;
        if (file && !S_ISDIR(file->status.st_mode))
                (void) err_set(&failed, ERR_USAGE, "%.200s is a file; use read_file", file->relative);
        json_t *entries = file && S_ISDIR(file->status.st_mode) ? ask_list_directory(file, &is_cut, &failed) : NULL;
        if (entries)
                answer_entries(call, entries, is_cut);
        else
                mcp_call_refuse(call, file ? &failed : err);
        json_decref(entries);
}

void tool_list_files(struct mcp_call *call, json_t *arguments) {
        char name[TOOL_NAME_ROOM];
        const char *path = get_argument(arguments, "path");
        struct err err;
        if (tool_name_sandbox(call, get_argument(arguments, "sandbox"), name, &err) < 0)
                mcp_call_refuse(call, &err);
        else
                ask_open(call, name, path ? path : ".", arguments, on_opened_to_list);
}
