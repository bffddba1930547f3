#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "box/seal/privilege.h"
#include "tap.h"

enum { SKIPPED = 77, TENANT = 61234 };

/* Reads one line of /proc/self/status as a hexadecimal number; 0 and `found` unset when it is missing. */
static unsigned long long status_field(const char *name, int *found) {
        char line[512];
        FILE *file = fopen("/proc/self/status", "re");
        unsigned long long value = 0;
        size_t length = strlen(name);
        while (file && fgets(line, sizeof(line), file))
                if (strncmp(line, name, length) == 0 && line[length] == ':') {
                        value = strtoull(line + length + 1, NULL, 16);
                        *found = 1;
                }
        if (file)
                fclose(file);
        return value;
}

static int all_sets_are_empty(void) {
        static const char *const sets[] = { "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb" };
        for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
                int found = 0;
                if (status_field(sets[i], &found) != 0 || !found)
                        return 0;
        }
        return 1;
}

static int raise_all_permitted(void) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct sets[2] = { 0 };
        if (syscall(SYS_capget, &header, sets) < 0)
                return -errno;
        for (size_t i = 0; i < 2; i++)
                sets[i].effective = sets[i].inheritable = sets[i].permitted;
        return syscall(SYS_capset, &header, sets) < 0 ? -errno : 0;
}

/* Becomes an ordinary user who still has every capability: the worst that drop_all is ever called with. */
static int become_powerful_user(void) {
        if (geteuid() != 0)
                return unshare(CLONE_NEWUSER) < 0 ? -errno : 0;
        if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresgid(TENANT, TENANT, TENANT) < 0 ||
            setresuid(TENANT, TENANT, TENANT) < 0)
                return -errno;
        if (raise_all_permitted() < 0)
                return -1;
        return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_RAW, 0, 0) < 0 ? -errno : 0;
}

/* Bodies run in a child and return 0, SKIPPED, or the number of the step that went wrong. */
static int body_drop_all(void) {
        if (become_powerful_user() < 0)
                return SKIPPED;
        if (all_sets_are_empty())
                return 1;
        if (privilege_drop_all() < 0)
                return 2;
        if (!all_sets_are_empty())
                return 3;
        int locked = SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                     SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
        int bits = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);
        if (bits < 0 || (bits & locked) != locked || !(bits & SECBIT_NOROOT))
                return 4;
        int found = 0;
        if (status_field("NoNewPrivs", &found) != 1 || !found)
                return 5;
        if (setuid(0) == 0 || setgid(0) == 0)
                return 6;
        if (prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) == 0 || prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0)
                return 7;
        return privilege_drop_all() == 0 ? 0 : 8; /* again, with nothing left */
}

static int body_root_is_nobody(void) {
        if (geteuid() != 0)
                return SKIPPED;
        if (privilege_drop_all() < 0 || !all_sets_are_empty())
                return 1;
        if (setgroups(0, NULL) == 0)
                return 2;
        execl("/bin/sh", "sh", "-c", "! grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb):.*[1-9a-f]' /proc/self/status",
              (char *) NULL);
        return 3;
}

static int body_keyring(void) {
        if (privilege_join_fresh_keyring() < 0)
                return SKIPPED;
        long before = syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0);
        if (before < 0)
                return errno == ENOSYS ? SKIPPED : 1;
        if (privilege_join_fresh_keyring() < 0)
                return 2;
        return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0) != before ? 0 : 3;
}

static int is_bounded(int resource, rlim_t soft, rlim_t hard) {
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t) resource, &limit) < 0)
                return 0;
        return limit.rlim_cur <= soft && limit.rlim_max <= hard;
}

static int body_rlimits(void) {
        struct limits limits = LIMITS_DEFAULT;
        struct rlimit as_before, as_after;
        getrlimit(RLIMIT_AS, &as_before);
        if (privilege_set_rlimits(&limits, 1, 1) < 0)
                return 1;
        getrlimit(RLIMIT_AS, &as_after);
        if (as_after.rlim_cur != as_before.rlim_cur)
                return 2;
        if (!is_bounded(RLIMIT_NOFILE, 1024, 4096) || !is_bounded(RLIMIT_CORE, 1, 1) ||
            !is_bounded(RLIMIT_FSIZE, limits.disk_bytes, limits.disk_bytes))
                return 3;
        if (privilege_set_rlimits(&limits, 0, 0) < 0)
                return 4;
        if (!is_bounded(RLIMIT_NPROC, limits.pids, limits.pids) || !is_bounded(RLIMIT_AS, 4 * GIB, 4 * GIB))
                return 5;
        return 0;
}

static int body_rlimits_are_never_raised(void) {
        struct limits limits = LIMITS_DEFAULT;
        struct rlimit low = { 64, 128 };
        if (setrlimit(RLIMIT_NOFILE, &low) < 0 || privilege_set_rlimits(&limits, 1, 1) < 0)
                return 1;
        return is_bounded(RLIMIT_NOFILE, 128, 128) ? 0 : 2;
}

static const struct {
        const char *promise;
        int (*body)(void);
} tests[] = {
        { "a user with every capability ends with none and cannot come back", body_drop_all },
        { "root without capabilities is nobody, even after exec", body_root_is_nobody },
        { "the session keyring is a new one", body_keyring },
        { "resource limits back the control groups", body_rlimits },
        { "a lower limit of the host stays", body_rlimits_are_never_raised },
};

int main(void) {
        for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
                fflush(stdout);
                pid_t pid = fork();
                if (pid == 0)
                        _exit(tests[i].body());
                int status = -1;
                int step = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
                if (step == SKIPPED)
                        ok(1, "%s # SKIP this user may not do what it needs", tests[i].promise);
                else
                        ok(step == 0, "%s (step %d)", tests[i].promise, step);
        }
        return done_testing();
}
