#include "box/seal/privilege.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"

/* Being uid 0 means nothing, changing uids brings nothing back, nothing becomes ambient; and none of it can be undone.
 * KEEP_CAPS itself stays off. */
enum {
        SECUREBITS = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED |
                     SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED,
        /* For a box with users: its root has the usual meaning, and loses its capabilities when it changes to another
         * user. */
        USERS_SECUREBITS = SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                           SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED,
        MAX_CAPABILITY = 63, /* what the kernel's two 32-bit words can hold */
        OOM_SCORE = 500,
};
#define OOM_SCORE_TEXT "500"

/* Changing ids, and access to files and processes of other users. All are below 32. */
#define BIT(cap) (1u << (cap))
static const uint32_t users_capabilities =
        BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_KILL) | BIT(CAP_SETGID) | BIT(CAP_SETUID);

const char *const privilege_users_names[] = { "CAP_CHOWN",  "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL",
                                              "CAP_SETGID", "CAP_SETUID",       NULL };

int privilege_join_fresh_keyring(void) {
        if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) >= 0)
                return 0;
        return errno == ENOSYS ? 0 : -errno; /* a kernel without keyrings has none to leak */
}

/* Dropping needs CAP_SETPCAP, which may be gone together with everything else: then nothing may be set. */
static int drop_bounding_set(uint32_t kept) {
        for (unsigned long cap = 0; cap <= MAX_CAPABILITY; cap++) {
                if (cap < 32 && (kept & (1u << cap)))
                        continue;
                if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
                        continue;
                if (errno == EINVAL)
                        return 0; /* past the last one that this kernel has */
                int code = -errno;
                if (code != -EPERM || prctl(PR_CAPBSET_READ, cap, 0, 0, 0) > 0)
                        return code;
        }
        return 0;
}

static int drop_process_sets(uint32_t kept) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = { { .effective = kept, .permitted = kept } };
        return syscall(SYS_capset, &header, sets) < 0 ? -errno : 0;
}

/* *ret_sets is what they are then. Without being inheritable nothing stays ambient. */
static int set_inheritable(bool all, struct __user_cap_data_struct ret_sets[static _LINUX_CAPABILITY_U32S_3]) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        if (syscall(SYS_capget, &header, ret_sets) < 0)
                return -errno;
        for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
                ret_sets[i].inheritable = all ? ret_sets[i].permitted : 0;
        return syscall(SYS_capset, &header, ret_sets) < 0 ? -errno : 0;
}

int privilege_pass_on(void) {
        struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
        int code = set_inheritable(true, sets);
        for (unsigned cap = 0; code == 0 && cap <= MAX_CAPABILITY; cap++)
                if ((sets[cap / 32].permitted & (1u << cap % 32)) &&
                    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
                        code = -errno;
        return code;
}

int privilege_pass_on_no_more(void) {
        struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
        return set_inheritable(false, sets);
}

static bool nothing_else_is_left(uint32_t kept, int securebits) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = { 0 };
        if (syscall(SYS_capget, &header, sets) < 0)
                return false;
        for (size_t i = 0; i < ELEMENTS(sets); i++) {
                uint32_t own = i == 0 ? kept : 0;
                if (sets[i].effective != own || sets[i].permitted != own || sets[i].inheritable)
                        return false; /* what is ambient is inheritable */
        }
        for (unsigned long cap = 0; cap <= MAX_CAPABILITY; cap++) {
                int set = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);
                if (set < 0 && errno == EINVAL)
                        break; /* past the last one that this kernel has */
                if (set != (cap < 32 && (kept & (1u << cap)) ? 1 : 0))
                        return false;
        }
        return prctl(PR_GET_SECUREBITS, 0, 0, 0, 0) == securebits && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
}

static int drop_all_but(uint32_t kept, int securebits) {
        /* The bounding set and the securebits need CAP_SETPCAP, so the process sets go after them. */
        int code = drop_bounding_set(kept);
        if (code < 0)
                return code;
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
                return -errno;
        if (prctl(PR_GET_SECUREBITS, 0, 0, 0, 0) != securebits && prctl(PR_SET_SECUREBITS, securebits, 0, 0, 0) < 0)
                return -errno;
        code = drop_process_sets(kept);
        if (code < 0)
                return code;
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -errno;
        return nothing_else_is_left(kept, securebits) ? 0 : -EPERM;
}

