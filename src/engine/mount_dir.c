#include "engine/mount_dir.h"

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

static char mount_dir_root[520] = MOUNT_DIR_ROOT;
static bool gives_paths; /* the daemon is not root, so it cannot attach trees */

void mount_dir_configure(const char *data_dir, bool daemon_is_user) {
        gives_paths = daemon_is_user;
        if (daemon_is_user)
                (void) snprintf(mount_dir_root, sizeof(mount_dir_root), "%.480s/engine-boxes", data_dir);
}

static int make_dir_if_missing(const char *path, mode_t mode, struct err *err) {
        if (mkdir(path, mode) < 0 && errno != EEXIST)
                return err_sys(err, errno, "making %.300s", path);
        return 0;
}

static bool file_has_content(const char *path, const char *bytes, size_t size) {
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        struct stat status;
        _cleanup_free_ char *there = malloc(size);
        return fd >= 0 && there && fstat(fd, &status) == 0 && (size_t) status.st_size == size &&
               fd_read_exactly(fd, there, size) == 0 && memcmp(there, bytes, size) == 0;
}

/* All boxes share one copy. Another version of Glovebox replaces it by rename, since boxes may be using it. */
static int write_box_program(const char *path, const char *bytes, size_t size, struct err *err) {
        char part[600];
        if (file_has_content(path, bytes, size))
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

/* They replace the files that engines make, which show the host's name and name servers. */
static const char own_hosts[] = "127.0.0.1 localhost sandbox\n::1 localhost\n";
static const char own_resolver[] = "# no name server: a box with a network has a proxy\n";

static int write_box_programs(const char *directory, struct err *err) {
        const struct {
                const char *name, *bytes;
                size_t size;
        } programs[] = { { "agent", agent_image, agent_image_size() },
                         { "entry", entry_image, entry_image_size() },
                         { "commands", commands_image, commands_image_size() },
                         { "hosts", own_hosts, strlen(own_hosts) },
                         { "resolv.conf", own_resolver, strlen(own_resolver) } };
        if (make_dir_if_missing(directory, 0755, err) < 0)
                return -1;
        if (chmod(directory, 0755) < 0) /* the umask may have cleared bits */
                return err_sys(err, errno, "opening %.300s to boxes", directory);
        for (size_t i = 0; i < ELEMENTS(programs); i++) {
                char path[600];
                (void) snprintf(path, sizeof(path), "%.500s/%s", directory, programs[i].name);
                if (write_box_program(path, programs[i].bytes, programs[i].size, err) < 0)
                        return -1;
        }
        return 0;
}

/* Binds through /proc/self/fd, because the path of a data directory may be longer than a socket address allows. */
static int listen_in_dir(const char *inside, const char *name, int backlog, struct err *err) {
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

int mount_dir_open(const char *data_dir, const char *name, struct mount_dir *ret_dir, struct err *err) {
        char programs[500], inside[540];
        ret_dir->n_mounts = 0;
        ret_dir->listen_fd = -1;
        int size = snprintf(programs, sizeof(programs), "%s/engine", data_dir);
        if (size < 0 || (size_t) size >= sizeof(programs))
                return err_set(err, ERR_USAGE, "the path of the data directory is too long for boxes of other engines");
        size = snprintf(ret_dir->path, sizeof(ret_dir->path), "%s/%s", mount_dir_root, name);
        if (size < 0 || (size_t) size >= sizeof(ret_dir->path))
                return err_set(err, ERR_USAGE, "the path of the data directory is too long for boxes of other engines");
        (void) snprintf(inside, sizeof(inside), "%s/in", ret_dir->path);
        if (make_dir_if_missing(mount_dir_root, 0700, err) < 0 || make_dir_if_missing(ret_dir->path, 0700, err) < 0 ||
            make_dir_if_missing(inside, 0755, err) < 0 || write_box_programs(programs, err) < 0)
                return -1;
        if (chmod(inside, 0755) < 0)
                return err_sys(err, errno, "opening %.300s to the box", inside);
        ret_dir->listen_fd = listen_in_dir(inside, "socket", 1, err);
        if (ret_dir->listen_fd < 0 || mount_dir_add_path(ret_dir, inside, ENGINE_SOCKET_DIR, false, err) < 0)
                return -1;
        char hosts[520], resolver[520];
        (void) snprintf(hosts, sizeof(hosts), "%s/hosts", programs);
        (void) snprintf(resolver, sizeof(resolver), "%s/resolv.conf", programs);
        if (mount_dir_add_path(ret_dir, hosts, "/etc/hosts", false, err) < 0 ||
            mount_dir_add_path(ret_dir, resolver, "/etc/resolv.conf", false, err) < 0)
                return -1;
        return mount_dir_add_path(ret_dir, programs, ENGINE_PROGRAMS, false, err);
}

int mount_dir_open_proxy(const struct mount_dir *dir, struct err *err) {
        enum { BACKLOG = 128 };
        char inside[540];
        (void) snprintf(inside, sizeof(inside), "%s/in", dir->path);
        int fd = listen_in_dir(inside, ENGINE_PROXY_NAME, BACKLOG, err);
        if (fd >= 0)
                fd_passing_refuse(fd); /* accepted connections inherit the setting */
        return fd;
}

int mount_dir_add_path(struct mount_dir *dir, const char *source, const char *destination, bool writable,
                       struct err *err) {
        size_t n = dir->n_mounts;
        if (n == MOUNT_DIR_MOUNTS_MAX)
                return err_set(err, ERR_LIMIT, "a box can have at most %d mounts", MOUNT_DIR_MOUNTS_MAX);
        (void) snprintf(dir->sources[n], sizeof(dir->sources[n]), "%s", source);
        dir->attached[n] = false;
        dir->mounts[n] =
                (struct engine_mount) { .source = dir->sources[n], .destination = destination, .writable = writable };
        dir->n_mounts++;
        return 0;
}

int mount_dir_add_tmpfs(struct mount_dir *dir, const char *destination, uint64_t bytes, struct err *err) {
        if (mount_dir_add_path(dir, "", destination, true, err) < 0)
                return -1;
        dir->mounts[dir->n_mounts - 1].source = NULL;
        dir->mounts[dir->n_mounts - 1].bytes = bytes;
        return 0;
}

static int add_source_path(struct mount_dir *dir, const struct box_mount *mount, struct err *err) {
        char link[64], path[560];
        (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", mount->tree_fd);
        ssize_t size = readlink(link, path, sizeof(path));
        if (size <= 0 || (size_t) size >= sizeof(path) || *path != '/')
                return err_set(err, ERR_UNSUPPORTED,
                               "the source of the mount at %.200s has no path of its own, or one that is too long",
                               mount->destination);
        path[size] = '\0';
        return mount_dir_add_path(dir, path, mount->destination, mount->writable, err);
}

int mount_dir_add_tree(struct mount_dir *dir, const struct box_mount *mount, struct err *err) {
        char path[560];
        if (gives_paths)
                return add_source_path(dir, mount, err);
        size_t n = dir->n_mounts;
        (void) snprintf(path, sizeof(path), "%s/%zu", dir->path, n);
        int made =
                mount->is_directory ? mkdir(path, 0700) : open(path, O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (made < 0 && errno != EEXIST)
                return err_sys(err, errno, "making %.300s", path);
        if (!mount->is_directory)
                fd_close(&made);
        if (mount_dir_add_path(dir, path, mount->destination, mount->writable, err) < 0)
                return -1;
        if (sys_move_mount(mount->tree_fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return err_sys(err, errno, "attaching the source of the mount at %.200s", mount->destination);
        dir->attached[n] = true;
        return 0;
}

void mount_dir_release(struct mount_dir *dir) {
        char path[560];
        for (size_t i = 0; i < dir->n_mounts; i++)
                if (dir->attached[i])
                        (void) umount2(dir->sources[i], MNT_DETACH | UMOUNT_NOFOLLOW);
        (void) snprintf(path, sizeof(path), "%s/in/socket", dir->path);
        (void) unlink(path);
        fd_close(&dir->listen_fd);
        dir->n_mounts = 0;
}

void mount_dir_remove(const char *name) {
        char path[600];
        for (int i = 0; i < MOUNT_DIR_MOUNTS_MAX; i++) { /* a maker that died may have left a mount */
                (void) snprintf(path, sizeof(path), "%s/%.64s/%d", mount_dir_root, name, i);
                if (access(path, F_OK) < 0)
                        continue;
                (void) umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
                if (rmdir(path) < 0)
                        (void) unlink(path); /* an empty file; fails if something is still mounted */
        }
        static const char *const rest[] = { "/in/socket", ("/in/" ENGINE_PROXY_NAME), ("/in/" ENGINE_ARGUMENTS_NAME),
                                            "/in", "" };
        for (size_t i = 0; i < ELEMENTS(rest); i++) {
                (void) snprintf(path, sizeof(path), "%s/%.64s%s", mount_dir_root, name, rest[i]);
                (void) remove(path);
        }
}

void mount_dir_sweep(const char *prefix, bool (*is_used)(const char *name, void *context), void *context) {
        enum { YOUNG_S = 120 };
        DIR *directory = opendir(mount_dir_root);
        struct dirent *entry;
        while (directory && (entry = readdir(directory))) {
                struct stat status;
                if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && *entry->d_name != '.' &&
                    fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                    status.st_mtime < time(NULL) - YOUNG_S && !is_used(entry->d_name, context))
                        mount_dir_remove(entry->d_name);
        }
        if (directory)
                (void) closedir(directory);
}
