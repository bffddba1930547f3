#include "session/waiting_run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "session/recovery.h"
#include "session/session.h"

enum { FILE_MAX = 128 << 20 };

/* The order of the files is that of the runs. */
static uint64_t next_number(struct session *session) {
        uint64_t now = (uint64_t) loop_wall_ms() * 1000;
        session->waiting_number = now > session->waiting_number ? now : session->waiting_number + 1;
        return session->waiting_number;
}

static void waiting_run_path(const struct session *session, uint64_t number, const char *suffix,
                             char ret_path[static 1200]) {
        (void) snprintf(ret_path, 1200, "%.1000s/waiting/%020" PRIu64 "%s", session->state_dir, number, suffix);
}

static int write_file(struct session *session, uint64_t number, const char *text, size_t size) {
        char path[1200], beside[1200];
        (void) snprintf(path, sizeof(path), "%.1000s/waiting", session->state_dir);
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                return -errno;
        waiting_run_path(session, number, "", path);
        waiting_run_path(session, number, ".new", beside);
        _cleanup_fd_ int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        int code = fd < 0 ? -errno : fd_write_all(fd, text, size);
        if (code == 0 && rename(beside, path) < 0)
                code = -errno;
        if (code < 0)
                (void) unlink(beside);
        return code;
}

int waiting_run_put(struct run *run, bool cancel_on_disconnect, struct err *err) {
        if (run->waiting_number || run->session->ephemeral)
                return 0;
        json_t *json = json_pack("{s:s, s:I, s:b, s:O}", "id", run->id, "timeout_ms", (json_int_t) run->timeout_ms,
                                 "cancel", (int) cancel_on_disconnect, "request", run->request);
        if (!json)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        _cleanup_json_writer_ struct json_writer text = { 0 }; /* json_dumps needs 6 ms for a megabyte of code */
        char check[16];
        json_writer_put_value(&text, json);
        json_decref(json);
        int size = snprintf(check, sizeof(check), "\n%08x\n", crc32c(0, text.bytes, text.size));
        json_writer_put(&text, check, (size_t) size);
        if (text.failed)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        uint64_t number = next_number(run->session);
        int code = write_file(run->session, number, text.bytes, text.size);
        if (code < 0)
                return err_sys(err, -code, "the run cannot wait: it cannot be written to the disk");
        run->waiting_number = number;
        return 0;
}

void waiting_run_drop(struct run *run) {
        char path[1200], aside[1300];
        if (!run->waiting_number)
                return;
        waiting_run_path(run->session, run->waiting_number, "", path);
        (void) snprintf(aside, sizeof(aside), "%s.damaged", path);
        if (!run->is_damaged || rename(path, aside) < 0) /* for a person to look at */
                (void) unlink(path);
        run->waiting_number = 0;
}

/* ---- what the last daemon left ---- */

/* One line of JSON, and one with its checksum; those of older versions have no second. Returns 0 and NULL for what was
 * not written so; -errno if it cannot be read. */
