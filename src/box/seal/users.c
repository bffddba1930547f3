#include "box/seal/users.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/syscalls.h"
#include "box/seal/mount_point.h"
#include "box/seal/privilege.h"
#include "box/seal/tree.h"

enum { ETC_DEPTH_MAX = 16, ETC_FILE_MAX = 4 << 20, ETC_LIST_MAX = 256 << 10 };

/* ---- places ---- */

static const char *const places[] = { "/etc", "/home", "/root", "/run", "/var", "/srv", "/mnt", "/media" };
_Static_assert(ELEMENTS(places) <= USERS_PLACES_MAX, "the header says how many there are at most");

size_t users_places(const char *ret_places[static USERS_PLACES_MAX]) {
        size_t n = 0;
        for (size_t i = 0; i < ELEMENTS(places); i++) {
                struct stat status;
                if (lstat(places[i], &status) == 0 && S_ISDIR(status.st_mode)) /* an image may have a link there */
                        ret_places[n++] = places[i];
        }
        return n;
}

/* Over itself: the mount of the root becomes read-only later, and this one does not. */
static int keep_writable(const char *place) {
        const char *relative = place + 1;
        return mount(relative, relative, NULL, MS_BIND | MS_REC, NULL) < 0 ? -errno : 0;
}

/* Root's home in an image is closed to all but the owner of its files, and that is not root of the box. */
static int cover_home(int target_fd) {
        enum { HOME_BYTES = 32 << 20, HOME_FILES = 4096 };
        _cleanup_fd_ int tree = tree_make_tmpfs(HOME_BYTES, HOME_FILES, BOX_ROOT_UID, BOX_ROOT_UID, 0700);
        return tree < 0 ? tree : mount_point_put(tree, target_fd);
}

static int make_place(const struct stage *stage, const char *place) {
        bool is_home = strcmp(place, "/root") == 0;
        _cleanup_fd_ int fd = mount_point_make_directory(stage->root_fd, place);
        if (fd == -ENOTDIR || fd == -ELOOP)
                return 0; /* the image has something else there */
        struct stat root, found;
        if (fd < 0 || fstat(stage->root_fd, &root) < 0 || fstat(fd, &found) < 0)
                return fd < 0 ? fd : -errno;
        if (is_home)
                return cover_home(fd);
        return found.st_dev == root.st_dev ? keep_writable(place) : 0; /* else it is the image's own */
}

int users_make_writable(const struct stage *stage) {
        int code = 0;
        for (size_t i = 0; i < ELEMENTS(places) && code == 0; i++)
                code = make_place(stage, places[i]);
        return code;
}

/* ---- /etc ---- */

static int copy_directory(int from_fd, int to_fd, unsigned depth);

