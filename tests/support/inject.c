/* Makes one system call fail, of a sealing box: `inject INDEX ERRNO TRACE -- PROGRAM ARGUMENT…`, or of a process that
 * is known by its name: `inject --live CONTROL -- PROGRAM ARGUMENT…`.
 *
 * Theory of operation. The program runs under a seccomp filter that reports every system call of it and of all its
 * descendants to us; we let each of them go on, but for call number INDEX (from 1) of the process that is PID 1 of a
 * new pid namespace and has not become another program yet, which is answered with ERRNO. INDEX 0 fails none. The
 * numbers of the calls that were counted are written to TRACE, one in a line. Our exit status is the program's.
 *
 * CONTROL is a file of the size of `struct live`, which a test maps and changes while the program runs: whose calls
 * count (by name and by how many pid namespaces it is in), which one of them fails, and with what. With LIVE_KILL for
 * an error, the program is killed when it is about to make that call: then each of its own calls counts. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum { CANNOT = 99, START_WAIT_MS = 60000 };

static void die(const char *what) __attribute__((noreturn));
static void die(const char *what) {
        (void) fprintf(stderr, "inject: %s: %s\n", what, strerror(errno));
        exit(CANNOT);
}

/* The child cannot make a call any more once the filter is there, so it leaves the number in memory that we share. */
static void become(volatile int *shared_fd, char **argv) __attribute__((noreturn));
static void become(volatile int *shared_fd, char **argv) {
        struct sock_filter report[] = { { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF } };
        struct sock_fprog program = { 1, report };
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                die("no_new_privs");
        long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
        if (fd < 0)
                die("seccomp");
        *shared_fd = (int) fd;
        (void) execv(argv[0], argv);
        die(argv[0]);
}

static int fetch_listener(pid_t pid, int pidfd, const volatile int *shared_fd) {
        struct timespec pause_time = { 0, 1000000 };
        for (int i = 0; *shared_fd < 0; i++) {
                if (i == START_WAIT_MS || waitpid(pid, NULL, WNOHANG) != 0) {
                        errno = ECHILD;
                        die("the program did not start");
                }
                (void) nanosleep(&pause_time, NULL);
        }
        int fd = (int) syscall(SYS_pidfd_getfd, pidfd, *shared_fd, 0);
        if (fd < 0)
                die("taking over the listener");
        return fd;
}

/* "NSpid: 4711 1": known by two numbers, the inner of which is 1. */
static bool is_first_of_namespace(pid_t pid) {
        char path[64], text[4096];
        (void) snprintf(path, sizeof(path), "/proc/%d/status", (int) pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return false;
        ssize_t size = read(fd, text, sizeof(text) - 1);
        (void) close(fd);
        text[size > 0 ? size : 0] = '\0';
        const char *line = strstr(text, "\nNSpid:");
        int outer, inner, fields = line ? sscanf(line, "\nNSpid: %d %d", &outer, &inner) : 0;
        return fields == 2 && inner == 1;
}

/* Which process seals the box. Asked once for each process, as they come. */
static bool is_stage(pid_t pid) {
        static pid_t stage, others[64];
        static size_t n_others;
        if (stage)
                return pid == stage;
        for (size_t i = 0; i < n_others && i < 64; i++)
                if (others[i] == pid)
                        return false;
        if (is_first_of_namespace(pid)) {
                stage = pid;
                return true;
        }
        others[n_others++ % 64] = pid;
        return false;
}

/* tests/support/inject.py has the same. */
enum { LIVE_CALLS_MAX = 8192 };
#define LIVE_KILL UINT32_MAX
struct live {
        uint32_t armed, index, error, depth; /* by the test; armed last */
        uint32_t count, failed; /* by us; failed: 1 + number of the call that did */
        char name[16];
        int32_t calls[LIVE_CALLS_MAX];
};

static bool is_meant(const volatile struct live *live, pid_t pid) {
        char path[64], text[4096], name[16];
        (void) snprintf(path, sizeof(path), "/proc/%d/status", (int) pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (fd >= 0)
                (void) close(fd);
        if (size <= 0)
                return false;
        text[size] = '\0';
        for (size_t i = 0; i < sizeof(name); i++)
                name[i] = live->name[i];
        name[15] = '\0';
        size_t length = strlen(name);
        if (strncmp(text, "Name:\t", 6) != 0 || strncmp(text + 6, name, length) != 0 || text[6 + length] != '\n')
                return false;
        const char *at = strstr(text, "\nNSpid:");
        uint32_t depth = 0;
        for (at = at ? at + 7 : ""; *at && *at != '\n'; at++)
                depth += *at == '\t';
        return depth == live->depth;
}

/* Calls that cannot fail, or not like that: a process's ids and signal mask, its end, killing and waiting for its own
 * child; close, which has closed whatever it says; the waiting between two requests. */
static bool can_fail(int number) {
        static const int cannot[] = { SYS_getpid,         SYS_getuid,  SYS_getgid,
                                      SYS_geteuid,        SYS_getegid, SYS_getppid,
                                      SYS_rt_sigprocmask, SYS_umask,   SYS_exit_group,
                                      SYS_kill,           SYS_wait4,   SYS_poll,
                                      SYS_epoll_wait,     SYS_close,   424 /* pidfd_send_signal */ };
        for (size_t i = 0; i < sizeof(cannot) / sizeof(cannot[0]); i++)
                if (number == cannot[i])
                        return false;
        return true;
}

enum { NEVER = 1 }; /* the call is not made */

static int decide_live(volatile struct live *live, pid_t program, const struct seccomp_notif *call) {
        bool kills = live->error == LIVE_KILL;
        if (!live->armed || live->count == LIVE_CALLS_MAX || (!kills && !can_fail(call->data.nr)) ||
            (kills ? (pid_t) call->pid != program : !is_meant(live, (pid_t) call->pid)))
                return 0;
        live->calls[live->count++] = call->data.nr;
        if (live->count != live->index)
                return 0;
        live->failed = 1 + (uint32_t) call->data.nr;
        if (kills) {
                (void) kill((pid_t) call->pid, SIGKILL);
                return NEVER;
        }
        return -(int) live->error;
}

struct plan {
        volatile struct live *live; /* NULL: the stage of a box */
        pid_t program;
        unsigned long index, count;
        int error;
        FILE *trace;
        bool sealed; /* the stage became the agent */
};

static int decide(struct plan *plan, const struct seccomp_notif *call) {
        if (plan->live)
                return decide_live(plan->live, plan->program, call);
        if (plan->sealed || !is_stage((pid_t) call->pid))
                return 0;
        (void) fprintf(plan->trace, "%d\n", call->data.nr);
        plan->sealed = call->data.nr == SYS_execveat;
        return ++plan->count == plan->index ? -plan->error : 0;
}

static void serve_call(int listener, struct plan *plan) {
        struct seccomp_notif call;
        memset(&call, 0, sizeof(call));
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) < 0) {
                if (errno == ENOENT || errno == EINTR)
                        return; /* killed while it waited */
                die("receiving");
        }
        struct seccomp_notif_resp answer = { .id = call.id, .error = decide(plan, &call) };
        if (answer.error == NEVER)
                return; /* with an answer it might still come about */
        if (answer.error == 0)
                answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) < 0 && errno != ENOENT)
                die("answering");
}

