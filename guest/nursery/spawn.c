/* Forks kernels into boxes. Loaded into the image's Python by glovebox_kernel/nursery.py; uses nothing of Python.
 *
 * Theory of operation. An order names a box by its agent's pidfd. The nursery sets the pid namespace for its children
 * to the box's, clones once, and sets it back. The child is a child of the supervisor (CLONE_PARENT): it is reaped even
 * if the nursery has died. Before it returns to Python, the child has entered the box's control groups and namespaces,
 * become its user, dropped every privilege and descriptor, and got the maker's permission: no Python code runs in
 * between. Order is the security argument, as in the box's own stage (src/box/seal/stage.c).
 *
 * Between two forks no Python code runs in the nursery either: it would write to memory that it shares with kernels,
 * and for each large page of it that it touches every later fork would have 512 entries to copy. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/memory.h"
#include "box/seal/landlock.h"
#include "box/seal/nursery_message.h"
#include "box/seal/privilege.h"
#include "box/seal/seccomp.h"
#include "cow_snapshot.h"

enum { UID = 1000, WRITABLE_MAX = 80, KERNEL_VERDICT = 7, KERNEL_GO = 8, KERNEL_FDS = 9 };

/* Looked at before each run by a kernel that has it: glovebox_kernel/packages.py. */
#define PACKAGES "/opt/glovebox/packages"

/* For ctypes. All return 0 or -errno unless said otherwise. */
EXPORTED int spawn_open(void);
EXPORTED int spawn_announce(int code, unsigned n_preloaded, const char *text);
EXPORTED int spawn_serve(void); /* in each sealed kernel SPAWN_…, or 0; in the nursery -ENODATA after the last order */
EXPORTED int spawn_settle(void); /* in a kernel, once: its mounts are final. Without it no request may be answered */
EXPORTED void spawn_simulate(int kernel); /* the next spawn_serve returns this, at once and in this process */
EXPORTED const char *spawn_environment(unsigned i); /* of the kernel; NULL after the last */

enum {
        SPAWN_AWAITED = 1, /* a client waits for this kernel already */
        SPAWN_USUAL = 2, /* its environment equals the nursery's */
        SPAWN_PACKAGES = 4, /* there is a place for packages of its own */
        SPAWN_SECOND = 8, /* it is process 2 */
        SPAWN_UNSETTLED = 16, /* spawn_settle is to be called before its first request */
};

enum { ORDER_DONE = 1 << 8 };

static int simulated = ORDER_DONE; /* or SPAWN_… */
static struct nursery_order order;
static size_t order_size; /* of it, as received */
static int fds[NURSERY_FDS];
static int own_pidfd = -1;
static void *tid_address;
static nlink_t links_alone; /* of our directory of threads, when there is one thread */

/* Our environment, as an order would hold it. Kept apart: its texts lie all over the heap, and each page that a kernel
 * looks at costs it a fault. */
static char usual[4096];
static size_t usual_size;

int spawn_open(void) {
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || fcntl(NURSERY_SOCKET_FD, F_SETFD, FD_CLOEXEC) < 0 ||
            fcntl(NURSERY_ANSWER_FD, F_SETFD, FD_CLOEXEC) < 0)
                return -errno;
        own_pidfd = (int) syscall(SYS_pidfd_open, getpid(), 0);
        if (own_pidfd < 0)
                return -errno;
        /* Where the C library keeps the thread's number, which fork() of the library would renew. */
        return prctl(PR_GET_TID_ADDRESS, (unsigned long) &tid_address, 0, 0, 0) < 0 ? -errno : 0;
}

/* Number of our threads, plus something. */
static nlink_t count_links(void) {
        struct stat status;
        return stat("/proc/self/task", &status) < 0 ? 0 : status.st_nlink;
}

