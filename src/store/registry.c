#include "store/registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/memory.h"
#include "store/disk_reserve.h"
#include "store/registry_state.h"

/* Columns that a statement changes stand in the checksum with their new values. */
static const char *const texts[REGISTRY_STATEMENTS] = {
        [REGISTRY_ADD] =
                "INSERT INTO session (" REGISTRY_COLUMNS ", checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, "
                "?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, glovebox_checksum(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, "
                "?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17))",
        [REGISTRY_REMOVE] = "DELETE FROM session WHERE id = ?1",
        [REGISTRY_TOUCH] =
                "UPDATE session SET used_ms = ?2, checksum = glovebox_checksum(id, name, owner, image, mode, "
                "memory_bytes, cpu_thousandths, pids, timeout_ms, tmp_bytes, disk_bytes, disk_files, "
                "allow_weaker, workspace, options, created_ms, ?2) WHERE id = ?1",
        [REGISTRY_LIMITS] = "UPDATE session SET memory_bytes = ?2, cpu_thousandths = ?3, pids = ?4, timeout_ms = ?5, "
                            "checksum = glovebox_checksum(id, name, owner, image, mode, ?2, ?3, ?4, ?5, tmp_bytes, "
                            "disk_bytes, disk_files, allow_weaker, workspace, options, created_ms, used_ms) "
                            "WHERE id = ?1",
        [REGISTRY_ENGINE] =
                "UPDATE session SET image = ?2, options = ?3, checksum = glovebox_checksum(id, name, owner, "
                "?2, mode, memory_bytes, cpu_thousandths, pids, timeout_ms, tmp_bytes, disk_bytes, "
                "disk_files, allow_weaker, workspace, ?3, created_ms, used_ms) WHERE id = ?1",
        [REGISTRY_NEXT] =
                "SELECT " REGISTRY_COLUMNS ", checksum = glovebox_checksum(" REGISTRY_COLUMNS ") FROM session "
                "WHERE (created_ms, id) > (?1, ?2) ORDER BY created_ms, id LIMIT 1",
};

static const char id_letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
enum { ID_LENGTH = 26, NAME_MAX_LENGTH = 128 };

int registry_make_id(char ret_id[static 27], struct err *err) {
        size_t done = 0;
        char id[ID_LENGTH + 1];
        while (done < ID_LENGTH) {
                uint8_t bytes[64];
                ssize_t n = getrandom(bytes, sizeof(bytes), 0);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(err, errno, "cannot get randomness for an id");
                /* 252 = 7 * 36: larger bytes would make some letters likelier. */
                for (ssize_t i = 0; i < n && done < ID_LENGTH; i++)
                        if (bytes[i] < 252)
                                id[done++] = id_letters[bytes[i] % 36];
        }
        id[ID_LENGTH] = '\0';
        memcpy(ret_id, id, sizeof(id));
        return 0;
}

static bool is_id(const char *id) {
        return strlen(id) == ID_LENGTH && strspn(id, id_letters) == ID_LENGTH;
}

int registry_check_name(const char *name, struct err *err) {
        static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
        size_t length = strnlen(name, NAME_MAX_LENGTH + 1);
        if (length >= 1 && length <= NAME_MAX_LENGTH && strspn(name, letters) == length && !strchr("._-", name[0]))
                return 0;
        return err_set(err, ERR_USAGE,
                       "a session's name has 1 to %d characters of A-Z, a-z, 0-9, '.', '_' and '-', and begins "
                       "with a letter or a digit",
                       NAME_MAX_LENGTH);
}

/* Where the parts of a session are among the columns, in one place for both directions. */
static const struct {
        size_t offset, size;
        int column;
} text_columns[] = {
#define TEXT(field, number)                                                                                            \
        { offsetof(struct registry_session, field), sizeof(((struct registry_session *) 0)->field), number }
        TEXT(id, 0),   TEXT(name, 1),       TEXT(owner, 2),    TEXT(image, 3),
        TEXT(mode, 4), TEXT(workspace, 13), TEXT(options, 14),
};

