/* The filter, twice: its program run over every call by a small interpreter of our own, and installed in a child. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/sha256.h"
#include "box/seal/seccomp.h"
#include "box/seal/seccomp_calls.h"
#include "tap.h"

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#define ALLOW SECCOMP_RET_ALLOW
#define KILL SECCOMP_RET_KILL_PROCESS
#define ERRNO(code) (SECCOMP_RET_ERRNO | (code))
#define NO_ANSWER 0xdeadbeefu /* an instruction we do not know, or a jump out of the program */
#define ANY_HIGH_WORD 0xabcdef0100000000ull

static uint32_t evaluate_program(const struct sock_fprog *program, const struct seccomp_data *data) {
        uint32_t a = 0;
        for (size_t pc = 0; pc < program->len; pc++) {
                const struct sock_filter *f = &program->filter[pc];
                int taken = 0;
                switch (f->code) {
                case BPF_LD | BPF_W | BPF_ABS:
                        if (f->k % 4 || f->k + 4 > sizeof(*data))
                                return NO_ANSWER;
                        memcpy(&a, (const char *) data + f->k, 4);
                        continue;
                case BPF_ALU | BPF_AND | BPF_K:
                        a &= f->k;
                        continue;
                case BPF_RET | BPF_K:
                        return f->k;
                case BPF_JMP | BPF_JA:
                        pc += f->k;
                        continue;
                case BPF_JMP | BPF_JEQ | BPF_K:
                        taken = a == f->k;
                        break;
                case BPF_JMP | BPF_JGE | BPF_K:
                        taken = a >= f->k;
                        break;
                case BPF_JMP | BPF_JGT | BPF_K:
                        taken = a > f->k;
                        break;
                case BPF_JMP | BPF_JSET | BPF_K:
                        taken = (a & f->k) != 0;
                        break;
                default:
                        return NO_ANSWER;
                }
                pc += taken ? f->jt : f->jf;
        }
        return NO_ANSWER;
}

static uint32_t evaluate(const struct seccomp_data *data) {
        return evaluate_program(&seccomp_program, data);
}

static uint32_t ask_about(int number, const uint64_t arguments[static 4]) {
        struct seccomp_data data = { .nr = number, .arch = ARCHITECTURE };
        memcpy(data.args, arguments, 4 * sizeof(*arguments));
        return evaluate(&data);
}

static uint32_t ask(uint32_t architecture, int number, uint64_t a0, uint64_t a1, uint64_t a2) {
        struct seccomp_data data = { .nr = number, .arch = architecture, .args = { a0, a1, a2 } };
        return evaluate(&data);
}

static const struct seccomp_call *find_call(int number) {
        for (size_t i = 0; i < ELEMENTS(seccomp_calls); i++)
                if (seccomp_call_number(&seccomp_calls[i]) == number)
                        return &seccomp_calls[i];
        return NULL;
}

static void test_every_number(void) {
        size_t wrong = 0, seen = 0;
        for (int number = 0; number < 2 * SECCOMP_NUMBERS; number++) {
                const struct seccomp_call *call = find_call(number);
                if (call && call->verdict == SECCOMP_VERDICT_RULED)
                        continue;
                uint32_t expected = ERRNO(ENOSYS);
                if (call && call->verdict == SECCOMP_VERDICT_ALLOWED)
                        expected = ALLOW;
                else if (call && call->verdict == SECCOMP_VERDICT_FORBIDDEN)
                        expected = ERRNO(EPERM);
                uint64_t noise = 0x9e3779b97f4a7c15ull * ((uint64_t) number + 1);
                if (ask(ARCHITECTURE, number, 0, 0, 0) != expected ||
                    ask(ARCHITECTURE, number, noise, ~noise, noise >> 7) != expected) {
                        printf("# %d (%s) is answered wrongly\n", number, call ? call->name : "in no list");
                        wrong++;
                }
                seen += call != NULL;
        }
        ok(wrong == 0, "every number gets the verdict of its row, whatever its arguments");
        ok(seen > 250, "most rows have a number here (%zu)", seen);
        ok(ask(ARCHITECTURE, 0x3fffffff, 0, 0, 0) == ERRNO(ENOSYS), "the largest number is unknown, not an error");
}

/* Of several filters the kernel takes the strictest verdict: the lowest action, as a signed number. */
static uint32_t stricter(uint32_t one, uint32_t other) {
        return (int32_t) (one & SECCOMP_RET_ACTION_FULL) <= (int32_t) (other & SECCOMP_RET_ACTION_FULL) ? one : other;
}

