#include "cli/docker_build_verb.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/units.h"
#include "cli/package_list.h"
#include "cli/ui/json_print.h"
#include "cli/ui/terminal.h"
#include "cli/verb.h"
#include "engine/image_build.h"
#include "image/record.h"
#include "image/standard_packages.h"

enum { PACKAGES_MAX = 256, REQUIREMENTS_MAX = 1 << 20 };

struct line {
        int engine;
        const char *tag, *base, *packages, *requirements, *network, *certificates, *docker_socket, *podman_socket;
        bool json, verbose;
};

enum { BUILD_DOCKER, BUILD_PODMAN };
static const struct option_choice engine_choices[] = { { "docker", BUILD_DOCKER }, { "podman", BUILD_PODMAN }, { 0 } };
static const char *const engine_names[] = { [BUILD_DOCKER] = "docker", [BUILD_PODMAN] = "podman" };

#define FIELD(field) offsetof(struct line, field)
#define TEXT(option_name, field, word, text)                                                                           \
        .name = (option_name), .kind = OPTION_TEXT, .offset = FIELD(field), .argument = (word), .group = "Options",    \
        .help = (text)

const struct option_row docker_build_rows[DOCKER_BUILD_ROWS] = {
        { .name = "engine",
          .kind = OPTION_CHOICE,
          .offset = FIELD(engine),
          .argument = "NAME",
          .standard = "docker",
          .choices = engine_choices,
          .group = "Options",
          .help = "the engine that builds and keeps the image: docker or podman" },
        { TEXT("tag", tag, "NAME[:TAG]", "the name of the image"), .standard = IMAGE_BUILD_TAG },
        { TEXT("base", base, "IMAGE", "build on this image, which the engine has or gets"),
          .standard = "debian:12-slim" },
        { TEXT("packages", packages, "LIST",
               "install these, separated by commas or blanks, instead of the standard scientific ones"),
          .once = true },
        { TEXT("requirements", requirements, "FILE", "install the packages in this requirements file"),
          .completion = COMPLETE_FILES },
        { TEXT("network", network, "NAME", "network of the build, such as host; default: the engine's own") },
        { TEXT("certificates", certificates, "FILE", "certificates for the index of pip, during the build"),
          .variable = "PIP_CERT", .completion = COMPLETE_FILES },
        { TEXT("docker-socket", docker_socket, "PATH", "where dockerd listens"), .variable = "GLOVEBOX_DOCKER_SOCKET",
          .standard = ENGINE_DOCKER_SOCKET, .completion = COMPLETE_FILES },
        { TEXT("podman-socket", podman_socket, "PATH", "where podman's service listens"),
          .variable = "GLOVEBOX_PODMAN_SOCKET", .standard = ENGINE_PODMAN_SOCKET, .completion = COMPLETE_FILES },
        { .name = "verbose",
          .kind = OPTION_FLAG,
          .offset = FIELD(verbose),
          .group = "Options",
          .help = "print the engine's output on standard error, line by line" },
        { .name = "json", .kind = OPTION_FLAG, .offset = FIELD(json), .group = "Options", .help = "print JSON" },
};

/* ---- progress ---- */

struct build_progress {
        bool is_terminal, is_verbose;
        struct timespec begun;
};

static long seconds_of(const struct build_progress *progress) {
        struct timespec now;
        (void) clock_gettime(CLOCK_MONOTONIC, &now);
        return (long) (now.tv_sec - progress->begun.tv_sec);
}

/* One line that is rewritten in place; nothing in a pipe, unless requested. */
static void build_report(void *context, const char *text) {
        const struct build_progress *progress = context;
        if (progress->is_verbose)
                (void) fprintf(stderr, "%s\n", text);
        else if (progress->is_terminal)
                (void) fprintf(stderr, "\r\033[K%4ld s  %.70s", seconds_of(progress), text);
}

/* ---- what is to be installed ---- */

static int join_packages(const char *list, char **ret_text, struct err *err) {
        static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-[]<>=!~,*+";
        const char *packages[PACKAGES_MAX];
        _cleanup_free_ char *cut = strdup(list), *text = calloc(1, strlen(list) + PACKAGES_MAX + 1);
        if (!cut || !text)
                return err_set(err, ERR_SYSTEM, "out of memory");
        size_t n = package_list_split(cut, packages, ELEMENTS(packages));
        if (n == 0 || n == ELEMENTS(packages))
                return err_set(err, ERR_USAGE, "--packages: name between 1 and %d packages", PACKAGES_MAX - 1);
        for (size_t i = 0; i < n; i++) {
                if (strspn(packages[i], good) != strlen(packages[i]) || strchr("._-[]<>=!~,*+", packages[i][0]))
                        return err_set(err, ERR_USAGE,
                                       "\"%.100s\" is not a package; write for example numpy or pandas==2.2.3, or put "
                                       "addresses in a --requirements file",
                                       packages[i]);
                (void) strcat(strcat(text, packages[i]), "\n");
        }
        *ret_text = take_ptr(text);
        return 0;
}

