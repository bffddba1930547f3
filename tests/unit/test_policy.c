#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/policy.h"
#include "tap.h"

/* The tree that every test works in; it is the whole world that the test may change. */
static char top[] = "/tmp/test_policy.XXXXXX";

/* Good until the eighth next call. */
static const char *in_top(const char *name) {
        static char paths[8][512];
        static size_t next;
        char *path = paths[next++ % 8];
        snprintf(path, sizeof(paths[0]), "%s/%s", top, name);
        return path;
}

static void make_dir(const char *name) {
        if (mkdir(in_top(name), 0755) < 0)
                abort();
}

static void make_file(const char *name) {
        int fd = open(in_top(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0 || close(fd) < 0)
                abort();
}

static void make_link(const char *target, const char *name) {
        if (symlink(target, in_top(name)) < 0)
                abort();
}

static struct err last;

static enum err_code decide(const struct policy *policy, const char *source, bool writable) {
        _cleanup_fd_ int fd = -1;
        last = (struct err) { 0 };
        return policy_open_source(policy, source, writable, &fd, &last) == 0 ? ERR_NONE : last.code;
}

static enum err_code decide_as_operator(const char *source, bool writable) {
        struct policy policy = { .is_operator = true, .state_dir = in_top("state") };
        return decide(&policy, source, writable);
}

#define refused(source, reason, ...)                                                                                   \
        do {                                                                                                           \
                bool _no = decide_as_operator(source, false) == ERR_REFUSED;                                           \
                ok(_no &&strstr(last.message, reason), __VA_ARGS__);                                                   \
                if (!_no || !strstr(last.message, reason))                                                             \
                        printf("# %s: %s\n", err_code_name(last.code), last.message);                                  \
        } while (0)

#define allowed(source, writable, ...)                                                                                 \
        do {                                                                                                           \
                bool _yes = decide_as_operator(source, writable) == ERR_NONE;                                          \
                ok(_yes, __VA_ARGS__);                                                                                 \
                if (!_yes)                                                                                             \
                        printf("# %s: %s\n", err_code_name(last.code), last.message);                                  \
        } while (0)

static void build_world(void) {
        static const char *const directories[] = {
                "home",         "home/.ssh", "home/.ssh/deep", "home/.ssh/deep/below",
                "home/project", "newhome",   "state",          "state/box",
                "data",         "data/a",    "data/b",         "data/in",
                "data/out"
        };
        if (!mkdtemp(top))
                abort();
        for (size_t i = 0; i < ELEMENTS(directories); i++)
                make_dir(directories[i]);
        make_file("home/.ssh/id");
        make_file("data/a/file");
        make_link("/etc", "data/etc");
        make_link("../home/.ssh", "data/keys");
        make_link("nowhere", "data/dangling");
        make_link("loop", "data/loop");
        make_link("/proc/self/root", "data/root");
        make_dir("home/dotfiles");
        make_dir("home/dotfiles/aws");
        make_link("dotfiles/aws", "home/.aws");
        setenv("HOME", in_top("home"), 1);
        unsetenv("DOCKER_HOST");
        unsetenv("CONTAINER_HOST");
}

static void test_never_mountable(void) {
        refused("/", "whole host", "the root");
        refused("/../..", "whole host", "the root by another name");
        refused("/etc", "/etc", "/etc");
        refused("/etc/passwd", "/etc", "a file below /etc");
        refused("/proc", "/proc", "/proc");
        refused("/proc/self/fd", "/proc", "below /proc");
        refused("/sys", "/sys", "/sys");
        refused("/dev", "/dev", "/dev");
        refused("/run", "/run", "/run");
        refused("/var/run", "/run", "/var/run, wherever it leads");
        refused(in_top("data/etc"), "it is /etc", "a link to /etc, named by where it leads");
        refused(in_top("data/root"), "whole host", "the root through /proc");
        refused(in_top("state"), "own state", "Glovebox's state");
        refused(in_top("state/box"), "own state", "below Glovebox's state");
        refused(in_top(""), "it contains", "above Glovebox's state");
}

static void test_homes(void) {
        refused(in_top("home/.ssh"), ".ssh", "keys");
        refused(in_top("home/.ssh/deep"), ".ssh", "below keys");
        refused(in_top("home/.ssh/id"), ".ssh", "one key");
        refused(in_top("data/keys"), ".ssh", "a link to keys");
        refused(in_top("home"), "it contains", "a home that holds keys");
        ok(strstr(last.message, in_top("home/.ssh")) != NULL, "what it contains is named");
        refused(in_top("home/dotfiles/aws"), ".aws", "where a link in the home leads");
        refused(in_top("home/dotfiles"), "it contains", "above where a link in the home leads");
        allowed(in_top("home/project"), true, "a project in the home");

        setenv("HOME", in_top("newhome"), 1);
        allowed(in_top("newhome"), false, "a home without secrets may be read");
        ok(decide_as_operator(in_top("newhome"), true) == ERR_REFUSED && strstr(last.message, "could create"),
           "but not be written: a box could put a key there");
        setenv("HOME", "relative", 1);
        allowed(in_top("data"), false, "a HOME that is no path is no rule");
        setenv("HOME", in_top("home"), 1);
}

static void test_kinds(void) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", in_top("data/socket"));
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0 ||
            mkfifo(in_top("data/fifo"), 0600) < 0)
                abort();
        refused(in_top("data/socket"), "socket", "a socket");
        refused(in_top("data/fifo"), "FIFO", "a FIFO, without waiting for it");
        refused("/dev/null", "device", "a device");
        allowed(in_top("data"), false, "a directory");
        allowed(in_top("data/a/file"), false, "a plain file");

        char engine[600];
        snprintf(engine, sizeof(engine), "unix://%s", in_top("data/socket"));
        setenv("DOCKER_HOST", engine, 1);
        refused(in_top("data"), "it contains", "a directory with a container engine's socket in it");
        unsetenv("DOCKER_HOST");
}

