#include "store/session_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fd.h"
#include "base/memory.h"

static const struct {
        const char *key;
        size_t offset, room;
} texts[] = {
#define TEXT(field) { #field, offsetof(struct registry_session, field), sizeof(((struct registry_session *) 0)->field) }
        TEXT(id), TEXT(name), TEXT(owner), TEXT(image), TEXT(mode), TEXT(workspace), TEXT(options),
};

static const struct {
        const char *key;
        size_t offset;
} numbers[] = {
#define NUMBER(name, field) { name, offsetof(struct registry_session, field) }
        NUMBER("memory_bytes", limits.memory_bytes),
        NUMBER("cpu_thousandths", limits.cpu_thousandths),
        NUMBER("pids", limits.pids),
        NUMBER("timeout_ms", limits.timeout_ms),
        NUMBER("tmp_bytes", limits.tmp_bytes),
        NUMBER("disk_bytes", limits.disk_bytes),
        NUMBER("disk_files", limits.disk_files),
        NUMBER("created_ms", created_ms),
        NUMBER("used_ms", used_ms),
};

static void session_file_path(const char *state_dir, const char *suffix, char ret_path[static 1200]) {
        (void) snprintf(ret_path, 1200, "%.1100s/session.json%s", state_dir, suffix);
}

/* Of everything else in it. */
static json_int_t crc_of(const json_t *json) {
        _cleanup_free_ char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
        return text ? (json_int_t) crc32c(0, text, strlen(text)) : -1;
}

/* One of an older version has none. */
static bool is_as_written(json_t *json) {
        json_t *crc = json_incref(json_object_get(json, "crc"));
        (void) json_object_del(json, "crc");
        bool same = !crc || json_integer_value(crc) == crc_of(json);
        json_decref(crc);
        return same;
}

int session_file_write(const char *state_dir, const struct registry_session *row, struct err *err) {
        char path[1200], beside[1200];
        json_t *json = json_pack("{s:b}", "allow_weaker", (int) row->allow_weaker);
        for (size_t i = 0; i < ELEMENTS(texts); i++)
                json_object_set_new(json, texts[i].key, json_string((const char *) row + texts[i].offset));
        for (size_t i = 0; i < ELEMENTS(numbers); i++) {
                int64_t number;
                memcpy(&number, (const char *) row + numbers[i].offset, sizeof(number));
                json_object_set_new(json, numbers[i].key, json_integer(number));
        }
        json_object_set_new(json, "crc", json_integer(crc_of(json)));
        _cleanup_free_ char *text = json_dumps(json, JSON_COMPACT);
        json_decref(json);
        if (!text)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        session_file_path(state_dir, "", path);
        session_file_path(state_dir, ".new", beside);
        _cleanup_fd_ int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        int code = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
        if (code == 0 && rename(beside, path) < 0)
                code = -errno;
        return code < 0 ? err_sys(err, -code, "writing %s", path) : 0;
}

bool session_file_exists(const char *state_dir) {
        char path[1200];
        session_file_path(state_dir, "", path);
        return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR); /* what cannot be read may be one */
}

void session_file_remove(const char *state_dir) {
        char path[1200];
        session_file_path(state_dir, "", path);
        (void) unlink(path);
}

static int row_from(json_t *json, struct registry_session *row) {
        for (size_t i = 0; i < ELEMENTS(texts); i++) {
                const char *text = json_string_value(json_object_get(json, texts[i].key));
                if (!text || strlen(text) >= texts[i].room)
                        return -1;
                (void) strcpy((char *) row + texts[i].offset, text);
        }
        for (size_t i = 0; i < ELEMENTS(numbers); i++) {
                json_t *value = json_object_get(json, numbers[i].key);
                int64_t number = json_integer_value(value);
                if (!json_is_integer(value))
                        return -1;
                memcpy((char *) row + numbers[i].offset, &number, sizeof(number));
        }
        row->allow_weaker = json_is_true(json_object_get(json, "allow_weaker"));
        return 0;
}

int session_file_read(const char *state_dir, struct registry_session *ret_row, struct err *err) {
        char path[1200];
        session_file_path(state_dir, "", path);
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 && errno != ENOENT)
                return err_sys(err, errno, "cannot open %s", path);
        json_t *json = fd < 0 ? NULL : json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
        struct registry_session row = { 0 };
        int code = json && is_as_written(json) ? row_from(json, &row) : -1;
        json_decref(json);
        if (code < 0)
                return err_set(err, ERR_NOT_FOUND, "%s is missing or damaged", path);
        *ret_row = row;
        return 0;
}
