/* How much room a tree takes, however it was built; and the numbers of project quotas, which few kernels here have. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/remove_tree.h"
#include "scratch.h"
#include "store/disk_measure.h"
#include "store/project_quota.h"
#include "tap.h"

static struct disk_amount measure(int fd, uint64_t max_files) {
        struct disk_counters *counters = disk_counters_make(max_files);
        disk_counters_add_tree(counters, fd);
        const struct disk_amount amount = disk_counters_amount(counters);
        disk_counters_free(counters);
        return amount;
}

static void write_file(int dir_fd, const char *name, size_t size) {
        static const char block[4096] = { 1 };
        _cleanup_fd_ int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        for (size_t n = 0; n < size; n += sizeof(block))
                if (fd < 0 || write(fd, block, sizeof(block)) != (ssize_t) sizeof(block))
                        abort();
}

static void test_kinds(int top) {
        (void) mkdirat(top, "kinds", 0700);
        _cleanup_fd_ int dir = openat(top, "kinds", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        uint64_t empty = measure(dir, 100).bytes;
        write_file(dir, "file", 1 << 20);
        ok(measure(dir, 100).bytes - empty >= 1 << 20 && measure(dir, 100).files == 1, "a file counts");
        ok(linkat(dir, "file", dir, "again", 0) == 0 && linkat(dir, "file", dir, "and again", 0) == 0 &&
                   measure(dir, 100).bytes - empty < 2 << 20 && measure(dir, 100).files == 3,
           "once, whatever names it has");
        _cleanup_fd_ int hole = openat(dir, "hole", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        ok(ftruncate(hole, 1ll << 32) == 0 && measure(dir, 100).bytes - empty < 2 << 20, "a hole takes no room");
        ok(symlinkat("/", dir, "link") == 0 && measure(dir, 100).files == 5, "a link is not followed");
        ok(!measure(dir, 5).is_cut && measure(dir, 4).is_cut, "past the limit it is cut");
        _cleanup_fd_ int removed __attribute__((unused)) = openat(dir, "removed", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        write_file(dir, "removed", 1 << 20);
        (void) unlinkat(dir, "removed", 0);
        struct disk_counters *counters = disk_counters_make(100);
        const int self = getpid();
        disk_counters_add_removed(counters, dir, &self, 1);
        disk_counters_add_removed(counters, dir, &self, 1);
        uint64_t bytes = disk_counters_amount(counters).bytes;
        ok(bytes >= 1 << 20 && bytes < 2 << 20, "a removed file that is open counts, once: %llu",
           (unsigned long long) bytes);
        disk_counters_free(counters);
}

static void test_depth(int top) {
        enum { DEPTH = 1500 };
        struct rlimit files;
        int at = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (int i = 0; i < DEPTH; i++) {
                (void) mkdirat(at, "d", 0700);
                int below = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                (void) close(at);
                at = below;
        }
        write_file(at, "file", 1 << 20);
        (void) close(at);
        (void) getrlimit(RLIMIT_NOFILE, &files);
        struct rlimit many = { files.rlim_max, files.rlim_max };
        (void) setrlimit(RLIMIT_NOFILE, &many);
        struct disk_amount amount = measure(top, 100000);
        if (files.rlim_max > DEPTH + 100)
                ok(!amount.is_cut && amount.bytes >= 1 << 20 && amount.files > DEPTH, "1,500 levels are walked");
        else
                ok(amount.is_cut, "what is too deep for us counts as too much");
        files.rlim_cur = 256;
        (void) setrlimit(RLIMIT_NOFILE, &files);
        ok(measure(top, 100000).is_cut, "without descriptors for it, it counts as too much");
}

/* A directory with many directories in it is not read again from its start for each. */
static void test_breadth(int top) {
        enum { BREADTH = 3000 };
        (void) mkdirat(top, "wide", 0700);
        _cleanup_fd_ int dir = openat(top, "wide", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (int i = 0; i < BREADTH; i++) {
                char name[16];
                (void) snprintf(name, sizeof(name), "%d", i);
                (void) mkdirat(dir, name, 0700);
        }
        ok(measure(dir, 100000).files == BREADTH, "every one of 3,000 directories is counted once");
}

static void test_quota(int top) {
        uint32_t number = project_quota_number("01hzy3v7k1m8q9c2e5r7t0w4xz");
        ok(project_quota_is_ours(number) && project_quota_number("other") != number, "a session has a number of ours");
        for (int i = 0; i < 3000000 && project_quota_is_ours(number); i++)
                number = project_quota_next(number);
        ok(project_quota_is_ours(number), "and so have all that are tried after it");
        ok(!project_quota_is_ours(0) && !project_quota_is_ours(1000) && !project_quota_is_ours(0x48000000),
           "other programs' numbers are none of ours");
        int code = project_quota_set(top, "name", 1 << 20, 10);
        if (code < 0) {
                ok(!project_quota_is_set(top), "where there are no quotas (%s), nothing was changed", strerror(-code));
                return;
        }
        ok(project_quota_is_set(top), "a quota is set");
        project_quota_clear(top);
        ok(!project_quota_is_set(top), "and gone again");
}

int main(void) {
        char path[256];
        scratch_make(path);
        _cleanup_fd_ int top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        test_kinds(top);
        test_breadth(top);
        test_quota(top);
        test_depth(top);
        remove_tree(path); /* deeper than nftw can go */
        return done_testing();
}
