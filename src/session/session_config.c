#include "session/session_config.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "image/image.h"
#include "session/caller.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "session/session_config_check.h"
#include "session/session_engine.h"

/* Each limit by its exact name, a number, and by the name that people type, a number or a text with a unit. */
static const struct {
        const char *name, *plain_name;
        size_t offset;
        uint64_t min, max;
        double factor, plain_factor; /* from the JSON number to the field */
        int (*parse)(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *ret, struct err *err);
} limit_fields[] = {
        { "memory_bytes", "memory", offsetof(struct limits, memory_bytes), 8 * MIB, 1ull << 40, 1, 1,
          units_parse_bytes },
        { "cpus", "cpus", offsetof(struct limits, cpu_thousandths), 10, 1024000, 1000, 1000, units_parse_thousandths },
        { "pids", "pids", offsetof(struct limits, pids), 1, 32768, 1, 1, units_parse_count },
        { "timeout_ms", "timeout", offsetof(struct limits, timeout_ms), 1, 7ull * 86400 * 1000, 1, 1000,
          units_parse_duration_ms },
        { "tmp_bytes", "tmp", offsetof(struct limits, tmp_bytes), 1 * MIB, 64 * GIB, 1, 1, units_parse_bytes },
        { "disk_bytes", "disk", offsetof(struct limits, disk_bytes), 1 * MIB, 1ull << 40, 1, 1, units_parse_bytes },
        { "disk_files", "files", offsetof(struct limits, disk_files), 16, 100 * 1000 * 1000, 1, 1, units_parse_count },
};

static int read_limit(const char *key, json_t *value, struct limits *limits, struct err *err) {
        for (size_t i = 0; i < ELEMENTS(limit_fields); i++) {
                bool is_exact = strcmp(limit_fields[i].name, key) == 0;
                if (!is_exact && strcmp(limit_fields[i].plain_name, key) != 0)
                        continue;
                uint64_t *field = (uint64_t *) ((char *) limits + limit_fields[i].offset);
                uint64_t min = limit_fields[i].min, max = limit_fields[i].max;
                if (json_is_string(value))
                        return limit_fields[i].parse(key, json_string_value(value), min, max, field, err);
                double number =
                        json_number_value(value) * (is_exact ? limit_fields[i].factor : limit_fields[i].plain_factor);
                if (!json_is_number(value) || number < (double) min || number > (double) max)
                        return err_set(err, ERR_USAGE, "limit %s is not a number, or out of range", key);
                *field = (uint64_t) number;
                return 0;
        }
        return err_set(err, ERR_USAGE, "there is no limit \"%.40s\"", key);
}

int session_config_read_limits(json_t *json, struct limits *limits, struct err *err) {
        const char *key;
        json_t *value;
        if (json && !json_is_object(json))
                return err_set(err, ERR_USAGE, "\"limits\" must be an object");
        json_object_foreach (json, key, value)
                if (read_limit(key, value, limits, err) < 0)
                        return -1;
        return 0;
}

int session_config_check_ceiling(const struct caller *caller, const struct limits *limits, struct err *err) {
        const struct limits *ceiling = &caller->manager->options->ceiling;
        for (size_t i = 0; i < ELEMENTS(limit_fields) && !caller_is_operator(caller); i++) {
                uint64_t most = *(const uint64_t *) ((const char *) ceiling + limit_fields[i].offset);
                uint64_t wanted = *(const uint64_t *) ((const char *) limits + limit_fields[i].offset);
                if (most && wanted > most)
                        return err_set(err, ERR_REFUSED,
                                       "limit %s: this service gives a sandbox at most %g; ask for "
                                       "less, or its operator for more",
                                       limit_fields[i].name, (double) most / limit_fields[i].factor);
        }
        return 0;
}

static int read_text(json_t *json, const char *key, char *ret_text, size_t room, struct err *err) {
        json_t *value = json_object_get(json, key);
        if (!value || json_is_null(value))
                return 0;
        const char *text = json_string_value(value);
        if (!text || strlen(text) >= room)
                return err_set(err, ERR_USAGE, "\"%s\" must be a text of less than %zu bytes", key, room);
        (void) snprintf(ret_text, room, "%s", text);
        return 0;
}

