/* Compiles seccomp_calls.h into the BPF programs of every box; run once, when Glovebox is built. There are four: the
 * whole filter; the same with the calls with which a nursery makes kernels (seccomp.h); and two short ones that close
 * these.
 *
 * The program: a foreign architecture kills (its numbers would mean other calls); then a balanced tree of comparisons
 * finds the interval of call numbers with the same verdict, in about eight steps; a leaf returns the verdict or jumps
 * to the call's rule over its arguments. The kernel evaluates the tree once for each number when the program is
 * installed, and calls that are always allowed then cost nothing.
 *
 * Rules look at what the kernel looks at: all arguments that matter here are taken as 32-bit (or, for a mode, 16-bit)
 * values by the calls themselves, so the low word decides, and garbage in the high word must not change the answer. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "base/sha256.h"
#include "box/seal/seccomp_calls.h"

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define X32_BIT 0x40000000u
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "no system-call filter for this architecture yet: add it here and look at every rule again"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the low word of an argument is taken to come first"
#endif

#define ERRNO(code) (SECCOMP_RET_ERRNO | (code))
#define ALLOW SECCOMP_RET_ALLOW

static struct sock_filter program[BPF_MAXINSNS];
static size_t n_program;

__attribute__((noreturn)) static void die(const char *what, const char *about) {
        fprintf(stderr, "seccomp_build: %s: %s\n", what, about);
        exit(EXIT_FAILURE);
}

static size_t emit_instruction(unsigned code, uint32_t k, size_t if_true, size_t if_false) {
        if (n_program == BPF_MAXINSNS || if_true > UINT8_MAX || if_false > UINT8_MAX)
                die("the program is too large", "shorten a rule");
        program[n_program] = (struct sock_filter) { (uint16_t) code, (uint8_t) if_true, (uint8_t) if_false, k };
        return n_program++;
}

/* A verdict, or the way to a rule, is not an instruction of its own wherever it is needed but a place that comparisons
 * jump to: ways to rules stand once, behind the tree, and verdicts once, at the end. The kernel translates every
 * instruction anew for each box. */
struct leaf {
        uint32_t verdict;
        int rule; /* index in rules, or -1 */
        size_t at;
};
static struct leaf leaves[64];
static size_t n_leaves;

static int find_leaf(uint32_t verdict, int rule) {
        for (size_t i = 0; i < n_leaves; i++)
                if (leaves[i].rule == rule && (rule >= 0 || leaves[i].verdict == verdict))
                        return (int) i;
        if (n_leaves == ELEMENTS(leaves))
                die("too many kinds of verdicts", "");
        leaves[n_leaves] = (struct leaf) { .verdict = verdict, .rule = rule };
        return (int) n_leaves++;
}

/* Where a comparison goes: a leaf, counted from 1, or 0 where its jump is known already. */
static struct {
        int when_true, when_false;
} ways[BPF_MAXINSNS];

/* The small language that rules are written in. */
static void seccomp_build_load(size_t offset) {
        emit_instruction(BPF_LD | BPF_W | BPF_ABS, (uint32_t) offset, 0, 0);
}

static void load_argument(size_t index) {
        seccomp_build_load(offsetof(struct seccomp_data, args) + index * sizeof(uint64_t));
}

static void mask(uint32_t bits) {
        emit_instruction(BPF_ALU | BPF_AND | BPF_K, bits, 0, 0);
}

static void seccomp_build_answer(uint32_t verdict) {
        emit_instruction(BPF_RET | BPF_K, verdict, 0, 0);
}

static void answer_if(unsigned comparison, uint32_t value, uint32_t verdict) {
        size_t at = emit_instruction(BPF_JMP | comparison | BPF_K, value, 0, 0);
        ways[at].when_true = find_leaf(verdict, -1) + 1;
}

/* The instructions between begin and end are for one value only, and must answer. */
static size_t begin_when(uint32_t value) {
        return emit_instruction(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 0);
}

static void end_when(size_t begin) {
        size_t over = n_program - begin - 1;
        if (over > UINT8_MAX)
                die("a rule is too long", "shorten it");
        program[begin].jf = (uint8_t) over;
}

