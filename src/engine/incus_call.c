/* Requests to an Incus server through its client program: see incus_call.h. */
#include "engine/incus_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop.h"
#include "base/memory.h"
#include "engine/incus.h"

#define REMOTE_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* ---- requests ---- */

const char *incus_remote(const struct engine_settings *settings) {
        return *settings->incus_remote ? settings->incus_remote : "local";
}

const char *incus_socket(const struct engine_settings *settings) {
        static char path[300];
        const char *directory = getenv("INCUS_DIR");
        if (strcmp(incus_remote(settings), "local") != 0)
                return "";
        if (*settings->incus_socket)
                return settings->incus_socket;
        (void) snprintf(path, sizeof(path), "%s/unix.socket", directory && *directory ? directory : "/var/lib/incus");
        return path;
}

static int check_remote_name(const struct engine_settings *settings, struct err *err) {
        const char *name = incus_remote(settings);
        size_t size = strlen(name);
        if (size < 64 && strspn(name, REMOTE_LETTERS) == size && *name != '-' && *name != '.')
                return 0;
        return err_set(err, ERR_USAGE,
                       "INCUS_REMOTE is \"%.60s\", which is no name of a remote: \"incus remote list\" shows them",
                       name);
}

/* The client's error message, without its prefix. */
static const char *incus_message(const struct program_answer *answer) {
        const char *at = strstr(answer->error_output, "Error: ");
        return at                      ? at + strlen("Error: ")
               : *answer->error_output ? answer->error_output
                                       : "it failed and gave no reason";
}

static bool says_unreachable(const char *message) {
        static const char *const parts[] = { "connection refused",     "no route to host",
                                             "network is unreachable", "i/o timeout",
                                             "connection reset",       "no such host",
                                             "unexpected EOF",         ": EOF",
                                             "TLS handshake timeout" };
        for (size_t i = 0; i < ELEMENTS(parts); i++)
                if (strstr(message, parts[i]))
                        return true;
        return false;
}

static int incus_explain(const struct engine_settings *settings, const char *what, const struct program_answer *answer,
                         struct err *err) {
        const char *message = incus_message(answer);
        if (incus_is_on_other_host(settings) && says_unreachable(message))
                return err_set(err, ERR_GONE, "the incus server %s cannot be reached: %.400s", incus_remote(settings),
                               message);
        if (strstr(message, "connection refused") || strstr(message, "no such file or directory"))
                return err_set(err, ERR_UNSUPPORTED,
                               "incus is not running: %.300s; start it (systemctl start incus), or name "
                               "another server (INCUS_REMOTE)",
                               message);
        if (strstr(message, "permission denied"))
                return err_set(err, ERR_PERMISSION,
                               "incus: %s: %.300s; add the user to the group incus-admin, or run as root", what,
                               message);
        return err_set(err, ERR_SYSTEM, "incus: %s: %.500s", what, message);
}

int incus_call(const struct engine_settings *settings, const char *what, const char *const *argv, const char *input,
               uint64_t within_ms, struct program_answer *ret_answer, struct err *err) {
        struct program_answer answer;
        if (check_remote_name(settings, err) < 0)
                return -1;
        if (*incus_socket(settings)) /* only in the environment of this helper process */
                (void) setenv("INCUS_SOCKET", incus_socket(settings), 1);
        if (program_call(argv, input, loop_now_ms() + within_ms, &answer, err) < 0)
                return err_prefix(err, "incus");
        if (answer.status == 0) {
                *ret_answer = answer;
                return 0;
        }
        int code = incus_explain(settings, what, &answer, err);
        if (strstr(answer.error_output, "not found") && err->code == ERR_SYSTEM)
                err->code = ERR_NOT_FOUND;
        program_answer_release(&answer);
        return code;
}

int incus_query(const struct engine_settings *settings, const char *what, const char *method, const char *path,
                json_t *body, uint64_t within_ms, json_t **ret_json, struct err *err) {
        char place[INCUS_NAME_ROOM + 64];
        _cleanup_free_ char *data = body ? json_dumps(body, JSON_COMPACT) : NULL;
        json_decref(body);
        (void) snprintf(place, sizeof(place), "%s:%s", incus_remote(settings), path);
        const char *argv[] = { "incus", "query", "--wait", "--request", method, place, data ? "--data" : NULL,
                               data,    NULL };
        struct program_answer answer;
        if (incus_call(settings, what, argv, NULL, within_ms, &answer, err) < 0)
                return -1;
        *ret_json = answer.size ? json_loadb(answer.output, answer.size, 0, NULL) : json_object();
        program_answer_release(&answer);
        return *ret_json ? 0 : err_set(err, ERR_PROTOCOL, "incus: %s: its answer is no JSON", what);
}

