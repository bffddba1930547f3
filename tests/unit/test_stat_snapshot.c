/* A list of paths is current until one of them changes, in whatever way. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/host.h"
#include "image/stat_snapshot.h"
#include "scratch.h"
#include "tap.h"

static char dir[256];

static const char *at(const char *name) {
        static char paths[2][512];
        static unsigned turn;
        char *path = paths[turn++ % 2];
        (void) snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
        return path;
}

static void put(const char *name) {
        int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        must(fd >= 0 && write(fd, name, strlen(name)) == (ssize_t) strlen(name) && close(fd) == 0, name);
}

static void change_nothing(void) {
        struct stat status;
        must(stat(at("file"), &status) == 0 && access(at("directory"), R_OK) == 0, "looking");
}

static void replace_file(void) {
        put("other");
        must(rename(at("other"), at("file")) == 0, "rename");
}

static void write_file(void) {
        put("file");
}

static void chmod_file(void) {
        must(chmod(at("file"), 0600) == 0, "chmod");
}

static void remove_file(void) {
        must(unlink(at("file")) == 0, "unlink");
}

static void make_missing(void) {
        put("missing");
}

static void fill_directory(void) {
        put("directory/entry");
}

static void exchange_directory(void) {
        must(mkdir(at("directory.new"), 0755) == 0, "mkdir");
        must(renameat2(AT_FDCWD, at("directory.new"), AT_FDCWD, at("directory"), RENAME_EXCHANGE) == 0, "exchange");
}

static void turn_link(void) {
        must(unlink(at("link")) == 0 && symlink("directory", at("link")) == 0, "symlink");
}

static void turn_link_behind(void) { /* the link stays what it is, and leads to something else */
        must(rename(at("file"), at("file.old")) == 0, "rename");
        put("file");
}

int main(void) {
        static const struct {
                const char *what;
                void (*change)(void);
                bool is_current;
        } cases[] = {
                { "nothing", change_nothing, true },
                { "a file replaced", replace_file, false },
                { "a file written to", write_file, false },
                { "a file's mode", chmod_file, false },
                { "a file removed", remove_file, false },
                { "a file that was missing", make_missing, false },
                { "an entry of a directory", fill_directory, false },
                { "a directory exchanged", exchange_directory, false },
                { "a link turned", turn_link, false },
                { "what a link leads to", turn_link_behind, false },
        };
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct stat_snapshot list = { 0 };
                scratch_make(dir);
                put("file");
                must(mkdir(at("directory"), 0755) == 0 && symlink("file", at("link")) == 0, "made");
                ok(stat_snapshot_add(&list, at("file"), false) == 0 &&
                           stat_snapshot_add(&list, at("missing"), false) == 0 &&
                           stat_snapshot_add(&list, at("directory"), false) == 0 &&
                           stat_snapshot_add(&list, at("link"), false) == 0 &&
                           stat_snapshot_add(&list, at("link"), true) == 0,
                   "%s: added", cases[i].what);
                (void) usleep(20000); /* times of change tick every few milliseconds on older kernels */
                cases[i].change();
                ok(stat_snapshot_is_current(&list) == cases[i].is_current, "%s: %s", cases[i].what,
                   cases[i].is_current ? "is current" : "is noticed");
                stat_snapshot_release(&list);
                scratch_remove(dir);
        }
        struct stat_snapshot host = { 0 };
        ok(host_stat(&host, "/nowhere") == 0 && host.n > 10, "what the host image is made of");
        ok(stat_snapshot_is_current(&host), "and is current");
        stat_snapshot_release(&host);
        struct stat_snapshot full = { 0 };
        for (size_t i = 0; i < STAT_SNAPSHOT_MAX; i++)
                must(stat_snapshot_add(&full, "/", false) == 0, "room");
        ok(stat_snapshot_add(&full, "/", false) < 0 && full.n == STAT_SNAPSHOT_MAX, "one too many is refused");
        stat_snapshot_release(&full);
        return done_testing();
}
