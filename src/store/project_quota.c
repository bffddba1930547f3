#include "store/project_quota.h"
#include "base/fnv.h"

#include <errno.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif

/* Glovebox's numbers: 0x47580000 ("GX") and 20 bits. Other programs use small ones. */
enum { NUMBER_BITS = 20, TRIES = 64, QUOTA_BLOCK = 1024 /* dqb_bhardlimit counts these */ };
static const uint32_t base = 0x47500000;

uint32_t project_quota_number(const char *name) {
        return base | (fnv_of_text(name) & ((1u << NUMBER_BITS) - 1));
}

uint32_t project_quota_next(uint32_t number) {
        return base | ((number + 1) & ((1u << NUMBER_BITS) - 1));
}

bool project_quota_is_ours(uint32_t number) {
        return number >> NUMBER_BITS == base >> NUMBER_BITS;
}

static int quotactl_on(int fd, int command, uint32_t number, void *data) {
        return syscall(SYS_quotactl_fd, fd, QCMD(command, PRJQUOTA), number, data) < 0 ? -errno : 0;
}

/* Accounting alone is not enough: the limits must be enforced. */
static int check_enforced(int fd) {
        struct fs_quota_statv state = { .qs_version = FS_QSTATV_VERSION1 };
        int code = quotactl_on(fd, Q_XGETQSTATV, 0, &state);
        return code < 0 ? code : state.qs_flags & FS_QUOTA_PDQ_ENFD ? 0 : -ESRCH;
}

/* An unused one: no limits, nothing counted. */
static int find_free(int fd, const char *name, uint32_t *ret_number) {
        uint32_t number = project_quota_number(name);
        for (int i = 0; i < TRIES; i++, number = project_quota_next(number)) {
                struct if_dqblk quota = { 0 };
                int code = quotactl_on(fd, Q_GETQUOTA, number, &quota);
                if (code < 0 && code != -ENOENT && code != -ESRCH)
                        return code;
                if (quota.dqb_bhardlimit || quota.dqb_ihardlimit || quota.dqb_curspace || quota.dqb_curinodes)
                        continue;
                *ret_number = number;
                return 0;
        }
        return -EBUSY;
}

static int set_limits(int fd, uint32_t number, uint64_t bytes, uint64_t files) {
        struct if_dqblk quota = { .dqb_bhardlimit = bytes / QUOTA_BLOCK,
                                  .dqb_ihardlimit = files,
                                  .dqb_valid = QIF_LIMITS };
        return quotactl_on(fd, Q_SETQUOTA, number, &quota);
}

/* Files made in the directory from now on belong to the same project. */
static int set_project(int fd, uint32_t number) {
        struct fsxattr attributes;
        if (ioctl(fd, FS_IOC_FSGETXATTR, &attributes) < 0)
                return -errno;
        attributes.fsx_projid = number;
        attributes.fsx_xflags |= FS_XFLAG_PROJINHERIT;
        return ioctl(fd, FS_IOC_FSSETXATTR, &attributes) < 0 ? -errno : 0;
}

int project_quota_set(int dir_fd, const char *name, uint64_t bytes, uint64_t files) {
        uint32_t number;
        int code = geteuid() != 0 ? -EPERM : check_enforced(dir_fd);
        if (code == 0)
                code = find_free(dir_fd, name, &number);
        /* The limits first: nothing is ever in the project without them. */
        if (code == 0)
                code = set_limits(dir_fd, number, bytes, files);
        if (code == 0 && (code = set_project(dir_fd, number)) < 0)
                (void) set_limits(dir_fd, number, 0, 0);
        return code;
}

static uint32_t project_number(int fd) {
        struct fsxattr attributes;
        bool is_project = ioctl(fd, FS_IOC_FSGETXATTR, &attributes) == 0 &&
                          attributes.fsx_xflags & FS_XFLAG_PROJINHERIT && project_quota_is_ours(attributes.fsx_projid);
        return is_project ? attributes.fsx_projid : 0;
}

bool project_quota_is_set(int dir_fd) {
        struct if_dqblk quota = { 0 };
        uint32_t number = project_number(dir_fd);
        return number && check_enforced(dir_fd) == 0 && quotactl_on(dir_fd, Q_GETQUOTA, number, &quota) == 0 &&
               quota.dqb_bhardlimit > 0;
}

int project_quota_used(int dir_fd, uint64_t *ret_bytes, uint64_t *ret_files) {
        struct if_dqblk quota = { 0 };
        uint32_t number = project_number(dir_fd);
        int code = number ? quotactl_on(dir_fd, Q_GETQUOTA, number, &quota) : -ENOENT;
        if (code < 0)
                return code;
        *ret_bytes = quota.dqb_curspace;
        *ret_files = quota.dqb_curinodes;
        return 0;
}

int project_quota_change(int dir_fd, uint64_t bytes, uint64_t files) {
        uint32_t number = project_number(dir_fd);
        return number ? set_limits(dir_fd, number, bytes, files) : -ENOENT;
}

void project_quota_clear(int dir_fd) {
        uint32_t number = project_number(dir_fd);
        if (number)
                (void) set_limits(dir_fd, number, 0, 0);
}