/* Unreadable files are left out: they are closed to others on the host, or in the image. */
static int users_copy_file(int from_fd, const char *name, int to_fd, const struct stat *status) {
        _cleanup_fd_ int in = openat(from_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (in < 0)
                return errno == EACCES || errno == EPERM ? 0 : -errno;
        _cleanup_free_ char *text = NULL;
        size_t size;
        int code = fd_read_to_end(in, ETC_FILE_MAX, &text, &size);
        if (code < 0)
                return code;
        _cleanup_fd_ int out =
                openat(to_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, status->st_mode & 0777);
        return out < 0 ? -errno : fd_write_all(out, text, size);
}

static int copy_entry(int from_fd, const char *name, int to_fd, unsigned depth) {
        struct stat status;
        char target[4096];
        if (fstatat(from_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (S_ISREG(status.st_mode))
                return users_copy_file(from_fd, name, to_fd, &status);
        if (S_ISLNK(status.st_mode)) {
                ssize_t size = readlinkat(from_fd, name, target, sizeof(target) - 1);
                target[size < 0 ? 0 : size] = '\0';
                return size < 0 || symlinkat(target, to_fd, name) < 0 ? -errno : 0;
        }
        if (!S_ISDIR(status.st_mode))
                return 0; /* no device, socket or FIFO */
        if (depth == ETC_DEPTH_MAX || mkdirat(to_fd, name, status.st_mode & 0777) < 0)
                return depth == ETC_DEPTH_MAX ? -ELOOP : -errno;
        _cleanup_fd_ int from = openat(from_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (from < 0)
                return errno == EACCES || errno == EPERM ? 0 : -errno;
        _cleanup_fd_ int to = openat(to_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return to < 0 ? -errno : copy_directory(from, to, depth + 1);
}

static int copy_directory(int from_fd, int to_fd, unsigned depth) {
        _cleanup_fd_ int list_fd = openat(from_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_dir_ DIR *directory = list_fd < 0 ? NULL : fdopendir(list_fd);
        if (!directory)
                return -errno;
        (void) take_fd(&list_fd);
        int code = 0;
        for (const struct dirent *entry; code == 0 && (entry = dir_next(directory));)
                code = copy_entry(from_fd, entry->d_name, to_fd, depth);
        return code;
}

int users_copy_etc(int image_etc_fd, int etc_fd) {
        return copy_directory(image_etc_fd, etc_fd, 0);
}

/* Present in every box with users; the image's entries follow. Debian's adduser looks for the groups. */
static const struct {
        const char *name;
        mode_t mode;
        const char *text;
} etc_files[] = {
        { "passwd", 0644,
          "root:x:0:0:root:/root:/bin/sh\n"
          "sandbox:x:1000:1000:sandbox:" BOX_HOME ":/bin/sh\n"
          "nobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n" },
        { "group", 0644, "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\nusers:x:100:\n" },
        { "shadow", 0600, "root:*:19000:0:99999:7:::\nsandbox:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\n" },
        { "gshadow", 0600, "root:*::\nsandbox:*::\nnogroup:*::\nusers:*::\n" },
};

bool users_has_etc_file(const char *name) {
        for (size_t i = 0; i < ELEMENTS(etc_files); i++)
                if (strcmp(etc_files[i].name, name) == 0)
                        return true;
        return false;
}

/* True if `text` has a line with the same name, or with the same number in its third field. */
static bool has_user_line(const char *text, const char *line) {
        size_t name_size = strcspn(line, ":");
        const char *second = strchr(line, ':'), *number = second ? strchr(second + 1, ':') : NULL;
        size_t number_size = number ? strcspn(number + 1, ":") : 0;
        for (const char *at = text; *at; at += strcspn(at, "\n") + 1) {
                const char *own_second = strchr(at, ':');
                const char *own_number = own_second ? strchr(own_second + 1, ':') : NULL;
                if (strcspn(at, ":") == name_size && strncmp(at, line, name_size) == 0)
                        return true;
                if (own_number && strcspn(own_number + 1, ":") == number_size &&
                    strncmp(own_number + 1, number + 1, number_size) == 0)
                        return true;
        }
        return false;
}

/* Lines of the image's file that ours has not. */
static int append_others(int fd, const char *ours, char *theirs) {
        int code = 0;
        for (char *line; code == 0 && (line = strsep(&theirs, "\n"));) {
                if (!strchr(line, ':') || *line == '+' || *line == '-' || has_user_line(ours, line))
                        continue;
                code = fd_write_all(fd, line, strlen(line));
                if (code == 0)
                        code = fd_write_all(fd, "\n", 1);
        }
        return code;
}

static int write_etc_file(int etc_fd, size_t i) {
        const char *name = etc_files[i].name;
        bool merges = etc_files[i].mode == 0644;
        _cleanup_free_ char *theirs = NULL;
        _cleanup_fd_ int old = openat(etc_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (old >= 0 && merges && fd_read_to_end(old, ETC_LIST_MAX, &theirs, NULL) < 0)
                theirs = NULL;
        (void) unlinkat(etc_fd, name, 0);
        _cleanup_fd_ int fd =
                openat(etc_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, etc_files[i].mode);
        int code = fd < 0 ? -errno : fd_write_all(fd, etc_files[i].text, strlen(etc_files[i].text));
        return code < 0 || !theirs ? code : append_others(fd, etc_files[i].text, theirs);
}

/* Files that programs for managing users need, if the image lacks them: the skeleton of a home directory, and PAM rules
 * that allow root everything (chfn, chpasswd, su). */
static int make_missing(int etc_fd) {
        static const char policy[] = "auth sufficient pam_rootok.so\nauth required pam_deny.so\n"
                                     "account required pam_permit.so\npassword required pam_unix.so\n"
                                     "session required pam_permit.so\n";
        if (mkdirat(etc_fd, "skel", 0755) < 0 && errno != EEXIST)
                return -errno;
        if (mkdirat(etc_fd, "pam.d", 0755) < 0)
                return errno == EEXIST ? 0 : -errno;
        _cleanup_fd_ int fd = openat(etc_fd, "pam.d", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? -errno : mount_point_write_in(fd, "other", policy, sizeof(policy) - 1);
}

int users_write_etc(int etc_fd) {
        int code = make_missing(etc_fd);
        for (size_t i = 0; i < ELEMENTS(etc_files) && code == 0; i++)
                code = write_etc_file(etc_fd, i);
        return code;
}

/* ---- the second user namespace ---- */

static int users_write_map(pid_t pid, const char *file) {
        char path[64], line[32];
        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
        int length = snprintf(line, sizeof(line), "0 0 %d", BOX_IDS);
        _cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, line, (size_t) length);
}

/* In the first namespace, where its capabilities are. */
static void map_parent(pid_t parent, int go_fd) __attribute__((noreturn));
static void map_parent(pid_t parent, int go_fd) {
        char go;
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        int code = fd_read_exactly(go_fd, &go, 1);
        if (code == 0)
                code = users_write_map(parent, "gid_map");
        if (code == 0)
                code = users_write_map(parent, "uid_map");
        _exit(code < 0 ? -code : 0);
}

/* 0 if the child that maps the users did so; else -errno. */
static int wait_for_maps(pid_t child) {
        pid_t ended;
        int status = 0;
        while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR)
                ;
        return ended == child && WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

int users_lock(struct stage *stage, struct err *err) {
        int ends[2];
        /* Before the namespace, which takes them over as bounds of all its users. */
        int code = privilege_set_user_rlimits(&stage->spec->limits, stage->has_pids_cgroup);
        if (code < 0)
                return err_sys(err, -code, "bounding the users of the box");
        if (pipe2(ends, O_CLOEXEC) < 0)
                return err_sys(err, errno, "making a pipe");
        _cleanup_fd_ int wait_fd = ends[0];
        _cleanup_fd_ int go_fd = ends[1];
        const pid_t self = getpid(), child = fork();
        if (child == 0) {
                fd_close(&go_fd);
                map_parent(self, wait_fd);
        }
        if (child < 0)
                return err_sys(err, errno, "locking the mounts");
        if (unshare(CLONE_NEWUSER) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
                code = -errno;
        if (code == 0)
                code = fd_write_all(go_fd, "g", 1);
        fd_close(&go_fd); /* without a byte, the child ends */
        const int mapped = wait_for_maps(child);
        if (code == 0)
                code = mapped;
        return code < 0 ? err_sys(err, -code, "mapping the users of the box") : 0;
}