/* Threads and processes, but no namespace. CLONE_NEWTIME needs no check: clone() reads its bit as part of the exit
 * signal. CLONE_PARENT is refused: it would make a process of the box a child of the kernel's parent, which is outside. */
static void rule_clone(void) {
        load_argument(0);
        answer_if(BPF_JSET, 0x7E020000 | 0x8000, ERRNO(EPERM));
        seccomp_build_answer(ALLOW);
}

/* Leases (1024) block the next process that opens the file, on the host too; F_NOTIFY (1026) reports who uses a
 * directory. Commands that are newer than the last one known here (F_SET_FILE_RW_HINT, 1038) do not exist. */
static void rule_fcntl(void) {
        load_argument(1);
        answer_if(BPF_JEQ, 1024, ERRNO(EINVAL));
        answer_if(BPF_JEQ, 1026, ERRNO(EINVAL));
        answer_if(BPF_JGT, 1038, ERRNO(EINVAL));
        seccomp_build_answer(ALLOW);
}

/* Huge pages are reserved by the host's administrator, and the box's control groups do not count them. */
static void rule_mmap(void) {
        load_argument(3);
        answer_if(BPF_JSET, 0x40000, ERRNO(ENOMEM)); /* MAP_HUGETLB */
        seccomp_build_answer(ALLOW);
}

static void rule_memfd_create(void) {
        load_argument(1);
        answer_if(BPF_JSET, 4, ERRNO(ENOMEM)); /* MFD_HUGETLB */
        seccomp_build_answer(ALLOW);
}

static void rule_shmget(void) {
        load_argument(2);
        answer_if(BPF_JSET, 04000, ERRNO(ENOMEM)); /* SHM_HUGETLB */
        seccomp_build_answer(ALLOW);
}

/* It would write back the files of the whole host, and cannot fail: so it does nothing. */
static void rule_sync(void) {
        seccomp_build_answer(ERRNO(0));
}

/* The plain operations: wait, wake, requeue, wake_op (0 to 5) and the two bitset ones (9, 10). Priority inheritance is
 * a rich source of kernel bugs, and pthreads report ENOSYS as "not supported". */
static void rule_futex(void) {
        load_argument(1);
        mask(~(128u | 256u)); /* FUTEX_PRIVATE_FLAG, FUTEX_CLOCK_REALTIME */
        answer_if(BPF_JGT, 10, ERRNO(ENOSYS));
        answer_if(BPF_JGE, 9, ALLOW);
        answer_if(BPF_JGT, 5, ERRNO(ENOSYS));
        seccomp_build_answer(ALLOW);
}

/* Typing into a terminal of another process (TIOCSTI, TIOCLINUX) and loading line disciplines (TIOCSETD). */
static void rule_ioctl(void) {
        load_argument(1);
        answer_if(BPF_JEQ, 0x5412, ERRNO(EPERM));
        answer_if(BPF_JEQ, 0x541C, ERRNO(EPERM));
        answer_if(BPF_JEQ, 0x5423, ERRNO(EPERM));
        seccomp_build_answer(ALLOW);
}

/* A set-user-ID file would run as its owner on the host, where a shared workspace shows it to others: the mounts of the
 * box are nosuid, those of the host are not. */
static void refuse_set_id(size_t mode_argument) {
        load_argument(mode_argument);
        answer_if(BPF_JSET, S_ISUID | S_ISGID, ERRNO(EPERM));
}

static void rule_mode(size_t mode_argument) {
        refuse_set_id(mode_argument);
        seccomp_build_answer(ALLOW);
}

static void rule_chmod(void) {
        rule_mode(1);
}

static void rule_fchmodat(void) {
        rule_mode(2);
}

/* The same rule, and so the same instructions. */
#define rule_fchmod rule_chmod
#define rule_creat rule_chmod
#define rule_fchmodat2 rule_fchmodat

