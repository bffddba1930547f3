#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>

#include "scratch.h"
#include "store/registry.h"
#include "tap.h"

static char quarantined[4200];
static struct err err;

static struct registry *open_it(const char *dir) {
        struct registry *registry = NULL;
        err = (struct err) { 0 };
        return registry_open(dir, &registry, quarantined, &err) < 0 ? NULL : registry;
}

/* Large enough that a few dozen of them fill many pages. */
static const struct registry_session *make(int i) {
        static struct registry_session session;
        session = (struct registry_session) { .mode = "fast", .image = "python", .limits = LIMITS_DEFAULT };
        (void) registry_make_id(session.id, NULL);
        (void) snprintf(session.name, sizeof(session.name), "session-%d", i);
        (void) snprintf(session.workspace, sizeof(session.workspace), "/srv/work/%d", i);
        memset(session.options, 'o', 2000);
        session.created_ms = 1000 + i;
        session.used_ms = 2000 + i;
        session.allow_weaker = i % 2;
        session.limits.memory_bytes = (uint64_t) i << 33;
        return &session;
}

static int count_one(const struct registry_session *session, void *context) {
        (void) session;
        ++*(int *) context;
        return 0;
}

static int count(struct registry *registry) {
        int n = 0;
        return registry_each(registry, count_one, &n, &err) < 0 ? -1 : n;
}

static struct registry_session last;

static int keep_last(const struct registry_session *session, void *context) {
        (void) context;
        last = *session;
        return 0;
}

static bool is_same(const struct registry_session *a, const struct registry_session *b) {
        return strcmp(a->id, b->id) == 0 && strcmp(a->name, b->name) == 0 && strcmp(a->owner, b->owner) == 0 &&
               strcmp(a->image, b->image) == 0 && strcmp(a->mode, b->mode) == 0 &&
               memcmp(&a->limits, &b->limits, sizeof(a->limits)) == 0 && a->allow_weaker == b->allow_weaker &&
               strcmp(a->workspace, b->workspace) == 0 && strcmp(a->options, b->options) == 0 &&
               a->created_ms == b->created_ms && a->used_ms == b->used_ms;
}

static int remove_each(const struct registry_session *session, void *context) {
        return registry_remove(context, session->id, &err);
}

static int stop(const struct registry_session *session, void *context) {
        (void) context;
        return session->created_ms == 1001 ? 7 : 0;
}

static void test_sessions_are_kept(void) {
        char dir[256];
        scratch_make(dir);
        struct registry *registry = open_it(dir);
        ok(registry && quarantined[0] == '\0', "a new registry is made");
        ok(scratch_size(dir, "registry.db") > 0 && scratch_size(dir, "registry.db.new") < 0, "whole from the start");
        ok(registry && count(registry) == 0, "and empty");
        if (!registry)
                return;
        int failed = 0;
        for (int i = 0; i < 5; i++)
                failed += registry_add(registry, make(i), &err) < 0;
        ok(failed == 0 && count(registry) == 5, "sessions are added");
        ok(registry_add(registry, make(3), &err) < 0 && err.code == ERR_EXISTS && strstr(err.message, "session-3"),
           "a name is taken once");
        struct registry_session other = *make(3);
        (void) snprintf(other.owner, sizeof(other.owner), "somebody");
        ok(registry_add(registry, &other, &err) == 0, "but once for each owner");
        struct registry_session bad = *make(9);
        (void) snprintf(bad.id, sizeof(bad.id), "../../etc");
        ok(registry_add(registry, &bad, &err) < 0 && err.code == ERR_USAGE, "an id is checked");
        ok(!open_it(dir) && err.code == ERR_BUSY, "a second daemon is refused");
        char pid[32];
        (void) snprintf(pid, sizeof(pid), "process %d,", (int) getpid());
        ok(strstr(err.message, pid) != NULL, "and the message names the process that has the lock");
        registry_close(registry);

        registry = open_it(dir);
        ok(registry && quarantined[0] == '\0' && count(registry) == 6, "all are there after opening again");
        ok(registry_each(registry, stop, NULL, &err) == 7, "the callee can stop");
        struct registry_session newest = *make(50);
        ok(registry_add(registry, &newest, &err) == 0 && registry_touch(registry, newest.id, 77777, &err) == 0,
           "touched");
        newest.used_ms = 77777;
        ok(registry_each(registry, keep_last, NULL, &err) == 0 && is_same(&last, &newest),
           "the newest comes last, and each field as it was");
        ok(registry_each(registry, remove_each, registry, &err) == 0 && count(registry) == 0, "removed while walking");
        ok(registry_remove(registry, newest.id, &err) < 0 && err.code == ERR_NOT_FOUND, "what is gone is not there");
        ok(registry_touch(registry, newest.id, 1, &err) < 0 && err.code == ERR_NOT_FOUND, "nor touched");
        registry_close(registry);
        scratch_remove(dir);
}