static void test_missing(void) {
        ok(decide_as_operator(in_top("data/none"), false) == ERR_NOT_FOUND && strstr(last.message, "does not exist"),
           "a missing source is said to be missing");
        ok(decide_as_operator(in_top("data/dangling"), false) == ERR_NOT_FOUND, "so is where a link leads to nothing");
        ok(decide_as_operator("", false) == ERR_NOT_FOUND, "and so is the empty name");
        ok(decide_as_operator(in_top("data/loop"), false) == ERR_SYSTEM, "a loop of links is an error");

        make_dir("data/gone");
        _cleanup_fd_ int fd = open(in_top("data/gone"), O_PATH | O_CLOEXEC);
        if (fd < 0 || rmdir(in_top("data/gone")) < 0)
                abort();
        char path[64];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        refused(path, "deleted", "a directory that was deleted");
        make_dir("data/odd (deleted)");
        allowed(in_top("data/odd (deleted)"), false, "a name that only looks deleted");
        decide_as_operator(in_top("data/new\nline\x1b[2J"), false);
        ok(strpbrk(last.message, "\n\x1b") == NULL, "a message holds no control bytes");
}

static bool fd_is(int fd, const char *path) {
        struct stat a, b;
        return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static void test_swapped_link(void) {
        struct policy policy = { .is_operator = true };
        _cleanup_fd_ int fd = -1;
        make_link("a", "data/link");
        ok(policy_open_source(&policy, in_top("data/link"), false, &fd, &last) == 0, "a link to a good place is fine");
        if (unlink(in_top("data/link")) < 0)
                abort();
        make_link("../home/.ssh", "data/link");
        ok(fd_is(fd, in_top("data/a")), "and the descriptor stays what was checked when the link is swapped");
        refused(in_top("data/link"), ".ssh", "asked again, the new place is refused");
}

static void test_lists(void) {
        const char *const none[] = { NULL };
        char in[512], out[512], etc[512];
        snprintf(in, sizeof(in), "%s", in_top("data/in"));
        snprintf(out, sizeof(out), "%s", in_top("data/out"));
        snprintf(etc, sizeof(etc), "%s", in_top("data/etc"));
        make_dir("data/in/sub");
        make_dir("data/inner");
        make_link("../a", "data/in/way-out");
        const char *const reads[] = { in, NULL }, *const writes[] = { out, NULL };
        const char *const everything[] = { "/", NULL }, *const odd[] = { "", "data", "/not-there", etc, NULL };
        struct policy policy = { .read_paths = reads, .write_paths = writes };
        ok(decide(&policy, in, false) == ERR_NONE, "a listed path may be read");
        ok(decide(&policy, in_top("data/in/sub"), false) == ERR_NONE, "and what is below it");
        ok(decide(&policy, in, true) == ERR_REFUSED, "but not written");
        ok(decide(&policy, out, true) == ERR_NONE && decide(&policy, out, false) == ERR_NONE,
           "what may be written may be read");
        ok(decide(&policy, in_top("data/inner"), false) == ERR_REFUSED, "a longer name is another place");
        ok(decide(&policy, in_top("data/in/way-out"), false) == ERR_REFUSED, "a link leads out of the list");
        ok(decide(&policy, in_top("data/in/../a"), false) == ERR_REFUSED, "and so does ..");
        ok(decide(&policy, in_top("data"), false) == ERR_REFUSED, "above a listed path is not listed");
        ok(decide(&policy, "data/in", false) == ERR_USAGE, "a relative source is refused");
        ok(decide(&policy, in_top("data/in/none"), false) == ERR_NOT_FOUND, "a missing source in the list is missing");
        ok(decide(&policy, in_top("data/none"), false) == ERR_REFUSED, "elsewhere callers do not learn what exists");

        struct policy empty = { .read_paths = none, .write_paths = none };
        ok(decide(&empty, in, false) == ERR_REFUSED, "empty lists deny");
        struct policy missing = { 0 };
        ok(decide(&missing, in, false) == ERR_REFUSED, "no lists deny");
        struct policy strange = { .read_paths = odd };
        ok(decide(&strange, in, false) == ERR_REFUSED, "entries that are no path allow nothing");
        ok(decide(&strange, "/etc", false) == ERR_REFUSED, "an entry that leads to /etc does not allow it");
        struct policy wide = { .read_paths = everything, .write_paths = everything };
        ok(decide(&wide, "/etc", false) == ERR_REFUSED && decide(&wide, in_top("home/.ssh"), true) == ERR_REFUSED,
           "a list of everything does not allow what is never mountable");
}

/* Bind mounts give other names to forbidden places; made in a mount namespace of a child of our own. */
static int body_bind_mounts(void) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return 77;
        if (mount(in_top("home/.ssh"), in_top("data/a"), NULL, MS_BIND, NULL) < 0)
                return 1;
        if (decide_as_operator(in_top("data/a"), false) != ERR_REFUSED)
                return 2;
        if (decide_as_operator(in_top("data/a/deep"), false) != ERR_REFUSED)
                return 3;
        /* A directory mounted on one below itself: the walk to the root must not stop there. */
        if (mount(in_top("data/a/deep"), in_top("data/a/deep/below"), NULL, MS_BIND, NULL) < 0)
                return 4;
        if (decide_as_operator(in_top("data/a/deep/below"), false) != ERR_REFUSED)
                return 5;
        return decide_as_operator(in_top("data/b"), false) == ERR_NONE ? 0 : 6;
}