/* The arguments are small numbers, flags, and what no call expects. */
static void test_kernels_of_a_nursery(void) {
        static const uint64_t values[] = { 0, 1, 2, 3, 16, 22, 1024, 0x5412, 0x8000, 0x40000, 0x7E020000, 0xffffffff };
        static const uint32_t architectures[] = { ARCHITECTURE, AUDIT_ARCH_I386, 0 };
        size_t wrong = 0, open_early = 0;
        for (size_t a = 0; a < ELEMENTS(architectures); a++)
                for (int number = 0; number < 2 * SECCOMP_NUMBERS; number++) {
                        bool differs = false;
                        for (size_t i = 0; i < ELEMENTS(values) * ELEMENTS(values); i++) {
                                uint64_t one = values[i / ELEMENTS(values)], other = values[i % ELEMENTS(values)];
                                const struct seccomp_data data = { .nr = number,
                                                                   .arch = architectures[a],
                                                                   .args = { one, other, one, other, one, other } };
                                uint32_t inherited = evaluate_program(&seccomp_nursery_program, &data);
                                wrong += stricter(inherited, evaluate_program(&seccomp_closing_program, &data)) !=
                                         evaluate(&data);
                                differs |= stricter(inherited, evaluate_program(&seccomp_early_closing_program,
                                                                                &data)) != evaluate(&data);
                        }
                        open_early += differs;
                }
        ok(wrong == 0, "a kernel of a nursery has the whole profile, in two filters");
        ok(open_early == 4, "one that waits for its mounts may call Landlock and seccomp in addition (%zu)",
           open_early);
}

static void test_foreign_abi(void) {
        static const uint32_t foreign[] = { AUDIT_ARCH_I386, AUDIT_ARCH_ARM, AUDIT_ARCH_AARCH64, AUDIT_ARCH_X86_64, 0 };
        int killed = 1;
        for (size_t i = 0; i < ELEMENTS(foreign); i++)
                for (int number = 0; foreign[i] != ARCHITECTURE && number < SECCOMP_NUMBERS; number++)
                        killed &= ask(foreign[i], number, 0, 0, 0) == KILL;
        ok(killed, "every call of another architecture kills");
#ifdef __x86_64__
        killed = 1;
        for (int number = 0; number < SECCOMP_NUMBERS; number++)
                killed &= ask(ARCHITECTURE, 0x40000000 | number, 0, 0, 0) == KILL;
        ok(killed && ask(ARCHITECTURE, -1, 0, 0, 0) == KILL, "every call of x32 kills");
#endif
}