static int read_requirements(const struct line *line, char **ret_text, size_t *ret_size, struct err *err) {
        if (line->packages && line->requirements)
                return err_set(err, ERR_USAGE, "give --packages or --requirements, not both");
        if (line->requirements) {
                _cleanup_fd_ int fd = open(line->requirements, O_RDONLY | O_CLOEXEC);
                int code = fd < 0 ? -errno : fd_read_to_end(fd, REQUIREMENTS_MAX, ret_text, ret_size);
                return code < 0 ? err_sys(err, -code, "cannot read %.300s", line->requirements) : 0;
        }
        if (line->packages && join_packages(line->packages, ret_text, err) < 0)
                return -1;
        if (!line->packages)
                *ret_text = strndup(standard_packages, standard_packages_size());
        if (!*ret_text)
                return err_set(err, ERR_SYSTEM, "out of memory");
        *ret_size = strlen(*ret_text);
        return 0;
}

/* ---- the verb ---- */

static int print_result(const struct line *line, const struct image_build_result *result, long seconds,
                        struct err *err) {
        const char *engine = engine_names[line->engine];
        char size[32];
        if (line->json) {
                _cleanup_json_ json_t *json =
                        json_pack("{s:s, s:s, s:s, s:I, s:I}", "engine", engine, "image", line->tag, "id", result->id,
                                  "bytes", (json_int_t) result->bytes, "seconds", (json_int_t) seconds);
                return json_print_answer(json, err);
        }
        (void) printf("image %s: %s, in %ld s; use it with: glovebox serve --engine %s --engine-image %s\n", line->tag,
                      units_format_bytes(result->bytes, size), seconds, engine, line->tag);
        return fflush(stdout) == 0 ? 0 : err_sys(err, errno, "printing the result");
}

static int docker_build(const struct line *line, struct err *err) {
        struct engine_settings settings = ENGINE_SETTINGS_DEFAULT;
        struct build_progress progress = { .is_terminal = isatty(STDERR_FILENO) && !line->json,
                                           .is_verbose = line->verbose };
        _cleanup_free_ char *text = NULL;
        size_t size = 0;
        struct image_build_result result;
        if (read_requirements(line, &text, &size, err) < 0)
                return -1;
        (void) clock_gettime(CLOCK_MONOTONIC, &progress.begun);
        settings.docker_socket = line->docker_socket;
        settings.podman_socket = line->podman_socket;
        const struct image_build_order order = { .engine = engine_names[line->engine],
                                                 .tag = line->tag,
                                                 .base = line->base ? line->base : "",
                                                 .network = line->network ? line->network : "",
                                                 .requirements = text,
                                                 .requirements_size = size,
                                                 .certificates = line->certificates ? line->certificates : "",
                                                 .report = build_report,
                                                 .context = &progress };
        int code = image_build(&settings, &order, &result, err);
        if (progress.is_terminal && !progress.is_verbose)
                (void) fprintf(stderr, "\r\033[K");
        return code < 0 ? -1 : print_result(line, &result, seconds_of(&progress), err);
}

int docker_build_verb(char **args) {
        static const struct option_table table = { .rows = docker_build_rows,
                                                   .n_rows = DOCKER_BUILD_ROWS,
                                                   .operands_anywhere = true };
        struct line line = { .tag = IMAGE_BUILD_TAG,
                             .docker_socket = ENGINE_DOCKER_SOCKET,
                             .podman_socket = ENGINE_PODMAN_SOCKET };
        struct option_rest rest;
        struct err err = { 0 };
        int code = option_parse(&table, &line, args, &rest, &err);
        if (code == 0 && rest.help) {
                const struct verb *image = verb_find("image");
                for (size_t i = 0; i < image->n_parts; i++)
                        if (strcmp(image->parts[i].name, "docker-build") == 0)
                                verb_print_part_help(stdout, image, &image->parts[i]);
                return EXIT_SUCCESS;
        }
        if (code == 0 && rest.operands[0])
                code = err_set(&err, ERR_USAGE, "image docker-build takes options only, not \"%.60s\"; see --help",
                               rest.operands[0]);
        if (code == 0)
                code = docker_build(&line, &err);
        return code == 0 ? EXIT_SUCCESS : terminal_fail(&err);
}
