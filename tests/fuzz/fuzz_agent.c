/* Frames of a hostile host, served by the agent's own handlers. Processes and terminals are not real ones, and every
 * path leads into a directory of ours. Types from 0x100 on are not for the agent: they let a process write, read or
 * end, and the host read.
 *
 * What must hold: the agent says only what it may say, OUTPUT comes between STARTED and EXITED and never more than the
 * host has room for, and when everything is over no file is left that was still being written. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/agent/bounds.h"
#include "guest/agent/child.h"
#include "guest/agent/identity.h"
#include "guest/agent/link.h"
#include "guest/agent/path.h"
#include "guest/agent/process.h"
#include "guest/agent/removal.h"
#include "guest/agent/terminal.h"
#include "guest/agent/users.h"
#include "guest/agent/watch.h"
#include "guest/agent/write.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { INPUT_MAX = 32 << 10, IDS = 16, PROCESSES = 32, TURNS_MAX = 10000 };
enum { PROCESS_WRITES = 0x100, PROCESS_READS, PROCESS_ENDS, HOST_READS };

static void must(int condition) {
        if (!condition)
                abort();
}

/* ---- files ---- */

static char directory[] = "/tmp/glovebox-fuzz-XXXXXX";
static const char *const names[] = {
        "", "a", "b", "d", "d/a", "d/e", "d/e/f", "none/x", "fifo", "link", "self", "d/.."
};

static bool files_changed = true; /* making them again takes longer than all the rest */

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *ftw) {
        (void) status;
        (void) type;
        (void) ftw;
        must(!strstr(path, "/" WRITE_PREFIX));
        return remove(path);
}

static int open_up(const char *path, const struct stat *status, int type, struct FTW *ftw) {
        (void) type;
        (void) ftw;
        return S_ISDIR(status->st_mode) ? chmod(path, 0700) : 0;
}