static const struct {
        const char *call;
        uint64_t arguments[4];
        uint32_t verdict;
} edges[] = {
        { "clone", { 0x01200011 }, ALLOW }, /* fork as glibc makes it */
        { "clone", { 0x003d0f00 }, ALLOW }, /* a thread */
        { "clone", { 0x00020000 }, ERRNO(EPERM) },
        { "clone", { 0x02000000 }, ERRNO(EPERM) },
        { "clone", { 0x04000000 }, ERRNO(EPERM) },
        { "clone", { 0x08000000 }, ERRNO(EPERM) },
        { "clone", { 0x10000011 }, ERRNO(EPERM) },
        { "clone", { 0x20000000 }, ERRNO(EPERM) },
        { "clone", { 0x40000000 }, ERRNO(EPERM) },
        { "clone", { ANY_HIGH_WORD | 0x10000011 }, ERRNO(EPERM) },
        { "clone", { 0x00008011 }, ERRNO(EPERM) }, /* CLONE_PARENT */
        { "fcntl", { 0, 0 }, ALLOW },
        { "fcntl", { 0, 1024 }, ERRNO(EINVAL) }, /* F_SETLEASE */
        { "fcntl", { 0, 1025 }, ALLOW },
        { "fcntl", { 0, ANY_HIGH_WORD | 1026 }, ERRNO(EINVAL) }, /* F_NOTIFY */
        { "fcntl", { 0, 1030 }, ALLOW },                         /* F_DUPFD_CLOEXEC */
        { "fcntl", { 0, 1034 }, ALLOW },                         /* F_GET_SEALS */
        { "fcntl", { 0, 1040 }, ERRNO(EINVAL) },                 /* F_SETDELEG of a later kernel */
        { "memfd_create", { 0, 1 }, ALLOW },
        { "memfd_create", { 0, 1 | 4 }, ERRNO(ENOMEM) },
        { "shmget", { 0, 4096, 01600 }, ALLOW },
        { "shmget", { 0, 4096, 04000 | 01600 }, ERRNO(ENOMEM) },
        { "mmap", { 0, 4096, 3, 0x22 }, ALLOW },
        { "mmap", { 0, 4096, 3, 0x40022 }, ERRNO(ENOMEM) },
        { "sync", { 0 }, ERRNO(0) },
        { "futex", { 0, 0 }, ALLOW },
        { "futex", { 0, 1 | 128 }, ALLOW },
        { "futex", { 0, 5 | 128 }, ALLOW },
        { "futex", { 0, 6 }, ERRNO(ENOSYS) },
        { "futex", { 0, 7 | 128 }, ERRNO(ENOSYS) },
        { "futex", { 0, 8 }, ERRNO(ENOSYS) },
        { "futex", { 0, 9 | 128 | 256 }, ALLOW },
        { "futex", { 0, 10 | 128 }, ALLOW },
        { "futex", { 0, 11 }, ERRNO(ENOSYS) },
        { "futex", { 0, 12 | 128 }, ERRNO(ENOSYS) },
        { "futex", { 0, 13 | 256 }, ERRNO(ENOSYS) },
        { "futex", { 0, ANY_HIGH_WORD | 12 }, ERRNO(ENOSYS) },
        { "futex", { 0, 1 << 16 }, ERRNO(ENOSYS) },
        { "ioctl", { 0, 0x5401 }, ALLOW }, /* TCGETS */
        { "ioctl", { 0, 0x5413 }, ALLOW }, /* TIOCGWINSZ, next to TIOCSTI */
        { "ioctl", { 0, 0x5412 }, ERRNO(EPERM) },
        { "ioctl", { 0, 0x541C }, ERRNO(EPERM) },
        { "ioctl", { 0, 0x5423 }, ERRNO(EPERM) },
        { "ioctl", { 0, ANY_HIGH_WORD | 0x5412 }, ERRNO(EPERM) },
        { "mknod", { 0, S_IFIFO | 0600 }, ALLOW },
        { "mknod", { 0, 0600 }, ALLOW },
        { "mknod", { 0, S_IFCHR | 0600 }, ERRNO(EPERM) },
        { "mknod", { 0, ANY_HIGH_WORD | S_IFBLK }, ERRNO(EPERM) },
        { "mknod", { 0, 0xffff0000 | S_IFCHR }, ERRNO(EPERM) }, /* the kernel looks at 16 bits */
        { "mknodat", { 0, S_IFCHR, S_IFREG | 0600 }, ALLOW },
        { "mknodat", { 0, 0, S_IFSOCK | 0600 }, ALLOW },
        { "mknodat", { 0, 0, S_IFIFO | 0600 }, ALLOW },
        { "mknodat", { 0, S_IFREG, S_IFCHR | 0600 }, ERRNO(EPERM) },
        { "mknodat", { 0, 0, S_IFBLK | 0600 }, ERRNO(EPERM) },
        { "mknodat", { 0, 0, S_IFDIR | 0700 }, ERRNO(EPERM) },
        { "personality", { 0 }, ALLOW },
        { "personality", { 0xffffffff }, ALLOW },
        { "personality", { 0x0040000 }, ERRNO(EPERM) },
        { "personality", { ANY_HIGH_WORD | 8 }, ERRNO(EPERM) },
        { "prctl", { PR_SET_NAME }, ALLOW },
        { "prctl", { PR_SET_SECCOMP }, ERRNO(EINVAL) },
        { "prctl", { ANY_HIGH_WORD | PR_SET_SECCOMP }, ERRNO(EINVAL) },
        { "socket", { AF_UNIX, SOCK_STREAM }, ALLOW },
        { "socket", { AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC }, ALLOW },
        { "socket", { AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK }, ALLOW },
        { "socket", { AF_UNIX, SOCK_RAW }, ERRNO(EPERM) },
        { "socket", { AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0 }, ALLOW },
        { "socket", { AF_INET, SOCK_STREAM, 6 }, ALLOW },
        { "socket", { AF_INET, SOCK_STREAM, 17 }, ERRNO(EPROTONOSUPPORT) },
        { "socket", { AF_INET, SOCK_STREAM, 132 }, ERRNO(EPROTONOSUPPORT) }, /* SCTP */
        { "socket", { AF_INET, SOCK_STREAM, 262 }, ERRNO(EPROTONOSUPPORT) }, /* MPTCP */
        { "socket", { AF_INET, SOCK_DGRAM, 0 }, ALLOW },
        { "socket", { AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 17 }, ALLOW },
        { "socket", { AF_INET, SOCK_DGRAM, 115 }, ERRNO(EPROTONOSUPPORT) }, /* L2TP */
        { "socket", { AF_INET, SOCK_RAW, 1 }, ERRNO(EPERM) },
        { "socket", { AF_INET, SOCK_SEQPACKET, 0 }, ERRNO(EPERM) },
        { "socket", { AF_INET6, SOCK_STREAM, 0 }, ALLOW },
        { "socket", { AF_INET6, SOCK_DGRAM, 17 }, ALLOW },
        { "socket", { AF_INET6, SOCK_RAW, 58 }, ERRNO(EPERM) },
        { "socket", { AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0 }, ALLOW },
        { "socket", { AF_NETLINK, SOCK_RAW, 6 }, ERRNO(EPROTONOSUPPORT) },  /* XFRM */
        { "socket", { AF_NETLINK, SOCK_RAW, 12 }, ERRNO(EPROTONOSUPPORT) }, /* NETFILTER */
        { "socket", { 0 }, ERRNO(EAFNOSUPPORT) },
        { "socket", { AF_PACKET, SOCK_RAW }, ERRNO(EAFNOSUPPORT) },
        { "socket", { AF_ALG, SOCK_SEQPACKET }, ERRNO(EAFNOSUPPORT) },
        { "socket", { AF_VSOCK, SOCK_STREAM }, ERRNO(EAFNOSUPPORT) },
        { "socket", { AF_KEY, SOCK_RAW }, ERRNO(EAFNOSUPPORT) },
        { "socket", { ANY_HIGH_WORD | AF_ALG, SOCK_SEQPACKET }, ERRNO(EAFNOSUPPORT) },
        { "socketpair", { AF_UNIX, SOCK_STREAM }, ALLOW },
        { "socketpair", { AF_INET, SOCK_STREAM }, ERRNO(EAFNOSUPPORT) },
        { "socketpair", { AF_TIPC, SOCK_STREAM }, ERRNO(EAFNOSUPPORT) },
};