static void test_names_and_ids(void) {
        static const char *const good[] = { "a", "A.b_c-9", "0" };
        static const char *const bad[] = { "", ".a", "-a", "_a", "a/b", "a b", "\xc3\xa9", "a\n" };
        int wrong = 0;
        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
                wrong += registry_check_name(good[i], &err) < 0;
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                wrong += registry_check_name(bad[i], &err) == 0;
        char name[130];
        memset(name, 'n', sizeof(name));
        name[129] = '\0';
        wrong += registry_check_name(name, &err) == 0;
        name[128] = '\0';
        wrong += registry_check_name(name, &err) < 0;
        ok(wrong == 0, "names are checked");
        char a[27], b[27];
        ok(registry_make_id(a, &err) == 0 && registry_make_id(b, &err) == 0 && strlen(a) == 26 && strcmp(a, b) != 0 &&
                   strspn(a, "abcdefghijklmnopqrstuvwxyz0123456789") == 26,
           "ids are 26 letters and digits, and differ");
}

/* A child adds sessions and tells of each that was acknowledged; killed at any moment, those are there. */
static void test_kill_loses_nothing_acknowledged(void) {
        char dir[256];
        scratch_make(dir);
        int lost = 0, unopened = 0, added = 0;
        for (int round = 0; round < 10; round++) {
                int pipe_fds[2];
                must(pipe(pipe_fds) == 0, "pipe");
                pid_t child = fork();
                must(child >= 0, "fork");
                if (child == 0) {
                        struct registry *registry = open_it(dir);
                        for (int i = 0; registry && i < 2000; i++)
                                if (registry_add(registry, make(round * 10000 + i), &err) < 0 ||
                                    write(pipe_fds[1], "+", 1) != 1)
                                        _exit(1);
                        _exit(registry ? 0 : 1);
                }
                close(pipe_fds[1]);
                char sign;
                /* At least some; then at any moment. */
                for (int i = 0; i < 1 + round && read(pipe_fds[0], &sign, 1) == 1; i++)
                        added++;
                struct timespec pause = { .tv_nsec = round * 100000 };
                nanosleep(&pause, NULL);
                (void) kill(child, SIGKILL);
                while (read(pipe_fds[0], &sign, 1) == 1)
                        added++;
                (void) waitpid(child, NULL, 0);
                close(pipe_fds[0]);
                struct registry *registry = open_it(dir);
                unopened += !registry || quarantined[0] != '\0';
                int there = registry ? count(registry) : 0;
                /* One more may have been written than was acknowledged. */
                lost += there != added && there != added + 1;
                added = there;
                registry_close(registry);
        }
        ok(unopened == 0, "killed again and again: opened each time, the lock was free");
        ok(lost == 0, "and everything acknowledged was there");
        scratch_remove(dir);
}

enum { SESSIONS = 40, BYTES_MAX = 1 << 20 };
static char good[BYTES_MAX], bytes[BYTES_MAX], back[BYTES_MAX];

/* Puts these bytes there and opens. True if all sessions are there, or the damaged file is kept and was said. */
static bool survives(const char *dir, size_t size, int *n_quarantined) {
        scratch_write(dir, "registry.db", bytes, size);
        struct registry *registry = open_it(dir);
        if (!registry) {
                printf("# %s\n", err.message);
                return false;
        }
        int n = count(registry);
        bool works = registry_add(registry, make(1000), &err) == 0;
        registry_close(registry);
        if (quarantined[0] == '\0')
                return works && n == SESSIONS;
        ++*n_quarantined;
        const char *name = strrchr(quarantined, '/') + 1;
        return works && n == 0 && scratch_read(dir, name, back, sizeof(back)) == size && memcmp(back, bytes, size) == 0;
}

