#include "mcp/content.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "mcp/ask.h"
#include "mcp/resource.h"
#include "mcp/slice.h"
#include "mcp/task.h"
#include "store/artifact.h"

enum { EXIT_KILLED = 137 };
enum { VALUE_MAX = 12 << 10, TRACEBACK_MAX = 6 << 10, DECODE_MAX = 1 << 20 };

#define put_words(text, ...)                                                                                           \
        ({                                                                                                             \
                char _words[1200];                                                                                     \
                int _n = snprintf(_words, sizeof(_words), __VA_ARGS__);                                                \
                size_t _size = _n < 0 ? 0 : (size_t) _n;                                                               \
                json_writer_put(text, _words, _size < sizeof(_words) ? _size : sizeof(_words) - 1);                    \
        })

void content_put_text_result(struct json_writer *members, const char *text, size_t size, bool is_error) {
        json_writer_put_literal(members, "\"content\":[{\"type\":\"text\",\"text\":");
        json_writer_put_string(members, text, size);
        json_writer_put_literal(members, "}]");
        if (is_error)
                json_writer_put_literal(members, ",\"isError\":true");
}

void content_put_image(struct json_writer *members, const char *mime, const char *base64, size_t size) {
        json_writer_put_literal(members, "{\"type\":\"image\",\"data\":");
        json_writer_put(members, base64, size);
        json_writer_put_literal(members, ",\"mimeType\":");
        json_writer_put_string(members, mime, strlen(mime));
        json_writer_put_literal(members, "}");
}

void content_put_link(const struct mcp_call *call, struct json_writer *members, const char *relative, int64_t size,
                      const char *mime) {
        _cleanup_free_ char *uri = resource_make_uri(call->sandbox, relative);
        const char *slash = strrchr(relative, '/'), *name = slash ? slash + 1 : relative;
        if (!uri) {
                members->failed = true;
                return;
        }
        json_writer_put_literal(members, "{\"type\":\"resource_link\",\"uri\":");
        json_writer_put_string(members, uri, strlen(uri));
        json_writer_put_literal(members, ",\"name\":");
        json_writer_put_string(members, name, strlen(name));
        json_writer_put_literal(members, ",\"mimeType\":");
        json_writer_put_string(members, mime, strlen(mime));
        json_writer_put_literal(members, ",\"size\":");
        json_writer_put_number(members, size);
        json_writer_put_literal(members, "}");
}

void content_name_run(const struct mcp_call *call, char *ret_name, size_t room) {
        (void) snprintf(ret_name, room, "%s.%s", call->sandbox, call->run_id);
}

/* ---- text ---- */

static void begin_paragraph(struct json_writer *plain) {
        if (plain->size > 0 && plain->bytes[plain->size - 1] != '\n')
                json_writer_put_literal(plain, "\n");
}

/* The beginning and the end of a long text. */
static void put_clipped(struct json_writer *plain, const char *text, size_t max) {
        size_t size = strlen(text);
        if (size <= max) {
                json_writer_put(plain, text, size);
                return;
        }
        json_writer_put(plain, text, max / 3);
        put_words(plain, "\n[... %zu bytes left out ...]\n", size - max / 3 - (max - max / 3));
        json_writer_put(plain, text + size - (max - max / 3), max - max / 3);
}

static void put_content_output(const struct mcp_call *call, struct json_writer *plain) {
        const struct mcp_output *output = &call->output;
        char name[160];
        size_t end_size = 0;
        uint64_t left_out = mcp_output_left_out(output);
        _cleanup_free_ char *end = mcp_output_end(output, &end_size);
        json_writer_put(plain, output->head, output->head_size);
        content_name_run(call, name, sizeof(name));
        if (left_out > 0 && output->keeps_end) {
                begin_paragraph(plain);
                put_words(plain, "[... %" PRIu64 " bytes left out: read_output run_id=\"%s\" offset=%" PRIu64 " ...]\n",
                          left_out, name, output->skip + output->head_size);
        }
        json_writer_put(plain, end, end_size);
        if (call->is_full) { /* the newline is always added, so that the output can be put together again */
                put_words(plain, "\n[more follows: read_output run_id=\"%s\" offset=%" PRIu64 "]\n", name,
                          output->skip + output->head_size);
        }
}