static void remember_environment(void) {
        usual_size = 0;
        for (char **variable = environ; *variable; variable++) {
                size_t size = strlen(*variable) + 1;
                if (size > sizeof(usual) - usual_size) {
                        usual_size = 0;
                        return;
                }
                memcpy(usual + usual_size, *variable, size);
                usual_size += size;
        }
}

/* It is empty, but was looked at: each page that is there is copied by each fork. */
static void forget_order(void) {
        uintptr_t start = ((uintptr_t) &order + 4095) & -(uintptr_t) 4096;
        uintptr_t end = ((uintptr_t) &order + sizeof(order)) & -(uintptr_t) 4096;
        (void) madvise((void *) start, end - start, MADV_DONTNEED);
}

int spawn_announce(int code, unsigned n_preloaded, const char *text) {
        links_alone = count_links();
        remember_environment();
        forget_order();
        simulated = ORDER_DONE; /* from here on spawn_serve returns only in sealed kernels */
        struct nursery_answer answer = { .code = code, .ready = code == 0, .n_preloaded = n_preloaded };
        (void) snprintf(answer.failed, sizeof(answer.failed), "%s", text);
        return fd_write_all(NURSERY_ANSWER_FD, &answer, sizeof(answer));
}

static void release_order(void) {
        for (size_t i = 0; i < NURSERY_FDS; i++)
                fd_close(&fds[i]);
}

static int receive_order(void) {
        ssize_t size = fd_passing_receive(NURSERY_SOCKET_FD, &order, sizeof(order), fds, NURSERY_FDS, 0);
        if (size < 0)
                return (int) size;
        order_size = (size_t) size;
        if ((size_t) size < offsetof(struct nursery_order, texts) || order.texts_size > NURSERY_TEXTS_MAX ||
            (size_t) size != offsetof(struct nursery_order, texts) + order.texts_size ||
            (order.texts_size > 0 && order.texts[order.texts_size - 1])) {
                release_order();
                return -EPROTO;
        }
        return 0;
}

static int answer_order(int code, int pid) {
        struct nursery_answer answer = { .code = code, .pid = pid };
        release_order();
        /* The next kernel must not find this one's environment in its memory. What was not written to stays untouched:
         * it would be a page in every kernel. */
        memset(&order, 0, order_size);
        order_size = 0;
        return fd_write_all(NURSERY_ANSWER_FD, &answer, sizeof(answer));
}

static const char *text_at(size_t wanted) {
        const char *at = order.texts, *end = order.texts + order.texts_size;
        for (size_t i = 0; at < end; i++, at += strlen(at) + 1)
                if (i == wanted)
                        return at;
        return NULL;
}

const char *spawn_environment(unsigned i) {
        return i < order.n_environment ? text_at((size_t) order.n_writable + i) : NULL;
}

/* True if that is the environment of this process, in the same order. */
static bool is_environment_usual(void) {
        const char *given = text_at(order.n_writable), *end = order.texts + order.texts_size;
        return given && usual_size > 0 && (size_t) (end - given) == usual_size && memcmp(given, usual, usual_size) == 0;
}

static int describe_kernel(void) {
        return (order.is_awaited ? SPAWN_AWAITED : 0) | (is_environment_usual() ? SPAWN_USUAL : 0) |
               (access(PACKAGES, F_OK) == 0 ? SPAWN_PACKAGES : 0) | (getpid() == 2 ? SPAWN_SECOND : 0) |
               (order.mounts_follow ? SPAWN_UNSETTLED : 0);
}

/* ---- the child, until it is a kernel ---- */

static int enter_groups(void) {
        for (size_t i = NURSERY_GROUPS; i < NURSERY_FDS; i++) {
                int code = fds[i] < 0 ? 0 : fd_write_all(fds[i], "0", 1);
                if (code < 0)
                        return code;
        }
        return 0;
}

static int join_box(void) {
        int namespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
        return setns(fds[NURSERY_AGENT], namespaces) < 0 ? -errno : 0;
}