/* Until the last process under the filter is gone. Older kernels count a process that was not waited for, so the
 * program is waited for as soon as it ends, whatever it leaves behind. Returns its wait status. */
static int serve(int listener, pid_t pid, int pidfd, struct plan *plan) {
        int status = 0;
        struct pollfd watched[] = { { .fd = listener, .events = POLLIN }, { .fd = pidfd, .events = POLLIN } };
        for (;;) {
                if (poll(watched, 2, -1) < 0) {
                        if (errno != EINTR)
                                die("poll");
                        continue;
                }
                if (watched[1].revents) {
                        if (waitpid(pid, &status, 0) != pid)
                                die("waiting");
                        watched[1].fd = -1;
                }
                if (watched[0].revents & POLLIN)
                        serve_call(listener, plan);
                else if ((watched[0].revents & POLLHUP) && watched[1].fd < 0)
                        return status;
                else if (watched[0].revents & POLLHUP)
                        watched[0].fd = -1; /* only its end is left */
                if (watched[0].fd < 0 && watched[1].fd < 0)
                        return status;
        }
}

static volatile struct live *map_control(const char *path) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct live), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped == MAP_FAILED)
                die(path);
        (void) close(fd);
        return mapped;
}

int main(int argc, char **argv) {
        bool is_live = argc >= 5 && strcmp(argv[1], "--live") == 0 && strcmp(argv[3], "--") == 0;
        if (!is_live && (argc < 6 || strcmp(argv[4], "--") != 0)) {
                (void) fprintf(stderr, "usage: inject INDEX ERRNO TRACE -- PROGRAM ARGUMENT...\n"
                                       "       inject --live CONTROL -- PROGRAM ARGUMENT...\n");
                return CANNOT;
        }
        struct plan plan = { 0 };
        if (is_live)
                plan.live = map_control(argv[2]);
        else {
                plan = (struct plan) { .index = strtoul(argv[1], NULL, 10),
                                       .error = atoi(argv[2]),
                                       .trace = fopen(argv[3], "we") };
                if (!plan.trace)
                        die(argv[3]);
        }
        volatile int *shared_fd = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared_fd == MAP_FAILED)
                die("mmap");
        *shared_fd = -1;
        pid_t pid = fork();
        if (pid < 0)
                die("fork");
        plan.program = pid;
        if (pid == 0)
                become(shared_fd, argv + (is_live ? 4 : 5));
        int pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
        if (pidfd < 0)
                die("pidfd_open");
        int listener = fetch_listener(pid, pidfd, shared_fd);
        int status = serve(listener, pid, pidfd, &plan);
        if (plan.trace && fclose(plan.trace) != 0)
                die(argv[3]);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
