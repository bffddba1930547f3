/* glovebox image list | show | import | build | rm; docker-build is in docker_build_verb.c */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/data_dir.h"
#include "base/memory.h"
#include "base/open_beneath.h"
#include "base/units.h"
#include "cli/docker_build_verb.h"
#include "cli/package_list.h"
#include "cli/ui/suggest.h"
#include "cli/ui/terminal.h"
#include "cli/verb.h"
#include "image/bounds.h"
#include "image/image.h"
#include "image/import.h"
#include "image/interrupt.h"
#include "image/layer.h"
#include "image/record.h"
#include "image/store.h"
#include "store/session_file.h"

enum {
        OPTION_JSON = 1,
        OPTION_NAMES = 2,
        OPTION_MAX_SIZE = 4,
        OPTION_PACKAGES = 8,
        OPTION_SOURCE = 16,
        OPTION_FORCE = 32
};

struct request {
        char data_dir[DATA_DIR_PATH_MAX];
        bool json, names, allow_source, force;
        char *packages; /* argv's own text, cut in place */
        const char *requirements;
        uint64_t max_bytes;
        char **args;
        int n_args;
};

struct sub_verb {
        const char *name;
        int (*run)(struct request *request, struct err *err);
        int min_args, max_args;
        int options;
        const char *usage;
};

/* Reading the store */

/* The host image for `image list` and `image show`. A layer or interpreter that does not fit is reported, not fatal. */
static json_t *describe_host(int images_fd) {
        _cleanup_fd_ int host_fd = open_beneath(images_fd, IMAGE_HOST, O_RDONLY | O_DIRECTORY), layer_fd = -1;
        struct python python = { 0 };
        struct err err = { 0 };
        json_t *layer = NULL, *json = json_pack("{s:s, s:s}", "name", IMAGE_HOST, "kind", "host");
        _cleanup_fd_ int shared_fd = image_open_shared_host(host_fd);
        if (python_choose(host_fd, &python, &err) == 0) {
                json_object_set_new(json, "python", json_string(python.path));
                json_object_set_new(json, "python_version", json_string(python.version));
                json_object_set_new(json, "python_reason", json_string(python.why));
                if (*python.prefix)
                        json_object_set_new(json, "python_prefix", json_string(python.prefix));
                (void) layer_open(host_fd, &python, &layer_fd, &err);
        }
        if (layer_describe(host_fd, &layer, NULL) < 0 && shared_fd >= 0 && layer_describe(shared_fd, &layer, NULL) == 0)
                json_object_set_new(json, "shared", json_string(data_dir_shared()));
        json_object_set_new(json, "layer", layer ? layer : json_null());
        if (err.code != ERR_NONE)
                json_object_set_new(json, "problem", json_string(err.message));
        return json;
}

static int image_describe(const char *data_dir, int images_fd, const char *name, json_t **ret_json, struct err *err) {
        if (image_check_name(name, err) < 0)
                return -1;
        if (strcmp(name, IMAGE_HOST) == 0) {
                *ret_json = describe_host(images_fd);
                return 0;
        }
        bool is_shared;
        _cleanup_fd_ int image_fd = image_open_directory(data_dir, name, &is_shared);
        struct err why = { .code = ERR_NOT_FOUND };
        if (image_fd >= 0 && record_read(image_fd, "image.json", ret_json, &why) == 0) {
                if (is_shared)
                        json_object_set_new(*ret_json, "shared", json_string(data_dir_shared()));
                return 0;
        }
        if (why.code == ERR_NOT_FOUND)
                return err_set(err, ERR_NOT_FOUND, "there is no image \"%s\"; see glovebox image list", name);
        return err_set(err, why.code, "the image \"%s\" is damaged: %s; remove it and import it again", name,
                       why.message);
}

