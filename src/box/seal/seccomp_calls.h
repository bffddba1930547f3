/* Which system calls a box may make: the whole list, by name.
 *
 * A call is ALLOWED, FORBIDDEN (EPERM: a policy decision), decided by a RULE over its arguments, or ABSENT (ENOSYS).
 * Calls in no list are absent too: a call of a future kernel is closed at first, and libraries fall back as on an older
 * kernel. Numbers are those of the target's own headers; a call that an architecture lacks is left out there. */
/* Tables: clang-format would break them in the middle of a row. */
/* clang-format off */
#pragma once

#include <asm/unistd.h>
#include <stdlib.h>

/* Calls that the oldest kernel headers we build with do not know. Since 424 every architecture has the same numbers. */
#ifndef __NR_cachestat
#define __NR_cachestat 451
#endif
#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452
#endif
#ifndef __NR_map_shadow_stack
#define __NR_map_shadow_stack 453
#endif
#ifndef __NR_futex_wake
#define __NR_futex_wake 454
#endif
#ifndef __NR_futex_wait
#define __NR_futex_wait 455
#endif
#ifndef __NR_statmount
#define __NR_statmount 457
#endif
#ifndef __NR_listmount
#define __NR_listmount 458
#endif
#ifndef __NR_lsm_get_self_attr
#define __NR_lsm_get_self_attr 459
#endif
#ifndef __NR_lsm_set_self_attr
#define __NR_lsm_set_self_attr 460
#endif
#ifndef __NR_lsm_list_modules
#define __NR_lsm_list_modules 461
#endif
#ifndef __NR_mseal
#define __NR_mseal 462
#endif
#ifndef __NR_setxattrat
#define __NR_setxattrat 463
#endif
#ifndef __NR_getxattrat
#define __NR_getxattrat 464
#endif
#ifndef __NR_listxattrat
#define __NR_listxattrat 465
#endif
#ifndef __NR_removexattrat
#define __NR_removexattrat 466
#endif
#ifndef __NR_open_tree_attr
#define __NR_open_tree_attr 467
#endif