/* Advice about an exception, if the sandbox has a better one than the traceback. */
static const struct {
        const char *name, *advice;
} advices[] = {
        { "ModuleNotFoundError", "add the package with install_packages, then run this again" },
        { "MemoryError", "process the data in chunks, or free variables with del" },
        { "gaierror", "this sandbox has no way to that host, and cannot get one; for packages use install_packages" },
        { "URLError", "this sandbox has no way to that host, and cannot get one; for packages use install_packages" },
        { "ConnectionError", "if this sandbox has no network, it cannot get one; for packages use install_packages" },
        { "timeout", "a larger timeout_s" },
        { "memory_limit", "process the data in chunks" },
        { "kernel_died", "variables are lost, files are kept: run the set-up again" },
};

/* The ends of messages and tracebacks that are for people: they name commands or options that a model does not have. */
static void cut_for_model(char *text) {
        static const char *const ends[] = { "[to add it to this session:", "[this box has no network;",
                                            "; raise the " };
        for (size_t i = 0; i < ELEMENTS(ends); i++) {
                char *end = strstr(text, ends[i]);
                if (end)
                        *end = '\0';
        }
}

static void put_error(struct slice error, struct json_writer *plain) {
        _cleanup_free_ char *traceback = slice_text(slice_get(error, "traceback"), DECODE_MAX);
        _cleanup_free_ char *message = slice_text(slice_get(error, "message"), DECODE_MAX);
        _cleanup_free_ char *value = slice_text(slice_get(error, "value"), DECODE_MAX);
        _cleanup_free_ char *name = slice_text(slice_get(error, "name"), 4096);
        if (!error.bytes || error.bytes[0] != '{')
                return;
        begin_paragraph(plain);
        if (traceback && *traceback) {
                cut_for_model(traceback);
                put_clipped(plain, traceback, TRACEBACK_MAX);
        } else {
                const char *words = message ? message : value;
                if (message)
                        cut_for_model(message);
                else if (name)
                        put_words(plain, "%.200s: ", name);
                put_clipped(plain, words ? words : "", TRACEBACK_MAX);
        }
        for (size_t i = 0; name && i < ELEMENTS(advices); i++)
                if (strcmp(advices[i].name, name) == 0) {
                        begin_paragraph(plain);
                        put_words(plain, "Fix: %s.\n", advices[i].advice);
                }
}

/* A figure is shown as an image; its text form adds nothing. */
static void put_value(struct slice bundle, struct json_writer *plain) {
        static const char *const forms[] = { "text/markdown", "text/plain", "text/latex" };
        if (slice_get(bundle, "image/png").bytes)
                return;
        for (size_t i = 0; i < ELEMENTS(forms); i++) {
                struct slice form = slice_get(bundle, forms[i]);
                _cleanup_free_ char *text = slice_text(form, DECODE_MAX);
                if (!form.bytes)
                        continue;
                begin_paragraph(plain);
                if (text)
                        put_clipped(plain, text, VALUE_MAX);
                else
                        put_words(plain, "[a value of %zu bytes: print a part of it]", form.size);
                return;
        }
}

static void put_install(struct slice result, struct json_writer *plain) {
        struct slice one;
        struct slice installed = slice_get(result, "installed"), restart = slice_get(result, "restart_needed");
        begin_paragraph(plain);
        for (size_t at = 0, n = 0; slice_next(installed, &at, NULL, &one); n++) {
                _cleanup_free_ char *name = slice_text(slice_get(one, "name"), 4096);
                _cleanup_free_ char *version = slice_text(slice_get(one, "version"), 4096);
                put_words(plain, "%s%.100s %.60s", n ? ", " : "installed: ", name ? name : "?", version ? version : "");
        }
        for (size_t at = 0, n = 0; slice_next(restart, &at, NULL, &one); n++) {
                _cleanup_free_ char *name = slice_text(one, 4096);
                if (n == 0)
                        begin_paragraph(plain);
                put_words(plain, "%s%.100s",
                          n ? ", "
                            : "imported already in another version, so close the sandbox or use another to get: ",
                          name ? name : "?");
        }
}

/* Messages of commands for which the sandbox has better advice. */
static void put_shell_advice(int64_t code, struct json_writer *plain) {
        static const struct {
                const char *words, *advice;
        } known[] = {
                { "externally-managed-environment", "use install_packages instead of pip" },
                { "No module named ", "add the package with install_packages, then run this again" },
                { "Could not resolve host", "this sandbox has no way to that host, and cannot get one" },
                { "EOFError: EOF when reading a line",
                  "standard input is empty: give the program a file or arguments" },
        };
        for (size_t i = 0; i < ELEMENTS(known); i++)
                if (plain->size > 0 && memmem(plain->bytes, plain->size, known[i].words, strlen(known[i].words))) {
                        begin_paragraph(plain);
                        put_words(plain, "Fix: %s.\n", known[i].advice);
                }
        if (code == EXIT_KILLED) {
                begin_paragraph(plain);
                put_words(plain, "[killed, most likely because its memory came to the limit]\n");
        }
}

