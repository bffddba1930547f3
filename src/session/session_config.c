#include "session/session_config.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "egress/filter.h"
#include "image/image.h"
#include "session/caller.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "session/session_config_check.h"
#include "session/session_engine.h"

#define LIMIT_NAMES                                                                                                    \
        "memory, cpus, pids, timeout, tmp, disk and files (or memory_bytes, timeout_ms, tmp_bytes, disk_bytes, "       \
        "disk_files), for example {\"memory\": \"512m\", \"timeout\": 30}"

/* Each limit by its exact name, a number, and by the name that people type, a number or a text with a unit. `allowed` is
 * for the message. */
static const struct {
        const char *name, *plain_name;
        size_t offset;
        uint64_t min, max;
        double factor, plain_factor; /* from the JSON number to the field */
        int (*parse)(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *ret, struct err *err);
        const char *allowed;
} limit_fields[] = {
        { "memory_bytes", "memory", offsetof(struct limits, memory_bytes), LIMITS_MEMORY_MIN, LIMITS_MEMORY_MAX, 1, 1,
          units_parse_bytes,
          "a whole number of bytes or a text, " LIMITS_MEMORY_MIN_TEXT " to 1t, for example 536870912 or \"512m\"" },
        { "cpus", "cpus", offsetof(struct limits, cpu_thousandths), 10, 1024000, 1000, 1000, units_parse_thousandths,
          "a number from 0.01 to 1024, for example 0.5 or \"2\"" },
        { "pids", "pids", offsetof(struct limits, pids), 1, 32768, 1, 1, units_parse_count,
          "a whole number from 1 to 32768, for example 100" },
        { "timeout_ms", "timeout", offsetof(struct limits, timeout_ms), 1, 7ull * 86400 * 1000, 1, 1000,
          units_parse_duration_ms,
          "a time from 1 ms to 7 days: timeout in seconds or as a text, timeout_ms in whole milliseconds, for "
          "example {\"timeout\": 30}, {\"timeout\": \"500ms\"} or {\"timeout_ms\": 30000}" },
        { "tmp_bytes", "tmp", offsetof(struct limits, tmp_bytes), 1 * MIB, 64 * GIB, 1, 1, units_parse_bytes,
          "a whole number of bytes or a text, 1m to 64g, for example 67108864 or \"64m\"" },
        { "disk_bytes", "disk", offsetof(struct limits, disk_bytes), 1 * MIB, 1ull << 40, 1, 1, units_parse_bytes,
          "a whole number of bytes or a text, 1m to 1t, for example 1073741824 or \"1g\"" },
        { "disk_files", "files", offsetof(struct limits, disk_files), 16, 100 * 1000 * 1000, 1, 1, units_parse_count,
          "a whole number from 16 to 100000000, for example 10000" },
};

/* A number in range. In the unit of the field it must be whole; in a larger unit it is rounded down. */
static bool read_limit_number(size_t i, bool is_exact, json_t *value, uint64_t *ret_number) {
        double factor = is_exact ? limit_fields[i].factor : limit_fields[i].plain_factor;
        double number = json_number_value(value) * factor;
        if (!json_is_number(value) || !(number >= (double) limit_fields[i].min) ||
            number > (double) limit_fields[i].max)
                return false;
        *ret_number = (uint64_t) number;
        return factor != 1 || (double) *ret_number == number;
}

static int read_limit(const char *key, json_t *value, struct limits *limits, struct err *err) {
        for (size_t i = 0; i < ELEMENTS(limit_fields); i++) {
                bool is_exact = strcmp(limit_fields[i].name, key) == 0;
                if (!is_exact && strcmp(limit_fields[i].plain_name, key) != 0)
                        continue;
                uint64_t *field = (uint64_t *) ((char *) limits + limit_fields[i].offset);
                bool is_good = json_is_string(value)
                                       ? limit_fields[i].parse(key, json_string_value(value), limit_fields[i].min,
                                                               limit_fields[i].max, field, err) == 0
                                       : read_limit_number(i, is_exact, value, field);
                return is_good ? 0 : err_set(err, ERR_USAGE, "limits.%s must be %s", key, limit_fields[i].allowed);
        }
        return err_set(err, ERR_USAGE, "limits: there is no limit \"%.40s\"; there are " LIMIT_NAMES, key);
}

int session_config_read_limits(json_t *json, struct limits *limits, struct err *err) {
        const char *key;
        json_t *value;
        if (json && !json_is_object(json))
                return err_set(err, ERR_USAGE, "limits must be an object with " LIMIT_NAMES);
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
        return egress_filter_check_rules(&manager->options->egress, rules, err);
}

/* True if the request names this option, and the caller may: then it is stored. */
static bool is_kept(const struct caller *caller, const json_t *json, bool has_network, const char *key) {
        const json_t *value = json_object_get(json, key);
        if (strcmp(key, "operator") == 0)
                return value && caller_is_operator(caller);
        if (strcmp(key, "network") == 0)
                return value && has_network;
        if (strcmp(key, "users") == 0)
                return json_is_true(value);
        return value;
}