static const struct {
        size_t offset;
        int column;
} number_columns[] = {
#define NUMBER(field, number) { offsetof(struct registry_session, field), number }
        NUMBER(limits.memory_bytes, 5),
        NUMBER(limits.cpu_thousandths, 6),
        NUMBER(limits.pids, 7),
        NUMBER(limits.timeout_ms, 8),
        NUMBER(limits.tmp_bytes, 9),
        NUMBER(limits.disk_bytes, 10),
        NUMBER(limits.disk_files, 11),
        NUMBER(created_ms, 15),
        NUMBER(used_ms, 16),
};
enum { COLUMN_ALLOW_WEAKER = 12, COLUMN_IS_WHOLE = 17 };

static int bind_session(sqlite3_stmt *statement, const struct registry_session *session) {
        int code = SQLITE_OK;
        for (size_t i = 0; i < ELEMENTS(text_columns) && code == SQLITE_OK; i++) {
                const char *text = (const char *) session + text_columns[i].offset;
                code = sqlite3_bind_text(statement, text_columns[i].column + 1, text,
                                         (int) strnlen(text, text_columns[i].size - 1), SQLITE_STATIC);
        }
        for (size_t i = 0; i < ELEMENTS(number_columns) && code == SQLITE_OK; i++) {
                int64_t number;
                memcpy(&number, (const char *) session + number_columns[i].offset, sizeof(number));
                code = sqlite3_bind_int64(statement, number_columns[i].column + 1, number);
        }
        return code == SQLITE_OK ? sqlite3_bind_int(statement, COLUMN_ALLOW_WEAKER + 1, session->allow_weaker) : code;
}

/* A row that Glovebox cannot have written is damaged: ids become names of directories. */
static int read_session(sqlite3_stmt *statement, struct registry_session *ret_session) {
        memset(ret_session, 0, sizeof(*ret_session));
        if (sqlite3_column_int(statement, COLUMN_IS_WHOLE) != 1)
                return SQLITE_CORRUPT;
        for (size_t i = 0; i < ELEMENTS(text_columns); i++) {
                const char *text = (const char *) sqlite3_column_text(statement, text_columns[i].column);
                size_t size = (size_t) sqlite3_column_bytes(statement, text_columns[i].column);
                if (!text)
                        return SQLITE_NOMEM;
                if (size >= text_columns[i].size || memchr(text, '\0', size))
                        return SQLITE_CORRUPT;
                memcpy((char *) ret_session + text_columns[i].offset, text, size);
        }
        for (size_t i = 0; i < ELEMENTS(number_columns); i++) {
                int64_t number = sqlite3_column_int64(statement, number_columns[i].column);
                memcpy((char *) ret_session + number_columns[i].offset, &number, sizeof(number));
        }
        ret_session->allow_weaker = sqlite3_column_int(statement, COLUMN_ALLOW_WEAKER) != 0;
        return is_id(ret_session->id) && registry_check_name(ret_session->name, NULL) == 0 ? SQLITE_OK : SQLITE_CORRUPT;
}

/* Runs a statement that answers nothing. Its bindings are gone afterwards. */
static int registry_run(struct registry *registry, enum registry_statement which, const char *what, struct err *err) {
        sqlite3_stmt *statement = registry->statements[which];
        int code = sqlite3_step(statement);
        if ((code & 0xff) == SQLITE_FULL && which != REGISTRY_ADD && disk_reserve_use()) { /* a new one is refused */
                (void) sqlite3_reset(statement); /* which keeps the bindings */
                code = sqlite3_step(statement);
        }
        int failed = code == SQLITE_DONE ? 0 : registry_fail(registry->db, code, what, err);
        registry->last_code = code;
        (void) sqlite3_reset(statement);
        (void) sqlite3_clear_bindings(statement);
        return failed;
}

/* An answered change survives a power cut: the log is on the disk before the answer. The time of last use is written
 * without waiting. */
static void set_durable(struct registry *registry, bool durable) {
        (void) sqlite3_exec(registry->db, durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL", NULL,
                            NULL, NULL);
}

static int run_durably(struct registry *registry, enum registry_statement which, const char *what, struct err *err) {
        set_durable(registry, true);
        int failed = registry_run(registry, which, what, err);
        set_durable(registry, false);
        return failed;
}

