/* The registry's files: one lock, one database, and what is done with a damaged one. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fd.h"
#include "base/memory.h"
#include "store/disk_reserve.h"
#include "store/registry_state.h"

static const char schema[] = "BEGIN;"
                             "CREATE TABLE session ("
                             " id TEXT PRIMARY KEY NOT NULL,"
                             " name TEXT NOT NULL,"
                             " owner TEXT NOT NULL,"
                             " image TEXT NOT NULL,"
                             " mode TEXT NOT NULL,"
                             " memory_bytes INTEGER NOT NULL,"
                             " cpu_thousandths INTEGER NOT NULL,"
                             " pids INTEGER NOT NULL,"
                             " timeout_ms INTEGER NOT NULL,"
                             " tmp_bytes INTEGER NOT NULL,"
                             " disk_bytes INTEGER NOT NULL,"
                             " disk_files INTEGER NOT NULL,"
                             " allow_weaker INTEGER NOT NULL,"
                             " workspace TEXT NOT NULL,"
                             " options TEXT NOT NULL,"
                             " created_ms INTEGER NOT NULL,"
                             " used_ms INTEGER NOT NULL,"
                             " checksum INTEGER NOT NULL DEFAULT 0,"
                             " UNIQUE (owner, name)) STRICT;"
                             "CREATE INDEX session_by_age ON session (created_ms, id);"
                             "PRAGMA application_id = 0x476c7662;"
                             "PRAGMA user_version = 2;"
                             "COMMIT;";
_Static_assert(REGISTRY_APPLICATION == 0x476c7662 && REGISTRY_VERSION == 2, "the schema says the same");

/* Rows of version 1 have no checksum: they are taken as they are, once. */
static const char upgrade_1[] = "BEGIN IMMEDIATE;"
                                "ALTER TABLE session ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;"
                                "UPDATE session SET checksum = glovebox_checksum(" REGISTRY_COLUMNS ");"
                                "PRAGMA user_version = 2;"
                                "COMMIT;";

static const char *const suffixes[] = { "", "-wal", "-shm", "-journal" };

/* A checksum of any values: their type, size and bytes. SQLite checks the structure of its file, but not its
 * contents. */
static void sql_checksum(sqlite3_context *context, int n, sqlite3_value **values) {
        uint32_t crc = 0;
        for (int i = 0; i < n; i++) {
                bool is_text = sqlite3_value_type(values[i]) == SQLITE_TEXT;
                int64_t number = is_text ? 0 : sqlite3_value_int64(values[i]);
                const void *bytes = is_text ? (const void *) sqlite3_value_text(values[i]) : &number;
                uint32_t head[2] = { is_text, is_text ? (uint32_t) sqlite3_value_bytes(values[i]) : sizeof(number) };
                if (!bytes) {
                        sqlite3_result_error_nomem(context);
                        return;
                }
                crc = crc32c(crc32c(crc, head, sizeof(head)), bytes, head[1]);
        }
        sqlite3_result_int64(context, crc);
}

int registry_fail(sqlite3 *db, int code, const char *what, struct err *err) {
        int sys_errno = db ? sqlite3_system_errno(db) : 0;
        const char *why = db ? sqlite3_errmsg(db) : sqlite3_errstr(code);
        switch (code & 0xff) {
        case SQLITE_FULL:
                return err_set(err, ERR_NO_SPACE, "%s: the disk is full: free some space and try again", what);
        case SQLITE_READONLY:
        case SQLITE_PERM:
        case SQLITE_AUTH:
                return err_set(
                        err, ERR_PERMISSION,
                        "%s: this user may not write to it (%s): check the owner and the mode of the data directory, "
                        "and that its file system is not mounted read-only",
                        what, why);
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
                return err_set(err, ERR_BUSY, "%s: another program holds it open and locked: close it and try again",
                               what);
        case SQLITE_CORRUPT:
        case SQLITE_NOTADB:
                return err_set(
                        err, ERR_SYSTEM,
                        "%s: the file is damaged (%s): restart the daemon, which moves it aside and starts a new one",
                        what, why);
        case SQLITE_NOMEM:
                return err_sys(err, ENOMEM, "%s", what);
        case SQLITE_CANTOPEN:
        case SQLITE_IOERR:
                if (sys_errno != 0)
                        return err_sys(err, sys_errno, "%s", what);
                break;
        default:
                break;
        }
        return err_set(err, ERR_SYSTEM, "%s: %s", what, why);
}