int privilege_drop_all(void) {
        return drop_all_but(0, SECUREBITS);
}

int privilege_keep_for_users(void) {
        return drop_all_but(users_capabilities, USERS_SECUREBITS);
}

int privilege_offer_to_oom(void) {
        /* By hand: a kernel that was forked a moment ago has nothing of the C library's code in its memory yet. */
        char text[16] = "";
        int score = 0;
        _cleanup_fd_ int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
        if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
                return -errno;
        for (const char *digit = text; *digit >= '0' && *digit <= '9'; digit++) /* none if negative */
                score = score * 10 + (*digit - '0');
        if (score >= OOM_SCORE)
                return 0; /* less would need a privilege */
        return pwrite(fd, OOM_SCORE_TEXT, strlen(OOM_SCORE_TEXT), 0) < 0 ? -errno : 0;
}

/* Never raises a limit of our own: that would need privileges, and the host's administrator set it on purpose. */
static int lower_rlimit(unsigned resource, rlim_t soft, rlim_t hard) {
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t) resource, &limit) < 0)
                return -errno;
        const struct rlimit before = limit;
        if (hard < limit.rlim_max)
                limit.rlim_max = hard;
        limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
        if (limit.rlim_cur == before.rlim_cur && limit.rlim_max == before.rlim_max)
                return 0;
        return setrlimit((__rlimit_resource_t) resource, &limit) < 0 ? -errno : 0;
}

struct rlimit_row {
        unsigned resource;
        rlim_t soft, hard;
        bool wanted;
};

static int set_rlimits(const struct rlimit_row *rows, size_t n_rows) {
        int code = 0;
        for (size_t i = 0; i < n_rows && code == 0; i++)
                code = rows[i].wanted ? lower_rlimit(rows[i].resource, rows[i].soft, rows[i].hard) : 0;
        return code;
}

int privilege_set_user_rlimits(const struct limits *limits, int has_pids_cgroup) {
        const struct rlimit_row rows[] = {
                { RLIMIT_MEMLOCK, 8 * MIB, 8 * MIB, true },
                { RLIMIT_MSGQUEUE, 819200, 819200, true },
                { RLIMIT_SIGPENDING, 1024, 1024, true },
                /* Counted per user and not per box, hence only where there is nothing better. */
                { RLIMIT_NPROC, limits->pids, limits->pids, !has_pids_cgroup },
        };
        return set_rlimits(rows, ELEMENTS(rows));
}

/* Linux counts descriptors that are in flight by user, and refuses to send more to whoever has a lower limit than there
 * are. Without root all boxes and their maker are one user, so a box gets at most half of what its maker may have. */
static int choose_open_files(rlim_t *ret_files) {
        enum { LEAST = 512, MOST = 4096 };
        struct rlimit has;
        if (getrlimit(RLIMIT_NOFILE, &has) < 0)
                return -errno;
        rlim_t half = has.rlim_max / 2;
        *ret_files = half < LEAST ? LEAST : half < MOST ? half : MOST;
        return 0;
}

int privilege_set_rlimits(const struct limits *limits, int has_memory_cgroup, int has_pids_cgroup) {
        /* Interpreters, BLAS and Arrow reserve far more address space than they use: below 4 GiB they do not start, so
         * on a host without a memory controller this bounds the damage and not the box. */
        rlim_t address_space = limits->memory_bytes > 4 * GIB ? limits->memory_bytes : 4 * GIB;
        rlim_t open_files = 0;
        int code = choose_open_files(&open_files);
        if (code < 0)
                return code;
        const struct rlimit_row rows[] = {
                { RLIMIT_NOFILE, open_files < 1024 ? open_files : 1024, open_files, true },
                /* 1 and not 0: both write no file, but with 0 the kernel still starts a host program that core_pattern
                 * pipes to, and hands it the tenant's memory. */
                { RLIMIT_CORE, 1, 1, true },
                { RLIMIT_FSIZE, limits->disk_bytes, limits->disk_bytes, true },
                { RLIMIT_STACK, 8 * MIB, 8 * MIB, true },
                { RLIMIT_RTPRIO, 0, 0, true },
                { RLIMIT_NICE, 0, 0, true },
                { RLIMIT_AS, address_space, address_space, !has_memory_cgroup },
        };
        code = privilege_set_user_rlimits(limits, has_pids_cgroup);
        return code < 0 ? code : set_rlimits(rows, ELEMENTS(rows));
}
