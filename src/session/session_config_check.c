#include "session/session_config_check.h"

#include <stdint.h>
#include <string.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/host/identity.h"
#include "box/policy.h"
#include "image/image.h"
#include "session/caller.h"
#include "session/manager.h"
#include "session/session_engine.h"

enum { MOUNTS_MAX = 28, ENV_MAX = 256 }; /* what spawn/spawn_job_state.h has room for, beside its own */

int session_config_check_members(json_t *json, const char *where, const char *const *known, struct err *err) {
        const char *key;
        json_t *value;
        json_object_foreach (json, key, value) {
                size_t i = 0;
                while (known[i] && strcmp(known[i], key) != 0)
                        i++;
                if (!known[i])
                        return err_set(err, ERR_USAGE,
                                       "%s: there is no member \"%.60s\"; docs/PROTOCOL.md lists those there are",
                                       where, key);
        }
        return 0;
}

/* The options of a session; also in docs/PROTOCOL.md, docs/API.md and the SDK. */
static const char *const options[] = { "image",     "mode",    "limits",       "env",    "mounts",    "data",
                                       "workspace", "network", "allow_weaker", "engine", "isolation", "users" };

static bool is_word(const char *word, const char *const *words, size_t n_words) {
        for (size_t i = 0; i < n_words && words[i]; i++)
                if (strcmp(words[i], word) == 0)
                        return true;
        return false;
}

int session_config_check_options(json_t *json, const char *where, const char *const *own, struct err *err) {
        const char *key;
        json_t *value;
        json_object_foreach (json, key, value)
                if (!is_word(key, options, ELEMENTS(options)) && !is_word(key, own, SIZE_MAX))
                        return err_set(err, ERR_USAGE,
                                       "%s: there is no option \"%.60s\"; there are image, mode, limits, env, mounts, "
                                       "data, workspace, network, allow_weaker, engine, isolation and users, for "
                                       "example {\"limits\": {\"memory\": \"512m\"}}",
                                       where, key);
        return 0;
}

/* null is as good as nothing. */
static json_t *session_config_check_get(json_t *json, const char *key) {
        json_t *value = json_object_get(json, key);
        return json_is_null(value) ? NULL : value;
}

int session_config_check_env(json_t *env, struct err *err) {
        const char *name;
        json_t *value;
        if (env && !json_is_object(env))
                return err_set(err, ERR_USAGE, "\"env\" must be an object of names and texts");
        if (json_object_size(env) > ENV_MAX)
                return err_set(err, ERR_USAGE, "env: at most %d variables", ENV_MAX);
        json_object_foreach (env, name, value)
                if (!*name || strchr(name, '=') || !json_is_string(value))
                        return err_set(err, ERR_USAGE,
                                       "env: \"%.60s\" is no name of a variable without \"=\", or its value is no text",
                                       name);
        return 0;
}

/* A caller that may not name the path is refused before it is opened: opening some paths blocks for ever. */
static bool source_is_allowed(const struct policy *policy, const char *source, bool writable) {
        const char *const *lists[] = { policy->write_paths, writable ? NULL : policy->read_paths };
        if (strstr(source, "/.."))
                return false;
        for (size_t i = 0; i < ELEMENTS(lists); i++)
                for (const char *const *at = lists[i]; at && *at; at++) {
                        size_t size = strlen(*at);
                        while (size > 1 && (*at)[size - 1] == '/')
                                size--;
                        if (strncmp(source, *at, size) == 0 && (source[size] == '/' || !source[size] || size == 1))
                                return true;
                }
        return false;
}

static int check_source(const struct policy *policy, bool later, const char *source, bool writable, struct err *err) {
        char shown[POLICY_SHOWN_MAX];
        _cleanup_fd_ int fd = -1;
        if (!policy->is_operator && *source == '/' && !source_is_allowed(policy, source, writable))
                return err_set(err, ERR_REFUSED,
                               "cannot mount %s: it is below no directory that may be %s; the operator "
                               "allows some with --allow-read and --allow-write",
                               policy_show_path(source, shown), writable ? "written" : "mounted");
        return later ? 0 : policy_open_source(policy, source, writable, &fd, err);
}

static int check_mount(const struct policy *policy, bool later, json_t *mount, struct err *err) {
        static const char *const known[] = { "source", "destination", "writable", NULL };
        const char *source = json_string_value(json_object_get(mount, "source"));
        const char *destination = json_string_value(json_object_get(mount, "destination"));
        json_t *writable = session_config_check_get(mount, "writable");
        if (!source || !destination || (writable && !json_is_boolean(writable)))
                return err_set(err, ERR_USAGE,
                               "a mount is {\"source\": text, \"destination\": text, \"writable\": true or false}");
        if (session_config_check_members(mount, "mounts", known, err) < 0 ||
            policy_check_destination(destination, err) < 0)
                return -1;
        return check_source(policy, later, source, json_is_true(writable), err);
}

