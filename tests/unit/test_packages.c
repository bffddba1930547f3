/* What a helper box left behind, hostile or not: put in place whole, or refused with the old packages untouched. */
#include "base/memory.h"
#include "scratch.h"
#include "store/packages.h"
#include "tap.h"

static char state[256];

static const char good_report[] = "{\"installed\": [{\"name\": \"parcel\", \"version\": \"2.0\"}], \"replaced\": "
                                  "[\"parcel\"], \"covers_image\": false}";

static void make(const char *name, mode_t mode) {
        char path[600];
        (void) snprintf(path, sizeof(path), "%s/%s", state, name);
        must(mkdir(path, mode) == 0, path);
}

static void write_text(const char *name, const char *text) {
        scratch_write(state, name, text, strlen(text));
}

/* Packages that were there before, and a helper's new ones. */
static void prepare(void) {
        scratch_make(state);
        must(packages_make_directory(state) == 0 && packages_make_staging(state) == 0, state);
        make("packages/current", 0755);
        write_text("packages/current/old.py", "old");
        make("install/current", 0755);
        make("install/current/lib", 0755);
        write_text("install/current/lib/new.py", "new");
        write_text("install/report.json", good_report);
}

static bool is_there(const char *name) {
        char path[600];
        struct stat status;
        (void) snprintf(path, sizeof(path), "%s/%s", state, name);
        return lstat(path, &status) == 0;
}

static int settle(json_t **report, struct err *err) {
        static const struct limits limits = { .disk_bytes = 1 << 20, .disk_files = 20 };
        *err = (struct err) { 0 };
        return packages_settle(state, &limits, report, err);
}

static void refuses(const char *what, const char *word) {
        json_t *report = NULL;
        struct err err;
        int code = settle(&report, &err);
        ok(code < 0 && !report && strstr(err.message, word), "refused: %s", what);
        if (code == 0 || !strstr(err.message, word))
                printf("# said: %s\n", err.message);
        ok(is_there("packages/current/old.py") && !is_there("packages/current/lib") && !is_there("install"),
           "the old packages are whole, and nothing else is left: %s", what);
        json_decref(report);
        scratch_remove(state);
}

static void test_good(void) {
        json_t *report = NULL;
        struct err err;
        struct stat before, after;
        char path[300];
        prepare();
        (void) snprintf(path, sizeof(path), "%s/packages", state);
        must(stat(path, &before) == 0, path);
        (void) usleep(20000); /* file systems have clocks that tick every few milliseconds */
        ok(settle(&report, &err) == 0, "a plain tree is put in place");
        ok(is_there("packages/current/lib/new.py") && !is_there("packages/current/old.py") && !is_there("install"),
           "the new ones are there, the old ones and the staging are not");
        must(stat(path, &after) == 0, path);
        ok(before.st_mtim.tv_nsec != after.st_mtim.tv_nsec && before.st_ino == after.st_ino,
           "the directory that boxes see is the same, with a new time");
        ok(json_array_size(json_object_get(report, "installed")) == 1 && !packages_cover_image(state),
           "the report says what was installed");
        json_decref(report);
        scratch_remove(state);
}

static void test_report_is_cleaned(void) {
        json_t *report = NULL;
        struct err err;
        prepare();
        write_text("install/report.json",
                   "{\"installed\": [{\"name\": \"a\\u001b[2J\", \"version\": \"1\"}, {\"name\": \"b\", \"version\": "
                   "\"<script>\"}, 7, {\"name\": \"c\", \"version\": \"1.0\"}], \"replaced\": [\"../x\", {}, \"c\"], "
                   "\"covers_image\": true, \"more\": 1}");
        ok(settle(&report, &err) == 0, "names that are none are left out");
        json_t *expected = json_pack("{s:[{s:s, s:s}], s:[s], s:b}", "installed", "name", "c", "version", "1.0",
                                     "replaced", "c", "covers_image", 1);
        ok(json_equal(report, expected), "and so is everything that was not requested");
        ok(packages_cover_image(state), "packages over the image's are remembered");
        json_decref(expected);
        json_decref(report);
        scratch_remove(state);
}

static void test_hostile(void) {
        char path[600];
        prepare();
        (void) snprintf(path, sizeof(path), "%s/install/current/lib/fifo", state);
        must(mkfifo(path, 0644) == 0, path);
        refuses("a FIFO", "no file");
        prepare();
        (void) snprintf(path, sizeof(path), "%s/install/current/lib/new.py", state);
        must(chmod(path, 04755) == 0, path);
        refuses("a set-user-id file", "set-user-id");
        prepare();
        for (int i = 0; i < 20; i++) {
                char name[64];
                (void) snprintf(name, sizeof(name), "install/current/lib/%d", i);
                write_text(name, "");
        }
        refuses("too many files", "more than 20 files");
        prepare();
        static char zeros[2 << 20];
        memset(zeros, 1, sizeof(zeros));
        scratch_write(state, "install/current/lib/large", zeros, sizeof(zeros));
        refuses("too many bytes", "disk limit");
        prepare();
        (void) snprintf(path, sizeof(path), "%s/install/current", state);
        scratch_remove(path);
        must(symlink("/etc", path) == 0, path);
        refuses("a link instead of the packages", "looking through");
        prepare();
        (void) snprintf(path, sizeof(path), "%s/install/report.json", state);
        must(unlink(path) == 0 && symlink("/etc/passwd", path) == 0, path);
        refuses("a link instead of the report", "did not report");
        prepare();
        (void) snprintf(path, sizeof(path), "%s/install/report.json", state);
        must(unlink(path) == 0 && mkfifo(path, 0644) == 0, path);
        refuses("a FIFO instead of the report", "did not report");
        prepare();
        (void) snprintf(path, sizeof(path), "%s/install/current", state);
        for (int i = 0; i < 70; i++) {
                size_t size = strlen(path);
                (void) snprintf(path + size, sizeof(path) - size, "/d");
                must(mkdir(path, 0755) == 0, path);
        }
        refuses("a tree without an end", "20 files");
}

static void test_links_are_not_followed(void) {
        json_t *report = NULL;
        struct err err;
        char path[600];
        prepare();
        (void) snprintf(path, sizeof(path), "%s/install/current/lib/out", state);
        must(symlink("/usr", path) == 0, path);
        ok(settle(&report, &err) == 0 && is_there("packages/current/lib/out"),
           "a link that leads out is only a link: what it leads to is not counted");
        json_decref(report);
        scratch_remove(state);
}

int main(void) {
        test_good();
        test_report_is_cleaned();
        test_hostile();
        test_links_are_not_followed();
        return done_testing();
}