/* The process that took the lock last, by the file; 0: unknown. */
static pid_t read_holder(int fd) {
        char text[32] = "";
        ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
        long pid = n > 0 ? strtol(text, NULL, 10) : 0;
        return pid > 0 && pid <= INT_MAX ? (pid_t) pid : 0;
}

/* Reads a file of /proc. Returns its size or -errno. */
static ssize_t read_proc(pid_t pid, const char *name, char *text, size_t size) {
        char path[64];
        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, name);
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -errno : read(fd, text, size - 1);
        text[n > 0 ? n : 0] = '\0';
        return n;
}

/* True if it was killed and has not run since. */
static bool is_struck(pid_t pid) {
        static const char *const masks[] = { "\nSigPnd:", "\nShdPnd:" };
        char text[4096];
        if (read_proc(pid, "status", text, sizeof(text)) <= 0)
                return false;
        for (size_t i = 0; i < ELEMENTS(masks); i++) {
                const char *line = strstr(text, masks[i]);
                if (line && strtoull(line + strlen(masks[i]), NULL, 16) & 1ull << (SIGKILL - 1))
                        return true;
        }
        return false;
}

/* True if it is dead, or will be soon. A killed process releases its locks some milliseconds later. */
static bool is_ending(pid_t pid) {
        enum { EXITING = 4 }; /* PF_EXITING */
        if (kill(pid, 0) < 0)
                return errno == ESRCH;
        char text[1024], state = 0;
        unsigned flags = 0;
        if (is_struck(pid))
                return true;
        if (read_proc(pid, "stat", text, sizeof(text)) < 0)
                return true; /* it was there a moment ago */
        const char *behind = strrchr(text, ')'); /* its name may be anything */
        return behind && sscanf(behind + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) == 2 &&
               (state == 'Z' || state == 'X' || flags & EXITING);
}

/* 0 or -errno. A process that a daemon started just before it was killed has the daemon's descriptors for a moment. So
 * this waits for the lock of a dead daemon, but not for that of a living one. */
static int take_lock(int fd) {
        enum { PATIENCE_MS = 10000, STEP_MS = 10, LOOKS = 5 /* between the signal and its end it still exists */ };
        for (int waited_ms = 0, alive = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; waited_ms += STEP_MS) {
                int code = errno;
                pid_t holder = read_holder(fd);
                alive = holder > 0 && is_ending(holder) ? 0 : alive + 1;
                if (code != EWOULDBLOCK || holder == 0 || alive == LOOKS || waited_ms >= PATIENCE_MS)
                        return -code;
                (void) poll(NULL, 0, STEP_MS);
        }
        return 0;
}

void registry_find_socket(const char *dir, char ret_path[static REGISTRY_SOCKET_MAX]) {
        char path[4200], text[REGISTRY_SOCKET_MAX + 32] = "";
        (void) snprintf(path, sizeof(path), "%s/registry.lock", dir);
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
        const char *line = n > 0 ? strchr(text, '\n') : NULL;
        (void) snprintf(ret_path, REGISTRY_SOCKET_MAX, "%.*s", line ? (int) strcspn(line + 1, "\n") : 0,
                        line ? line + 1 : "");
}

void registry_name_socket(const struct registry *registry, const char *path) {
        char text[REGISTRY_SOCKET_MAX + 32];
        int length = snprintf(text, sizeof(text), "%d\n%.*s\n", (int) getpid(), REGISTRY_SOCKET_MAX - 1, path);
        if (pwrite(registry->lock_fd, text, (size_t) length, 0) < 0)
                errno = 0;
}