static void test_a_damaged_file_is_moved_aside(void) {
        char dir[256];
        scratch_make(dir);
        struct registry *registry = open_it(dir);
        must(registry != NULL, err.message);
        for (int i = 0; i < SESSIONS; i++)
                must(registry_add(registry, make(i), &err) == 0, err.message);
        registry_close(registry);
        size_t size = scratch_read(dir, "registry.db", good, sizeof(good));
        must(size > 10 * 4096 && size < sizeof(good), "a registry of many pages");

        const size_t cuts[] = { 0, 1, 99, 100, 4095, 4096, 8192, size / 2, size - 4096, size - 1 };
        int bad = 0, n = 0;
        for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
                memcpy(bytes, good, size);
                bad += !survives(dir, cuts[i], &n);
        }
        /* The last byte may be padding, and then nothing is missing. */
        ok(bad == 0 && n >= (int) (sizeof(cuts) / sizeof(cuts[0])) - 1, "truncated in ten ways: %d were moved aside",
           n);

        n = 0;
        for (size_t page = 0; page < size / 4096; page += 4) {
                memcpy(bytes, good, size);
                memset(bytes + page * 4096, 0, 4096);
                bad += !survives(dir, size, &n);
        }
        ok(bad == 0 && n > 0, "pages zeroed in turn: %d were damage, nothing was lost in silence", n);
        memset(bytes, 'x', size);
        ok(survives(dir, size, &n), "a file that is no database");
        scratch_remove(dir);
}

static struct registry_session made[SESSIONS];

static struct registry *open_with_made(const char *dir, int n) {
        struct registry *registry = open_it(dir);
        must(registry != NULL, err.message);
        for (int i = 0; i < n; i++) {
                made[i] = *make(i);
                must(registry_add(registry, &made[i], &err) == 0, err.message);
        }
        return registry;
}

static int compare_with_made(const struct registry_session *session, void *context) {
        size_t number = strtoul(session->name + strcspn(session->name, "0123456789"), NULL, 10);
        *(int *) context += number >= SESSIONS || memcmp(session, &made[number], sizeof(*session)) != 0;
        return 0;
}

/* Whatever bit it is: every row comes back as it was written, or the file is damaged. */
static void test_no_flipped_bit_changes_a_session(void) {
        char dir[256];
        scratch_make(dir);
        struct registry *registry = open_with_made(dir, SESSIONS);
        registry_close(registry);
        size_t size = scratch_read(dir, "registry.db", good, sizeof(good));
        int n_wrong = 0, n_moved = 0, n_unopened = 0, n_missing = 0;
        enum { FLIPS = 300 };
        for (size_t i = 0; i < FLIPS; i++) {
                size_t bit = (i * 2654435761u) % (size * 8);
                memcpy(bytes, good, size);
                bytes[bit / 8] = (char) (bytes[bit / 8] ^ 1 << bit % 8);
                scratch_write(dir, "registry.db", bytes, size);
                registry = open_it(dir);
                if (!registry) { /* the head may say that another program wrote it */
                        n_unopened++;
                        continue;
                }
                n_moved += quarantined[0] != '\0';
                if (quarantined[0] == '\0') {
                        n_missing += count(registry) != SESSIONS;
                        (void) registry_each(registry, compare_with_made, &n_wrong, &err);
                }
                registry_close(registry);
        }
        ok(n_wrong == 0 && n_missing == 0, "%d bits flipped: %d sessions came back wrong, %d times some were missing",
           FLIPS, n_wrong, n_missing);
        ok(n_moved > 0 && n_unopened < FLIPS / 10, "%d were noticed as damage, %d as somebody else's file", n_moved,
           n_unopened);
        scratch_remove(dir);
}

static void change(const char *dir, const char *sql) {
        char path[512];
        (void) snprintf(path, sizeof(path), "%s/registry.db", dir);
        sqlite3 *db = NULL;
        must(sqlite3_open(path, &db) == SQLITE_OK && sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, sql);
        must(sqlite3_close(db) == SQLITE_OK, "sqlite3_close");
}