/* Options for the maker alone are stored as JSON. */
static int session_config_read_options(const struct caller *caller, json_t *json, bool has_network,
                                       struct registry_session *row, struct err *err) {
        static const char *const keys[] = { "env",       "mounts",   "data",    "script",
                                            "script_at", "operator", "network", "users" };
        json_t *kept = json_object();
        if (session_engine_choose(caller->manager, json, row, kept, err) < 0) {
                json_decref(kept);
                return -1;
        }
        for (size_t i = 0; i < ELEMENTS(keys); i++)
                if (is_kept(caller, json, has_network, keys[i]))
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

/* A value that is not a boolean would count as false. */
static int check_booleans(json_t *json, struct err *err) {
        static const char *const keys[] = { "allow_weaker", "operator", "users" };
        for (size_t i = 0; i < ELEMENTS(keys); i++) {
                json_t *value = json_object_get(json, keys[i]);
                if (value && !json_is_null(value) && !json_is_boolean(value))
                        return err_set(err, ERR_USAGE, "\"%s\" must be true or false", keys[i]);
        }
        return 0;
}

/* A project's daemon works in the project, unless the request names another directory. */
static void choose_workspace(const struct caller *caller, struct registry_session *row) {
        const char *project = caller->manager->options->project;
        if (!*row->workspace && caller_is_operator(caller) && strlen(project) < 1000)
                (void) snprintf(row->workspace, 1000, "%s", project);
}

/* Checks that need no access to engines, images and directories. */
static int read_members(const struct caller *caller, json_t *json, struct registry_session *row, bool *ret_has_network,
                        struct err *err) {
        json_t *limits = json_object_get(json, "limits");
        if (check_rights(caller, json, err) < 0 || check_booleans(json, err) < 0 ||
            read_text(json, "image", row->image, sizeof(row->image), err) < 0 ||
            read_text(json, "mode", row->mode, sizeof(row->mode), err) < 0 ||
            read_text(json, "workspace", row->workspace, 1000, err) < 0 ||
            session_config_read_limits(json_is_null(limits) ? NULL : limits, &row->limits, err) < 0 ||
            session_config_check_ceiling(caller, &row->limits, err) < 0 ||
            check_network(caller->manager, json, ret_has_network, err) < 0)
                return -1;
        if (strcmp(row->mode, "fast") != 0 && strcmp(row->mode, "fresh") != 0)
                return err_set(err, ERR_USAGE, "mode must be \"fast\" or \"fresh\"");
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
        if (read_members(caller, json, &row, &has_network, err) < 0 ||
            session_config_read_options(caller, json, has_network, &row, err) < 0 ||
            session_config_check(caller, json, look, &row, err) < 0)
                return -1;
        session_engine_set_limits(caller->manager, json_object_get(json, "limits"), &row);
        if (json_is_true(json_object_get(json, "allow_weaker")))
                row.allow_weaker = true;
        choose_workspace(caller, &row);
        *ret_row = row;
        return 0;
}

static bool is_given(json_t *json, const char *key) {
        json_t *value = json_object_get(json, key);
        return value && !json_is_null(value);
}

/* Another engine or image is checked as for a new session; the session's own need not exist any more. */
static int check_other_place(const struct caller *caller, const struct session *session, json_t *json,
                             struct registry_session *row, struct err *err) {
        bool names_engine = is_given(json, "engine") || is_given(json, "isolation");
        struct session_engine own = session_engine_of(&session->row);
        json_t *asked = json_copy(json);
        if (!asked)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (!names_engine)
                json_object_set_new(asked, "engine", json_string(*own.name ? own.name : "native"));
        if (!is_given(asked, "image"))
                json_object_set_new(asked, "image", json_string(session->row.image));
        int code = session_config_read_options(caller, asked, true, row, err);
        json_decref(asked);
        return code;
}

int session_config_check_request(const struct caller *caller, const struct session *session, json_t *json,
                                 struct err *err) {
        struct registry_session row = session->row;
        bool ignored, names_image = is_given(json, "image");
        if (read_members(caller, json, &row, &ignored, err) < 0)
                return -1;
        names_image = names_image && strcmp(row.image, session->row.image) != 0;
        if (names_image || is_given(json, "engine") || is_given(json, "isolation"))
                if (check_other_place(caller, session, json, &row, err) < 0)
                        return -1;
        return session_config_check(caller, json, names_image ? SESSION_CONFIG_LOOK_LATER : SESSION_CONFIG_LOOK_NOT,
                                    &row, err);
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

/* Does `asked` differ from `has`, what the session keeps of that option? NULL: not given, or not kept. */
static bool is_kept_option_changed(const char *key, const json_t *asked, const json_t *has) {
        const char *text = json_string_value(asked);
        if (!asked)
                return false;
        if (text && strcmp(key, "engine") == 0) { /* native is not stored; auto leaves the choice */
                if (strcmp(text, "auto") == 0 || (!has && engine_is_native(text)))
                        return false;
        } else if (!has && ((text && strcmp(text, "none") == 0) || json_is_false(asked)))
                return false; /* "network": none and "users": false are not stored */
        return !json_equal(asked, has);
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
                const json_t *asked = json_object_get(json, kept_keys[i]);
                if (is_kept_option_changed(kept_keys[i], asked, json_object_get(kept, kept_keys[i])))
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
