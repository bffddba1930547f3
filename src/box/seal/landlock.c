#include "box/seal/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"

/* The kernel's numbers, here because the headers of a supported distribution may be older than its kernel. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

enum {
        FS_EXECUTE = 1 << 0,
        FS_WRITE_FILE = 1 << 1,
        FS_READ_FILE = 1 << 2,
        FS_READ_DIR = 1 << 3,
        FS_REMOVE_DIR = 1 << 4,
        FS_REMOVE_FILE = 1 << 5,
        FS_MAKE_CHAR = 1 << 6,
        FS_MAKE_DIR = 1 << 7,
        FS_MAKE_REG = 1 << 8,
        FS_MAKE_SOCK = 1 << 9,
        FS_MAKE_FIFO = 1 << 10,
        FS_MAKE_BLOCK = 1 << 11,
        FS_MAKE_SYM = 1 << 12,
        FS_REFER = 1 << 13,     /* ABI 2; before it, nothing moves from one directory to another: EXDEV */
        FS_TRUNCATE = 1 << 14,  /* ABI 3 */
        FS_IOCTL_DEV = 1 << 15, /* ABI 5 */

        FS_READ = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR,
        /* No device nodes and no commands to devices: code in a box needs neither. */
        FS_WRITE = FS_READ | FS_WRITE_FILE | FS_REMOVE_DIR | FS_REMOVE_FILE | FS_MAKE_DIR | FS_MAKE_REG | FS_MAKE_SOCK |
                   FS_MAKE_FIFO | FS_MAKE_SYM | FS_REFER | FS_TRUNCATE,
        FS_NODE = FS_READ_FILE | FS_WRITE_FILE | FS_TRUNCATE,
        FS_OF_A_FILE = FS_NODE | FS_EXECUTE | FS_IOCTL_DEV, /* the others make sense for directories only */
        FS_TERMINAL = FS_NODE | FS_IOCTL_DEV,

        SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0, /* ABI 6 */
        SCOPE_SIGNAL = 1 << 1,
};

enum { CREATE_RULESET_VERSION = 1, RULE_PATH_BENEATH = 1 };

/* Kernels that know less accept the longer struct as long as what they do not know is zero. Network rights stay zero:
 * the box has a network namespace of its own, where loopback belongs to it. */
struct ruleset_attr {
        uint64_t handled_access_fs;
        uint64_t handled_access_net;
        uint64_t scoped;
};

struct path_beneath_attr {
        uint64_t allowed_access;
        int32_t parent_fd;
} __attribute__((packed));

static const struct {
        const char *path;
        uint64_t rights;
} devices[] = {
        { "/dev/null", FS_NODE },
        { "/dev/zero", FS_NODE },
        { "/dev/full", FS_NODE },
        { "/dev/random", FS_NODE },
        { "/dev/urandom", FS_NODE },
        { "/dev/tty", FS_TERMINAL },
        { "/dev/pts", FS_TERMINAL | FS_READ_DIR }, /* and so /dev/ptmx, which is a link to a file in there */
};

int landlock_abi(void) {
        long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);
        if (abi < 0)
                return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -errno; /* not built in, or switched off */
        return (int) abi;
}

static uint64_t rights_of_abi(int abi) {
        uint64_t rights = FS_REFER - 1;
        if (abi >= 2)
                rights |= FS_REFER;
        if (abi >= 3)
                rights |= FS_TRUNCATE;
        if (abi >= 5)
                rights |= FS_IOCTL_DEV;
        return rights;
}

static int landlock_allow_path(int ruleset_fd, const char *path, uint64_t rights) {
        _cleanup_fd_ int fd = open(path, O_PATH | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        struct path_beneath_attr rule = { .allowed_access = rights, .parent_fd = fd };
        long code = syscall(SYS_landlock_add_rule, ruleset_fd, RULE_PATH_BENEATH, &rule, 0);
        if (code < 0 && errno == EINVAL && (rights & ~(uint64_t) FS_OF_A_FILE)) {
                /* The kernel refuses a rule that gives a file what only directories have. */
                rule.allowed_access = rights & FS_OF_A_FILE;
                code = syscall(SYS_landlock_add_rule, ruleset_fd, RULE_PATH_BENEATH, &rule, 0);
        }
        return code < 0 ? -errno : 0;
}

int landlock_restrict(const char *const *writable, size_t n_writable) {
        int abi = landlock_abi();
        if (abi < 1)
                return abi < 0 ? abi : -EOPNOTSUPP;
        struct ruleset_attr attr = { .handled_access_fs = rights_of_abi(abi) };
        if (abi >= 6)
                attr.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
        _cleanup_fd_ int ruleset_fd = (int) syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
        if (ruleset_fd < 0)
                return -errno;

        int code = landlock_allow_path(ruleset_fd, "/", FS_READ & attr.handled_access_fs);
        for (size_t i = 0; code == 0 && i < n_writable; i++)
                code = landlock_allow_path(ruleset_fd, writable[i], FS_WRITE & attr.handled_access_fs);
        for (size_t i = 0; code == 0 && i < ELEMENTS(devices); i++) {
                code = landlock_allow_path(ruleset_fd, devices[i].path, devices[i].rights & attr.handled_access_fs);
                if (code == -ENOENT) /* a path that the box lacks cannot be opened */
                        code = 0;
        }
        if (code < 0)
                return code;
        return syscall(SYS_landlock_restrict_self, ruleset_fd, 0) < 0 ? -errno : 0;
}