static void test_argument_edges(void) {
        size_t wrong = 0;
        for (size_t i = 0; i < ELEMENTS(edges); i++) {
                int number = -1;
                for (size_t j = 0; j < ELEMENTS(seccomp_calls); j++)
                        if (strcmp(seccomp_calls[j].name, edges[i].call) == 0)
                                number = seccomp_call_number(&seccomp_calls[j]);
                if (number < 0)
                        continue; /* not on this architecture */
                const uint64_t *a = edges[i].arguments;
                uint32_t verdict = ask_about(number, a);
                if (verdict != edges[i].verdict) {
                        printf("# %s(%#lx, %#lx, %#lx): %#x, expected %#x\n", edges[i].call, (unsigned long) a[0],
                               (unsigned long) a[1], (unsigned long) a[2], verdict, edges[i].verdict);
                        wrong++;
                }
        }
        ok(wrong == 0, "%zu argument edges are answered as the rules say", ELEMENTS(edges));
}

static int install(void) {
        /* Not dumpable: some children here die by design and should leave no core file. */
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -errno;
        return seccomp_install();
}

#define ANSWERS(expected, call) ((call) == -1 && errno == (expected))

/* Exit status: 0, or the number of the attempt that was answered wrongly. */
static int attempt_in_child(void) {
        if (install() < 0)
                return 1;
        if (!ANSWERS(EPERM, syscall(SYS_ptrace, 0, 0, 0, 0)))
                return 2;
        if (!ANSWERS(EPERM, unshare(CLONE_NEWUSER)))
                return 3;
        if (!ANSWERS(EPERM, syscall(SYS_io_uring_setup, 1, NULL)))
                return 4;
        if (!ANSWERS(ENOSYS, syscall(9999)))
                return 5;
        if (!ANSWERS(EAFNOSUPPORT, socket(AF_ALG, SOCK_SEQPACKET, 0)))
                return 6;
        if (!ANSWERS(ENOSYS, syscall(SYS_clone3, NULL, 0)))
                return 7;
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || close(fd) < 0)
                return 8;
        pid_t pid = fork(); /* and ordinary life goes on */
        if (pid == 0)
                _exit(0);
        int status;
        return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 9;
}

static int run_child(int (*body)(void)) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
                _exit(body());
        int status = -1;
        return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

#ifdef __x86_64__
/* getpid of 32-bit Linux; 20 is writev in ours. */
static int call_foreign_abi(void) {
        if (install() < 0)
                return 1;
        long answer;
        __asm__ volatile("int $0x80" : "=a"(answer) : "0"(20L) : "memory");
        return 2;
}

static int call_x32(void) {
        if (install() < 0)
                return 1;
        syscall(0x40000000 | SYS_getpid);
        return 2;
}
#endif

int main(void) {
        char hex[2 * SHA256_SIZE + 1];
        size_t size = seccomp_program.len * sizeof(struct sock_filter);
        is_text(sha256_hex(seccomp_program.filter, size, hex), seccomp_program_sha256,
                "the digest is that of the program");
        test_every_number();
        test_kernels_of_a_nursery();
        test_foreign_abi();
        test_argument_edges();
        int status = run_child(attempt_in_child);
        ok(status == 0, "an installed filter answers as the interpreter does (status %#x)", (unsigned) status);
#ifdef __x86_64__
        status = run_child(call_foreign_abi);
        /* SIGSYS by the filter; SIGSEGV on a host without 32-bit emulation. */
        ok(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSYS || WTERMSIG(status) == SIGSEGV), "int 0x80 is killed");
        status = run_child(call_x32);
        ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "x32 is killed");
#endif
        return done_testing();
}