/* The mode counts only when a file is made; otherwise it is whatever the register held. */
static void rule_opening(size_t flags_argument) {
        load_argument(flags_argument);
        emit_instruction(BPF_JMP | BPF_JSET | BPF_K, O_CREAT | (O_TMPFILE & ~O_DIRECTORY), 1, 0);
        seccomp_build_answer(ALLOW);
        rule_mode(flags_argument + 1);
}

static void rule_open(void) {
        rule_opening(1);
}

static void rule_openat(void) {
        rule_opening(2);
}

/* mkfifo, bind and plain files; never a device, not even the 0:0 that the kernel allows to all. */
static void rule_node(size_t mode_argument) {
        refuse_set_id(mode_argument);
        load_argument(mode_argument);
        mask(S_IFMT);
        answer_if(BPF_JEQ, 0, ALLOW);
        answer_if(BPF_JEQ, S_IFREG, ALLOW);
        answer_if(BPF_JEQ, S_IFIFO, ALLOW);
        answer_if(BPF_JEQ, S_IFSOCK, ALLOW);
        seccomp_build_answer(ERRNO(EPERM));
}

static void rule_mknod(void) {
        rule_node(1);
}

static void rule_mknodat(void) {
        rule_node(2);
}

/* Asking (0xffffffff) and going back to normal; switching off address randomisation or mapping page 0 is refused. */
static void rule_personality(void) {
        load_argument(0);
        answer_if(BPF_JEQ, 0, ALLOW);
        answer_if(BPF_JEQ, 0xffffffff, ALLOW);
        seccomp_build_answer(ERRNO(EPERM));
}

/* All but PR_SET_SECCOMP (22), which answers as on a kernel without filters, like seccomp() itself. */
static void rule_prctl(void) {
        load_argument(0);
        answer_if(BPF_JEQ, 22, ERRNO(EINVAL));
        seccomp_build_answer(ALLOW);
}

/* TCP and UDP. Protocols are listed because naming one (SCTP, L2TP, MPTCP, ...) would load its kernel module. */
static void rule_socket_internet(void) {
        static const struct {
                uint32_t type, protocol;
        } kinds[] = { { SOCK_STREAM, IPPROTO_TCP }, { SOCK_DGRAM, IPPROTO_UDP } };
        load_argument(1);
        mask(0xf); /* without SOCK_CLOEXEC and SOCK_NONBLOCK */
        for (size_t i = 0; i < ELEMENTS(kinds); i++) {
                size_t type = begin_when(kinds[i].type);
                load_argument(2);
                answer_if(BPF_JEQ, 0, ALLOW);
                answer_if(BPF_JEQ, kinds[i].protocol, ALLOW);
                seccomp_build_answer(ERRNO(EPROTONOSUPPORT));
                end_when(type);
        }
        seccomp_build_answer(ERRNO(EPERM));
}

/* An allow-list of families: each of the others is a kernel module with a history. */
static void rule_socket(void) {
        load_argument(0);
        size_t family = begin_when(AF_UNIX);
        load_argument(1);
        mask(0xf);
        answer_if(BPF_JEQ, SOCK_STREAM, ALLOW);
        answer_if(BPF_JEQ, SOCK_DGRAM, ALLOW);
        answer_if(BPF_JEQ, SOCK_SEQPACKET, ALLOW);
        seccomp_build_answer(ERRNO(EPERM));
        end_when(family);

        emit_instruction(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 1, 0); /* over the next comparison */
        family = begin_when(AF_INET6);
        rule_socket_internet();
        end_when(family);

        family = begin_when(AF_NETLINK); /* routes only: getaddrinfo and getifaddrs ask there */
        load_argument(2);
        answer_if(BPF_JEQ, 0, ALLOW);
        seccomp_build_answer(ERRNO(EPROTONOSUPPORT));
        end_when(family);

        seccomp_build_answer(ERRNO(EAFNOSUPPORT));
}

static void rule_socketpair(void) {
        load_argument(0);
        answer_if(BPF_JEQ, AF_UNIX, ALLOW);
        seccomp_build_answer(ERRNO(EAFNOSUPPORT));
}

static const struct {
        const char *call;
        void (*emit)(void);
} rules[] = {
#define RULE(call) { #call, rule_##call },
        SECCOMP_RULED(RULE)
#undef RULE
};