static void test_a_registry_without_checksums_gets_them(void) {
        char dir[256];
        scratch_make(dir);
        struct registry *registry = open_with_made(dir, 3);
        registry_close(registry);
        change(dir, "ALTER TABLE session DROP COLUMN checksum; PRAGMA user_version = 1"); /* as version 1 was */
        int n_wrong = 0;
        registry = open_it(dir);
        ok(registry && quarantined[0] == '\0' && count(registry) == 3, "a registry of version 1 opens");
        ok(registry && registry_each(registry, compare_with_made, &n_wrong, &err) == 0 && n_wrong == 0,
           "and its sessions are what they were");
        ok(registry_touch(registry, made[1].id, 7, &err) == 0, "it is written to");
        registry_close(registry);
        registry = open_it(dir);
        ok(registry && quarantined[0] == '\0' && count(registry) == 3, "and opens again");
        registry_close(registry);
        change(dir,
               "UPDATE session SET memory_bytes = memory_bytes + 1 WHERE created_ms = (SELECT max(created_ms) FROM "
               "session)");
        registry = open_it(dir);
        ok(registry && quarantined[0] != '\0', "a row that was changed by something else is damage");
        registry_close(registry);
        scratch_remove(dir);
}

static void test_what_is_not_ours_is_not_touched(void) {
        char dir[256];
        scratch_make(dir);
        struct registry *registry = open_it(dir);
        must(registry && registry_add(registry, make(1), &err) == 0, err.message);
        registry_close(registry);
        static const struct {
                const char *sql, *what;
        } cases[] = {
                { "PRAGMA user_version = 3", "a newer version" },
                { "PRAGMA user_version = 2; PRAGMA application_id = 5", "somebody else's database" },
        };
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                change(dir, cases[i].sql);
                size_t size = scratch_read(dir, "registry.db", good, sizeof(good));
                ok(!open_it(dir) && err.code == ERR_UNSUPPORTED && quarantined[0] == '\0', "%s is refused",
                   cases[i].what);
                ok(scratch_read(dir, "registry.db", back, sizeof(back)) == size && memcmp(good, back, size) == 0,
                   "and stays as it is");
        }
        change(dir, "PRAGMA application_id = 0x476c7662");
        registry = open_it(dir);
        ok(registry && count(registry) == 1, "put right again, it opens");
        registry_close(registry);
        change(dir, "UPDATE session SET id = '../../../../etc'");
        registry = open_it(dir);
        ok(registry && quarantined[0] != '\0' && count(registry) == 0, "a row that cannot be ours is damage");
        registry_close(registry);
        change(dir, "DROP TABLE session");
        registry = open_it(dir);
        ok(registry && quarantined[0] != '\0' && count(registry) == 0, "so is a missing table");
        registry_close(registry);
        scratch_write(dir, "registry.db-wal", "the log of another database", 27);
        char path[512];
        (void) snprintf(path, sizeof(path), "%s/registry.db", dir);
        must(unlink(path) == 0, "unlink");
        registry = open_it(dir);
        ok(registry && quarantined[0] != '\0', "a log without its database is moved aside, not replayed");
        registry_close(registry);
        must(unlink(path) == 0 && symlink("elsewhere", path) == 0, "symlink");
        ok(!open_it(dir), "a link is not followed");
        scratch_remove(dir);
}

static int become_nobody(void) {
        if (geteuid() != 0)
                return 0;
        return setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0 ? -1
                                                                                                                  : 0;
}

/* Runs a check in a child, whose identity and mounts may change. */
static int in_child(int (*check)(const char *dir), const char *dir) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0)
                _exit(check(dir));
        int status = 0;
        must(waitpid(child, &status, 0) == child, "waitpid");
        return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static int check_read_only(const char *dir) {
        if (become_nobody() < 0)
                return 77;
        if (open_it(dir) || err.code != ERR_PERMISSION)
                return 1;
        return quarantined[0] == '\0' && strstr(err.message, dir) ? 0 : 2;
}