int registry_lock(const char *dir, struct err *err) {
        char path[4200], where[REGISTRY_SOCKET_MAX];
        (void) snprintf(path, sizeof(path), "%s/registry.lock", dir);
        _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return err_sys(err, errno, "cannot open %s for writing (the data directory must belong to this user)",
                               path);
        int code = take_lock(fd);
        if (code < 0) {
                if (code != -EWOULDBLOCK)
                        return err_sys(err, -code, "cannot lock %s", path);
                pid_t holder = read_holder(fd);
                registry_find_socket(dir, where);
                if (holder > 0)
                        return err_set(err, ERR_BUSY,
                                       "another Glovebox daemon, process %d, uses %s%s%s: stop it first (glovebox "
                                       "stop%s%s), or give this one another data directory (GLOVEBOX_DATA_DIR)",
                                       (int) holder, dir, *where ? " and serves at " : "", where,
                                       *where ? " --socket " : "", where);
                return err_set(err, ERR_BUSY,
                               "another Glovebox daemon uses %s: stop it first, or give this one another data "
                               "directory",
                               dir);
        }
        /* The text in the file is for messages only: the lock works without it, on a full disk too. */
        char text[32];
        int length = snprintf(text, sizeof(text), "%d\n", (int) getpid());
        if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t) length, 0) < 0)
                errno = 0;
        return take_fd(&fd);
}

