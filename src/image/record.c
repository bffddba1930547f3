#include "image/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/open_beneath.h"
#include "image/bounds.h"

int record_parse(const char *bytes, size_t size, const char *what, json_t **ret_json, struct err *err) {
        json_error_t error;
        if (size > BOUND_JSON)
                return err_set(err, ERR_LIMIT, "%s is larger than %d MiB", what, BOUND_JSON >> 20);
        json_t *json = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &error);
        if (!json)
                return err_set(err, ERR_PROTOCOL, "%s is not valid JSON (line %d: %.100s)", what, error.line,
                               error.text);
        *ret_json = json;
        return 0;
}

int record_read(int dir_fd, const char *name, json_t **ret_json, struct err *err) {
        _cleanup_fd_ int fd = open_beneath(dir_fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
                return err_sys(err, -fd, "cannot open %s", name);
        _cleanup_free_ char *bytes = NULL;
        size_t size = 0;
        int code = fd_read_to_end(fd, BOUND_JSON, &bytes, &size);
        if (code < 0)
                return err_sys(err, -code, "cannot read %s", name);
        return record_parse(bytes, size, name, ret_json, err);
}

int record_write(int dir_fd, const char *name, const json_t *json, struct err *err) {
        char temporary[300];
        _cleanup_free_ char *text = json_dumps(json, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
        if (!text)
                return err_sys(err, ENOMEM, "cannot write %s", name);
        (void) snprintf(temporary, sizeof(temporary), ".%s.%ld", name, (long) getpid());
        _cleanup_fd_ int fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0)
                return err_sys(err, errno, "cannot write %s", name);
        int code = fd_write_all(fd, text, strlen(text));
        if (code == 0)
                code = fd_write_all(fd, "\n", 1);
        if (code == 0 && renameat(dir_fd, temporary, dir_fd, name) < 0)
                code = -errno;
        if (code < 0) {
                (void) unlinkat(dir_fd, temporary, 0);
                return err_sys(err, -code, "cannot write %s", name);
        }
        return 0;
}

const char *record_string(const json_t *json, const char *key) {
        const char *text = json_string_value(json_object_get(json, key));
        return text ? text : "";
}
