/* The entry: what a box of another engine starts with. It does the last steps of a native box (src/box/seal/stage.c)
 * from the inside, and becomes the agent.
 *
 * Theory of operation. The engine starts it as PID 1 with no capability and no_new_privs, or as root of the
 * box's own user namespace (Incus): then it first does what the API of other engines does (view.c) and drops every
 * capability. It connects to the host's socket, makes the proxy's listening socket and passes it to the host if the box
 * has a network (or starts a relay, relay.h), sets its limits and filters, and executes the agent with the connection
 * as descriptor 3. A failed step is reported with the agent's own frame and ends the box. It is static, so no code of
 * the image runs before the agent.
 *
 *   entry PORT MEMORY PIDS DISK LETTERS WRITABLE…      PORT 0: no network; letters: src/engine/programs.h
 *   entry --arguments                                  they are in a file (src/engine/programs.h), each followed by NUL */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "box/seal/landlock.h"
#include "box/seal/privilege.h"
#include "box/seal/seccomp.h"
#include "box/spec.h"
#include "engine/programs.h"
#include "relay.h"
#include "view.h"
#include "wire/frame.h"

enum { CONTROL_FD = 3, ARGUMENTS = 6, WRITABLE_MAX = 128, ARGUMENTS_SIZE_MAX = 256 << 10 };

static int connect_to_host(void) {
        const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = ENGINE_SOCKET };
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0)
                return -errno;
        if (fd == CONTROL_FD)
                return fd;
        int placed = dup3(fd, CONTROL_FD, O_CLOEXEC);
        return placed < 0 ? -errno : placed;
}

static int hand_out_listener(int host_fd, uint16_t port) {
        _cleanup_fd_ int fd = relay_listen(port);
        return fd < 0 ? fd : fd_passing_send(host_fd, "L", 1, &fd, 1, MSG_NOSIGNAL);
}

/* The workspace is a tmpfs that the engine made; the host has no other way to it. */
static int hand_out_workspace(int host_fd) {
        _cleanup_fd_ int fd = open(BOX_WORKSPACE, O_PATH | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_passing_send(host_fd, "W", 1, &fd, 1, MSG_NOSIGNAL);
}

/* The engine must have dropped every capability. If one is left, the box must not start. */
static int check_privileges(void) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = { 0 };
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -errno;
        if (syscall(SYS_capget, &header, sets) < 0)
                return -errno;
        for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
                if (sets[i].effective || sets[i].permitted || sets[i].inheritable)
                        return -EPERM;
        for (unsigned long cap = 0; cap < 64; cap++)
                if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1)
                        return -EPERM;
        return geteuid() == 0 ? -EPERM : 0;
}

static int restrict_files(char *const *writable) {
        size_t n = 0;
        while (writable[n])
                n++;
        if (landlock_abi() == 0)
                return 0; /* the isolation report then shows no Landlock */
        return landlock_restrict((const char *const *) writable, n);
}

static void entry_fail(int host_fd, int code, const char *step) __attribute__((noreturn));
static void entry_fail(int host_fd, int code, const char *step) {
        struct frame_writer payload = { 0 };
        frame_put_u32(&payload, (uint32_t) -code);
        frame_put_text(&payload, step);
        if (host_fd >= 0)
                (void) frame_send(host_fd, FRAME_FAILED, 0, &payload, NULL, 0);
        (void) dprintf(STDERR_FILENO, "glovebox entry: %s: %s\n", step, strerror(-code));
        _exit(125);
}

/* Reads the file as an argv. Excess texts are ignored: the host writes fewer. */
static int read_arguments(char *ret_argv[static ARGUMENTS + WRITABLE_MAX + 1]) {
        size_t size = 0;
        int n = 0;
        _cleanup_fd_ int fd = open(ENGINE_ARGUMENTS, O_RDONLY | O_CLOEXEC);
        char *text = NULL; /* never freed: argv points into it */
        if (fd < 0 || fd_read_to_end(fd, ARGUMENTS_SIZE_MAX, &text, &size) < 0)
                return 0;
        for (char *at = text; at < text + size && n < ARGUMENTS + WRITABLE_MAX; at += strlen(at) + 1)
                ret_argv[n++] = at;
        ret_argv[n] = NULL;
        return n;
}

static void seal_as_root(int host_fd, const struct limits *limits) {
        struct err err = { 0 };
        if (view_seal(limits, &err) < 0 || view_drop_privileges(&err) < 0)
                entry_fail(host_fd, err.sys_errno ? -err.sys_errno : -EPERM, err.message);
}

int main(int argc, char **argv) {
        char *given[ARGUMENTS + WRITABLE_MAX + 1];
        if (argc == 2 && strcmp(argv[1], "--arguments") == 0) {
                argc = read_arguments(given);
                argv = given;
        }
        if (argc < ARGUMENTS)
                return 2;
        unsigned long port = strtoul(argv[1], NULL, 10);
        const struct limits limits = { .memory_bytes = strtoull(argv[2], NULL, 10),
                                       .pids = strtoull(argv[3], NULL, 10),
                                       .disk_bytes = strtoull(argv[4], NULL, 10) };
        int host_fd = connect_to_host(), code;
        if (host_fd < 0)
                entry_fail(-1, host_fd, "connecting to the host");
        bool is_root = geteuid() == 0, is_bounded = !strstr(argv[5], ENTRY_UNBOUNDED);
        if (is_root)
                seal_as_root(host_fd, &limits);
        if (strstr(argv[5], ENTRY_SENDS_WORKSPACE) && (code = hand_out_workspace(host_fd)) < 0)
                entry_fail(host_fd, code, "handing out the workspace");
        bool relays = port && access(ENGINE_PROXY, F_OK) == 0;
        if (port && !relays && (code = hand_out_listener(host_fd, (uint16_t) port)) < 0)
                entry_fail(host_fd, code, "making the proxy's socket");
        if ((code = privilege_set_rlimits(&limits, is_bounded, is_bounded)) < 0)
                entry_fail(host_fd, code, "setting resource limits");
        if ((code = check_privileges()) < 0)
                entry_fail(host_fd, code, "having no privileges");
        (void) mkdir(BOX_WORKSPACE "/artifacts", 0755); /* as in a native box; the workspace may be read-only */
        if ((code = restrict_files(argv + ARGUMENTS)) < 0)
                entry_fail(host_fd, code, "restricting file access with Landlock");
        if ((code = seccomp_install()) < 0)
                entry_fail(host_fd, code, "installing the system-call filter");
        if (relays && (code = relay_start((uint16_t) port)) < 0)
                entry_fail(host_fd, code, "starting the relay to the proxy");
        char *const agent_argv[] = { (char[]) { "agent" }, NULL };
        char *const none[] = { NULL };
        (void) fcntl(host_fd, F_SETFD, 0);
        (void) execve(ENGINE_PROGRAMS "/agent", agent_argv, none);
        entry_fail(host_fd, -errno, "starting the agent");
}