static int check_network(const struct session_manager *manager, json_t *json, bool *ret_has_network, struct err *err) {
        _cleanup_free_ struct egress_rules *rules = malloc(sizeof(*rules));
        if (!rules)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (egress_rules_parse(json_object_get(json, "network"), &manager->options->egress, rules, err) < 0)
                return -1;
        *ret_has_network = rules->mode != EGRESS_NONE;
        return 0;
}

/* Options for the maker alone are stored as JSON. */
static int read_options(const struct caller *caller, json_t *json, bool has_network, struct registry_session *row,
                        struct err *err) {
        static const char *const keys[] = { "env",       "mounts",   "data",    "script",
                                            "script_at", "operator", "network", "users" };
        json_t *kept = json_object();
        if (session_engine_choose(caller->manager, json, row, kept, err) < 0) {
                json_decref(kept);
                return -1;
        }
        for (size_t i = 0; i < ELEMENTS(keys); i++)
                if (json_object_get(json, keys[i]) &&
                    (caller_is_operator(caller) || strcmp(keys[i], "operator") != 0) &&
                    (has_network || strcmp(keys[i], "network") != 0) &&
                    (json_is_true(json_object_get(json, "users")) || strcmp(keys[i], "users") != 0))
                        json_object_set(kept, keys[i], json_object_get(json, keys[i]));
        if (json_object_get(kept, "engine") && !json_object_get(kept, "instance") &&
            strcmp(json_string_value(json_object_get(kept, "engine")), ENGINE_REMOTE) == 0)
                session_engine_keep_asked(json, kept);
        _cleanup_free_ char *text = json_object_size(kept) ? json_dumps(kept, JSON_COMPACT) : strdup("");
        json_decref(kept);
        if (!text || strlen(text) >= sizeof(row->options))
                return err_set(err, ERR_USAGE, "env, mounts and network are larger than %zu bytes together",
                               sizeof(row->options));
        (void) strcpy(row->options, text);
        return 0;
}

/* Some options are for the operator only. */
static int check_rights(const struct caller *caller, json_t *json, struct err *err) {
        static const char *const keys[] = { "workspace", "allow_weaker" };
        for (size_t i = 0; i < ELEMENTS(keys) && !caller_is_operator(caller); i++)
                if (json_object_get(json, keys[i]))
                        return err_set(err, ERR_REFUSED, "\"%s\" is the operator's to choose; leave it out", keys[i]);
        return 0;
}

/* A project's daemon works in the project, unless the request names another directory. */
static int choose_workspace(const struct caller *caller, struct registry_session *row, struct err *err) {
        const char *project = caller->manager->options->project;
        if (!*row->workspace && caller_is_operator(caller) && strlen(project) < 1000)
                (void) snprintf(row->workspace, 1000, "%s", project);
        if (*row->workspace && *row->workspace != '/')
                return err_set(err, ERR_USAGE, "workspace: %.200s is not an absolute path", row->workspace);
        return 0;
}

int session_config_from_json(const struct caller *caller, json_t *json, enum session_config_look look,
                             struct registry_session *ret_row, struct err *err) {
        const struct serve_options *options = caller->manager->options;
        struct registry_session row = { .limits = options->limits,
                                        .allow_weaker = options->allow_weaker,
                                        .mode = "fast" };
        bool has_network = false;
        (void) snprintf(row.image, sizeof(row.image), "%s", options->image);
        (void) snprintf(row.owner, sizeof(row.owner), "%s", caller->owner);
        if (check_rights(caller, json, err) < 0 || read_text(json, "image", row.image, sizeof(row.image), err) < 0 ||
            read_text(json, "mode", row.mode, sizeof(row.mode), err) < 0 ||
            read_text(json, "workspace", row.workspace, 1000, err) < 0 ||
            session_config_read_limits(json_object_get(json, "limits"), &row.limits, err) < 0 ||
            session_config_check_ceiling(caller, &row.limits, err) < 0 ||
            check_network(caller->manager, json, &has_network, err) < 0 ||
            read_options(caller, json, has_network, &row, err) < 0 ||
            session_config_check(caller, json, look, &row, err) < 0)
                return -1;
        session_engine_set_limits(caller->manager, json_object_get(json, "limits"), &row);
        if (strcmp(row.mode, "fast") != 0 && strcmp(row.mode, "fresh") != 0)
                return err_set(err, ERR_USAGE, "mode must be \"fast\" or \"fresh\"");
        if (json_is_true(json_object_get(json, "allow_weaker")))
                row.allow_weaker = true;
        if (choose_workspace(caller, &row, err) < 0)
                return -1;
        *ret_row = row;
        return 0;
}