static int set_up(sqlite3 *db) {
        (void) sqlite3_extended_result_codes(db, 1);
        (void) sqlite3_busy_timeout(db, REGISTRY_BUSY_MS);
        /* The file is ours, but it may have been damaged or exchanged: no functions or tables with effects from it. */
        (void) sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        (void) sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
        int code = sqlite3_create_function_v2(db, "glovebox_checksum", -1,
                                              SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, NULL,
                                              sql_checksum, NULL, NULL, NULL);
        if (code != SQLITE_OK)
                return code;
        return sqlite3_exec(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;", NULL, NULL, NULL);
}

static void close_db(sqlite3 **db) {
        (void) sqlite3_close(*db);
        *db = NULL;
}

static int ask_number(sqlite3 *db, const char *question, int *ret_number) {
        sqlite3_stmt *statement = NULL;
        int code = sqlite3_prepare_v2(db, question, -1, &statement, NULL);
        if (code == SQLITE_OK)
                code = sqlite3_step(statement);
        if (code == SQLITE_ROW)
                *ret_number = sqlite3_column_int(statement, 0);
        (void) sqlite3_finalize(statement);
        return code == SQLITE_ROW ? SQLITE_OK : code == SQLITE_DONE ? SQLITE_CORRUPT : code;
}

/* SQLite reports the result as text in the first row: "ok", or the problem. Indexes are checked too: a session that is
 * missing in an index would not be found. */
static int check_integrity(sqlite3 *db) {
        sqlite3_stmt *statement = NULL;
        int code = sqlite3_prepare_v2(db, "PRAGMA integrity_check(1)", -1, &statement, NULL);
        if (code == SQLITE_OK)
                code = sqlite3_step(statement);
        if (code == SQLITE_ROW) {
                const char *answer = (const char *) sqlite3_column_text(statement, 0);
                code = answer && strcmp(answer, "ok") == 0 ? SQLITE_OK : SQLITE_CORRUPT;
        }
        (void) sqlite3_finalize(statement);
        return code;
}

bool registry_file_is_damage(int code) {
        return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB || code == SQLITE_IOERR_SHORT_READ;
}

/* Nothing in the way of a file, and no read error: SQLite takes a log that is not a plain file for an empty one, and an
 * error of the disk for damage. */
static int check_one_file(const char *path, struct err *err) {
        struct stat status;
        if (lstat(path, &status) < 0)
                return errno == ENOENT ? 0 : err_sys(err, errno, "cannot look at %s, a file of the registry", path);
        if (!S_ISREG(status.st_mode))
                return err_set(err, ERR_REFUSED,
                               "%s is not a file: move it away, and put the registry's own file back if you have it "
                               "(without it, the sessions are found by their own records)",
                               path);
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
                return err_sys(err, errno, "cannot open %s, a file of the registry", path);
        char bytes[16 << 10];
        ssize_t n = 0;
        for (uint64_t at = 0; (n = fd_read_at(fd, bytes, sizeof(bytes), at)) > 0; at += (uint64_t) n)
                continue;
        if (n < 0)
                return err_sys(err, (int) -n,
                               "cannot read %s, a file of the registry (check the disk, then start again; without the "
                               "registry's files, the sessions are found by their own records)",
                               path);
        return 0;
}

int registry_file_check(const char *path, struct err *err) {
        for (size_t i = 0; i < ELEMENTS(suffixes); i++) {
                char name[4200];
                (void) snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
                if (check_one_file(name, err) < 0)
                        return -1;
        }
        return 0;
}

/* Reads the head without SQLite, which would change a file that is not for us. *ret_version 0: SQLite must judge. */
static int peek_version(const char *path, bool *ret_damaged, uint32_t *ret_version, struct err *err) {
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
                return err_sys(err, errno, "cannot open the registry %s", path);
        uint8_t head[100];
        ssize_t n = pread(fd, head, sizeof(head), 0);
        if (n < 0)
                return err_sys(err, errno, "cannot read the registry %s", path);
        /* It is never made with less (registry_file_make). */
        if ((size_t) n < sizeof(head) || memcmp(head, "SQLite format 3", 16) != 0) {
                *ret_damaged = true;
                return err_set(err, ERR_SYSTEM, "%s is no database", path);
        }
        *ret_version = (uint32_t) head[60] << 24 | (uint32_t) head[61] << 16 | (uint32_t) head[62] << 8 | head[63];
        return 0;
}

static int check_version(sqlite3 *db, const char *path, struct err *err) {
        int version = 0, application = 0;
        int code = ask_number(db, "PRAGMA user_version", &version);
        if (code == SQLITE_OK)
                code = ask_number(db, "PRAGMA application_id", &application);
        if (code != SQLITE_OK)
                return code;
        if (application != REGISTRY_APPLICATION || version < 1) {
                (void) err_set(err, ERR_UNSUPPORTED,
                               "%s is a database, but not a registry of Glovebox: move it away, or give "
                               "another data directory",
                               path);
                return SQLITE_MISUSE;
        }
        if (version > REGISTRY_VERSION) {
                (void) err_set(err, ERR_UNSUPPORTED,
                               "%s was written by a newer Glovebox (format %d, this one knows %d): start the newer "
                               "version, or "
                               "give another data directory",
                               path, version, REGISTRY_VERSION);
                return SQLITE_MISUSE;
        }
        return SQLITE_OK;
}

/* After it was found whole. On a full disk it is tried with the reserve; whatever fails leaves it as it was. */
static int registry_upgrade(sqlite3 *db) {
        int version = 0;
        int code = ask_number(db, "PRAGMA user_version", &version);
        if (code != SQLITE_OK || version == REGISTRY_VERSION)
                return code;
        code = sqlite3_exec(db, upgrade_1, NULL, NULL, NULL);
        if ((code & 0xff) == SQLITE_FULL && disk_reserve_use()) {
                (void) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
                code = sqlite3_exec(db, upgrade_1, NULL, NULL, NULL);
        }
        if (code != SQLITE_OK && !sqlite3_get_autocommit(db))
                (void) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
        return code;
}

int registry_file_open(const char *path, sqlite3 **ret_db, bool *ret_damaged, struct err *err) {
        uint32_t version = 0;
        if (peek_version(path, ret_damaged, &version, err) < 0)
                return -1;
        if (version > REGISTRY_VERSION)
                return err_set(err, ERR_UNSUPPORTED,
                               "%s was written by a newer Glovebox (format %u, this one knows %d): start the newer "
                               "version, or "
                               "give another data directory",
                               path, version, REGISTRY_VERSION);
        _cleanup_(close_db) sqlite3 *db = NULL;
        struct err reason = { 0 };
        int code = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                                   NULL);
        if (code == SQLITE_OK)
                code = sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        /* Before anything is written: whether it is ours. */
        if (code == SQLITE_OK)
                code = check_version(db, path, &reason);
        if (code == SQLITE_OK)
                code = set_up(db);
        if (code == SQLITE_OK)
                code = check_integrity(db);
        if (code == SQLITE_OK)
                code = registry_upgrade(db);
        if (code != SQLITE_OK) {
                *ret_damaged = registry_file_is_damage(code);
                if (reason.code != ERR_NONE) {
                        if (err)
                                *err = reason;
                        return -1;
                }
                char what[4300];
                (void) snprintf(what, sizeof(what), "cannot open the registry %s", path);
                return registry_fail(db, code, what, err);
        }
        /* SQLite opens a file that this user cannot write read-only, without an error. */
        if (sqlite3_db_readonly(db, "main") == 1)
                return registry_fail(db, SQLITE_READONLY, "cannot write to the registry", err);
        *ret_db = take_ptr(db);
        return 0;
}