/* Numbers with the same verdict next to each other; the last interval has no end. */
struct interval {
        uint32_t first;
        uint32_t verdict;
        int rule; /* index in rules, or -1 */
};

/* Of several calls with the same rule the first stands for all. */
static size_t find_rule(const char *call) {
        for (size_t i = 0; i < ELEMENTS(rules); i++)
                if (strcmp(rules[i].call, call) == 0)
                        for (size_t same = 0;; same++)
                                if (rules[same].emit == rules[i].emit)
                                        return same;
        die("there is no rule for", call);
}

static uint32_t verdict_of(const struct seccomp_call *call) {
        return call->verdict == SECCOMP_VERDICT_ALLOWED     ? ALLOW
               : call->verdict == SECCOMP_VERDICT_FORBIDDEN ? ERRNO(EPERM)
                                                            : ERRNO(ENOSYS);
}

/* What a nursery may call in addition, up to the step of a kernel's sealing that closes it. */
enum closed { CLOSED_NEVER, CLOSED_EARLY, CLOSED_LATE };

static enum closed closed_when(const struct seccomp_call *call) {
        static const struct {
                const char *name;
                enum closed when;
        } calls[] = {
                { "setns", CLOSED_EARLY },
                { "clone3", CLOSED_EARLY },
                { "keyctl", CLOSED_EARLY },
                /* The steps that box/late_mounts.h leaves for later: Landlock, and the filter that forbids both. */
                { "landlock_create_ruleset", CLOSED_LATE },
                { "landlock_add_rule", CLOSED_LATE },
                { "landlock_restrict_self", CLOSED_LATE },
                { "seccomp", CLOSED_LATE },
        };
        for (size_t i = 0; i < ELEMENTS(calls); i++)
                if (strcmp(calls[i].name, call->name) == 0)
                        return calls[i].when;
        return CLOSED_NEVER;
}

static size_t make_intervals(struct interval intervals[static SECCOMP_NUMBERS], bool of_nursery) {
        const struct seccomp_call *of_number[SECCOMP_NUMBERS] = { NULL };
        for (size_t i = 0; i < ELEMENTS(seccomp_calls); i++) {
                int number = seccomp_call_number(&seccomp_calls[i]);
                if (number < 0)
                        continue;
                if (number >= SECCOMP_NUMBERS - 1 || of_number[number])
                        die("listed twice, or its number is too large", seccomp_calls[i].name);
                of_number[number] = &seccomp_calls[i];
        }
        size_t n = 0;
        for (uint32_t number = 0; number < SECCOMP_NUMBERS; number++) {
                const struct seccomp_call *call = of_number[number];
                struct interval interval = { number, ERRNO(ENOSYS), -1 };
                if (call && call->verdict == SECCOMP_VERDICT_RULED)
                        interval.rule = (int) find_rule(call->name);
                else if (call)
                        interval.verdict = of_nursery && closed_when(call) ? ALLOW : verdict_of(call);
                if (n == 0 || intervals[n - 1].verdict != interval.verdict || intervals[n - 1].rule != interval.rule)
                        intervals[n++] = interval;
        }
        return n;
}

/* As many comparisons as there are borders between the intervals. */
static void emit_tree(const struct interval *intervals, size_t n) {
        size_t half = n / 2, at = n_program;
        if (n < 2 || half - 1 > UINT8_MAX)
                die("the tree is too small, or too large for conditional jumps", "");
        emit_instruction(BPF_JMP | BPF_JGE | BPF_K, intervals[half].first, half - 1, 0);
        ways[at].when_false = half == 1 ? find_leaf(intervals[0].verdict, intervals[0].rule) + 1 : 0;
        ways[at].when_true = n - half == 1 ? find_leaf(intervals[half].verdict, intervals[half].rule) + 1 : 0;
        if (half > 1)
                emit_tree(intervals, half);
        if (n - half > 1)
                emit_tree(intervals + half, n - half);
}