static int become_user(void) {
        if (setresgid(UID, UID, UID) < 0 || setresuid(UID, UID, UID) < 0)
                return -errno;
        (void) setsid();
        (void) umask(022);
        return 0;
}

/* 0, 1, 2; requests and replies; 1 and 2 once more, for when code closes the first (stdio.py knows); and the maker. */
static int spawn_arrange_descriptors(void) {
        static const int wanted[KERNEL_FDS] = { NURSERY_STDIN,    NURSERY_STDOUT,  NURSERY_STDERR,
                                                NURSERY_REQUESTS, NURSERY_REPLIES, NURSERY_STDOUT,
                                                NURSERY_STDERR,   NURSERY_VERDICT, NURSERY_GO };
        int moved[KERNEL_FDS];
        fd_close(&fds[NURSERY_STDIN]);
        fds[NURSERY_STDIN] = open("/dev/null", O_RDONLY | O_CLOEXEC); /* the box's own */
        for (size_t i = 0; i < ELEMENTS(wanted); i++) {
                moved[i] = fcntl(fds[wanted[i]], F_DUPFD_CLOEXEC, KERNEL_FDS);
                if (moved[i] < 0)
                        return -errno;
        }
        for (size_t i = 0; i < ELEMENTS(wanted); i++)
                if (dup3(moved[i], (int) i, i > 2 ? O_CLOEXEC : 0) < 0 && !(errno == EINVAL && i == (size_t) moved[i]))
                        return -errno;
        fds[NURSERY_VERDICT] = KERNEL_VERDICT;
        fds[NURSERY_GO] = KERNEL_GO;
        return syscall(SYS_close_range, KERNEL_FDS, ~0u, 0) < 0 ? -errno : 0;
}

static int enter_workspace(void) {
        if (chdir("/workspace") < 0)
                return -errno;
        /* Changes of ids have changed the owner of /proc/self. */
        return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ? -errno : 0;
}

static int set_rlimits(void) {
        return privilege_set_rlimits(&order.limits, order.has_memory_cgroup, order.has_pids_cgroup);
}

static int restrict_files(void) {
        const char *writable[WRITABLE_MAX];
        if (landlock_abi() == 0)
                return 0;
        if (order.n_writable > WRITABLE_MAX)
                return -E2BIG;
        for (size_t i = 0; i < order.n_writable; i++)
                if (!(writable[i] = text_at(i)))
                        return -EPROTO;
        return landlock_restrict(writable, order.n_writable);
}

/* If mounts may follow (box/late_mounts.h), the last rows have two parts. A rule of Landlock holds for the directory
 * that is there and not for what is mounted on it later, so Landlock waits; the filter does not, and only leaves what
 * Landlock needs. No request is answered before the second part is done. */
static const struct {
        int (*run)(void);
        const char *what;
        int (*before_mounts)(void), (*after_mounts)(void); /* both NULL: run, before */
} steps[] = {
        /* first: limits hold, memory is charged to the box */
        { enter_groups, "entering the control groups", NULL, NULL },
        { join_box, "joining the box's namespaces", NULL, NULL },
        { become_user, "becoming the user of the box", NULL, NULL },
        { privilege_join_fresh_keyring, "joining a fresh keyring", NULL, NULL },
        { spawn_arrange_descriptors, "arranging descriptors", NULL, NULL },
        { enter_workspace, "entering the workspace", NULL, NULL },
        { privilege_offer_to_oom, "being the first to go when memory runs out", NULL, NULL },
        { set_rlimits, "setting resource limits", NULL, NULL },
        { privilege_drop_all, "giving up privileges", NULL, NULL }, /* joining a user namespace brought them all back */
        { restrict_files, "restricting file access with Landlock", NULL, restrict_files },
        /* last: it forbids calls above. The nursery's own filter, which this one completes, is there already */
        { seccomp_close, "installing the system-call filter", seccomp_close_early, seccomp_close },
};