static int read_checked(int fd, json_t **ret_json) {
        struct stat status;
        json_error_t why;
        if (fstat(fd, &status) < 0)
                return -errno;
        if (status.st_size < 2 || status.st_size > FILE_MAX)
                return 0;
        size_t size = (size_t) status.st_size;
        _cleanup_free_ char *text = malloc(size + 1);
        int code = text ? fd_read_exactly(fd, text, size) : -ENOMEM;
        if (code < 0)
                return code;
        text[size] = '\0';
        char *end = memchr(text, '\n', size);
        if (end && strtoul(end + 1, NULL, 16) != crc32c(0, text, (size_t) (end - text)))
                return 0;
        *ret_json = json_loadb(text, end ? (size_t) (end - text) : size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
        return *ret_json || json_error_code(&why) != json_error_out_of_memory ? 0 : -ENOMEM;
}

/* Returns 0 and NULL for a damaged one, -errno if it cannot be read. */
static int read_run(struct session *session, uint64_t number, bool *ret_cancel, struct run **ret_run) {
        char path[1200];
        waiting_run_path(session, number, "", path);
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        json_t *json = NULL;
        int code = fd < 0 ? -errno : read_checked(fd, &json);
        const char *id = json_string_value(json_object_get(json, "id"));
        json_t *request = json_object_get(json, "request");
        json_int_t timeout_ms = json_integer_value(json_object_get(json, "timeout_ms"));
        bool is_whole = id && *id && strlen(id) < sizeof((*ret_run)->id) && json_is_object(request) && timeout_ms > 0;
        struct run *run = is_whole ? run_make(session, request, (uint64_t) timeout_ms) : NULL;
        if (is_whole && !run)
                code = -ENOMEM;
        if (run) {
                (void) snprintf(run->id, sizeof(run->id), "%s", id);
                run->waiting_number = number;
        }
        *ret_cancel = json_is_true(json_object_get(json, "cancel"));
        *ret_run = run;
        json_decref(json);
        return code;
}

/* A damaged file usually begins with the run's id. The run fails when its turn comes, and its callers get the reason. */
static struct run *read_damaged_run(struct session *session, uint64_t number) {
        static const char before[] = "{\"id\":\"";
        char path[1200], text[sizeof(before) + 32] = { 0 };
        waiting_run_path(session, number, "", path);
        daemon_log("session %s: a waiting run cannot be read: %s", session->row.name, path);
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        const char *id = text + sizeof(before) - 1;
        if (size != sizeof(text) - 1 || strncmp(text, before, sizeof(before) - 1) != 0 ||
            strspn(id, "0123456789abcdef") != 32)
                return NULL;
        json_t *nothing = json_object();
        struct run *run = run_make(session, nothing, session->row.limits.timeout_ms);
        json_decref(nothing);
        if (run) {
                (void) snprintf(run->id, sizeof(run->id), "%s", id);
                run->waiting_number = number;
                run->is_damaged = true;
        }
        return run;
}

/* -1: there were too few descriptors or too little memory to read it. */
static int load_one(struct session *session, uint64_t number, struct err *err) {
        bool cancel;
        struct run *run = NULL;
        int code = read_run(session, number, &cancel, &run);
        if (code < 0) {
                (void) err_sys(err, -code, "a run of session %s that waits cannot be read", session->row.name);
                if (err_is_shortage(err))
                        return -1;
        }
        if (number > session->waiting_number)
                session->waiting_number = number;
        if (!run)
                run = read_damaged_run(session, number);
        if (!run) {
                char path[1200], aside[1300];
                waiting_run_path(session, number, "", path);
                (void) snprintf(aside, sizeof(aside), "%s.damaged", path);
                (void) rename(path, aside);
                return 0;
        }
        int known = recovery_knows_run(session, run->id, err);
        if (known != 0) {
                if (known > 0) /* it had begun */
                        waiting_run_drop(run);
                run_free(run);
                return known < 0 ? -1 : 0;
        }
        struct run **last = &session->runs;
        while (*last)
                last = &(*last)->next;
        *last = run;
        if (cancel)
                session_cancel(session, run);
        return 0;
}

static int compare_waiting(const void *one, const void *other) {
        uint64_t a = *(const uint64_t *) one, b = *(const uint64_t *) other;
        return a < b ? -1 : a > b;
}

int waiting_run_load(struct session *session, struct err *err) {
        char path[1200];
        (void) snprintf(path, sizeof(path), "%.1000s/waiting", session->state_dir);
        DIR *directory = opendir(path);
        if (!directory && errno == ENOENT)
                return 0;
        if (!directory) {
                (void) err_sys(err, errno, "the runs of session %s that wait cannot be read", session->row.name);
                if (err_is_shortage(err))
                        return -1;
                daemon_log("%s", err->message);
                return 0;
        }
        uint64_t numbers[SESSION_RUNS_MAX];
        size_t n = 0;
        struct dirent *entry;
        while ((entry = readdir(directory)) && n < SESSION_RUNS_MAX) {
                char *end;
                errno = 0;
                uint64_t number = strtoull(entry->d_name, &end, 10);
                if (end == entry->d_name || errno)
                        continue;
                if (strcmp(end, ".new") == 0)
                        (void) unlinkat(dirfd(directory), entry->d_name, 0); /* never acknowledged */
                else if (!*end)
                        numbers[n++] = number;
        }
        (void) closedir(directory);
        qsort(numbers, n, sizeof(numbers[0]), compare_waiting);
        for (size_t i = 0; i < n; i++)
                if (load_one(session, numbers[i], err) < 0)
                        return -1;
        return 0;
}