static uint8_t distance(size_t from, size_t to) {
        if (to - from - 1 > UINT8_MAX)
                die("too far for a conditional jump", "");
        return (uint8_t) (to - from - 1);
}

static void emit_ways_to_rules(void) {
        for (size_t i = 0; i < n_leaves; i++)
                if (leaves[i].rule >= 0)
                        leaves[i].at = emit_instruction(BPF_JMP | BPF_JA, 0, 0, 0);
}

static void emit_rules(void) {
        for (size_t i = 0; i < n_leaves; i++) {
                if (leaves[i].rule < 0)
                        continue;
                program[leaves[i].at].k = (uint32_t) (n_program - leaves[i].at - 1);
                rules[leaves[i].rule].emit();
        }
}

static void emit_verdicts(void) {
        for (size_t i = 0; i < n_leaves; i++)
                if (leaves[i].rule < 0) {
                        leaves[i].at = n_program;
                        seccomp_build_answer(leaves[i].verdict);
                }
        for (size_t at = 0; at < n_program; at++) {
                if (ways[at].when_true)
                        program[at].jt = distance(at, leaves[ways[at].when_true - 1].at);
                if (ways[at].when_false)
                        program[at].jf = distance(at, leaves[ways[at].when_false - 1].at);
        }
}

static void begin_program(void) {
        n_program = n_leaves = 0;
        memset(ways, 0, sizeof(ways));
        seccomp_build_load(offsetof(struct seccomp_data, arch));
        emit_instruction(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
        seccomp_build_answer(SECCOMP_RET_KILL_PROCESS);
        seccomp_build_load(offsetof(struct seccomp_data, nr));
#ifdef X32_BIT
        answer_if(BPF_JGE, X32_BIT, SECCOMP_RET_KILL_PROCESS);
#endif
}

static void emit_program(bool of_nursery) {
        static struct interval intervals[SECCOMP_NUMBERS];
        size_t n_intervals = make_intervals(intervals, of_nursery);
        begin_program();
        emit_tree(intervals, n_intervals);
        emit_ways_to_rules();
        emit_rules();
        emit_verdicts();
}

static void emit_closing_program(enum closed last) {
        begin_program();
        for (size_t i = 0; i < ELEMENTS(seccomp_calls); i++)
                if (closed_when(&seccomp_calls[i]) && closed_when(&seccomp_calls[i]) <= last)
                        answer_if(BPF_JEQ, (uint32_t) seccomp_call_number(&seccomp_calls[i]),
                                  verdict_of(&seccomp_calls[i]));
        seccomp_build_answer(ALLOW);
        emit_verdicts();
}

static void write_program(FILE *out, const char *name) {
        fprintf(out, "static const struct sock_filter %s_filter[] = {\n", name);
        for (size_t i = 0; i < n_program; i++)
                fprintf(out, "        { 0x%02x, %u, %u, 0x%08x },\n", program[i].code, program[i].jt, program[i].jf,
                        program[i].k);
        fprintf(out, "};\nconst struct sock_fprog %s = { %zu, (struct sock_filter *) %s_filter };\n\n", name, n_program,
                name);
}

int main(int argc, char **argv) {
        if (argc != 2)
                die("usage", "seccomp_build OUTPUT.c");
        FILE *out = fopen(argv[1], "we");
        if (!out)
                die("cannot write", argv[1]);
        char hex[2 * SHA256_SIZE + 1];
        fprintf(out, "/* Made by seccomp_build from seccomp_calls.h. */\n#include \"box/seal/seccomp.h\"\n\n");
        emit_program(true);
        write_program(out, "seccomp_nursery_program");
        emit_closing_program(CLOSED_EARLY);
        write_program(out, "seccomp_early_closing_program");
        emit_closing_program(CLOSED_LATE);
        write_program(out, "seccomp_closing_program");
        emit_program(false);
        write_program(out, "seccomp_program");
        fprintf(out, "const char seccomp_program_sha256[65] =\n        \"%s\";\n",
                sha256_hex(program, n_program * sizeof(program[0]), hex));
        if (fclose(out) != 0)
                die("cannot write", argv[1]);
        return EXIT_SUCCESS;
}