int incus_query_instance(const struct engine_settings *settings, const char *what, const char *method, const char *name,
                         const char *rest, json_t *body, json_t **ret_json, struct err *err) {
        char path[INCUS_NAME_ROOM];
        (void) snprintf(path, sizeof(path), "/1.0/instances/%s%s", name, rest);
        return incus_query(settings, what, method, path, body, INCUS_SHORT_MS, ret_json, err);
}

int incus_list_instances(const struct engine_settings *settings, json_t **ret_json, struct err *err) {
        return incus_query(settings, "listing instances", "GET", "/1.0/instances?recursion=1", NULL, INCUS_SHORT_MS,
                           ret_json, err);
}

const char *incus_text(json_t *json, const char *group, const char *key) {
        const char *text = json_string_value(json_object_get(json_object_get(json, group), key));
        return text ? text : "";
}

/* The server records its reason as a warning. */
static int explain_missing_vms(const struct engine_settings *settings, struct err *err) {
        json_t *warnings, *warning;
        size_t i;
        char why[200] = "its server gives no reason (incus warning list)";
        if (incus_query(settings, "its warnings", "GET", "/1.0/warnings?recursion=1", NULL, INCUS_SHORT_MS, &warnings,
                        err) < 0)
                return -1;
        json_array_foreach (warnings, i, warning) {
                const char *type = json_string_value(json_object_get(warning, "type"));
                const char *message = json_string_value(json_object_get(warning, "last_message"));
                if (type && message && strcmp(type, "Instance type not operational") == 0)
                        (void) snprintf(why, sizeof(why), "%s", message);
        }
        json_decref(warnings);
        return err_set(err, ERR_UNSUPPORTED,
                       "incus has no virtual machines here: %s; it needs KVM (/dev/kvm), vhost_vsock (modprobe "
                       "vhost_vsock) and qemu-system on the server; without them use the engine incus, or native",
                       why);
}

int incus_server_info(const struct engine_settings *settings, bool is_vm, json_t **ret_json, struct err *err) {
        json_t *json;
        if (!engine_is_there(&engine_incus,
                             settings)) /* the client would write its configuration into the user's home */
                return err_set(err, ERR_UNSUPPORTED,
                               "incus is not running: no answer at %.200s; start it (systemctl start incus), or give "
                               "another socket (--incus-socket)",
                               incus_socket(settings));
        if (incus_query(settings, "its version", "GET", "/1.0", NULL, INCUS_SHORT_MS, &json, err) < 0)
                return -1;
        const char *drivers = incus_text(json, "environment", "driver");
        int code = 0;
        const char *trust = json_string_value(json_object_get(json, "auth"));
        if (trust && strcmp(trust, "trusted") != 0)
                code = err_set(err, ERR_PERMISSION,
                               "incus: the server %s does not trust this client: add its certificate "
                               "(incus remote add)",
                               incus_remote(settings));
        else if (is_vm && !strstr(drivers, "qemu"))
                code = explain_missing_vms(settings, err);
        if (code < 0)
                json_decref(json);
        else
                *ret_json = json;
        return code;
}

int incus_probe(const struct engine_settings *settings, bool is_vm, char *ret_version, size_t room, struct err *err) {
        json_t *json;
        if (incus_server_info(settings, is_vm, &json, err) < 0)
                return -1;
        (void) snprintf(ret_version, room, "%s (%s %s)", incus_text(json, "environment", "server_version"),
                        incus_text(json, "environment", "driver"), incus_text(json, "environment", "driver_version"));
        json_decref(json);
        return 0;
}

/* Instances use no profile, because its devices and settings would apply. Only the pool of the root disk comes from the
 * default profile. */
