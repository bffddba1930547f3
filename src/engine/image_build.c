#include "engine/image_build.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/memory.h"
#include "engine/build_output.h"
#include "engine/dockerfile.h"
#include "engine/unix_http.h"

enum {
        BUILD_MS = 2 * 3600 * 1000,
        QUERY_MS = 30000,
        BLOCK = 512,            /* of a tar archive */
        CONTEXT_MAX = 4 << 20,  /* mostly certificates */
        PATH_MAX_BYTES = 16 << 10,
};

/* ---- the build context: a tar archive of a few small files ---- */

struct context {
        char *bytes;
        size_t size, room;
        bool failed;
};

static void context_append(struct context *context, const void *bytes, size_t size) {
        if (context->failed || size > CONTEXT_MAX - context->size) {
                context->failed = true;
                return;
        }
        if (size > context->room - context->size) {
                size_t room = 2 * context->room + size;
                char *grown = realloc(context->bytes, room);
                if (!grown) {
                        context->failed = true;
                        return;
                }
                context->bytes = grown;
                context->room = room;
        }
        memcpy(context->bytes + context->size, bytes, size);
        context->size += size;
}

/* The ustar format of POSIX: numbers are octal texts, and the checksum counts its own field as blanks. */
static void context_add_file(struct context *context, const char *name, const char *bytes, size_t size) {
        static const char zeros[BLOCK];
        char header[BLOCK] = "";
        unsigned sum = 0;
        (void) snprintf(header, 100, "%s", name);
        (void) snprintf(header + 100, 8, "%07o", 0644);
        (void) snprintf(header + 108, 8, "%07o", 0);
        (void) snprintf(header + 116, 8, "%07o", 0);
        (void) snprintf(header + 124, 12, "%011zo", size);
        (void) snprintf(header + 136, 12, "%011o", 0); /* a fixed time, so that engines use their build cache */
        memset(header + 148, ' ', 8);
        header[156] = '0';
        memcpy(header + 257,
               "ustar\0"
               "00",
               8);
        for (size_t i = 0; i < sizeof(header); i++)
                sum += (unsigned char) header[i];
        (void) snprintf(header + 148, 8, "%06o", sum);
        context_append(context, header, sizeof(header));
        context_append(context, bytes, size);
        context_append(context, zeros, (BLOCK - size % BLOCK) % BLOCK);
}

static int context_add_certificates(struct context *context, const char *path, struct err *err) {
        _cleanup_free_ char *text = NULL;
        size_t size = 0;
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        int code = fd < 0 ? -errno : fd_read_to_end(fd, CONTEXT_MAX / 2, &text, &size);
        if (code < 0)
                return err_sys(err, -code, "reading the certificates %.300s", path);
        context_add_file(context, "certificates.pem", text, size);
        return 0;
}

static int context_make(const struct image_build_order *order, struct context *context, struct err *err) {
        static const char end[2 * BLOCK];
        context_add_file(context, "Dockerfile", dockerfile, dockerfile_size());
        context_add_file(context, "requirements.txt", order->requirements, order->requirements_size);
        if (*order->certificates && context_add_certificates(context, order->certificates, err) < 0)
                return -1;
        context_append(context, end, sizeof(end));
        return context->failed ? err_set(err, ERR_LIMIT, "the files of the build are larger than %d MiB together",
                                         CONTEXT_MAX >> 20)
                               : 0;
}

/* ---- the request ---- */