static void test_bind_mounts(void) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
                _exit(body_bind_mounts());
        int status = -1;
        int step = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (step == 77)
                ok(1, "bind mounts of forbidden places are refused # SKIP needs the right to mount");
        else
                ok(step == 0, "bind mounts of forbidden places are refused (step %d)", step);
}

static const struct {
        const char *path;
        enum err_code code;
} destinations[] = {
        { "/data", ERR_NONE },
        { "/data/set", ERR_NONE },
        { "/mnt/x", ERR_NONE },
        { "/tmp/x", ERR_NONE },
        { "/workspace/in", ERR_NONE },
        { "/home/me", ERR_NONE },
        { "/procedure", ERR_NONE },
        { "/opt/tool", ERR_NONE },
        { "/a b", ERR_NONE },
        { "/d\xc3\xa4ten", ERR_NONE },
        { "/...", ERR_NONE },
        { "", ERR_USAGE },
        { "data", ERR_USAGE },
        { "./data", ERR_USAGE },
        { "/", ERR_USAGE },
        { "//", ERR_USAGE },
        { "/data/", ERR_USAGE },
        { "/data//x", ERR_USAGE },
        { "//data", ERR_USAGE },
        { "/data/..", ERR_USAGE },
        { "/../data", ERR_USAGE },
        { "/data/./x", ERR_USAGE },
        { "/.", ERR_USAGE },
        { "/da\nta", ERR_USAGE },
        { "/\x1b[2J", ERR_USAGE },
        { "/a\x7f", ERR_USAGE },
        { "/proc", ERR_REFUSED },
        { "/proc/sys", ERR_REFUSED },
        { "/sys", ERR_REFUSED },
        { "/dev/shm", ERR_REFUSED },
        { "/etc", ERR_REFUSED },
        { "/etc/passwd", ERR_REFUSED },
        { "/run/x", ERR_REFUSED },
        { "/var/run", ERR_REFUSED },
        { "/usr", ERR_REFUSED },
        { "/usr/local", ERR_REFUSED },
        { "/bin", ERR_REFUSED },
        { "/sbin/x", ERR_REFUSED },
        { "/lib", ERR_REFUSED },
        { "/lib32", ERR_REFUSED },
        { "/lib64/x", ERR_REFUSED },
        { "/opt", ERR_REFUSED },
        { "/opt/glovebox", ERR_REFUSED },
        { "/opt/glovebox/agent", ERR_REFUSED },
        { "/tmp", ERR_REFUSED },
        { "/workspace", ERR_REFUSED },
        { "/session", ERR_REFUSED },
        { "/sandbox", ERR_REFUSED },
        { "/work", ERR_REFUSED },
};

