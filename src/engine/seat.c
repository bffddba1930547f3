#include "engine/seat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/memory.h"
#include "base/syscalls.h"
#include "box/agent_image.h"
#include "engine/commands_image.h"
#include "engine/entry_image.h"
#include "engine/programs.h"

static char seat_root[520] = SEAT_ROOT;
static bool has_no_trees; /* the daemon is not root */

void seat_know(const char *data_dir, bool is_users) {
        has_no_trees = is_users;
        if (is_users)
                (void) snprintf(seat_root, sizeof(seat_root), "%.480s/engine-boxes", data_dir);
}

static int make_directory(const char *path, mode_t mode, struct err *err) {
        if (mkdir(path, mode) < 0 && errno != EEXIST)
                return err_sys(err, errno, "making %.300s", path);
        return 0;
}

static bool has_content(const char *path, const char *bytes, size_t size) {
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        struct stat status;
        _cleanup_free_ char *there = malloc(size);
        return fd >= 0 && there && fstat(fd, &status) == 0 && (size_t) status.st_size == size &&
               fd_read_exactly(fd, there, size) == 0 && memcmp(there, bytes, size) == 0;
}

/* One copy for all boxes, replaced by rename when another version of Glovebox starts. */
static int keep_program(const char *path, const char *bytes, size_t size, struct err *err) {
        char part[600];
        if (has_content(path, bytes, size))
                return 0;
        (void) snprintf(part, sizeof(part), "%.500s.%d", path, (int) getpid());
        _cleanup_fd_ int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0755);
        if (fd < 0 || fchmod(fd, 0755) < 0)
                return err_sys(err, errno, "writing %.300s", part);
        int code = fd_write_all(fd, bytes, size);
        if (code == 0 && rename(part, path) < 0)
                code = -errno;
        if (code < 0)
                (void) unlink(part);
        return code < 0 ? err_sys(err, -code, "writing %.300s", path) : 0;
}

/* In place of the files that engines make, which show the host's name and name servers. */
static const char own_hosts[] = "127.0.0.1 localhost sandbox\n::1 localhost\n";
static const char own_resolver[] = "# no name server: a box with a network has a proxy\n";

static int keep_programs(const char *directory, struct err *err) {
        const struct {
                const char *name, *bytes;
                size_t size;
        } programs[] = { { "agent", agent_image, agent_image_size() },
                         { "entry", entry_image, entry_image_size() },
                         { "commands", commands_image, commands_image_size() },
                         { "hosts", own_hosts, strlen(own_hosts) },
                         { "resolv.conf", own_resolver, strlen(own_resolver) } };
        if (make_directory(directory, 0755, err) < 0)
                return -1;
        if (chmod(directory, 0755) < 0) /* whatever the umask */
                return err_sys(err, errno, "opening %.300s to boxes", directory);
        for (size_t i = 0; i < ELEMENTS(programs); i++) {
                char path[600];
                (void) snprintf(path, sizeof(path), "%.500s/%s", directory, programs[i].name);
                if (keep_program(path, programs[i].bytes, programs[i].size, err) < 0)
                        return -1;
        }
        return 0;
}

/* By /proc/self/fd: the path of a data directory may be longer than a socket's address. */
static int listen_at(const char *inside, const char *name, int backlog, struct err *err) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        _cleanup_fd_ int dir = open(inside, O_PATH | O_DIRECTORY | O_CLOEXEC);
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (dir < 0 || fd < 0)
                return err_sys(err, errno, "opening %.300s", inside);
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", dir, name);
        if (bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 || fchmodat(dir, name, 0666, 0) < 0 ||
            listen(fd, backlog) < 0)
                return err_sys(err, errno, "listening in %.300s", inside);
        return take_fd(&fd);
}

int seat_open(const char *data_dir, const char *name, struct seat *ret_seat, struct err *err) {
        char programs[500], inside[540];
        ret_seat->n_mounts = 0;
        ret_seat->listen_fd = -1;
        int size = snprintf(programs, sizeof(programs), "%s/engine", data_dir);
        if (size < 0 || (size_t) size >= sizeof(programs))
                return err_set(err, ERR_USAGE, "the path of the data directory is too long for boxes of other engines");
        size = snprintf(ret_seat->path, sizeof(ret_seat->path), "%s/%s", seat_root, name);
        if (size < 0 || (size_t) size >= sizeof(ret_seat->path))
                return err_set(err, ERR_USAGE, "the path of the data directory is too long for boxes of other engines");
        (void) snprintf(inside, sizeof(inside), "%s/in", ret_seat->path);
        if (make_directory(seat_root, 0700, err) < 0 || make_directory(ret_seat->path, 0700, err) < 0 ||
            make_directory(inside, 0755, err) < 0 || keep_programs(programs, err) < 0)
                return -1;
        if (chmod(inside, 0755) < 0)
                return err_sys(err, errno, "opening %.300s to the box", inside);
        ret_seat->listen_fd = listen_at(inside, "socket", 1, err);
        if (ret_seat->listen_fd < 0 || seat_show_path(ret_seat, inside, ENGINE_SOCKET_DIR, false, err) < 0)
                return -1;
        char hosts[520], resolver[520];
        (void) snprintf(hosts, sizeof(hosts), "%s/hosts", programs);
        (void) snprintf(resolver, sizeof(resolver), "%s/resolv.conf", programs);
        if (seat_show_path(ret_seat, hosts, "/etc/hosts", false, err) < 0 ||
            seat_show_path(ret_seat, resolver, "/etc/resolv.conf", false, err) < 0)
                return -1;
        return seat_show_path(ret_seat, programs, ENGINE_PROGRAMS, false, err);
}

