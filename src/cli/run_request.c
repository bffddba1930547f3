#include "cli/run_request.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/ui/option.h"

const struct option_choice run_request_networks[] = {
        { "none", RUN_NETWORK_NONE },
        { "full", RUN_NETWORK_FULL },
        { NULL, 0 },
};

void run_request_release(struct run_request *request) {
        for (size_t i = 0; i < request->n_mounts; i++) {
                free(request->mounts[i].source);
                free(request->mounts[i].destination);
        }
        free(request->mounts);
        for (size_t i = 0; i < request->n_env; i++)
                free(request->env[i]);
        free(request->env);
        free(request->owned_code);
        free(request->owned_argument);
        free(request->image_words);
        json_decref(request->image_config);
        free(request->code_source);
        free(request->script_dir);
        free(request->script_name);
        *request = (struct run_request) { 0 };
}

#define MOUNT_FORM "write SRC:DST[:ro|rw], for example ./data:/mnt/data:ro"

/* Splits `text` in place. The destination is the last part that begins with a slash, so a source may hold colons. */
static int split_mount(const char *what, char *text, struct run_mount *ret_mount, struct err *err) {
        bool writable = false;
        char *colon = strrchr(text, ':');
        if (colon && (strcmp(colon, ":ro") == 0 || strcmp(colon, ":rw") == 0)) {
                writable = colon[2] == 'w';
                *colon = '\0';
                colon = strrchr(text, ':');
        }
        if (!colon || colon == text || colon[1] == '\0')
                return err_set(err, ERR_USAGE, "%s: \"%.200s\" lacks a source or a destination; " MOUNT_FORM, what,
                               text);
        if (colon[1] != '/') {
                const char *before = memrchr(text, ':', (size_t) (colon - text));
                if (before && before[1] == '/')
                        return err_set(err, ERR_USAGE, "%s: the mode \"%.40s\" is neither ro nor rw; " MOUNT_FORM, what,
                                       colon + 1);
                return err_set(err, ERR_USAGE, "%s: the destination \"%.200s\" is not an absolute path; " MOUNT_FORM,
                               what, colon + 1);
        }
        *colon = '\0';
        ret_mount->source = text;
        ret_mount->destination = colon + 1;
        ret_mount->writable = writable;
        return 0;
}

/* "/a//b/" and "/a/b" are one place. Shortens in place. */
static void tidy_path(char *path) {
        char *end = path;
        for (const char *at = path; *at; at++)
                if (*at != '/' || end == path || end[-1] != '/')
                        *end++ = *at;
        while (end > path + 1 && end[-1] == '/')
                end--;
        *end = '\0';
}

int run_request_add_mount(struct run_request *request, const char *what, const char *text, struct err *err) {
        if (request->n_mounts == RUN_MOUNTS_MAX)
                return err_set(err, ERR_USAGE, "%s: more than %d mounts; mount a directory that holds them", what,
                               RUN_MOUNTS_MAX);
        _cleanup_free_ char *copy = strdup(text);
        struct run_mount parts = { 0 };
        if (!copy)
                return err_sys(err, ENOMEM, "%s", what);
        if (split_mount(what, copy, &parts, err) < 0)
                return -1;
        tidy_path(parts.destination);
        for (size_t i = 0; i < request->n_mounts; i++)
                if (strcmp(request->mounts[i].destination, parts.destination) == 0)
                        return err_set(err, ERR_USAGE, "%s: two mounts have the destination %.200s; give each its own",
                                       what, parts.destination);
        struct run_mount *grown = realloc(request->mounts, (request->n_mounts + 1) * sizeof(*grown));
        if (!grown)
                return err_sys(err, ENOMEM, "%s", what);
        request->mounts = grown;
        _cleanup_free_ char *source = strdup(parts.source), *destination = strdup(parts.destination);
        if (!source || !destination)
                return err_sys(err, ENOMEM, "%s", what);
        request->mounts[request->n_mounts++] = (struct run_mount) { .source = take_ptr(source),
                                                                    .destination = take_ptr(destination),
                                                                    .writable = parts.writable };
        return 0;
}

static bool run_request_is_name(const char *text, size_t length) {
        if (length == 0 || isdigit((unsigned char) *text))
                return false;
        for (size_t i = 0; i < length; i++)
                if (text[i] != '_' && !isalnum((unsigned char) text[i]))
                        return false;
        return true;
}