static int image_print_json(json_t *json, struct err *err) {
        int code = json_dumpf(json, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
        (void) putchar('\n');
        return code < 0 ? err_set(err, ERR_SYSTEM, "cannot write the JSON") : 0;
}

static const char *format_time(const json_t *seconds, char buffer[static 32]) {
        time_t when = (time_t) json_integer_value(seconds);
        struct tm tm;
        if (when <= 0 || !localtime_r(&when, &tm) || strftime(buffer, 32, "%Y-%m-%d %H:%M", &tm) == 0)
                strcpy(buffer, "-");
        return buffer;
}

static void print_row(const json_t *image) {
        const json_t *layer = json_object_get(image, "layer"), *sized = json_is_object(layer) ? layer : image;
        const json_t *bytes = json_object_get(sized, "bytes");
        const char *python = record_string(image, "python"), *remark = "";
        char size[32] = "-", when[32];
        if (json_is_integer(bytes))
                units_format_bytes((uint64_t) json_integer_value(bytes), size);
        if (json_object_get(image, "problem"))
                remark = "  (has a problem: see image show)";
        else if (json_is_null(layer))
                remark = "  (no Python packages: see image build)";
        else if (json_object_get(image, "shared"))
                remark = "  (shared: see image show)";
        printf("%-20s %-8s %-28s %-10s %s%s\n", record_string(image, "name"), record_string(image, "kind"),
               *python ? python : "-", size, format_time(json_object_get(sized, "created"), when), remark);
}

/* Images of the shared store that the user's own store lacks. */
static int add_shared_names(char (**names)[65], size_t *n, struct err *err) {
        _cleanup_fd_ int data_fd = *data_dir_shared() ? open(data_dir_shared(), O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
        _cleanup_fd_ int fd = data_fd < 0 ? -1 : open_beneath(data_fd, "images", O_RDONLY | O_DIRECTORY);
        _cleanup_free_ char(*more)[65] = NULL;
        size_t n_more = 0;
        if (fd < 0 || store_list(fd, &more, &n_more, NULL) < 0)
                return 0;
        char(*grown)[65] = reallocarray(*names, *n + n_more + 1, sizeof(**names));
        if (!grown)
                return err_sys(err, ENOMEM, "cannot list the images");
        *names = grown;
        for (size_t i = 0, own = *n; i < n_more; i++) {
                bool known = false;
                for (size_t k = 0; k < own; k++)
                        known = known || strcmp(grown[k], more[i]) == 0;
                if (!known)
                        strcpy(grown[(*n)++], more[i]);
        }
        return 0;
}

static int run_list(struct request *request, struct err *err) {
        _cleanup_fd_ int images_fd = -1;
        _cleanup_free_ char(*names)[65] = NULL;
        size_t n = 0;
        if (store_open(request->data_dir, &images_fd, err) < 0 || store_list(images_fd, &names, &n, err) < 0 ||
            add_shared_names(&names, &n, err) < 0)
                return -1;
        if (request->names) {
                printf("%s\n", IMAGE_HOST);
                for (size_t i = 0; i < n; i++)
                        printf("%s\n", names[i]);
                return 0;
        }
        _cleanup_json_ json_t *images = json_array();
        json_array_append_new(images, describe_host(images_fd));
        for (size_t i = 0; i < n; i++) {
                json_t *image = NULL;
                struct err why;
                if (image_describe(request->data_dir, images_fd, names[i], &image, &why) < 0)
                        image = json_pack("{s:s, s:s, s:s}", "name", names[i], "kind", "damaged", "problem",
                                          why.message);
                json_array_append_new(images, image);
        }
        if (request->json)
                return image_print_json(images, err);
        printf("%-20s %-8s %-28s %-10s %s\n", "NAME", "KIND", "PYTHON", "SIZE", "CREATED");
        size_t i;
        json_t *image;
        json_array_foreach (images, i, image)
                print_row(image);
        return 0;
}

static const char *format_number(const char *key, const json_t *value, char buffer[static 32]) {
        json_int_t number = json_integer_value(value);
        if (strcmp(key, "created") == 0)
                return format_time(value, buffer);
        if (strcmp(key, "bytes") == 0)
                return units_format_bytes((uint64_t) number, buffer);
        (void) snprintf(buffer, 32, "%lld", (long long) number);
        return buffer;
}

static void print_list(const json_t *list) {
        size_t i;
        json_t *item;
        json_array_foreach (list, i, item)
                printf("%s%s", i ? ", " : "", json_is_string(item) ? json_string_value(item) : "...");
        printf("\n");
}

/* One line for each member; lists on one line, objects indented below. */
static void print_members(const json_t *object, const char *indent) {
        const char *key;
        json_t *value;
        json_object_foreach ((json_t *) object, key, value) {
                char number[32];
                if (json_is_object(value) && json_object_size(value) > 0) {
                        printf("%s%s\n", indent, key);
                        print_members(value, "  ");
                } else if (json_is_array(value) && json_array_size(value) > 0) {
                        printf("%s%-16s ", indent, key);
                        print_list(value);
                } else if (json_is_integer(value)) {
                        printf("%s%-16s %s\n", indent, key, format_number(key, value, number));
                } else if (json_is_string(value) && *json_string_value(value)) {
                        printf("%s%-16s %s\n", indent, key, json_string_value(value));
                } else if (json_is_null(value)) {
                        printf("%s%-16s none\n", indent, key);
                }
        }
}

static int run_show(struct request *request, struct err *err) {
        _cleanup_fd_ int images_fd = -1;
        _cleanup_json_ json_t *image = NULL;
        if (store_open(request->data_dir, &images_fd, err) < 0 ||
            image_describe(request->data_dir, images_fd, request->args[0], &image, err) < 0)
                return -1;
        if (request->json)
                return image_print_json(image, err);
        print_members(image, "");
        return 0;
}

/* Changing it */

static int run_import(struct request *request, struct err *err) {
        struct import_result result;
        const char *name = request->args[0];
        char size[32];
        const char *from = request->args[1];
        if (import_image(request->data_dir, name, from, request->max_bytes, &result, err) < 0)
                return err && err->code == ERR_PROTOCOL /* about its contents */
                               ? err_prefix(err, "%.300s", strcmp(from, "-") == 0 ? "standard input" : from)
                               : -1;
        printf("image %s: %llu entries, %s, %s\n", name, (unsigned long long) result.entries,
               units_format_bytes(result.bytes, size), *result.python ? result.python : "no Python in it");
        if (result.skipped)
                printf("%llu devices and FIFOs were left out: a box has its own /dev\n",
                       (unsigned long long) result.skipped);
        if (result.lost_env)
                printf("%llu of its variables were left out: they have no plain name, or all together are longer than "
                       "%d bytes\n",
                       (unsigned long long) result.lost_env, IMAGE_ENV_MAX);
        if (!*result.python)
                printf("it runs commands only: glovebox run --image %s -- COMMAND\n", name);
        return 0;
}

struct progress {
        bool terminal, begun;
        struct timespec start;
};

static long elapsed_seconds(const struct progress *progress) {
        struct timespec now;
        (void) clock_gettime(CLOCK_MONOTONIC, &now);
        return (long) (now.tv_sec - progress->start.tv_sec);
}

static void show_progress(void *context, const char *what) {
        struct progress *progress = context;
        if (!progress->terminal && !progress->begun) {
                printf("image host: installing Python packages; this takes a few minutes\n");
                (void) fflush(stdout);
        }
        progress->begun = true;
        if (progress->terminal)
                fprintf(stderr, "\r\033[K%4ld s  %.70s", elapsed_seconds(progress), what);
}

static int run_build(struct request *request, struct err *err) {
        if (request->n_args > 0 && strcmp(request->args[0], IMAGE_HOST) != 0)
                return err_set(
                        err, ERR_USAGE,
                        "only the image \"host\" can be built: \"%.70s\" would be imported (glovebox image import)",
                        request->args[0]);
        const char *packages[256];
        struct progress progress = { .terminal = isatty(STDERR_FILENO) };
        (void) clock_gettime(CLOCK_MONOTONIC, &progress.start);
        struct layer_request job = {
                .packages = packages,
                .requirements = request->requirements,
                .allow_source = request->allow_source,
                .report = show_progress,
                .context = &progress,
        };
        if (request->packages) {
                job.n_packages = package_list_split(request->packages, packages, ELEMENTS(packages));
                if (job.n_packages == 0 || job.n_packages == ELEMENTS(packages))
                        return err_set(err, ERR_USAGE, "--packages: name between 1 and %zu packages",
                                       ELEMENTS(packages) - 1);
        }
        _cleanup_json_ json_t *record = NULL;
        int code = layer_build(request->data_dir, &job, &record, err);
        if (progress.terminal && progress.begun)
                fprintf(stderr, "\r\033[K");
        if (code < 0)
                return -1;
        char size[32];
        size_t n = json_array_size(json_object_get(record, "packages"));
        printf("image host: %zu package%s for Python %s, %s, in %ld s\n", n, n == 1 ? "" : "s",
               record_string(record, "python"),
               units_format_bytes((uint64_t) json_integer_value(json_object_get(record, "bytes")), size),
               elapsed_seconds(&progress));
        return 0;
}

/* Names of sessions that were made with the image, at most a few, for a sentence. Returns how many there are. */
static size_t list_users(const char *data_dir, const char *image, char *ret_names, size_t room) {
        char path[DATA_DIR_PATH_MAX + 64];
        size_t n = 0, used = 0;
        (void) snprintf(path, sizeof(path), "%s/state", data_dir);
        DIR *directory = opendir(path);
        *ret_names = '\0';
        for (struct dirent *entry; directory && (entry = readdir(directory));) {
                struct registry_session row;
                if (entry->d_name[0] == '.' || strlen(entry->d_name) > 40)
                        continue;
                (void) snprintf(path, sizeof(path), "%s/state/%s", data_dir, entry->d_name);
                if (strlen(path) > 1000 || session_file_read(path, &row, NULL) < 0 || strcmp(row.image, image) != 0)
                        continue;
                if (n++ < 3) {
                        int size = snprintf(ret_names + used, room - used, "%s%.40s", used ? ", " : "", row.name);
                        used += size > 0 && (size_t) size < room - used ? (size_t) size : 0;
                }
        }
        if (directory)
                (void) closedir(directory);
        return n;
}

/* On a terminal the user is asked; a program uses --force. */
static int confirm_removal(const struct request *request, const char *name, struct err *err) {
        char names[160], answer[16] = "";
        size_t n = request->force ? 0 : list_users(request->data_dir, name, names, sizeof(names));
        const char *would = strcmp(name, IMAGE_HOST) == 0 ? "would miss its packages" : "could not run any more";
        if (n == 0)
                return 0;
        if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
                return err_set(err, ERR_BUSY,
                               "image %s is in use by %zu session%s (%s%s), which %s; remove them first (glovebox "
                               "session rm), or add --force",
                               name, n, n == 1 ? "" : "s", names, n > 3 ? ", ..." : "", would);
        (void) fprintf(stderr, "image %s is in use by %zu session%s (%s%s), which %s. Remove it? [y/N] ", name, n,
                       n == 1 ? "" : "s", names, n > 3 ? ", ..." : "", would);
        if (!fgets(answer, sizeof(answer), stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
                return err_set(err, ERR_REFUSED, "image %s stays", name);
        return 0;
}

static int run_rm(struct request *request, struct err *err) {
        const char *name = request->args[0];
        bool host = strcmp(name, IMAGE_HOST) == 0, is_shared = false;
        _cleanup_fd_ int images_fd = -1, image_fd = -1;
        if (image_check_name(name, err) < 0 || store_open(request->data_dir, &images_fd, err) < 0)
                return -1;
        image_fd = image_open_directory(request->data_dir, name, &is_shared);
        if (image_fd >= 0 && is_shared && !host)
                return err_set(err, ERR_REFUSED,
                               "image %s belongs to the shared data directory; to remove it for all: "
                               "GLOVEBOX_DATA_DIR=%.300s glovebox image rm %s",
                               name, data_dir_shared(), name);
        if (image_fd >= 0 && confirm_removal(request, name, err) < 0)
                return -1;
        if (store_remove(images_fd, name, host ? "python" : NULL, err) == 0) {
                printf(host ? "image host: the Python layer is removed\n" : "image %s: removed\n", name);
                return 0;
        }
        if (err->sys_errno != ENOENT)
                return -1;
        return host ? err_set(err, ERR_NOT_FOUND,
                              "the image \"host\" is this machine itself and has no layer: nothing to remove")
                    : err_set(err, ERR_NOT_FOUND, "there is no image \"%s\"; see glovebox image list", name);
}

static const struct sub_verb sub_verbs[] = {
        { "list", run_list, 0, 0, OPTION_JSON | OPTION_NAMES, "list [--json | --names]" },
        { "show", run_show, 1, 1, OPTION_JSON, "show NAME [--json]" },
        { "import", run_import, 2, 2, OPTION_MAX_SIZE, "import NAME FILE.tar|DIR|- [--max-size SIZE]" },
        { "build", run_build, 0, 1, OPTION_PACKAGES | OPTION_SOURCE,
          "build [host] [--packages LIST | --requirements FILE] [--allow-source]" },
        { "rm", run_rm, 1, 1, OPTION_FORCE, "rm NAME [--force]" },
};

/* Reading the command line */

static int usage_error(const struct sub_verb *verb, struct err *err, const char *what) {
        return err_set(err, ERR_USAGE, "image %s: %.200s; usage: glovebox image %s", verb->name, what, verb->usage);
}

static int take_option(struct request *request, const struct sub_verb *verb, int option, struct err *err) {
        if (option > 0 && option < 0x100 && !(verb->options & option))
                return usage_error(verb, err, "that option belongs to another verb");
        switch (option) {
        case OPTION_JSON:
                request->json = true;
                terminal_expect_json();
                return 0;
        case OPTION_NAMES:
                request->names = true;
                return 0;
        case OPTION_FORCE:
                request->force = true;
                return 0;
        case OPTION_SOURCE:
                request->allow_source = true;
                return 0;
        case OPTION_MAX_SIZE:
                return units_parse_bytes("--max-size", optarg, 1, BOUND_BYTES_MAX, &request->max_bytes, err);
        default: /* two options of one verb */
                if (request->packages || request->requirements)
                        return usage_error(verb, err, "give --packages or --requirements, once");
                *(option == 'p' ? (const char **) &request->packages : &request->requirements) = optarg;
                return verb->options & OPTION_PACKAGES ? 0
                                                       : usage_error(verb, err, "that option belongs to another verb");
        }
}

static int image_parse(struct request *request, const struct sub_verb *verb, int argc, char **argv, struct err *err) {
        static const struct option options[] = {
                { "json", no_argument, NULL, OPTION_JSON },
                { "names", no_argument, NULL, OPTION_NAMES },
                { "max-size", required_argument, NULL, OPTION_MAX_SIZE },
                { "packages", required_argument, NULL, 'p' },
                { "requirements", required_argument, NULL, 'r' },
                { "allow-source", no_argument, NULL, OPTION_SOURCE },
                { "force", no_argument, NULL, OPTION_FORCE },
                { 0 },
        };
        optind = 0; /* glibc: start over, also its own state */
        opterr = 0;
        for (int option; (option = getopt_long(argc, argv, ":f", options, NULL)) != -1;) {
                char what[260];
                if (option == 'f')
                        option = OPTION_FORCE;
                if (option == '?' || option == ':') {
                        (void) snprintf(what, sizeof(what), "%s %.200s",
                                        option == '?' ? "unknown option" : "no value for", argv[optind - 1]);
                        return usage_error(verb, err, what);
                }
                if (take_option(request, verb, option, err) < 0)
                        return -1;
        }
        request->args = argv + optind;
        request->n_args = argc - optind;
        if (request->n_args < verb->min_args || request->n_args > verb->max_args)
                return usage_error(verb, err,
                                   request->n_args < verb->min_args ? "too few arguments" : "too many arguments");
        return 0;
}

static void print_usage(FILE *to) {
        for (size_t i = 0; i < ELEMENTS(sub_verbs); i++)
                fprintf(to, "%s glovebox image %s\n", i ? "      " : "usage:", sub_verbs[i].usage);
        fprintf(to, "       glovebox image docker-build [OPTION...]\n");
}

static bool is_help(const char *word) {
        return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* verb_table.c has the same names. */
static int print_part(const char *name) {
        const struct verb *image = verb_find("image");
        for (size_t i = 0; i < image->n_parts; i++)
                if (strcmp(image->parts[i].name, name) == 0)
                        verb_print_part_help(stdout, image, &image->parts[i]);
        return 0;
}

static const struct sub_verb *find_sub_verb(const char *name) {
        for (size_t i = 0; i < ELEMENTS(sub_verbs); i++)
                if (verb_part_is(sub_verbs[i].name, name))
                        return &sub_verbs[i];
        return NULL;
}

static int fail_unknown(const char *name) {
        struct err err;
        struct suggestion near = { .word = name };
        for (size_t i = 0; i < ELEMENTS(sub_verbs); i++)
                suggestion_consider(&near, sub_verbs[i].name);
        const char *best = suggestion_best(&near);
        if (strcmp(name, "pull") == 0)
                (void) err_set(&err, ERR_USAGE,
                               "image: unknown verb \"pull\"; write: docker pull IMAGE, then docker save IMAGE | "
                               "glovebox image import NAME -");
        else if (best)
                (void) err_set(&err, ERR_USAGE, "image: unknown verb \"%.60s\"; did you mean \"%s\"?", name, best);
        else
                (void) err_set(&err, ERR_USAGE, "image: %s%.60s%s", *name ? "unknown verb \"" : "say what to do", name,
                               *name ? "\"" : "");
        int status = terminal_fail(&err);
        if (!best && strcmp(name, "pull") != 0)
                print_usage(stderr);
        return status;
}

static int run_sub_verb(const struct sub_verb *verb, int argc, char **argv) {
        struct err err = { 0 };
        struct request request = { .max_bytes = BOUND_BYTES_DEFAULT };
        if (image_parse(&request, verb, argc - 1, argv + 1, &err) == 0 && data_dir_open(request.data_dir, &err) == 0 &&
            verb->run(&request, &err) == 0) {
                if (fflush(stdout) == 0)
                        return 0;
                err_sys(&err, errno, "cannot write the output");
        }
        int signal_number = interrupt_signal();
        return terminal_fail_with(&err, signal_number ? 128 + signal_number : err_code_exit_status(err.code));
}

int verb_image(int argc, char **argv) {
        const char *name = argc > 1 ? argv[1] : "";
        if (is_help(name) || strcmp(name, "help") == 0) {
                verb_print_help(stdout, verb_find("image"));
                return 0;
        }
        if (strcmp(name, "docker-build") == 0)
                return docker_build_verb(argv + 2);
        const struct sub_verb *verb = find_sub_verb(name);
        if (!verb) {
                return fail_unknown(name);
        }
        for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
                if (is_help(argv[i]))
                        return print_part(verb->name);
        return run_sub_verb(verb, argc, argv);
}