#define SECCOMP_ALLOWED(X)                                                                                            \
        X(accept) X(accept4) X(access) X(alarm) X(arch_prctl) X(bind) X(brk) X(cachestat) X(capget) X(capset)         \
        X(chdir) X(chown) X(clock_getres) X(clock_gettime) X(clock_nanosleep) X(close) X(close_range) X(connect)      \
        X(copy_file_range) X(dup) X(dup2) X(dup3) X(epoll_create) X(epoll_create1) X(epoll_ctl) X(epoll_pwait)        \
        X(epoll_pwait2) X(epoll_wait) X(eventfd) X(eventfd2) X(execve) X(execveat) X(exit) X(exit_group) X(faccessat) \
        X(faccessat2) X(fadvise64) X(fallocate) X(fchdir) X(fchown) X(fchownat) X(fdatasync) X(fgetxattr)             \
        X(flistxattr) X(flock) X(fork) X(fremovexattr) X(fsetxattr) X(fstat) X(fstatfs) X(fsync) X(ftruncate)         \
        X(futex_wait) X(futex_waitv) X(futex_wake) X(futimesat) X(get_robust_list) X(getcpu) X(getcwd) X(getdents)    \
        X(getdents64) X(getegid) X(geteuid) X(getgid) X(getgroups) X(getitimer) X(getpeername) X(getpgid) X(getpgrp)  \
        X(getpid) X(getppid) X(getpriority) X(getrandom) X(getresgid) X(getresuid) X(getrlimit) X(getrusage)          \
        X(getsid) X(getsockname) X(getsockopt) X(gettid) X(gettimeofday) X(getuid) X(getxattr) X(getxattrat)          \
        X(ioprio_get) X(kill) X(lchown) X(lgetxattr) X(link) X(linkat) X(listen) X(listxattr) X(listxattrat)          \
        X(llistxattr) X(lremovexattr) X(lseek) X(lsetxattr) X(lstat) X(madvise) X(map_shadow_stack) X(membarrier)     \
        X(mincore) X(mkdir) X(mkdirat) X(mlock) X(mlock2) X(mlockall) X(mprotect) X(mq_getsetattr) X(mq_notify)       \
        X(mq_open) X(mq_timedreceive) X(mq_timedsend) X(mq_unlink) X(mremap) X(mseal) X(msgctl) X(msgget) X(msgrcv)   \
        X(msgsnd) X(msync) X(munlock) X(munlockall) X(munmap) X(nanosleep) X(newfstatat) X(pause) X(pidfd_open)       \
        X(pidfd_send_signal) X(pipe) X(pipe2) X(pkey_alloc) X(pkey_free) X(pkey_mprotect) X(poll) X(ppoll) X(pread64) \
        X(preadv) X(preadv2) X(prlimit64) X(pselect6) X(pwrite64) X(pwritev) X(pwritev2) X(read) X(readahead)         \
        X(readlink) X(readlinkat) X(readv) X(recvfrom) X(recvmmsg) X(recvmsg) X(remap_file_pages) X(removexattr)      \
        X(removexattrat) X(rename) X(renameat) X(renameat2) X(restart_syscall) X(rmdir) X(rseq) X(rt_sigaction)       \
        X(rt_sigpending) X(rt_sigprocmask) X(rt_sigqueueinfo) X(rt_sigreturn) X(rt_sigsuspend) X(rt_sigtimedwait)     \
        X(rt_tgsigqueueinfo) X(sched_get_priority_max) X(sched_get_priority_min) X(sched_getaffinity)                 \
        X(sched_getattr) X(sched_getparam) X(sched_getscheduler) X(sched_rr_get_interval) X(sched_setaffinity)        \
        X(sched_setparam) X(sched_setscheduler) X(sched_yield) X(select) X(semctl) X(semget) X(semop) X(semtimedop)   \
        X(sendfile) X(sendmmsg) X(sendmsg) X(sendto) X(set_robust_list) X(set_tid_address) X(setfsgid) X(setfsuid)    \
        X(setgid) X(setgroups) X(setitimer) X(setpgid) X(setpriority) X(setregid) X(setresgid) X(setresuid)           \
        X(setreuid) X(setrlimit) X(setsid) X(setsockopt) X(setuid) X(setxattr) X(setxattrat) X(shmat) X(shmctl)       \
        X(shmdt) X(shutdown) X(sigaltstack) X(signalfd) X(signalfd4) X(splice) X(stat) X(statfs) X(statx) X(symlink)  \
        X(symlinkat) X(sync_file_range) X(sysinfo) X(tee) X(tgkill) X(time) X(timer_create) X(timer_delete)           \
        X(timer_getoverrun) X(timer_gettime) X(timer_settime) X(timerfd_create) X(timerfd_gettime) X(timerfd_settime) \
        X(times) X(tkill) X(truncate) X(umask) X(uname) X(unlink) X(unlinkat) X(utime) X(utimensat) X(utimes)         \
        X(vfork) X(wait4) X(waitid) X(write) X(writev)

#define SECCOMP_FORBIDDEN(X)                                                                                          \
        /* Namespaces, mounts, roots: the isolation of the box itself. */                                             \
        X(unshare) X(setns) X(mount) X(umount2) X(pivot_root) X(chroot) X(open_tree) X(move_mount) X(fsopen)          \
        X(fsconfig) X(fsmount) X(fspick) X(mount_setattr)                                                             \
        /* Files by handle: they walk around the mount namespace. */                                                  \
        X(name_to_handle_at) X(open_by_handle_at) X(fanotify_init) X(lookup_dcookie)                                  \
        /* Other processes' memory, files and identity. */                                                            \
        X(ptrace) X(process_vm_readv) X(process_vm_writev) X(process_madvise) X(process_mrelease) X(kcmp)             \
        X(pidfd_getfd)                                                                                                \
        /* Large kernel surfaces with a history of holes; io_uring also walks around this very filter. */             \
        X(io_uring_setup) X(io_uring_enter) X(io_uring_register) X(bpf) X(perf_event_open) X(userfaultfd)             \
        X(vmsplice) X(memfd_secret) X(modify_ldt)                                                                     \
        /* Keyrings are not namespaced. */                                                                            \
        X(keyctl) X(add_key) X(request_key)                                                                           \
        /* The machine: clocks, modules, swap, ports, accounting, names, quotas. */                                   \
        X(acct) X(adjtimex) X(clock_adjtime) X(clock_settime) X(create_module) X(delete_module) X(finit_module)       \
        X(init_module) X(ioperm) X(iopl) X(kexec_file_load) X(kexec_load) X(nfsservctl) X(quotactl) X(quotactl_fd)    \
        X(reboot) X(setdomainname) X(sethostname) X(settimeofday) X(swapoff) X(swapon) X(syslog) X(uselib) X(ustat)   \
        X(vhangup)                                                                                                    \
        /* Memory placement: only useful to the owner of the machine; libnuma takes EPERM for "no NUMA here". */      \
        X(get_mempolicy) X(set_mempolicy) X(set_mempolicy_home_node) X(mbind) X(migrate_pages) X(move_pages)          \
        /* A box is restricted already; a program that would restrict itself further (xz) goes on without. */         \
        X(landlock_create_ruleset) X(landlock_add_rule) X(landlock_restrict_self)