static void test_destinations(void) {
        for (size_t i = 0; i < ELEMENTS(destinations); i++) {
                last = (struct err) { 0 };
                int code = policy_check_destination(destinations[i].path, &last);
                char shown[POLICY_SHOWN_MAX];
                ok((code == 0 ? ERR_NONE : last.code) == destinations[i].code, "destination \"%s\": %s",
                   policy_show_path(destinations[i].path, shown), err_code_name(destinations[i].code));
        }
        char name[300];
        memset(name, 'a', sizeof(name));
        name[0] = '/';
        name[256] = '\0';
        ok(policy_check_destination(name, &last) == 0, "a name of 255 bytes");
        name[256] = 'a';
        name[257] = '\0';
        ok(policy_check_destination(name, &last) < 0, "a name of 256 bytes is refused");
}

static void test_shown_paths(void) {
        char shown[POLICY_SHOWN_MAX];
        is_text(policy_show_path("/d\xc3\xa4ten", shown), "/d\xc3\xa4ten", "good UTF-8 stays");
        is_text(policy_show_path("\xff/a\xc3/\xed\xa0\x80\n", shown), "?/a?/????", "broken UTF-8 does not");
        char *longest = malloc(5000);
        memset(longest, 'x', 4999);
        longest[4999] = '\0';
        ok(strlen(policy_show_path(longest, shown)) == POLICY_SHOWN_MAX - 1 && strstr(shown, "x..."),
           "a long path is cut");
        free(longest);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk) {
        (void) st, (void) type, (void) walk;
        return remove(path);
}

int main(void) {
        build_world();
        test_never_mountable();
        test_homes();
        test_kinds();
        test_missing();
        test_swapped_link();
        test_lists();
        test_bind_mounts();
        test_destinations();
        test_shown_paths();
        ok(nftw(top, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) == 0, "nothing is left behind");
        return done_testing();
}