static void remove_all(const char *path) {
        for (size_t i = 0; i < ELEMENTS(suffixes); i++) {
                char name[4200];
                (void) snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
                (void) unlink(name);
        }
}

/* A name is on the disk when its directory is. File systems that cannot sync a directory keep nothing after a power cut
 * anyway. */
static void sync_directory(const char *path) {
        char dir[4200];
        (void) snprintf(dir, sizeof(dir), "%s", path);
        char *slash = strrchr(dir, '/');
        if (slash)
                *slash = '\0';
        _cleanup_fd_ int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
                (void) fsync(fd);
}

/* Made beside and renamed: a registry.db that is there is whole, and an empty one has been truncated. */
int registry_file_make(const char *path, struct err *err) {
        char beside[4150], what[4200];
        (void) snprintf(beside, sizeof(beside), "%s.new", path);
        (void) snprintf(what, sizeof(what), "cannot make the registry %s", path);
        remove_all(beside);
        _cleanup_fd_ int fd = open(beside, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return err_sys(err, errno, "%s", what);
        fd_close(&fd);
        sqlite3 *db = NULL;
        int code = sqlite3_open_v2(beside, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
        if (code == SQLITE_OK)
                code = set_up(db);
        if (code == SQLITE_OK)
                code = sqlite3_exec(db, schema, NULL, NULL, NULL);
        /* Everything must be in the one file that is renamed. */
        if (code == SQLITE_OK)
                code = sqlite3_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
        int failed = code == SQLITE_OK ? 0 : registry_fail(db, code, what, err);
        close_db(&db);
        if (failed == 0 && rename(beside, path) < 0)
                failed = err_sys(err, errno, "%s", what);
        if (failed == 0)
                sync_directory(path);
        if (failed < 0)
                remove_all(beside);
        return failed;
}

int registry_file_quarantine(const char *path, char ret_aside[static 4200], struct err *err) {
        char stamp[32], aside[4160];
        struct tm calendar;
        time_t now = time(NULL);
        (void) strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", gmtime_r(&now, &calendar));
        struct stat status;
        for (int i = 0;; i++) {
                (void) snprintf(aside, sizeof(aside), i == 0 ? "%s.damaged-%s" : "%s.damaged-%s.%d", path, stamp, i);
                if (lstat(aside, &status) < 0)
                        break;
        }
        /* The database first. A death in between leaves its log, which the next start moves aside too: a log must never
         * be replayed into another database. */
        for (size_t i = 0; i < ELEMENTS(suffixes); i++) {
                char from[4200], to[4200];
                (void) snprintf(from, sizeof(from), "%s%s", path, suffixes[i]);
                (void) snprintf(to, sizeof(to), "%s%s", aside, suffixes[i]);
                if (rename(from, to) < 0 && errno != ENOENT)
                        return err_sys(err, errno, "cannot move the damaged registry %s aside to %s", from, to);
        }
        (void) snprintf(ret_aside, 4200, "%s", aside);
        return 0;
}