int seat_open_proxy(const struct seat *seat, struct err *err) {
        enum { BACKLOG = 128 };
        char inside[540];
        (void) snprintf(inside, sizeof(inside), "%s/in", seat->path);
        int fd = listen_at(inside, ENGINE_PROXY_NAME, BACKLOG, err);
        if (fd >= 0)
                fd_passing_refuse(fd); /* accepted connections inherit the setting */
        return fd;
}

int seat_show_path(struct seat *seat, const char *source, const char *destination, bool writable, struct err *err) {
        size_t n = seat->n_mounts;
        if (n == SEAT_MOUNTS_MAX)
                return err_set(err, ERR_LIMIT, "a box can have at most %d mounts", SEAT_MOUNTS_MAX);
        (void) snprintf(seat->sources[n], sizeof(seat->sources[n]), "%s", source);
        seat->attached[n] = false;
        seat->mounts[n] =
                (struct engine_mount) { .source = seat->sources[n], .destination = destination, .writable = writable };
        seat->n_mounts++;
        return 0;
}

int seat_show_tmpfs(struct seat *seat, const char *destination, uint64_t bytes, struct err *err) {
        if (seat_show_path(seat, "", destination, true, err) < 0)
                return -1;
        seat->mounts[seat->n_mounts - 1].source = NULL;
        seat->mounts[seat->n_mounts - 1].bytes = bytes;
        return 0;
}

static int show_source(struct seat *seat, const struct box_mount *mount, struct err *err) {
        char link[64], path[560];
        (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", mount->tree_fd);
        ssize_t size = readlink(link, path, sizeof(path));
        if (size <= 0 || (size_t) size >= sizeof(path) || *path != '/')
                return err_set(err, ERR_UNSUPPORTED,
                               "what is to be shown at %.200s has no path of its own, or a long one",
                               mount->destination);
        path[size] = '\0';
        return seat_show_path(seat, path, mount->destination, mount->writable, err);
}

int seat_show_tree(struct seat *seat, const struct box_mount *mount, struct err *err) {
        char path[560];
        if (has_no_trees)
                return show_source(seat, mount, err);
        size_t n = seat->n_mounts;
        (void) snprintf(path, sizeof(path), "%s/%zu", seat->path, n);
        int made =
                mount->is_directory ? mkdir(path, 0700) : open(path, O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (made < 0 && errno != EEXIST)
                return err_sys(err, errno, "making %.300s", path);
        if (!mount->is_directory)
                fd_close(&made);
        if (seat_show_path(seat, path, mount->destination, mount->writable, err) < 0)
                return -1;
        if (sys_move_mount(mount->tree_fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return err_sys(err, errno, "attaching what is to be shown at %.200s", mount->destination);
        seat->attached[n] = true;
        return 0;
}

void seat_release(struct seat *seat) {
        char path[560];
        for (size_t i = 0; i < seat->n_mounts; i++)
                if (seat->attached[i])
                        (void) umount2(seat->sources[i], MNT_DETACH | UMOUNT_NOFOLLOW);
        (void) snprintf(path, sizeof(path), "%s/in/socket", seat->path);
        (void) unlink(path);
        fd_close(&seat->listen_fd);
        seat->n_mounts = 0;
}

void seat_remove(const char *name) {
        char path[600];
        for (int i = 0; i < SEAT_MOUNTS_MAX; i++) { /* a maker that died may have left one attached */
                (void) snprintf(path, sizeof(path), "%s/%.64s/%d", seat_root, name, i);
                if (access(path, F_OK) < 0)
                        continue;
                (void) umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
                if (rmdir(path) < 0)
                        (void) unlink(path); /* an empty file; fails if something is still mounted */
        }
        static const char *const rest[] = { "/in/socket", ("/in/" ENGINE_PROXY_NAME), ("/in/" ENGINE_ARGUMENTS_NAME),
                                            "/in", "" };
        for (size_t i = 0; i < ELEMENTS(rest); i++) {
                (void) snprintf(path, sizeof(path), "%s/%.64s%s", seat_root, name, rest[i]);
                (void) remove(path);
        }
}

void seat_sweep(const char *prefix, bool (*is_used)(const char *name, void *context), void *context) {
        enum { YOUNG_S = 120 };
        DIR *directory = opendir(seat_root);
        struct dirent *entry;
        while (directory && (entry = readdir(directory))) {
                struct stat status;
                if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && *entry->d_name != '.' &&
                    fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                    status.st_mtime < time(NULL) - YOUNG_S && !is_used(entry->d_name, context))
                        seat_remove(entry->d_name);
        }
        if (directory)
                (void) closedir(directory);
}