int incus_find_pool(const struct engine_settings *settings, char *ret_pool, size_t room, struct err *err) {
        json_t *json, *device;
        const char *name, *pool = "";
        if (incus_query(settings, "its default profile", "GET", "/1.0/profiles/default", NULL, INCUS_SHORT_MS, &json,
                        err) < 0)
                return -1;
        json_object_foreach (json_object_get(json, "devices"), name, device)
                if (strcmp(incus_text(json_object_get(json, "devices"), name, "path"), "/") == 0)
                        pool = incus_text(json_object_get(json, "devices"), name, "pool");
        (void) snprintf(ret_pool, room, "%s", pool);
        json_decref(json);
        if (*ret_pool)
                return 0;
        return err_set(err, ERR_UNSUPPORTED,
                       "incus: its default profile has no root disk: run \"incus admin init\" on the server, which "
                       "makes a storage pool");
}

/* ---- instances ---- */

int incus_init(const struct engine_settings *settings, const char *name, const char *image, bool is_vm,
               json_t *described, struct err *err) {
        char place[INCUS_NAME_ROOM], source[ENGINE_IMAGE_MAX + 80];
        struct program_answer answer;
        _cleanup_free_ char *input = json_dumps(described, JSON_COMPACT); /* JSON is YAML, too */
        json_decref(described);
        if (!input)
                return err_set(err, ERR_SYSTEM, "out of memory");
        (void) snprintf(place, sizeof(place), "%s:%s", incus_remote(settings), name);
        /* An image name without a remote means an image of this server. */
        (void) snprintf(source, sizeof(source), "%s%s%s", strchr(image, ':') ? "" : incus_remote(settings),
                        strchr(image, ':') ? "" : ":", image);
        const char *const tail[] = { "--", source, place };
        const char *argv[9] = { "incus", "init", "--no-profiles", "--quiet", is_vm ? "--vm" : NULL };
        memcpy(argv + 4 + is_vm, tail, sizeof(tail));
        if (incus_call(settings, "creating an instance", argv, input, INCUS_CREATE_MS, &answer, err) == 0) {
                program_answer_release(&answer);
                return 0;
        }
        if (strstr(err->message, "already exists") || strstr(err->message, "UNIQUE constraint failed"))
                err->code = ERR_EXISTS;
        if (err->code == ERR_NOT_FOUND)
                return err_set(err, ERR_NOT_FOUND,
                               "incus has no image \"%s\"%s: get it with \"incus image copy images:%s %s: --alias "
                               "%s\"%s, or name one of another server (images:debian/12)",
                               image, is_vm ? " for virtual machines" : "", image, incus_remote(settings), image,
                               is_vm ? " --vm" : "");
        return -1;
}

int incus_start(const struct engine_settings *settings, const char *name, struct err *err) {
        char place[INCUS_NAME_ROOM];
        struct program_answer answer;
        (void) snprintf(place, sizeof(place), "%s:%s", incus_remote(settings), name);
        const char *argv[] = { "incus", "start", "--quiet", "--", place, NULL };
        if (incus_call(settings, "starting an instance", argv, NULL, INCUS_START_MS, &answer, err) < 0)
                return -1;
        program_answer_release(&answer);
        return 0;
}

int incus_remove(const struct engine_settings *settings, const char *name, struct err *err) {
        char place[INCUS_NAME_ROOM];
        struct program_answer answer;
        (void) snprintf(place, sizeof(place), "%s:%s", incus_remote(settings), name);
        const char *argv[] = { "incus", "delete", "--force", "--quiet", "--", place, NULL };
        if (incus_call(settings, "removing an instance", argv, NULL, INCUS_REMOVE_MS, &answer, err) == 0) {
                program_answer_release(&answer);
                return 0;
        }
        return err->code == ERR_NOT_FOUND ? 0 : -1;
}

/* ---- where the server is ---- */

bool incus_is_on_other_host(const struct engine_settings *settings) {
        static const char *known; /* the remote of the last query: its answer does not change */
        static bool is_on_other_host;
        const char *argv[] = { "incus", "remote", "list", "--format", "json", NULL };
        struct program_answer answer;
        struct err ignored;
        if (strcmp(incus_remote(settings), "local") == 0)
                return false;
        if (known && strcmp(known, settings->incus_remote) == 0)
                return is_on_other_host;
        is_on_other_host = true;
        known = settings->incus_remote;
        if (program_call(argv, NULL, loop_now_ms() + INCUS_SHORT_MS, &answer, &ignored) < 0)
                return true;
        json_t *remotes = answer.status == 0 ? json_loadb(answer.output, answer.size, 0, NULL) : NULL;
        is_on_other_host = strncmp(incus_text(remotes, incus_remote(settings), "Addr"), "unix:", 5) != 0;
        json_decref(remotes);
        program_answer_release(&answer);
        return is_on_other_host;
}
