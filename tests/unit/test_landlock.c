#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/seal/landlock.h"
#include "tap.h"

static char top[] = "/tmp/test_landlock.XXXXXX"; /* with open/ (writable), closed/ and closed/file */
static char open_dir[64], closed_dir[64];
static int abi;

/* Good until the fourth next call. */
static const char *path_in(const char *dir, const char *name) {
        static char paths[4][256];
        static size_t next;
        char *path = paths[next++ % 4];
        snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
        return path;
}

static int make_file(const char *path) {
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        return fd < 0 ? -errno : close(fd);
}

static int restrict_to_open_dir(void) {
        const char *writable[] = { open_dir };
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -errno;
        return landlock_restrict(writable, 1);
}

/* Each body runs in a child and returns 0, or the number of its step that went wrong. */
static int body_files(void) {
        if (restrict_to_open_dir() < 0)
                return 1;
        int fd = open(path_in(closed_dir, "file"), O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return 2;
        if (open(path_in(closed_dir, "file"), O_WRONLY | O_CLOEXEC) >= 0 || errno != EACCES)
                return 3;
        if (make_file(path_in(closed_dir, "new")) != -EACCES)
                return 4;
        if (unlink(path_in(closed_dir, "file")) == 0 || errno != EACCES)
                return 5;
        if (abi >= 3 && (truncate(path_in(closed_dir, "file"), 0) == 0 || errno != EACCES))
                return 6;
        if (make_file(path_in(open_dir, "new")) < 0 || mkdir(path_in(open_dir, "sub"), 0700) < 0)
                return 7;
        if (symlink("new", path_in(open_dir, "link")) < 0 || mkfifo(path_in(open_dir, "fifo"), 0600) < 0)
                return 8;
        if (abi >= 2 && rename(path_in(open_dir, "new"), path_in(open_dir, "sub/new")) < 0)
                return 9;
        if (link(path_in(closed_dir, "file"), path_in(open_dir, "stolen")) == 0)
                return 10;
        return 0;
}

static int body_devices(void) {
        if (restrict_to_open_dir() < 0)
                return 1;
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd < 0 || write(fd, "x", 1) != 1)
                return 2;
        char byte;
        fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, &byte, 1) != 1)
                return 3;
        return 0;
}

static int body_programs(void) {
        if (restrict_to_open_dir() < 0)
                return 1;
        execl("/bin/sh", "sh", "-c", "exit 0", (char *) NULL);
        return 2;
}

static int body_missing_directory(void) {
        const char *writable[] = { path_in(top, "not-there") };
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return 1;
        return landlock_restrict(writable, 1) == -ENOENT ? 0 : 2;
}

static int body_signals(void) {
        pid_t outside = getppid();
        if (restrict_to_open_dir() < 0)
                return 1;
        if (kill(outside, 0) == 0 || errno != EPERM)
                return 2;
        pid_t own = fork();
        if (own == 0)
                _exit(0);
        int status;
        if (own < 0 || kill(own, 0) < 0 || waitpid(own, &status, 0) != own)
                return 3;
        return 0;
}

/* An abstract socket with a name the kernel picks, bound before the restriction by the parent. */
static struct sockaddr_un outside_address;
static socklen_t outside_length;

static int body_abstract_socket(void) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || restrict_to_open_dir() < 0)
                return 1;
        if (connect(fd, (struct sockaddr *) &outside_address, outside_length) == 0 || errno != EPERM)
                return 2;
        return 0;
}

static int listen_abstract(void) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_un any = { .sun_family = AF_UNIX };
        outside_length = sizeof(outside_address);
        if (fd < 0 || bind(fd, (struct sockaddr *) &any, offsetof(struct sockaddr_un, sun_path)) < 0 ||
            listen(fd, 1) < 0 || getsockname(fd, (struct sockaddr *) &outside_address, &outside_length) < 0)
                abort();
        return fd;
}

static int run_child(int (*body)(void)) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
                _exit(body());
        int status = -1;
        return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const struct {
        const char *promise;
        int (*body)(void);
        int min_abi;
} tests[] = {
        { "everything is readable, only writable directories are written", body_files, 1 },
        { "devices of every box stay open", body_devices, 1 },
        { "programs of the image run", body_programs, 1 },
        { "a writable directory that is not there is an error", body_missing_directory, 1 },
        { "signals stay inside", body_signals, 6 },
        { "abstract sockets outside are out of reach", body_abstract_socket, 6 },
};

int main(void) {
        abi = landlock_abi();
        if (!mkdtemp(top))
                return 1;
        snprintf(open_dir, sizeof(open_dir), "%s/open", top);
        snprintf(closed_dir, sizeof(closed_dir), "%s/closed", top);
        if (mkdir(open_dir, 0700) < 0 || mkdir(closed_dir, 0700) < 0 || make_file(path_in(closed_dir, "file")) < 0)
                return 1;
        int listener_fd = listen_abstract();
        for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
                if (abi < tests[i].min_abi) {
                        ok(1, "%s # SKIP needs Landlock ABI %d, the kernel has %d", tests[i].promise, tests[i].min_abi,
                           abi);
                        continue;
                }
                int step = run_child(tests[i].body);
                ok(step == 0, "%s (step %d)", tests[i].promise, step);
        }
        static const char *const leftovers[] = { "open/link", "open/fifo", "open/new", "open/sub/new", "closed/file" };
        for (size_t i = 0; i < sizeof(leftovers) / sizeof(leftovers[0]); i++)
                (void) unlink(path_in(top, leftovers[i]));
        static const char *const directories[] = { "open/sub", "open", "closed", "" };
        for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
                (void) rmdir(path_in(top, directories[i]));
        fd_close(&listener_fd);
        ok(access(top, F_OK) < 0, "nothing is left behind");
        return done_testing();
}