int registry_add(struct registry *registry, const struct registry_session *session, struct err *err) {
        if (registry_check_name(session->name, err) < 0)
                return -1;
        if (!is_id(session->id))
                return err_set(err, ERR_USAGE, "a session's id has %d characters of a-z and 0-9", ID_LENGTH);
        sqlite3_stmt *statement = registry->statements[REGISTRY_ADD];
        int code = bind_session(statement, session);
        if (code != SQLITE_OK)
                return registry_fail(registry->db, code, "cannot add the session to the registry", err);
        if (run_durably(registry, REGISTRY_ADD, "cannot add the session to the registry", err) == 0)
                return 0;
        /* An id of 134 random bits does not come twice: it is the name. */
        if ((registry->last_code & 0xff) == SQLITE_CONSTRAINT)
                return err_set(err, ERR_EXISTS,
                               "there is a session \"%s\" already: use it, remove it, or take another name",
                               session->name);
        return -1;
}

/* After a statement for one id: whether it was there. */
static int expect_change(struct registry *registry, const char *id, struct err *err) {
        if (sqlite3_changes(registry->db) > 0)
                return 0;
        return err_set(err, ERR_NOT_FOUND, "the registry has no session %.32s", id);
}

int registry_remove(struct registry *registry, const char *id, struct err *err) {
        (void) sqlite3_bind_text(registry->statements[REGISTRY_REMOVE], 1, id, -1, SQLITE_STATIC);
        if (run_durably(registry, REGISTRY_REMOVE, "cannot remove the session from the registry", err) < 0)
                return -1;
        return expect_change(registry, id, err);
}

int registry_touch(struct registry *registry, const char *id, int64_t used_ms, struct err *err) {
        (void) sqlite3_bind_text(registry->statements[REGISTRY_TOUCH], 1, id, -1, SQLITE_STATIC);
        (void) sqlite3_bind_int64(registry->statements[REGISTRY_TOUCH], 2, used_ms);
        if (registry_run(registry, REGISTRY_TOUCH, "cannot write to the registry that the session was used", err) < 0)
                return -1;
        return expect_change(registry, id, err);
}

int registry_set_limits(struct registry *registry, const char *id, const struct limits *limits, struct err *err) {
        sqlite3_stmt *statement = registry->statements[REGISTRY_LIMITS];
        const uint64_t numbers[] = { limits->memory_bytes, limits->cpu_thousandths, limits->pids, limits->timeout_ms };
        (void) sqlite3_bind_text(statement, 1, id, -1, SQLITE_STATIC);
        for (size_t i = 0; i < ELEMENTS(numbers); i++)
                (void) sqlite3_bind_int64(statement, (int) i + 2, (sqlite3_int64) numbers[i]);
        if (registry_run(registry, REGISTRY_LIMITS, "cannot write the session's limits to the registry", err) < 0)
                return -1;
        return expect_change(registry, id, err);
}

int registry_set_engine(struct registry *registry, const char *id, const char *image, const char *options,
                        struct err *err) {
        sqlite3_stmt *statement = registry->statements[REGISTRY_ENGINE];
        const char *const values[] = { id, image, options };
        for (size_t i = 0; i < ELEMENTS(values); i++)
                (void) sqlite3_bind_text(statement, (int) i + 1, values[i], -1, SQLITE_STATIC);
        if (registry_run(registry, REGISTRY_ENGINE, "cannot write the session's engine to the registry", err) < 0)
                return -1;
        return expect_change(registry, id, err);
}

/* Reads the session after *session into it. SQLITE_ROW, SQLITE_DONE or what went wrong. The statement is reset at once,
 * so that nothing is being read while the caller writes. */
static int registry_next_row(struct registry *registry, struct registry_session *session) {
        sqlite3_stmt *statement = registry->statements[REGISTRY_NEXT];
        int code = sqlite3_bind_int64(statement, 1, session->created_ms);
        if (code == SQLITE_OK)
                code = sqlite3_bind_text(statement, 2, session->id, -1, SQLITE_TRANSIENT);
        if (code == SQLITE_OK)
                code = sqlite3_step(statement);
        if (code == SQLITE_ROW) {
                int read = read_session(statement, session);
                code = read == SQLITE_OK ? SQLITE_ROW : read;
        }
        (void) sqlite3_reset(statement);
        return code;
}