static int check_mounts(const struct policy *policy, bool later, json_t *mounts, struct err *err) {
        size_t i;
        json_t *mount;
        if (mounts && !json_is_array(mounts))
                return err_set(err, ERR_USAGE, "\"mounts\" must be a list");
        if (json_array_size(mounts) > MOUNTS_MAX)
                return err_set(err, ERR_LIMIT, "a box can have at most %d mounts", MOUNTS_MAX);
        json_array_foreach (mounts, i, mount)
                if (check_mount(policy, later, mount, err) < 0)
                        return -1;
        return 0;
}

static int check_image(const struct session_manager *manager, const char *name, struct err *err) {
        bool is_shared;
        if (strcmp(name, "host") == 0)
                return 0;
        int fd = image_open_directory(manager->data_dir, name, &is_shared);
        if (fd < 0)
                return err_set(err, ERR_NOT_FOUND,
                               "there is no image \"%s\"; \"glovebox image list\" shows those there are", name);
        fd_close(&fd);
        return 0;
}

static int check_users(json_t *json, const struct registry_session *row, struct err *err) {
        json_t *users = session_config_check_get(json, "users");
        if (users && !json_is_boolean(users))
                return err_set(err, ERR_USAGE, "\"users\" must be true or false");
        if (!json_is_true(users))
                return 0;
        if (!session_engine_is_native(row))
                return err_set(err, ERR_UNSUPPORTED,
                               "only the engine native gives a sandbox users; choose it, or leave \"users\" out");
        return identity_check_users(err);
}

/* Directories and networks of this host do not reach into an instance. */
static int check_instance(json_t *json, const struct registry_session *row, struct err *err) {
        static const char *const keys[] = { "mounts", "data", "workspace" };
        const char *network = json_string_value(session_config_check_get(json, "network"));
        for (size_t i = 0; i < ELEMENTS(keys); i++)
                if (session_config_check_get(json, keys[i]))
                        return err_set(
                                err, ERR_UNSUPPORTED,
                                "\"%s\" shows a directory of this host, and a session on engine %s is in an "
                                "instance that sees none of them: leave it out, and write files into the session",
                                keys[i], session_engine_of(row).name);
        if (session_config_check_get(json, "network") && !(network && strcmp(network, "none") == 0))
                return err_set(err, ERR_UNSUPPORTED,
                               "a session on engine %s is in an instance without a network device: leave \"network\" "
                               "out, or use another engine",
                               session_engine_of(row).name);
        return 0;
}

/* "data", and a "workspace" that is a directory of the host. */
static int check_directories(const struct policy *policy, bool later, json_t *json, struct err *err) {
        json_t *data = session_config_check_get(json, "data");
        if (data && !json_is_string(data))
                return err_set(err, ERR_USAGE, "\"data\" must be a text, the path of a directory");
        if (data && check_source(policy, later, json_string_value(data), false, err) < 0)
                return -1;
        const char *workspace = json_string_value(json_object_get(json, "workspace"));
        return workspace && *workspace == '/' ? check_source(policy, later, workspace, true, err) : 0;
}

int session_config_check(const struct caller *caller, json_t *json, enum session_config_look look,
                         const struct registry_session *row, struct err *err) {
        const struct session_manager *manager = caller->manager;
        bool is_operator = caller_is_operator(caller) && json_is_true(json_object_get(json, "operator"));
        const struct policy policy = maker_policy(manager->maker_settings, is_operator, !caller_is_operator(caller));
        bool later = look != SESSION_CONFIG_LOOK_NOW, looks_at_image = look != SESSION_CONFIG_LOOK_NOT;
        if (check_users(json, row, err) < 0)
                return -1;
        if (session_engine_of(row).is_instance && check_instance(json, row, err) < 0)
                return -1;
        if (session_engine_is_remote(row)) /* images and directories are those of the other host: it checks them */
                return session_config_check_env(session_config_check_get(json, "env"), err);
        if ((looks_at_image && session_engine_is_native(row) && check_image(manager, row->image, err) < 0) ||
            session_config_check_env(session_config_check_get(json, "env"), err) < 0 ||
            check_mounts(&policy, later, session_config_check_get(json, "mounts"), err) < 0)
                return -1;
        return check_directories(&policy, later, json, err);
}
