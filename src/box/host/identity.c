#include "box/host/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/host/container_view.h"
#include "box/spec.h"

#define LEASE_DIR "/run/glovebox"

bool identity_has_sys_admin(void) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2] = { 0 };
        return syscall(SYS_capget, &header, data) == 0 && (data[0].effective & (1u << CAP_SYS_ADMIN));
}

static int write_text(const char *path, const char *text) {
        _cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

int identity_enter(bool *ret_rootless, struct err *err) {
        *ret_rootless = !identity_has_sys_admin();
        if (!*ret_rootless) {
                container_view_open();
                return 0;
        }
        uid_t uid = geteuid();
        gid_t gid = getegid();
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
                return err_set(
                        err, ERR_UNSUPPORTED,
                        "this host does not let you make a user namespace (%s), which a box needs when you are not "
                        "root; `glovebox doctor` shows what forbids it and how to allow it",
                        strerror(errno));
        char line[64];
        (void) snprintf(line, sizeof(line), "0 %u 1", uid);
        int code = write_text("/proc/self/uid_map", line);
        if (code == 0)
                code = write_text("/proc/self/setgroups", "deny");
        (void) snprintf(line, sizeof(line), "0 %u 1", gid);
        if (code == 0)
                code = write_text("/proc/self/gid_map", line);
        if (code < 0)
                return err_sys(err, -code, "mapping your user id into a user namespace; see `glovebox doctor`");
        return 0;
}

/* Looks for `count` ids from `first` on in one line of a map; returns which id the first is one level further out. */
static bool find_in_map(const char *path, uint64_t first, uint64_t wanted, uint64_t *ret_outside) {
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        _cleanup_free_ char *text = NULL;
        if (fd < 0 || fd_read_to_end(fd, 64 << 10, &text, NULL) < 0)
                return false;
        char *rest = text, *line;
        while ((line = strsep(&rest, "\n"))) {
                uint64_t inside, outside, count;
                if (sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64, &inside, &outside, &count) == 3 &&
                    inside <= first && inside + count >= first + wanted) {
                        *ret_outside = outside + (first - inside);
                        return true;
                }
        }
        return false;
}

/* True if every id of our range is mapped in this user namespace. In a container it often is not. */
static bool range_is_mapped(const char *path) {
        uint64_t outside;
        return find_in_map(path, IDENTITY_FIRST_UID, IDENTITY_COUNT, &outside);
}

bool identity_has_range(void) {
        /* Mappings do not change, so the result is kept. A child in a user namespace of its own does not call this. */
        static bool is_known;
        is_known = is_known || (range_is_mapped("/proc/self/uid_map") && range_is_mapped("/proc/self/gid_map"));
        return is_known;
}

/* True if all ids that boxes with users need are mapped in this user namespace. */
static bool users_are_mapped(const char *path) {
        uint64_t outside;
        return find_in_map(path, IDENTITY_USERS_UID, (uint64_t) IDENTITY_USERS_COUNT * BOX_IDS, &outside) &&
               find_in_map(path, IDENTITY_DISK_UID, BOX_IDS, &outside);
}

int identity_check_users(struct err *err) {
        static bool is_known; /* as above */
        is_known = is_known || (users_are_mapped("/proc/self/uid_map") && users_are_mapped("/proc/self/gid_map"));
        if (is_known)
                return 0;
        return err_set(
                err, ERR_UNSUPPORTED,
                "a sandbox with users needs user ids of its own on the host, and this daemon has none to give: run "
                "it as root, not in a user namespace or container that maps few ids; or leave \"users\" out");
}

uid_t identity_outside(uid_t uid) {
        uint64_t outside;
        return find_in_map("/proc/self/uid_map", uid, 1, &outside) ? (uid_t) outside : uid;
}

static int open_lease_file(struct err *err) {
        _cleanup_fd_ int dir = open(LEASE_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat status;
        if (dir < 0 && errno == ENOENT) {
                if (mkdir(LEASE_DIR, 0700) < 0 && errno != EEXIST)
                        return err_sys(err, errno, "making " LEASE_DIR);
                dir = open(LEASE_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        if (dir < 0 || fstat(dir, &status) < 0)
                return err_sys(err, errno, "opening " LEASE_DIR);
        if (status.st_uid != geteuid() || (status.st_mode & 022))
                return err_set(err, ERR_REFUSED,
                               LEASE_DIR " belongs to another user or is writable by others; remove it");
        int fd = openat(dir, "uids", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        return fd < 0 ? err_sys(err, errno, "opening " LEASE_DIR "/uids") : fd;
}

/* Locks one byte of the file: of `count` from `first` on, but for the first itself. Returns which it is, from 1 on. */
static int lease_byte(unsigned first, unsigned count, unsigned *behind_last, int *ret_lease_fd, struct err *err) {
        _cleanup_fd_ int fd = open_lease_file(err);
        if (fd < 0)
                return -1;
        /* Each process starts at another byte, so that processes rarely try the same one; then it goes on behind the
         * last one, so that a process with many boxes does not try its own bytes again. */
        unsigned start = *behind_last ? *behind_last : (unsigned) getpid() % count;
        for (unsigned i = 0; i < count; i++) {
                unsigned n = (start + i) % count;
                if (n == 0)
                        continue;
                struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = first + n, .l_len = 1 };
                if (fcntl(fd, F_OFD_SETLK, &lock) == 0) {
                        *ret_lease_fd = take_fd(&fd);
                        *behind_last = n + 1;
                        return (int) n;
                }
                if (errno != EAGAIN && errno != EACCES)
                        return err_sys(err, errno, "leasing a user id");
        }
        return err_set(err, ERR_LIMIT, "all %u user ids for boxes of this kind are taken; end some boxes", count - 1);
}

int identity_lease(uid_t *ret_uid, gid_t *ret_gid, int *ret_lease_fd, struct err *err) {
        static unsigned behind_last;
        if (!identity_has_range()) {
                *ret_uid = geteuid();
                *ret_gid = getegid();
                *ret_lease_fd = -1;
                return 0;
        }
        int n = lease_byte(0, IDENTITY_COUNT, &behind_last, ret_lease_fd, err);
        if (n < 0)
                return -1;
        *ret_uid = *ret_gid = IDENTITY_FIRST_UID + (unsigned) n;
        return 0;
}

int identity_lease_users(uid_t *ret_uid, gid_t *ret_gid, int *ret_lease_fd, struct err *err) {
        static unsigned behind_last;
        int n = identity_check_users(err) < 0
                        ? -1
                        : lease_byte(IDENTITY_COUNT, IDENTITY_USERS_COUNT, &behind_last, ret_lease_fd, err);
        if (n < 0)
                return -1;
        *ret_uid = *ret_gid = IDENTITY_USERS_UID + (unsigned) n * BOX_IDS + BOX_UID;
        return 0;
}