static void test_no_permission_is_said(void) {
        char dir[256], path[512];
        scratch_make(dir);
        must(chmod(dir, 0555) == 0, "chmod");
        int code = in_child(check_read_only, dir);
        ok(code == 0 || code == 77, "a directory that cannot be written%s (%d)",
           code == 77 ? " # SKIP no other user here" : "", code);
        must(chmod(dir, 0755) == 0, "chmod");
        struct registry *registry = open_it(dir);
        must(registry && registry_add(registry, make(1), &err) == 0, err.message);
        registry_close(registry);
        (void) snprintf(path, sizeof(path), "%s/registry.lock", dir);
        must(chmod(path, 0666) == 0, "chmod");
        (void) snprintf(path, sizeof(path), "%s/registry.db", dir);
        for (int mode = 0; mode <= 0444; mode += 0444) {
                must(chmod(path, (mode_t) mode) == 0 && chmod(dir, 0555) == 0, "chmod");
                code = in_child(check_read_only, dir);
                ok(code == 0 || code == 77, "a registry with mode %04o (%d)%s", (unsigned) mode, code,
                   code == 77 ? " # SKIP no other user here" : "");
                must(chmod(dir, 0755) == 0, "chmod");
        }
        must(chmod(path, 0600) == 0, "chmod");
        registry = open_it(dir);
        ok(registry && count(registry) == 1, "nothing was touched");
        registry_close(registry);
        scratch_remove(dir);
}

static int write_to(const char *path, const char *text) {
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return -1;
        ssize_t n = write(fd, text, strlen(text));
        close(fd);
        return n < 0 ? -1 : 0;
}

/* Without root: a user namespace in which this user is root. Some hosts refuse a part of it. */
static int become_root_inside(void) {
        uid_t uid = geteuid();
        gid_t gid = getegid();
        if (uid == 0)
                return 0;
        char users[64], groups[64];
        (void) snprintf(users, sizeof(users), "0 %u 1", uid);
        (void) snprintf(groups, sizeof(groups), "0 %u 1", gid);
        return unshare(CLONE_NEWUSER) < 0 || write_to("/proc/self/setgroups", "deny") < 0 ||
                               write_to("/proc/self/uid_map", users) < 0 || write_to("/proc/self/gid_map", groups) < 0
                       ? -1
                       : 0;
}

/* A disk of its own, of 256 KiB, in a mount namespace of its own. */
static int check_full_disk(const char *dir) {
        if (become_root_inside() < 0 || unshare(CLONE_NEWNS) < 0 ||
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("none", dir, "tmpfs", 0, "size=256k") < 0)
                return 77;
        struct registry *registry = open_it(dir);
        int added = 0;
        while (registry && added < 1000 && registry_add(registry, make(added), &err) == 0)
                added++;
        if (!registry || added == 0 || err.code != ERR_NO_SPACE)
                return 1;
        if (count(registry) != added)
                return 2;
        registry_close(registry);
        registry = open_it(dir);
        return registry && quarantined[0] == '\0' && count(registry) == added ? 0 : 3;
}

static void test_a_full_disk_is_said_and_damages_nothing(void) {
        char dir[256];
        scratch_make(dir);
        int code = in_child(check_full_disk, dir);
        ok(code == 0 || code == 77, "a full disk (%d)%s", code, code == 77 ? " # SKIP no mount namespace here" : "");
        scratch_remove(dir);
}

/* The daemon dies; what it had just started holds its descriptors for a moment longer. */
static void test_a_dead_daemons_lock_is_waited_for(void) {
        char dir[256];
        scratch_make(dir);
        pid_t pid = fork();
        if (pid == 0) {
                if (!open_it(dir))
                        _exit(1);
                if (fork() == 0)
                        (void) poll(NULL, 0, 300);
                _exit(0);
        }
        int status = -1;
        ok(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "a daemon that is gone, and its child is not");
        struct registry *registry = open_it(dir);
        ok(registry != NULL, "the next daemon waits for the lock: %s", registry ? "" : err.message);
        registry_close(registry);
        scratch_remove(dir);
}

int main(void) {
        test_a_dead_daemons_lock_is_waited_for();
        test_sessions_are_kept();
        test_names_and_ids();
        test_kill_loses_nothing_acknowledged();
        test_a_damaged_file_is_moved_aside();
        test_no_flipped_bit_changes_a_session();
        test_a_registry_without_checksums_gets_them();
        test_what_is_not_ours_is_not_touched();
        test_no_permission_is_said();
        test_a_full_disk_is_said_and_damages_nothing();
        return done_testing();
}