/* Each has a rule_NAME in seccomp_build.c. */
#define SECCOMP_RULED(X)                                                                                              \
        X(chmod) X(clone) X(creat) X(fchmod) X(fchmodat) X(fchmodat2) X(fcntl) X(futex) X(ioctl) X(memfd_create)      \
        X(mknod) X(mknodat) X(mmap) X(open) X(openat) X(personality) X(prctl) X(shmget) X(socket) X(socketpair)       \
        X(sync)

#define SECCOMP_ABSENT(X)                                                                                             \
        /* Its flags lie behind a pointer that a filter cannot read. glibc falls back to clone. */                    \
        X(clone3)                                                                                                     \
        /* The same: its mode could be set-user-id. */                                                                \
        X(openat2)                                                                                                    \
        /* A filter of the tenant's own would be harmless, but its listeners and flags are kernel surface that no     \
         * ordinary program needs: like a kernel built without it. */                                                 \
        X(seccomp)                                                                                                    \
        /* Watches on /usr would show which programs the host and other boxes start, and instances are counted for a   \
         * user, not for a box. tail and watchfiles take ENOSYS for "poll instead". */                                \
        X(inotify_init) X(inotify_init1) X(inotify_add_watch) X(inotify_rm_watch)                                     \
        /* Contexts are counted for the whole machine (fs.aio-max-nr). */                                             \
        X(io_setup) X(io_destroy) X(io_submit) X(io_cancel) X(io_getevents) X(io_pgetevents)                          \
        /* Writes back everything on a file system of the host; fsync is there for one's own files. */                \
        X(syncfs)                                                                                                     \
        /* They list the host's mounts and security modules. */                                                       \
        X(statmount) X(listmount) X(open_tree_attr) X(lsm_get_self_attr) X(lsm_set_self_attr) X(lsm_list_modules)

enum seccomp_verdict {
        SECCOMP_VERDICT_ALLOWED,
        SECCOMP_VERDICT_FORBIDDEN,
        SECCOMP_VERDICT_RULED,
        SECCOMP_VERDICT_ABSENT,
};

struct seccomp_call {
        const char *name;
        const char *number; /* decimal digits, or the macro's own name where the architecture lacks the call */
        enum seccomp_verdict verdict;
};

/* A macro that is not defined stays as it is when it is turned into text: this is how one table serves every
 * architecture without a conditional around each row. */
#define SECCOMP_TEXT_(x) #x
#define SECCOMP_TEXT(x) SECCOMP_TEXT_(x)
#define SECCOMP_ROW_ALLOWED(call) { #call, SECCOMP_TEXT(__NR_##call), SECCOMP_VERDICT_ALLOWED },
#define SECCOMP_ROW_FORBIDDEN(call) { #call, SECCOMP_TEXT(__NR_##call), SECCOMP_VERDICT_FORBIDDEN },
#define SECCOMP_ROW_RULED(call) { #call, SECCOMP_TEXT(__NR_##call), SECCOMP_VERDICT_RULED },
#define SECCOMP_ROW_ABSENT(call) { #call, SECCOMP_TEXT(__NR_##call), SECCOMP_VERDICT_ABSENT },

static const struct seccomp_call seccomp_calls[] = {
        SECCOMP_ALLOWED(SECCOMP_ROW_ALLOWED)
        SECCOMP_FORBIDDEN(SECCOMP_ROW_FORBIDDEN)
        SECCOMP_RULED(SECCOMP_ROW_RULED)
        SECCOMP_ABSENT(SECCOMP_ROW_ABSENT)
};

/* Larger than any number in use, far below the x32 bit. */
enum { SECCOMP_NUMBERS = 1024 };

/* -1: this architecture does not have the call. */
static inline int seccomp_call_number(const struct seccomp_call *call) {
        char *end;
        long number = strtol(call->number, &end, 10);
        return end == call->number || *end ? -1 : (int) number;
}