/* Where "K=..." stands or is to be added; makes room for it and for the final NULL. */
static char **find_env_place(struct run_request *request, const char *name, size_t length) {
        for (size_t i = 0; i < request->n_env; i++)
                if (strncmp(request->env[i], name, length) == 0 && request->env[i][length] == '=')
                        return &request->env[i];
        char **grown = realloc(request->env, (request->n_env + 2) * sizeof(*grown));
        if (!grown)
                return NULL;
        request->env = grown;
        grown[request->n_env] = grown[request->n_env + 1] = NULL;
        return &grown[request->n_env];
}

int run_request_add_env(struct run_request *request, const char *what, const char *text, struct err *err) {
        size_t length = strcspn(text, "=");
        if (!run_request_is_name(text, length))
                return err_set(err, ERR_USAGE,
                               "%s: \"%.*s\" is not a variable name (letters, digits, _); write NAME=VALUE, or NAME to "
                               "pass your own on",
                               what, (int) (length < 60 ? length : 60), text);
        const char *value = text[length] == '=' ? text + length + 1 : getenv(text);
        if (!value)
                return err_set(err, ERR_USAGE, "%s: %.60s is not set here; export it, or write %.60s=VALUE", what, text,
                               text);
        if (request->n_env == RUN_ENV_MAX)
                return err_set(err, ERR_USAGE, "%s: more than %d variables; put them into a file", what, RUN_ENV_MAX);
        char *pair = NULL;
        if (asprintf(&pair, "%.*s=%s", (int) length, text, value) < 0)
                return err_sys(err, ENOMEM, "%s", what);
        char **place = find_env_place(request, text, length);
        if (!place) {
                free(pair);
                return err_sys(err, ENOMEM, "%s", what);
        }
        if (!*place)
                request->n_env++;
        free(*place);
        *place = pair;
        return 0;
}

int run_request_parse_mount(const char *what, const char *text, void *request, struct err *err) {
        return run_request_add_mount(request, what, text, err);
}

int run_request_parse_env(const char *what, const char *text, void *request, struct err *err) {
        return run_request_add_env(request, what, text, err);
}

/* The rules are also read from JSON, whose member the message names. */
static void drop_member_name(struct err *err) {
        static const char name[] = "network.allow: ";
        size_t size = sizeof(name) - 1;
        if (err && strncmp(err->message, name, size) == 0)
                memmove(err->message, err->message + size, strlen(err->message + size) + 1);
}

int run_request_parse_host(const char *what, const char *text, void *request, struct err *err) {
        struct run_request *to = request;
        _cleanup_free_ struct egress_rules *scratch = calloc(1, sizeof(*scratch));
        if (!scratch)
                return err_sys(err, ENOMEM, "%s", what);
        if (to->n_hosts == EGRESS_RULES_MAX)
                return err_set(err, ERR_USAGE, "%s: more than %d hosts; name their domain with a leading dot", what,
                               EGRESS_RULES_MAX);
        const char *scheme = strstr(text, "://");
        if (scheme)
                return err_set(err, ERR_USAGE,
                               "%s: \"%.200s\" is an address of the web; leave the scheme and the path out: %s %.*s",
                               what, text, what, (int) strcspn(scheme + 3, "/?#"), scheme + 3);
        if (egress_rules_add(scratch, text, false, err) < 0) {
                drop_member_name(err);
                return err_prefix(err, "%s", what);
        }
        to->hosts[to->n_hosts++] = text;
        return 0;
}

int run_request_parse_private(const char *what, const char *text, void *settings, struct err *err) {
        return egress_operator_add_private(settings, text, err) < 0 ? err_prefix(err, "%s", what) : 0;
}

int run_request_parse_pin(const char *what, const char *text, void *settings, struct err *err) {
        return egress_operator_add_pin(settings, text, err) < 0 ? err_prefix(err, "%s", what) : 0;
}

int run_request_rules(const struct run_request *request, struct egress_rules *ret_rules, struct err *err) {
        *ret_rules = (struct egress_rules) { .mode = request->network == RUN_NETWORK_FULL ? EGRESS_FULL : EGRESS_NONE };
        for (size_t i = 0; i < request->n_hosts; i++)
                if (egress_rules_add(ret_rules, request->hosts[i], false, err) < 0)
                        return -1;
        return 0;
}