bool session_config_has_users(const struct registry_session *row) {
        if (!strstr(row->options, "\"users\""))
                return false;
        json_t *options = json_loads(row->options, 0, NULL);
        bool has_users = json_is_true(json_object_get(options, "users"));
        json_decref(options);
        return has_users;
}

static void list_limits(const struct limits *has, json_t *json, json_t *list) {
        const char *key;
        json_t *value;
        json_object_foreach (json, key, value) {
                struct limits asked = *has;
                struct err ignored;
                if (read_limit(key, value, &asked, &ignored) < 0 || memcmp(&asked, has, sizeof(asked)) != 0)
                        (void) json_array_append_new(list, json_string(key));
        }
}

json_t *session_config_list_unchanged(const struct session *session, json_t *json) {
        const struct registry_session *row = &session->row;
        const struct {
                const char *key, *value;
        } texts[] = { { "image", row->image }, { "mode", row->mode }, { "workspace", row->workspace } };
        static const char *const kept_keys[] = { "env", "mounts", "data", "network", "engine", "users" };
        json_t *list = json_array(), *kept = *row->options ? json_loads(row->options, 0, NULL) : NULL;
        for (size_t i = 0; i < ELEMENTS(texts); i++) {
                const char *asked = json_string_value(json_object_get(json, texts[i].key));
                if (asked && strcmp(asked, texts[i].value) != 0)
                        (void) json_array_append_new(list, json_string(texts[i].key));
        }
        list_limits(&row->limits, json_object_get(json, "limits"), list);
        for (size_t i = 0; i < ELEMENTS(kept_keys); i++) {
                json_t *asked = json_object_get(json, kept_keys[i]), *has = json_object_get(kept, kept_keys[i]);
                const char *text = json_string_value(asked);
                /* "network": none and "users": false are not stored. */
                bool is_none = !has && ((text && strcmp(text, "none") == 0) || json_is_false(asked));
                if (asked && !is_none && !json_equal(asked, has))
                        (void) json_array_append_new(list, json_string(kept_keys[i]));
        }
        if (json_is_true(json_object_get(json, "allow_weaker")) && !row->allow_weaker)
                (void) json_array_append_new(list, json_string("allow_weaker"));
        json_decref(kept);
        return list;
}

struct session *session_config_find_or_create(struct caller *caller, const char *name, json_t *options,
                                              bool *ret_created, struct err *err) {
        struct registry_session row;
        if (!name) {
                (void) err_set(err, ERR_USAGE, "\"session\" must be given, as text");
                return NULL;
        }
        struct session *session = session_find(caller->manager, caller->owner, name);
        *ret_created = false;
        if (session)
                return session;
        const char *slash = strchr(name, '/');
        if (caller_is_operator(caller) && slash && registry_check_name(slash + 1, NULL) == 0 && *name != '.') {
                (void) err_set(err, ERR_USAGE,
                               "there is no sandbox of a key by the name \"%.100s\" (KEY/NAME), and only "
                               "the key itself makes its sandboxes; `glovebox session ls` shows those there are",
                               name);
                return NULL;
        }
        if (registry_check_name(name, err) < 0 ||
            session_config_from_json(caller, options, SESSION_CONFIG_LOOK_NOW, &row, err) < 0)
                return NULL;
        (void) snprintf(row.name, sizeof(row.name), "%s", name);
        session = session_create(caller->manager, &row, err);
        *ret_created = session != NULL;
        return session;
}