/* A build of the tests leaves out one row: see box/seal/stage.c. The environment of the new kernel says which. */
#ifdef SPAWN_LEAVE_OUT
static bool is_left_out(const char *what) {
        char text[128];
        int size = snprintf(text, sizeof(text), "GLOVEBOX_LEAVE_OUT=%s", what);
        return memmem(order.texts, order.texts_size, text, (size_t) size + 1) != NULL;
}
#else
#define is_left_out(what) false
#endif

/* Only our own code has run in this kernel so far. None of the rows needs a privilege. */
int spawn_settle(void) {
        if (!order.mounts_follow)
                return 0;
        order.mounts_follow = false;
        (void) mkdir("/workspace/artifacts", 0755); /* as in a box that was made with this workspace */
        int code = chdir("/workspace") < 0 ? -errno : 0;
        for (size_t i = 0; i < ELEMENTS(steps) && code == 0; i++)
                if (steps[i].after_mounts && !is_left_out(steps[i].what))
                        code = steps[i].after_mounts();
        return code;
}

/* Reports to the maker and waits for its permission. */
static void settle_kernel(void) {
        struct err verdict = { 0 };
        for (size_t i = 0; i < ELEMENTS(steps) && verdict.code == ERR_NONE; i++) {
                int (*run)(void) = order.mounts_follow && steps[i].after_mounts ? steps[i].before_mounts : steps[i].run;
                int code = run && !is_left_out(steps[i].what) ? run() : 0;
                if (code < 0)
                        (void) err_sys(&verdict, -code, "forked kernel: %s", steps[i].what);
        }
        char go;
        if (fd_write_all(fds[NURSERY_VERDICT], &verdict, sizeof(verdict)) < 0 || verdict.code != ERR_NONE ||
            fd_read_exactly(fds[NURSERY_GO], &go, 1) < 0)
                _exit(125);
        fd_close(&fds[NURSERY_VERDICT]);
        fd_close(&fds[NURSERY_GO]);
}

/* The part of the C library's fork() in the child that a process with one thread needs. */
static int clone_kernel(void) {
        struct clone_args args = { .flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID,
                                   .child_tid = (uint64_t) (uintptr_t) tid_address };
        void *robust_list;
        size_t robust_size;
        bool has_robust = syscall(SYS_get_robust_list, 0, &robust_list, &robust_size) == 0;
        long pid = syscall(SYS_clone3, &args, sizeof(args));
        if (pid == 0 && has_robust)
                (void) syscall(SYS_set_robust_list, robust_list, robust_size);
        return pid < 0 ? -errno : (int) pid;
}

/* ORDER_DONE in the nursery; SPAWN_… in a sealed kernel. */
static int fork_kernel(void) {
        if (count_links() != links_alone) {
                int sent = answer_order(-EDEADLK, 0); /* a fork would copy held locks */
                return sent < 0 ? sent : ORDER_DONE;
        }
        if (setns(fds[NURSERY_AGENT], CLONE_NEWPID) < 0) {
                int refusal = -errno; /* the box is gone, most likely: the nursery continues */
                int sent = answer_order(refusal, 0);
                return sent < 0 ? sent : ORDER_DONE;
        }
        int pid = clone_kernel();
        if (pid == 0) {
                settle_kernel();
                return describe_kernel();
        }
        if (setns(own_pidfd, CLONE_NEWPID) < 0)
                _exit(125); /* the next kernel would be forked into another box */
        int code = answer_order(pid < 0 ? pid : 0, pid < 0 ? 0 : pid);
        return code < 0 ? code : ORDER_DONE;
}

void spawn_simulate(int kernel) {
        simulated = kernel;
}

int spawn_serve(void) {
        int code = simulated;
        simulated = ORDER_DONE;
        while (code == ORDER_DONE) {
                code = receive_order();
                if (code == 0)
                        code = fork_kernel();
        }
        return code;
}