/* How it ended, if the rest does not show it. */
static void put_end(const struct mcp_call *call, struct slice result, struct json_writer *plain) {
        _cleanup_free_ char *status = slice_text(slice_get(result, "status"), 100);
        _cleanup_free_ char *warning = slice_text(slice_get(result, "warning"), 4096);
        int64_t code = slice_number(slice_get(result, "exit_code"));
        uint64_t cut = (uint64_t) slice_number(slice_get(result, "stdout_cut_bytes")) +
                       (uint64_t) slice_number(slice_get(result, "stderr_cut_bytes"));
        bool is_shell = strcmp(call->tool, "run_shell") == 0;
        if (is_shell)
                put_shell_advice(code, plain);
        if (status && strcmp(status, "ok") != 0 &&
            (is_shell || (strcmp(status, "error") != 0 && strcmp(status, "timeout") != 0))) {
                begin_paragraph(plain);
                put_words(plain, "[%s, exit status %" PRId64 "]\n", status, code);
        }
        if (slice_is_true(slice_get(result, "variables_lost")) &&
            !slice_get(slice_get(result, "error"), "message").bytes) {
                begin_paragraph(plain);
                put_words(plain,
                          "[the Python process was replaced before this run: variables of earlier runs are lost, "
                          "files are kept]\n");
        }
        if (cut > 0) {
                begin_paragraph(plain);
                put_words(plain,
                          "[%" PRIu64 " bytes of output were dropped: 16 MiB of each stream are kept; write to a "
                          "file instead]\n",
                          cut);
        }
        if (warning) {
                begin_paragraph(plain);
                put_words(plain, "[%.1000s]\n", warning);
        }
}

/* ---- images and links ---- */

static void put_images(struct slice bundle, struct json_writer *members, size_t *n, size_t *n_dropped) {
        static const char *const mimes[] = { "image/png", "image/jpeg" };
        for (size_t i = 0; i < ELEMENTS(mimes); i++) {
                struct slice image = slice_get(bundle, mimes[i]);
                if (!image.bytes || image.bytes[0] != '"')
                        continue;
                if (*n >= MCP_IMAGES_MAX || image.size > MCP_IMAGE_MAX)
                        (*n_dropped)++;
                else {
                        json_writer_put_literal(members, ",");
                        content_put_image(members, mimes[i], image.bytes, image.size);
                        (*n)++;
                }
                return;
        }
}

static void put_links(const struct mcp_call *call, struct slice artifacts, struct json_writer *members) {
        static const char below[] = "/workspace/";
        struct slice one;
        size_t n = 0;
        for (size_t at = 0; n < MCP_LINKS_MAX && slice_next(artifacts, &at, NULL, &one); n++) {
                _cleanup_free_ char *path = slice_text(slice_get(one, "path"), 32 << 10);
                if (!path || strncmp(path, below, strlen(below)) != 0)
                        continue;
                json_writer_put_literal(members, ",");
                content_put_link(call, members, path + strlen(below), slice_number(slice_get(one, "size")),
                                 artifact_mime(path));
        }
}

/* ---- the whole ---- */

static void put_displays(struct slice displays, struct json_writer *plain) {
        struct slice one;
        for (size_t at = 0; plain->size < 2 * MCP_TEXT_MAX && slice_next(displays, &at, NULL, &one);)
                put_value(one, plain);
}

