#include "box/seal/environment.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "box/spec.h"

#include "base/memory.h"

static const char *const fixed[] = {
        "HOME=" BOX_HOME,
        "USER=sandbox",
        "LOGNAME=sandbox",
        "SHELL=/bin/sh",
        "TZ=UTC",
        "LC_CTYPE=C.UTF-8", /* LANG or LC_ALL would read twelve more files: 0.2 ms in each program that asks */
        "TERM=dumb",
        "PATH=" BOX_PATH,
        "WORKSPACE_DIR=" BOX_WORKSPACE,
        "MPLBACKEND=Agg",
        "PYTHONUNBUFFERED=1",
        "PYTHONDONTWRITEBYTECODE=1",
        "PIP_NO_INPUT=1",
        "PIP_DISABLE_PIP_VERSION_CHECK=1",
        "GLOVEBOX=1",
};

/* Without these, libraries start one thread for each processor of the host. */
static const char *const thread_variables[] = {
        "OMP_NUM_THREADS",        "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",  "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS", "ARROW_NUM_THREADS",    "PYTHON_CPU_COUNT", "LOKY_MAX_CPU_COUNT",
        "POLARS_MAX_THREADS",     "RAYON_NUM_THREADS",
};

/* In both spellings: programs disagree about which one counts. */
static const char *const proxy_variables[] = {
        "http_proxy=" BOX_PROXY_URL, "https_proxy=" BOX_PROXY_URL, "no_proxy=localhost,127.0.0.1,::1",
        "HTTP_PROXY=" BOX_PROXY_URL, "HTTPS_PROXY=" BOX_PROXY_URL, "NO_PROXY=localhost,127.0.0.1,::1",
};

/* Variables that an image cannot set: they describe the box, not the image. */
static const char *const of_box[] = {
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TERM",
        "PATH",
        "PYTHONPATH",
        "WORKSPACE_DIR",
        "MPLBACKEND",
        "PYTHONUNBUFFERED",
        "PYTHONDONTWRITEBYTECODE",
        "GLOVEBOX",
        "PWD",
        "HOSTNAME",
};

struct list {
        char **texts;
        size_t count, room;
};

static bool same_name(const char *a, const char *b) {
        size_t size = strcspn(a, "=");
        return strncmp(a, b, size) == 0 && b[size] == '=';
}

/* Takes the text; a later one of the same name replaces the earlier. */
static bool environment_add(struct list *list, char *text) {
        if (!text)
                return false;
        for (size_t i = 0; i < list->count; i++) {
                if (same_name(list->texts[i], text)) {
                        free(list->texts[i]);
                        list->texts[i] = text;
                        return true;
                }
        }
        if (list->count + 1 >= list->room) {
                size_t room = list->room ? list->room * 2 : 64;
                char **grown = realloc(list->texts, room * sizeof(*grown));
                if (!grown) {
                        free(text);
                        return false;
                }
                list->texts = grown;
                list->room = room;
        }
        list->texts[list->count++] = text;
        list->texts[list->count] = NULL;
        return true;
}

static bool is_of_box(const char *text) {
        size_t size = strcspn(text, "=");
        for (size_t i = 0; i < ELEMENTS(of_box); i++)
                if (strlen(of_box[i]) == size && strncmp(of_box[i], text, size) == 0)
                        return true;
        for (size_t i = 0; i < ELEMENTS(thread_variables); i++)
                if (same_name(thread_variables[i], text))
                        return true;
        for (size_t i = 0; i < ELEMENTS(proxy_variables); i++)
                if (same_name(proxy_variables[i], text))
                        return true;
        return false;
}

const char *environment_image_value(const struct image *image, const char *prefix) {
        const char *value = NULL;
        for (const char *at = image->env; *at; at += strlen(at) + 1)
                if (strncmp(at, prefix, strlen(prefix)) == 0)
                        value = at + strlen(prefix);
        return value;
}

static bool is_in_path(const char *path, const char *directory, size_t size) {
        for (; path && *path; path += strcspn(path, ":"), path += *path == ':')
                if (strcspn(path, ":") == size && strncmp(path, directory, size) == 0)
                        return true;
        return false;
}

char *environment_path(const struct image *image) {
        const char *path = environment_image_value(image, "PATH="), *slash = strrchr(image->python, '/');
        size_t size = slash ? (size_t) (slash - image->python) : 0;
        char *text = NULL;
        if (!path || !*path)
                path = BOX_PATH;
        bool lacks_python = size && !is_in_path(path, image->python, size);
        if (asprintf(&text, "PATH=%.*s%s%s", lacks_python ? (int) size : 0, image->python, lacks_python ? ":" : "",
                     path) < 0)
                return NULL;
        return text;
}

/* Those that a box honours. */
static bool environment_add_image(const struct image *image, struct list *list) {
        for (const char *at = image->env; *at; at += strlen(at) + 1)
                if (!is_of_box(at) && !environment_add(list, strdup(at)))
                        return false;
        return true;
}

void environment_free(char **environment) {
        for (size_t i = 0; environment && environment[i]; i++)
                free(environment[i]);
        free(environment);
}

static char *make_python_path(const struct image *image) {
        const char *own = environment_image_value(image, "PYTHONPATH=");
        char *text = NULL;
        if (asprintf(&text, "PYTHONPATH=" BOX_WORKSPACE "%s%s%s", image->has_layer ? ":" IMAGE_LAYER_PATH : "",
                     own && *own ? ":" : "", own ? own : "") < 0)
                return NULL;
        return text;
}

char **environment_make(const struct image *image, const struct limits *limits, bool has_network, char *const *extra,
                        struct err *err) {
        struct list list = { 0 };
        bool good = true;
        for (size_t i = 0; good && i < ELEMENTS(fixed); i++)
                good = environment_add(&list, strdup(fixed[i]));
        char text[256];
        uint64_t processors = limits_visible_processors(limits);
        for (size_t i = 0; good && i < ELEMENTS(thread_variables); i++) {
                (void) snprintf(text, sizeof(text), "%s=%" PRIu64, thread_variables[i], processors);
                good = environment_add(&list, strdup(text));
        }
        good = good && environment_add_image(image, &list) && environment_add(&list, environment_path(image));
        good = good && environment_add(&list, make_python_path(image));
        for (size_t i = 0; good && has_network && i < ELEMENTS(proxy_variables); i++)
                good = environment_add(&list, strdup(proxy_variables[i]));
        for (size_t i = 0; good && extra && extra[i]; i++)
                good = environment_add(&list, strdup(extra[i]));
        if (good)
                return list.texts;
        environment_free(list.texts);
        (void) err_set(err, ERR_SYSTEM, "out of memory");
        return NULL;
}