static void remove_all(void) {
        (void) nftw(directory, open_up, 8, FTW_PHYS); /* the host chose their modes */
        (void) nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void make_files(void) {
        char path[64];
        must(mkdir(directory, 0700) == 0);
        (void) snprintf(path, sizeof(path), "%s/d", directory);
        must(mkdir(path, 0700) == 0);
        (void) snprintf(path, sizeof(path), "%s/d/e", directory);
        must(mkdir(path, 0700) == 0);
        (void) snprintf(path, sizeof(path), "%s/fifo", directory);
        must(mkfifo(path, 0600) == 0);
        (void) snprintf(path, sizeof(path), "%s/link", directory);
        must(symlink("d", path) == 0);
        (void) snprintf(path, sizeof(path), "%s/self", directory);
        must(symlink("/proc/self/environ", path) == 0);
}

/* The last byte of what the host named chooses one of ours. */
int path_get(struct frame_reader *fields, char **ret_path) {
        char *given = NULL;
        if (!frame_get_text(fields, &given))
                return -EPROTO;
        size_t size = strlen(given);
        const char *name = names[size ? (unsigned char) given[size - 1] % (sizeof(names) / sizeof(names[0])) : 0];
        free(given);
        must(asprintf(ret_path, "%s/%s", directory, name) > 0);
        return 0;
}

int path_open_parent(const char *path, const char **ret_name) {
        const char *slash = strrchr(path, '/');
        if (!slash[1] || strcmp(slash + 1, "..") == 0)
                return -EINVAL;
        char parent[64];
        (void) snprintf(parent, sizeof(parent), "%.*s", (int) (slash - path), path);
        int fd = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
        *ret_name = slash + 1;
        return fd < 0 ? -errno : fd;
}

/* ---- processes ---- */

static struct {
        pid_t pid;
        int fds[3];
        int status;
        bool ending;
} processes[PROCESSES];
static size_t n_processes;
static pid_t last_pid = 100;

int process_start(struct process *process, const char **ret_step) {
        *ret_step = "pretending";
        if (n_processes == PROCESSES || process->argv[0][0] == '!')
                return -ENOENT;
        for (size_t i = 0; i < 3; i++) {
                processes[n_processes].fds[i] = i < process->n_fds ? fcntl(process->fds[i], F_DUPFD_CLOEXEC, 0) : -1;
                if (processes[n_processes].fds[i] >= 0)
                        must(fd_set_nonblocking(processes[n_processes].fds[i]) == 0);
        }
        processes[n_processes].ending = false;
        processes[n_processes++].pid = process->pid = ++last_pid;
        return 0;
}

void process_signal(pid_t pid, int signal_number, bool whole_group) {
        (void) whole_group;
        for (size_t i = 0; i < n_processes; i++)
                if (processes[i].pid == pid && signal_number == SIGKILL) {
                        processes[i].ending = true;
                        processes[i].status = signal_number;
                }
}

void process_release(struct process *process) {
        free(process->cwd);
        frame_free_texts(process->argv);
        frame_free_texts(process->envp);
}

/* In a box with users everybody whom the host names is there, but for those without a name. */
int identity_begin(void) {
        return 0;
}

struct identity identity_of_sandbox(void) {
        return (struct identity) { .uid = 1000, .gid = 1000 };
}

int identity_find(const char *user, struct identity *ret_identity) {
        if (!*user)
                return -ENOENT;
        *ret_identity = (struct identity) { .uid = 1001, .gid = 1001, .name = "user", .home = "/", .shell = "/bin/sh" };
        return 0;
}

int terminal_open(struct streams *ret_streams, uint32_t rows, uint32_t columns, int ret_theirs[static 3]) {
        if (rows > 1000 || columns > 1000)
                return -EINVAL;
        int code = streams_open(ret_streams, ret_theirs);
        if (code == 0) {
                ret_streams->terminal = true;
                fd_close(&ret_streams->outputs[1].fd);
        }
        return code;
}

int terminal_resize(int terminal_fd, uint32_t rows, uint32_t columns) {
        (void) columns;
        return terminal_fd < 0 || rows > 1000 ? -EINVAL : 0;
}

char terminal_end_key(int terminal_fd) {
        return terminal_fd < 0 ? 0 : 4;
}

static void end_process(size_t i) {
        for (size_t k = 0; k < 3; k++)
                fd_close(&processes[i].fds[k]);
        struct rusage usage = { 0 };
        pid_t pid = processes[i].pid;
        int status = processes[i].status;
        processes[i] = processes[--n_processes];
        children_reaped(pid, status, &usage);
}

static void move_process(const struct frame *frame) {
        static char bytes[100 << 10];
        struct frame_reader fields = frame_read(frame);
        uint32_t size = 0;
        if (n_processes == 0)
                return;
        size_t i = frame->id % n_processes;
        (void) frame_get_u32(&fields, &size);
        if (frame->type == PROCESS_WRITES)
                (void) !write(processes[i].fds[1 + (size & 1)], bytes, size % sizeof(bytes));
        else if (frame->type == PROCESS_READS)
                (void) !read(processes[i].fds[0], bytes, size % sizeof(bytes));
        else
                end_process(i);
}

/* ---- the host ---- */

static struct {
        int fd;
        struct frame_inbox inbox;
        struct {
                bool running;
                uint64_t received, acknowledged;
        } ids[IDS];
} host;

static void check_frame(struct frame *frame) {
        struct frame_reader fields = frame_read(frame);
        uint32_t number;
        const char *bytes;
        size_t size;
        must(frame->id < IDS);
        switch (frame->type) {
        case FRAME_STARTED:
                must(!host.ids[frame->id].running);
                host.ids[frame->id].running = true;
                host.ids[frame->id].received = 0;
                break;
        case FRAME_OUTPUT:
                must(frame_get_u32(&fields, &number) && (number == 1 || number == 2));
                must(frame_get_bytes(&fields, &bytes, &size) && size > 0 && fields.at == fields.end);
                must(host.ids[frame->id].running);
                host.ids[frame->id].received += size;
                must(host.ids[frame->id].acknowledged > UINT64_MAX - STREAM_WINDOW ||
                     host.ids[frame->id].received <= host.ids[frame->id].acknowledged + STREAM_WINDOW);
                break;
        case FRAME_EXITED:
                must(host.ids[frame->id].running);
                host.ids[frame->id].running = false;
                break;
        case FRAME_FAILED:
                must(frame_get_u32(&fields, &number) && number > 0 && number < 200);
                break;
        default:
                must(frame->type == FRAME_DONE || frame->type == FRAME_TAKEN || frame->type == FRAME_CHANGED);
        }
}

static void host_read(void) {
        struct frame frame;
        int code;
        do {
                link_flush(); /* a socket does not hold everything at once */
                while ((code = frame_inbox_receive(&host.inbox, host.fd, MSG_DONTWAIT, &frame)) == 1) {
                        check_frame(&frame);
                        frame_release(&frame);
                }
                must(code == 0 && !link_is_broken());
        } while (link_has_queue());
}

static void note_acknowledged(const struct frame *frame) {
        struct frame_reader fields = frame_read(frame);
        uint64_t bytes;
        if (frame->type == FRAME_ACK && frame_get_u64(&fields, &bytes) && bytes > host.ids[frame->id].acknowledged)
                host.ids[frame->id].acknowledged = bytes;
}

/* ---- turns ---- */

static void turn(void) {
        static struct polls polls;
        polls.n = 0;
        watches_wait(&polls);
        children_wait(&polls);
        must(poll(polls.fds, (nfds_t) polls.n, 0) >= 0);
        link_flush();
        for (size_t i = n_processes; i-- > 0;)
                if (processes[i].ending)
                        end_process(i);
        children_move(&polls);
        watches_move(&polls);
        removals_move();
        must(!link_is_broken());
}

static bool serve(struct frame *frame) {
        frame->id %= IDS;
        if (frame->type == HOST_READS)
                host_read();
        else if (frame->type >= PROCESS_WRITES && frame->type < HOST_READS)
                move_process(frame);
        else {
                note_acknowledged(frame);
                if (frame->type >= FRAME_WRITE && frame->type < FRAME_WATCH)
                        files_changed = true;
                return request_serve(frame);
        }
        return true;
}

static void finish(void) {
        for (uint32_t turns = 0; turns < TURNS_MAX && (removals_pending() || link_has_queue() || turns < 4); turns++) {
                turn();
                host_read();
        }
        must(!removals_pending() && !link_has_queue());
        while (n_processes > 0)
                end_process(0);
        children_release();
        writes_release();
        watches_release();
        removals_release();
        users_release();
        link_release();
        frame_inbox_release(&host.inbox);
        close(host.fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
        if (size > INPUT_MAX)
                return 0;
        static bool made;
        if (!made) {
                (void) signal(SIGPIPE, SIG_IGN);
                must(mkdtemp(directory) != NULL);
                (void) atexit(remove_all);
                made = true;
        }
        if (files_changed) {
                remove_all();
                make_files();
                files_changed = false;
        }
        int ends[2];
        must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        memset(&host, 0, sizeof(host));
        host.fd = ends[0];
        link_open(ends[1]);
        must(write(host.fd, bytes, size) == (ssize_t) size);
        struct frame frame;
        bool going_on = true;
        while (going_on) {
                while (link_is_full()) {
                        host_read();
                        turn();
                }
                going_on = link_receive(&frame) == 1;
                if (!going_on)
                        break;
                going_on = serve(&frame);
                frame_release(&frame);
                turn();
        }
        finish();
        close(ends[1]);
        return 0;
}