/* The members of a result; tasks nest it. */
static void content_put_run(const struct mcp_call *call, const char *text, size_t size, struct json_writer *members) {
        struct slice result = { text, size }, one, displays = slice_get(result, "displays");
        struct slice value = slice_get(result, "result"), status = slice_get(result, "status");
        _cleanup_json_writer_ struct json_writer plain = { 0 }, blocks = { 0 };
        size_t n = 0, n_dropped = 0;
        bool is_error = !slice_is(status, "ok");
        if (is_error || !slice_get(result, "installed").bytes) /* pip's messages matter only if there is an error */
                put_content_output(call, &plain);
        put_displays(displays, &plain);
        put_value(value, &plain);
        put_install(result, &plain);
        put_error(slice_get(result, "error"), &plain);
        put_end(call, result, &plain);
        for (size_t at = 0; slice_next(displays, &at, NULL, &one);)
                put_images(one, &blocks, &n, &n_dropped);
        put_images(value, &blocks, &n, &n_dropped);
        put_links(call, slice_get(result, "artifacts"), &blocks);
        if (n_dropped > 0) {
                begin_paragraph(&plain);
                put_words(&plain, "[%zu more images are not shown: save them in /workspace/artifacts]\n", n_dropped);
        }
        if (plain.size == 0 && blocks.size == 0 && call->output.seen < call->output.skip)
                put_words(&plain, "[the output has only %" PRIu64 " bytes]", call->output.seen);
        else if (plain.size == 0 && blocks.size == 0)
                json_writer_put_literal(&plain, "[no output]");
        while (plain.size > 0 && plain.bytes[plain.size - 1] == '\n')
                plain.size--;
        json_writer_put_literal(members, "\"content\":[{\"type\":\"text\",\"text\":");
        json_writer_put_string(members, plain.bytes ? plain.bytes : "", plain.size);
        json_writer_put_literal(members, "}");
        json_writer_put(members, blocks.bytes, blocks.size);
        json_writer_put_literal(members, "]");
        if (is_error)
                json_writer_put_literal(members, ",\"isError\":true");
        members->failed |= plain.failed || blocks.failed;
}

/* Members for programs, not for the model. */
static void put_meta(const struct mcp_call *call, struct slice result, struct json_writer *meta) {
        static const char *const keys[] = { "status", "exit_code", "duration_ms" };
        char name[160];
        content_name_run(call, name, sizeof(name));
        json_writer_put_literal(meta, "\"glovebox/run\":{\"run_id\":");
        json_writer_put_string(meta, name, strlen(name));
        for (size_t i = 0; i < ELEMENTS(keys); i++) {
                struct slice value = slice_get(result, keys[i]);
                if (!value.bytes)
                        continue;
                json_writer_put_literal(meta, ",");
                json_writer_put_string(meta, keys[i], strlen(keys[i]));
                json_writer_put_literal(meta, ":");
                json_writer_put(meta, value.bytes, value.size);
        }
        json_writer_put(meta, "}", 2); /* with its NUL */
}

void content_answer_run(struct mcp_call *call, const char *text, size_t size) {
        _cleanup_json_writer_ struct json_writer members = { 0 }, meta = { 0 };
        const struct slice result = { text, size };
        if (call->is_task) {
                int64_t ended_ms = call->began_ms + slice_number(slice_get(result, "duration_ms"));
                task_put(call, slice_is(slice_get(result, "status"), "interrupted") ? "cancelled" : "completed",
                         ended_ms, &members);
                if (!slice_is(slice_get(result, "status"), "interrupted")) {
                        json_writer_put_literal(&members, ",\"result\":{\"resultType\":\"complete\",");
                        content_put_run(call, text, size, &members);
                        json_writer_put_literal(&members, "}");
                }
                mcp_call_result(call, &members, NULL);
                return;
        }
        content_put_run(call, text, size, &members);
        put_meta(call, result, &meta);
        members.failed |= meta.failed;
        mcp_call_result(call, &members, meta.bytes);
}

void content_answer_unfinished(struct mcp_call *call) {
        _cleanup_json_writer_ struct json_writer plain = { 0 }, members = { 0 };
        char name[160];
        content_name_run(call, name, sizeof(name));
        if (call->is_task) {
                task_put(call, "working", call->began_ms, &members);
                mcp_call_result(call, &members, NULL);
                return;
        }
        if (call->is_run && call->takes_tasks && *call->run_id) {
                task_answer(call);
                return;
        }
        put_content_output(call, &plain);
        const char *first = ask_find_waited_for(call);
        if (first) {
                begin_paragraph(&plain);
                put_words(
                        &plain,
                        "[waits for run_id=\"%s.%s\" in this sandbox; this one is run_id=\"%s\": read_output reads it, "
                        "interrupt ends it]",
                        call->sandbox, first, name);
        } else if (!call->is_full) {
                begin_paragraph(&plain);
                put_words(&plain,
                          "[still running as run_id=\"%s\"; read_output with offset=%" PRIu64
                          " reads on, interrupt ends it]",
                          name, call->output.seen > call->output.skip ? call->output.seen : call->output.skip);
        }
        content_put_text_result(&members, plain.bytes ? plain.bytes : "", plain.size, false);
        _cleanup_json_writer_ struct json_writer meta = { 0 };
        put_meta(call, (struct slice) { "{\"status\":\"running\"}", 20 }, &meta);
        members.failed |= plain.failed || meta.failed;
        mcp_call_result(call, &members, meta.bytes);
}
