/* `glovebox key ...`: the keys of the service. It changes the file of keys; a running service reads that once a second.
 * */
#include "cli/key_verb.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "api/key.h"
#include "base/data_dir.h"
#include "base/memory.h"
#include "cli/ui/json_print.h"
#include "cli/ui/suggest.h"
#include "cli/ui/table.h"
#include "cli/ui/terminal.h"
#include "store/audit.h"

struct line {
        bool json, names;
};

#define FIELD(field) offsetof(struct line, field)
#define TABLE(array) { .rows = (array), .n_rows = ELEMENTS(array), .operands_anywhere = true }

static const struct option_row ls_rows[] = {
        { .name = "json", .kind = OPTION_FLAG, .offset = FIELD(json), .group = "Options", .help = "print JSON" },
        { .name = "names",
          .kind = OPTION_FLAG,
          .offset = FIELD(names),
          .group = "Options",
          .help = "print names only, one per line" },
};

const struct verb_part key_parts[KEY_PARTS] = {
        { .name = "new", .operands = "NAME", .summary = "create a key and print it, once; only its hash is stored" },
        { .name = "ls", .operands = "", .summary = "list the keys and their quotas", .options = TABLE(ls_rows) },
        { .name = "rm", .operands = "NAME...", .summary = "revoke keys within a second; their sandboxes stay" },
};

static int find_file(char ret_data_dir[static DATA_DIR_PATH_MAX], char *ret_path, size_t room, struct err *err) {
        if (data_dir_open(ret_data_dir, err) < 0)
                return -1;
        (void) snprintf(ret_path, room, "%s/keys", ret_data_dir);
        return 0;
}

/* Who changed the keys, and when. */
static void key_record(const char *data_dir, const char *what, const char *name, const struct err *err) {
        const struct audit_entry entry = { .key = "",
                                           .via = "command",
                                           .what = what,
                                           .session = name,
                                           .status = err ? err_code_name(err->code) : "ok" };
        audit_append(data_dir, &entry);
}

static int do_new(const struct line *line, char **names, struct err *err) {
        char key[API_KEY_SIZE], data_dir[DATA_DIR_PATH_MAX], path[DATA_DIR_PATH_MAX + 16];
        (void) line;
        if (find_file(data_dir, path, sizeof(path), err) < 0 || api_key_make(key, err) < 0 ||
            api_keys_append(path, names[0], key, err) < 0)
                return -1;
        key_record(data_dir, "key.new", names[0], NULL);
        (void) printf("%s\n", key);
        (void) fprintf(stderr, "glovebox: this is the key \"%s\"; it is not shown again\n", names[0]);
        return fflush(stdout) == 0 ? 0 : err_sys(err, errno, "printing the key");
}

static void add_quota(struct table *table, json_t *object, const char *name, unsigned value) {
        char text[16];
        (void) snprintf(text, sizeof(text), "%u", value);
        table_add(table, value ? text : NULL);
        if (value)
                (void) json_object_set_new(object, name, json_integer(value));
}

static int do_ls(const struct line *line, char **names, struct err *err) {
        static const char *const headings[] = { "NAME", "SANDBOXES", "RUNS", "RATE" };
        static struct api_keys keys;
        char data_dir[DATA_DIR_PATH_MAX], path[DATA_DIR_PATH_MAX + 16];
        (void) names;
        if (find_file(data_dir, path, sizeof(path), err) < 0)
                return -1;
        if (api_keys_load(&keys, path, err) < 0 && err->code != ERR_NOT_FOUND)
                return -1;
        struct table table = table_make(headings, ELEMENTS(headings));
        json_t *list = json_array();
        for (size_t i = 0; i < keys.n; i++) {
                const struct api_key *key = &keys.keys[i];
                json_t *object = json_pack("{s:s}", "name", key->name);
                table_add(&table, key->name);
                add_quota(&table, object, "sandboxes", key->sandboxes_max);
                add_quota(&table, object, "runs", key->runs_max);
                add_quota(&table, object, "rate", key->rate_max);
                (void) json_array_append_new(list, object);
                if (line->names)
                        (void) puts(key->name);
        }
        int code = 0;
        json_t *answer = json_pack("{s:o}", "keys", list);
        if (line->json)
                code = json_print_answer(answer, err);
        else if (!line->names)
                table_print(&table, stdout);
        json_decref(answer);
        table_release(&table);
        return code;
}

/* Every name is tried; the first that failed is the error. */
static int do_rm(const struct line *line, char **names, struct err *err) {
        char data_dir[DATA_DIR_PATH_MAX], path[DATA_DIR_PATH_MAX + 16];
        int result = 0;
        (void) line;
        if (find_file(data_dir, path, sizeof(path), err) < 0)
                return -1;
        for (; *names; names++) {
                struct err why = { 0 };
                if (api_keys_strike(path, *names, &why) == 0) {
                        key_record(data_dir, "key.rm", *names, NULL);
                        (void) fprintf(stderr,
                                       "glovebox: the key \"%s\" is revoked; its sandboxes stay: \"glovebox "
                                       "session rm --key %s\" removes them\n",
                                       *names, *names);
                } else if (result == 0) {
                        key_record(data_dir, "key.rm", *names, &why);
                        *err = why;
                        result = -1;
                }
        }
        return result;
}

static const struct {
        int (*run)(const struct line *line, char **names, struct err *err);
        size_t min_names, max_names;
} actions[KEY_PARTS] = { { do_new, 1, 1 }, { do_ls, 0, 0 }, { do_rm, 1, SIZE_MAX } };

static int run_part(size_t part, char **args, struct err *err) {
        struct line line = { 0 };
        struct option_rest rest;
        size_t count = 0;
        if (option_parse(&key_parts[part].options, &line, args, &rest, err) < 0)
                return -1;
        if (rest.help) {
                verb_print_part_help(stdout, verb_find("key"), &key_parts[part]);
                return 0;
        }
        while (rest.operands[count])
                count++;
        if (count < actions[part].min_names)
                return err_set(err, ERR_USAGE, "key %s needs a key's name", key_parts[part].name);
        if (count > actions[part].max_names)
                return err_set(err, ERR_USAGE, "key %s takes %s; leave \"%.60s\" out", key_parts[part].name,
                               actions[part].max_names ? "one name" : "no name",
                               rest.operands[actions[part].max_names]);
        return actions[part].run(&line, rest.operands, err);
}

int verb_key(int argc, char **argv) {
        const char *word = argc > 1 ? argv[1] : "";
        struct suggestion near = { .word = word };
        struct err err = { 0 };
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
                verb_print_help(stdout, verb_find("key"));
                return 0;
        }
        for (size_t i = 0; i < KEY_PARTS; i++) {
                if (verb_part_is(key_parts[i].name, word)) {
                        int status = run_part(i, argv + 2, &err);
                        return status < 0 ? terminal_fail(&err) : status;
                }
                suggestion_consider(&near, key_parts[i].name);
        }
        const char *best = suggestion_best(&near);
        (void) err_set(&err, ERR_USAGE, "key: %s%.60s%s%s%s%s", *word ? "unknown verb \"" : "say what to do", word,
                       *word ? "\"" : "", best ? "; did you mean \"" : "; \"glovebox key --help\" lists what there is",
                       best ? best : "", best ? "\"?" : "");
        return terminal_fail(&err);
}