/* Appends `text` with everything but letters and digits escaped. */
static void append_escaped(char *path, size_t room, const char *text) {
        size_t used = strlen(path);
        for (; *text && used + 4 < room; text++) {
                unsigned char byte = (unsigned char) *text;
                bool is_plain =
                        (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
                used += (size_t) snprintf(path + used, room - used, is_plain ? "%c" : "%%%02X", byte);
        }
}

/* The build uses the same proxy and package index as this host. */
static json_t *build_arguments(const struct image_build_order *order) {
        static const char *const passed[] = { "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST",
                                              "HTTP_PROXY",    "HTTPS_PROXY",         "NO_PROXY",
                                              "http_proxy",    "https_proxy",         "no_proxy" };
        json_t *arguments = json_object();
        if (*order->base)
                json_object_set_new(arguments, "BASE", json_string(order->base));
        for (size_t i = 0; i < ELEMENTS(passed); i++) {
                const char *value = getenv(passed[i]);
                if (value && *value)
                        json_object_set_new(arguments, passed[i], json_string(value));
        }
        return arguments;
}

static int build_request_path(const struct image_build_order *order, char *path, size_t room, struct err *err) {
        json_t *arguments = build_arguments(order);
        _cleanup_free_ char *text = json_dumps(arguments, JSON_COMPACT);
        json_decref(arguments);
        if (!text || strlen(text) > room / 4)
                return err_set(err, ERR_LIMIT, "the settings of pip in the environment are too long for a build");
        (void) snprintf(path, room, "/build?rm=1&forcerm=1&t=");
        append_escaped(path, room, order->tag);
        (void) strcat(path, "&buildargs=");
        append_escaped(path, room, text);
        if (*order->network) {
                (void) strcat(path, "&networkmode=");
                append_escaped(path, room, order->network);
        }
        return 0;
}

/* ---- the build ---- */

static const char *build_socket_path(const struct engine_settings *settings, const char *engine) {
        return strcmp(engine, "podman") == 0 ? settings->podman_socket : settings->docker_socket;
}

/* Remedies for a failed build, by a part of its error message. */
static const char *build_remedy(const char *reason) {
        static const struct {
                const char *part, *remedy;
        } rows[] = {
                { "pull access denied",
                  "name an image that the engine has (--base), such as one made with docker import" },
                { "registry", "no registry can be reached; name an image that the engine has (--base)" },
                { "/v2/", "no registry can be reached; name an image that the engine has (--base)" },
                { "no space left", "free some disk space: the scientific packages take about 1 GiB" },
                { "bridge", "the engine has no network of its own: --network host" },
        };
        for (size_t i = 0; i < ELEMENTS(rows); i++)
                if (strstr(reason, rows[i].part))
                        return rows[i].remedy;
        return "the output of the build has details: run it at a terminal, or with --verbose";
}

static int find_built_image(const char *socket_path, const struct image_build_order *order,
                            struct image_build_result *ret_result, struct err *err) {
        char path[ENGINE_IMAGE_MAX + 32];
        struct unix_http_answer answer;
        (void) snprintf(path, sizeof(path), "/images/%s/json", order->tag);
        if (unix_http(socket_path, "GET", path, NULL, loop_now_ms() + QUERY_MS, &answer, err) < 0)
                return err_prefix(err, "%s", order->engine);
        json_t *json = answer.status == 200 ? json_loadb(answer.body, answer.size, 0, NULL) : NULL;
        const char *id = json_string_value(json_object_get(json, "Id"));
        int code = id ? 0
                      : err_set(err, ERR_PROTOCOL, "%s: the build ended, but there is no image %s", order->engine,
                                order->tag);
        if (id) {
                (void) snprintf(ret_result->id, sizeof(ret_result->id), "%s", id);
                ret_result->bytes = (uint64_t) json_integer_value(json_object_get(json, "Size"));
        }
        json_decref(json);
        unix_http_release(&answer);
        return code;
}

static int post_build(const char *socket_path, const struct image_build_order *order, const struct context *context,
                      struct build_output *output, struct err *err) {
        _cleanup_free_ char *path = calloc(1, PATH_MAX_BYTES);
        int status = 0;
        if (!path)
                return err_set(err, ERR_SYSTEM, "out of memory");
        if (build_request_path(order, path, PATH_MAX_BYTES, err) < 0)
                return -1;
        const struct unix_http_upload upload = { .socket_path = socket_path,
                                                 .path = path,
                                                 .type = "application/x-tar",
                                                 .body = context->bytes,
                                                 .size = context->size,
                                                 .deadline_ms = loop_now_ms() + BUILD_MS,
                                                 .on_bytes = build_output_feed,
                                                 .context = output };
        if (unix_http_post(&upload, &status, err) < 0)
                return err_prefix(err, "%s", order->engine);
        build_output_end(output);
        if (status == 200 && !*output->error)
                return 0;
        const char *reason = *output->error ? output->error : output->last_message;
        return err_set(err, ERR_SYSTEM, "%s could not build the image: %.400s; %s", order->engine,
                       *reason ? reason : "it gave no reason", build_remedy(reason));
}

int image_build(const struct engine_settings *settings, const struct image_build_order *order,
                struct image_build_result *ret_result, struct err *err) {
        char version[100];
        const struct engine *engine = engine_find(order->engine, err);
        const char *socket_path = build_socket_path(settings, order->engine);
        if (!engine || engine_check_image(order->tag, err) < 0 ||
            (*order->base && engine_check_image(order->base, err) < 0))
                return -1;
        if (engine->probe(settings, version, sizeof(version), err) < 0) /* its message says how to start the engine */
                return -1;
        struct context context = { 0 };
        struct build_output output = { .line = malloc(BUILD_OUTPUT_LINE_MAX),
                                       .report = order->report,
                                       .context = order->context };
        int code = output.line ? context_make(order, &context, err) : err_set(err, ERR_SYSTEM, "out of memory");
        if (code == 0)
                code = post_build(socket_path, order, &context, &output, err);
        if (code == 0)
                code = find_built_image(socket_path, order, ret_result, err);
        free(context.bytes);
        free(output.line);
        return code;
}