int registry_each(struct registry *registry, int (*each)(const struct registry_session *session, void *context),
                  void *context, struct err *err) {
        _cleanup_free_ struct registry_session *session = calloc(1, sizeof(*session));
        if (!session)
                return err_sys(err, ENOMEM, "cannot read the registry");
        session->created_ms = INT64_MIN;
        for (;;) {
                int code = registry_next_row(registry, session);
                if (code == SQLITE_DONE)
                        return 0;
                if (code != SQLITE_ROW)
                        return registry_fail(registry->db, code, "cannot read the registry", err);
                int answer = each(session, context);
                if (answer != 0)
                        return answer;
        }
}

/* Prepares the statements and reads every session once, so that damage is found now and not later. */
static int registry_prepare(struct registry *registry, bool *ret_damaged, struct err *err) {
        int code = SQLITE_OK;
        for (size_t i = 0; i < REGISTRY_STATEMENTS && code == SQLITE_OK; i++)
                code = sqlite3_prepare_v3(registry->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                                          &registry->statements[i], NULL);
        /* The version was right and the tables are not. */
        bool wrong_tables = code == SQLITE_ERROR;
        _cleanup_free_ struct registry_session *session = calloc(1, sizeof(*session));
        if (!session)
                return err_sys(err, ENOMEM, "cannot read the registry");
        session->created_ms = INT64_MIN;
        if (code == SQLITE_OK)
                do
                        code = registry_next_row(registry, session);
                while (code == SQLITE_ROW);
        if (code == SQLITE_DONE)
                return 0;
        *ret_damaged = wrong_tables || registry_file_is_damage(code);
        return registry_fail(registry->db, code, "cannot read the registry", err);
}

static void close_database(struct registry *registry) {
        for (size_t i = 0; i < REGISTRY_STATEMENTS; i++) {
                (void) sqlite3_finalize(registry->statements[i]);
                registry->statements[i] = NULL;
        }
        (void) sqlite3_close(registry->db);
        registry->db = NULL;
}

static int open_database(struct registry *registry, const char *path, bool *ret_damaged, struct err *err) {
        *ret_damaged = false;
        if (registry_file_open(path, &registry->db, ret_damaged, err) == 0 &&
            registry_prepare(registry, ret_damaged, err) == 0) {
                /* Held back until here: closing a file that is not good must not change it. */
                (void) sqlite3_db_config(registry->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
                return 0;
        }
        close_database(registry);
        return -1;
}

/* 1: there is a database; 0: there is nothing; a log without its database has been moved aside. */
static int registry_look(const char *path, char ret_quarantined[static 4200], struct err *err) {
        struct stat status;
        if (lstat(path, &status) == 0)
                return 1;
        if (errno != ENOENT)
                return err_sys(err, errno, "cannot look at the registry %s", path);
        char log[4200];
        (void) snprintf(log, sizeof(log), "%s-wal", path);
        if (lstat(log, &status) == 0 && status.st_size > 0)
                return registry_file_quarantine(path, ret_quarantined, err);
        return 0;
}

static int open_or_make(struct registry *registry, const char *path, char ret_quarantined[static 4200],
                        struct err *err) {
        bool damaged;
        if (registry_file_check(path, err) < 0)
                return -1;
        int there = registry_look(path, ret_quarantined, err);
        if (there < 0)
                return -1;
        if (there) {
                if (open_database(registry, path, &damaged, err) == 0)
                        return 0;
                if (!damaged || registry_file_quarantine(path, ret_quarantined, err) < 0)
                        return -1;
        }
        if (registry_file_make(path, err) < 0)
                return -1;
        return open_database(registry, path, &damaged, err);
}

int registry_open(const char *dir, struct registry **ret_registry, char ret_quarantined[static 4200], struct err *err) {
        ret_quarantined[0] = '\0';
        char path[4100];
        if (snprintf(path, sizeof(path), "%s/registry.db", dir) >= (int) sizeof(path))
                return err_set(err, ERR_USAGE, "the name of the data directory is too long: give a shorter one");
        struct registry *registry = calloc(1, sizeof(*registry));
        if (!registry)
                return err_sys(err, ENOMEM, "cannot open the registry");
        registry->lock_fd = registry_lock(dir, err);
        if (registry->lock_fd < 0 || open_or_make(registry, path, ret_quarantined, err) < 0) {
                registry_close(registry);
                return -1;
        }
        *ret_registry = registry;
        return 0;
}

void registry_close(struct registry *registry) {
        if (!registry)
                return;
        close_database(registry);
        fd_close(&registry->lock_fd);
        free(registry);
}
