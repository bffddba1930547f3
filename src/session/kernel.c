#include "session/kernel.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/syscalls.h"
#include "session/reaper.h"
#include "wire/frame.h"

enum {
        HEADER_SIZE = 8,
        OUTPUT_BUDGET = 1 << 20, /* bytes of one pipe per turn of the loop, so that a flood starves nobody */
        INBOUND_KEPT = 1 << 20,  /* of the buffer for frames, when it is empty */
        MAIN_PROCESS = 1,        /* the id of the Python process at its agent */
        SHORT_RUN_US = 1000,
        UNMEASURED_MAX = 16,
};

static void on_channel(void *context, uint32_t events);
static void on_start_timeout(void *context);
static void on_control(void *context, uint32_t events);
static void on_status(void *context, uint32_t events);
static void on_out(void *context, uint32_t events);
static void on_err(void *context, uint32_t events);

struct kernel *kernel_make(struct loop *loop, const struct cgroup_host *host, const struct kernel_listener *listener,
                           void *owner, const struct maker_request *request) {
        struct kernel *kernel = calloc(1, sizeof(*kernel));
        if (!kernel)
                return NULL;
        kernel->loop = loop;
        kernel->host = host;
        kernel->listener = listener;
        kernel->owner = owner;
        kernel->ephemeral = request->ephemeral;
        kernel->light = request->light;
        (void) snprintf(kernel->id, sizeof(kernel->id), "%s", request->kernel_id);
        (void) snprintf(kernel->group, sizeof(kernel->group), "%s", request->group);
        (void) snprintf(kernel->state_dir, sizeof(kernel->state_dir), "%s", request->state_dir);
        (void) snprintf(kernel->workspace, sizeof(kernel->workspace), "%s",
                        request->ephemeral ? "" : request->workspace);
        for (size_t i = 0; i < MAKER_FDS; i++)
                kernel->fds[i] = -1;
        kernel->cgroup.v2_fd = -1;
        kernel->meter = CGROUP_METER_NONE;
        return kernel;
}

/* Everything but the record itself. */
static void take_apart(struct kernel *kernel) {
        loop_timer_drop(&kernel->start_timer);
        loop_unwatch(&kernel->channel_watch);
        loop_unwatch(&kernel->control_watch);
        loop_unwatch(&kernel->status_watch);
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                loop_unwatch(&kernel->output_watch[i]);
        if (kernel->fds[MAKER_PIDFD] >= 0 && !kernel->deaf)
                (void) sys_pidfd_send_signal(kernel->fds[MAKER_PIDFD], SIGKILL);
        cgroup_meter_close(&kernel->meter);
        if (kernel->cgroup.host)
                reaper_bury(&kernel->cgroup, kernel->fds[MAKER_PIDFD], kernel->fds[MAKER_LEASE]);
        for (size_t i = 0; i < MAKER_FDS; i++)
                if (i != MAKER_WORKSPACE) /* what an ephemeral run left is still to be read */
                        fd_close(&kernel->fds[i]);
        frame_inbox_release(&kernel->control_inbox);
        free(kernel->inbound);
        free(kernel->outbound);
        kernel->inbound = kernel->outbound = NULL;
        kernel->inbound_size = kernel->inbound_room = kernel->outbound_size = 0;
        kernel->state = KERNEL_DEAD;
}

void kernel_free(struct kernel *kernel) {
        if (!kernel)
                return;
        /* Its maker has died, and what it had made so far was never ours. */
        if (kernel->state == KERNEL_MAKING)
                (void) cgroup_destroy_by_name(kernel->host, kernel->group, NULL);
        take_apart(kernel);
        fd_close(&kernel->fds[MAKER_WORKSPACE]);
        journal_close(kernel->journal);
        free(kernel->rules);
        free(kernel);
}

/* ---- coming to life ---- */

static int open_journal(struct kernel *kernel, struct err *err) {
        if (kernel->ephemeral)
                return journal_scratch_open(&kernel->journal, err);
        char path[1100];
        (void) snprintf(path, sizeof(path), "%s/journal", kernel->state_dir);
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                return err_sys(err, errno, "making %s", path);
        _cleanup_fd_ int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0)
                return err_sys(err, errno, "opening %s", path);
        bool torn;
        return journal_open(dir, &kernel->journal, &torn, err);
}

static int watch_all(struct kernel *kernel, struct err *err) {
        if (cgroup_adopt(kernel->host, kernel->group, &kernel->cgroup, err) < 0 || open_journal(kernel, err) < 0)
                return -1;
        /* The agent's socket too: an agent that does not read, or stops in the middle of a frame, stops nobody else. */
        const int nonblocking[] = { MAKER_CHANNEL, MAKER_OUT, MAKER_ERR, MAKER_CONTROL };
        for (size_t i = 0; i < ELEMENTS(nonblocking); i++)
                if (fd_set_nonblocking(kernel->fds[nonblocking[i]]) < 0)
                        return err_sys(err, errno, "preparing the kernel's channels");
        kernel->channel_watch = loop_watch(kernel->loop, kernel->fds[MAKER_CHANNEL], EPOLLIN, on_channel, kernel);
        kernel->control_watch = loop_watch(kernel->loop, kernel->fds[MAKER_CONTROL], EPOLLIN, on_control, kernel);
        if (kernel->fds[MAKER_STATUS] >= 0)
                kernel->status_watch = loop_watch(kernel->loop, kernel->fds[MAKER_STATUS], EPOLLIN, on_status, kernel);
        if (!kernel->channel_watch || !kernel->control_watch ||
            (kernel->fds[MAKER_STATUS] >= 0 && !kernel->status_watch))
                return err_set(err, ERR_SYSTEM, "out of descriptors or memory for another kernel");
        cgroup_meter_open(&kernel->cgroup, &kernel->meter);
        return 0;
}

int kernel_take(struct kernel *kernel, struct maker_reply *reply, struct err *err) {
        if (!reply->good) {
                kernel->state = KERNEL_DEAD;
                for (size_t i = 0; i < MAKER_FDS; i++) /* what had been made before it failed */
                        fd_close(&reply->fds[i]);
                *err = reply->err;
                return -1;
        }
        memcpy(kernel->fds, reply->fds, sizeof(kernel->fds));
        kernel->pid = reply->pid;
        (void) snprintf(kernel->group, sizeof(kernel->group), "%s", reply->group);
        kernel->host_uid = reply->host_uid;
        kernel->state = KERNEL_STARTING;
        if (watch_all(kernel, err) < 0) {
                take_apart(kernel);
                return -1;
        }
        kernel->start_timer =
                loop_timer(kernel->loop, loop_now_ms() + KERNEL_START_TIMEOUT_MS, on_start_timeout, kernel);
        return 0;
}

int kernel_adopt(struct kernel *kernel, pid_t pid, int fds[static MAKER_FDS], struct err *err) {
        memcpy(kernel->fds, fds, sizeof(kernel->fds));
        kernel->pid = pid;
        if (watch_all(kernel, err) < 0) {
                take_apart(kernel);
                return -1;
        }
        kernel->state = journal_open_run(kernel->journal) ? KERNEL_BUSY : KERNEL_IDLE;
        /* The last daemon may have written the answer down and died before it took it from the socket. */
        kernel->may_repeat = kernel->state == KERNEL_IDLE;
        kernel->was_ready = true;
        kernel_measure(kernel);
        if (kernel->state == KERNEL_IDLE)
                return 0;
        /* A frame that the last daemon had received in part goes on where it stopped. */
        char *bytes = NULL;
        size_t size = 0;
        if (journal_read_channel(kernel->journal, &bytes, &size, err) < 0)
                return -1;
        kernel->inbound = bytes;
        kernel->inbound_size = kernel->inbound_room = size;
        static void (*const calls[])(void *, uint32_t) = { on_out, on_err };
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                kernel->output_watch[i] =
                        loop_watch(kernel->loop, kernel->fds[MAKER_OUT + (int) i], EPOLLIN, calls[i], kernel);
        return 0;
}

/* ---- its end ---- */

/* What a kernel that never became ready had to say: one line of its standard error, made printable. */
static void keep_last_words(struct kernel *kernel) {
        char text[4096];
        ssize_t n = read(kernel->fds[MAKER_ERR], text, sizeof(text) - 1);
        while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
                n--;
        if (n <= 0)
                return;
        text[n] = '\0';
        const char *line = strrchr(text, '\n');
        (void) snprintf(kernel->last_words, sizeof(kernel->last_words), "%.399s", line ? line + 1 : text);
        for (char *at = kernel->last_words; *at; at++)
                if ((unsigned char) *at < ' ' || (unsigned char) *at > '~')
                        *at = '?';
}

static void on_start_timeout(void *context) {
        struct kernel *kernel = context;
        kernel->start_timer = NULL;
        (void) snprintf(kernel->last_words, sizeof(kernel->last_words), "it was not ready after %d s",
                        KERNEL_START_TIMEOUT_MS / 1000);
        kernel_kill(kernel);
}

static void end(struct kernel *kernel) {
        if (kernel->state == KERNEL_DEAD)
                return;
        if (!kernel->was_ready && !*kernel->last_words)
                keep_last_words(kernel);
        if (journal_open_run(kernel->journal))
                kernel_drain(kernel);
        if (!kernel->is_over)
                kernel_measure(kernel); /* before the groups go: was it the memory limit? */
        take_apart(kernel);
        kernel->listener->ended(kernel);
}

static void break_off(struct kernel *kernel) {
        kernel->broke_protocol = true;
        if (kernel->ending)
                loop_unwatch(&kernel->channel_watch); /* its end is being dealt with */
        else
                end(kernel);
}

/* The process is gone, but what it said last may still be in the socket: a result, or that it has gone to sleep. */
static void hear_last_words(struct kernel *kernel) {
        enum { TURNS_MAX = 2 * (KERNEL_FRAME_MAX >> 16) };
        int waiting = 0;
        kernel->ending = true;
        for (int turn = 0; turn < TURNS_MAX && kernel->channel_watch && !kernel->deaf; turn++) {
                if (ioctl(kernel->fds[MAKER_CHANNEL], FIONREAD, &waiting) < 0 || waiting <= 0)
                        break;
                on_channel(kernel, EPOLLIN);
        }
}

static void on_control(void *context, uint32_t events) {
        struct kernel *kernel = context;
        (void) events;
        struct frame frame;
        int received = frame_inbox_receive(&kernel->control_inbox, kernel->fds[MAKER_CONTROL], MSG_DONTWAIT, &frame);
        if (received == 0)
                return; /* the rest of it is on the way */
        if (received < 0) {
                hear_last_words(kernel);
                end(kernel); /* the agent is gone, and all of the box with it */
                return;
        }
        struct frame_reader fields = frame_read(&frame);
        uint32_t status;
        bool gone = frame.type == FRAME_FAILED;
        if (frame.type == FRAME_EXITED && frame.id == MAIN_PROCESS && frame_get_u32(&fields, &status)) {
                kernel->exited = gone = true;
                kernel->wait_status = (int) status;
        }
        frame_release(&frame);
        if (!gone)
                return;
        hear_last_words(kernel);
        end(kernel);
}

/* A forked kernel is not its agent's child: how it ended comes from its ward. */
static void on_status(void *context, uint32_t events) {
        struct kernel *kernel = context;
        (void) events;
        /* What it said last counts before its end: let the channel go first. */
        char byte;
        if (kernel->channel_watch && recv(kernel->fds[MAKER_CHANNEL], &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
                return;
        int status;
        if (fd_read_exactly(kernel->fds[MAKER_STATUS], &status, sizeof(status)) == 0) {
                kernel->exited = true;
                kernel->wait_status = status;
        }
        end(kernel);
}

void kernel_let_go(struct kernel *kernel) {
        fd_close(&kernel->fds[MAKER_PIDFD]);
        cgroup_release(&kernel->cgroup);
}

void kernel_kill(struct kernel *kernel) {
        if (kernel->state == KERNEL_DEAD || kernel->fds[MAKER_PIDFD] < 0)
                return;
        /* Its agent's end would be its own soon enough; but until then it would notice that its channel is closed, and
         * find the words to say so in fifty pages that it never needed before. */
        if (kernel->is_over && kernel->fds[MAKER_KERNEL] >= 0)
                (void) sys_pidfd_send_signal(kernel->fds[MAKER_KERNEL], SIGKILL);
        (void) sys_pidfd_send_signal(kernel->fds[MAKER_PIDFD], SIGKILL);
        kernel->ending = kernel->deaf = true;
        loop_unwatch(&kernel->channel_watch);
}

void kernel_signal(struct kernel *kernel, int signal_number) {
        if (kernel->fds[MAKER_KERNEL] >= 0) {
                (void) sys_pidfd_send_signal(kernel->fds[MAKER_KERNEL], signal_number);
                return;
        }
        struct frame_writer payload = { 0 };
        frame_put_u32(&payload, (uint32_t) signal_number);
        frame_put_u32(&payload, 0);
        if (kernel->fds[MAKER_CONTROL] >= 0)
                (void) frame_send(kernel->fds[MAKER_CONTROL], FRAME_SIGNAL, MAIN_PROCESS, &payload, NULL, 0);
        frame_writer_release(&payload);
}

void kernel_mark_usage(struct kernel *kernel) {
        kernel->oom_kills_before += kernel->usage.oom_kills;
        kernel->cpu_us_before += kernel->usage.cpu_us;
        kernel->usage.oom_kills = kernel->usage.cpu_us = 0;
}

void kernel_measure(struct kernel *kernel) {
        if (!kernel->cgroup.host)
                return;
        cgroup_meter_read(&kernel->meter, &kernel->usage);
        if (kernel->cpu_us_before > kernel->usage.cpu_us) /* short runs were guessed to be dearer than they were */
                kernel->cpu_us_before = kernel->usage.cpu_us;
        kernel->n_unmeasured = 0;
        kernel->usage.oom_kills -= kernel->oom_kills_before;
        kernel->usage.cpu_us -= kernel->cpu_us_before;
}

void kernel_measure_run(struct kernel *kernel, uint64_t took_us) {
        if (took_us >= SHORT_RUN_US) {
                kernel_measure(kernel);
                return;
        }
        kernel->usage.cpu_us = took_us;
        kernel->usage.oom_kills = 0;
        kernel->n_unmeasured++;
}

void kernel_catch_up(struct kernel *kernel) {
        if (kernel->n_unmeasured >= UNMEASURED_MAX)
                kernel_measure(kernel);
}

/* ---- output ---- */

static void take_output(struct kernel *kernel, enum journal_stream stream, size_t budget) {
        int fd = kernel->fds[MAKER_OUT + (int) stream];
        while (budget > 0 && fd >= 0) {
                size_t size = 0;
                bool closed = false;
                if (journal_take(kernel->journal, stream, fd, budget, &size, &closed, NULL) < 0 || closed) {
                        loop_unwatch(&kernel->output_watch[stream]);
                        return;
                }
                if (size == 0)
                        return;
                budget -= size < budget ? size : budget;
                kernel->listener->output(kernel);
        }
}

static void on_output(struct kernel *kernel, enum journal_stream stream) {
        if (journal_open_run(kernel->journal))
                take_output(kernel, stream, OUTPUT_BUDGET);
        else /* something in the background writes between runs: the next run takes it */
                loop_unwatch(&kernel->output_watch[stream]);
}

static void on_out(void *context, uint32_t events) {
        (void) events;
        on_output(context, JOURNAL_OUT);
}

static void on_err(void *context, uint32_t events) {
        (void) events;
        on_output(context, JOURNAL_ERR);
}

void kernel_drain(struct kernel *kernel) {
        /* Bounded: a process in the background could go on writing for ever. */
        for (int i = 0; i < JOURNAL_STREAMS; i++)
                take_output(kernel, (enum journal_stream) i, 4 * OUTPUT_BUDGET);
}

/* ---- frames out ---- */

static void flush(struct kernel *kernel) {
        while (kernel->outbound_at < kernel->outbound_size) {
                ssize_t n = send(kernel->fds[MAKER_CHANNEL], kernel->outbound + kernel->outbound_at,
                                 kernel->outbound_size - kernel->outbound_at, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0) /* EAGAIN: when it reads on; anything else: its end is on the way */
                        break;
                kernel->outbound_at += (size_t) n;
        }
        bool waiting = kernel->outbound_at < kernel->outbound_size;
        if (!waiting) {
                free(kernel->outbound);
                kernel->outbound = NULL;
                kernel->outbound_at = kernel->outbound_size = 0;
        }
        if (kernel->channel_watch)
                (void) loop_watch_change(kernel->channel_watch, waiting ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

int kernel_send(struct kernel *kernel, enum kernel_frame type, const void *payload, size_t size, struct err *err) {
        if (!kernel_is_free(kernel))
                return err_set(err, ERR_BUSY, "the kernel is busy");
        if (size > KERNEL_FRAME_MAX)
                return err_set(err, ERR_LIMIT, "more than %d bytes of code", KERNEL_FRAME_MAX);
        static void (*const calls[])(void *, uint32_t) = { on_out, on_err };
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                if (!kernel->output_watch[i])
                        kernel->output_watch[i] =
                                loop_watch(kernel->loop, kernel->fds[MAKER_OUT + (int) i], EPOLLIN, calls[i], kernel);
        kernel->outbound = malloc(HEADER_SIZE + size);
        if (!kernel->outbound)
                return err_set(err, ERR_SYSTEM, "out of memory");
        uint32_t size_le = htole32((uint32_t) size);
        memset(kernel->outbound, 0, HEADER_SIZE);
        memcpy(kernel->outbound, &size_le, 4);
        kernel->outbound[4] = (char) type;
        memcpy(kernel->outbound + HEADER_SIZE, payload, size);
        kernel->outbound_at = 0;
        kernel->outbound_size = HEADER_SIZE + size;
        kernel->state = KERNEL_BUSY;
        kernel->n_displays = 0;
        flush(kernel);
        return 0;
}

/* ---- frames in ---- */

/* One buffer goes from kernel to kernel: most are idle, and between two frames none is needed. */
static char *spare;
static size_t spare_room;

static void give_room(struct kernel *kernel) {
        if (!spare && kernel->inbound_room <= INBOUND_KEPT) {
                spare = kernel->inbound;
                spare_room = kernel->inbound_room;
        } else
                free(kernel->inbound);
        kernel->inbound = NULL;
        kernel->inbound_room = 0;
}

static bool make_room(struct kernel *kernel, size_t size) {
        if (!kernel->inbound && spare) {
                kernel->inbound = spare;
                kernel->inbound_room = spare_room;
                spare = NULL;
        }
        if (size <= kernel->inbound_room)
                return true;
        size_t room = kernel->inbound_room ? kernel->inbound_room : 4096;
        while (room < size)
                room *= 2;
        char *grown = realloc(kernel->inbound, room);
        if (!grown)
                return false;
        kernel->inbound = grown;
        kernel->inbound_room = room;
        return true;
}

/* Hands one whole frame on. False when the kernel is dead afterwards, or talks nonsense. */
static bool handle_frame(struct kernel *kernel, enum kernel_frame type, const char *payload, size_t size) {
        switch (type) {
        case KERNEL_READY:
                if (kernel->state != KERNEL_STARTING)
                        return false;
                kernel->state = KERNEL_IDLE;
                kernel->was_ready = true;
                loop_timer_drop(&kernel->start_timer);
                kernel_measure(kernel); /* what starting took is nobody's run */
                kernel->listener->ready(kernel);
                return true;
        case KERNEL_RESULT:
        case KERNEL_ANSWER:
                if (kernel->state != KERNEL_BUSY && kernel->may_repeat) {
                        kernel->may_repeat = false;
                        return true;
                }
                if (kernel->state != KERNEL_BUSY)
                        return false;
                if (kernel->outbound)
                        return false; /* an answer to what it has not read yet */
                kernel->state = KERNEL_IDLE;
                kernel->may_repeat = false;
                if (journal_open_run(kernel->journal))
                        kernel_drain(kernel);
                kernel->listener->frame(kernel, type, payload, size);
                return true;
        case KERNEL_DISPLAY:
                if (kernel->state != KERNEL_BUSY || ++kernel->n_displays > KERNEL_DISPLAYS_MAX)
                        return false;
                kernel->listener->frame(kernel, type, payload, size);
                return true;
        default: /* PONG too: nobody asks */
                return false;
        }
}

/* Takes whole frames from the front of the buffer. */
static bool handle_frames(struct kernel *kernel) {
        size_t at = 0;
        bool good = true;
        while (good && !kernel->deaf && kernel->inbound_size - at >= HEADER_SIZE) {
                const char *head = kernel->inbound + at;
                uint32_t size;
                memcpy(&size, head, 4);
                size = le32toh(size);
                if (size > KERNEL_FRAME_MAX || head[5] || head[6] || head[7])
                        return false;
                size_t whole = HEADER_SIZE + (size_t) size;
                if (kernel->inbound_size - at < whole)
                        break;
                _cleanup_free_ char *frame = malloc(size + 1);
                if (!frame)
                        return false;
                memcpy(frame, head + HEADER_SIZE, size);
                frame[size] = '\0';
                at += whole;
                good = handle_frame(kernel, (unsigned char) head[4], frame, size);
        }
        /* Once for all of them: a flood of tiny frames must not cost a move of the rest for each. */
        memmove(kernel->inbound, kernel->inbound + at, kernel->inbound_size - at);
        kernel->inbound_size -= at;
        if (kernel->inbound_size == 0)
                give_room(kernel);
        return good;
}

static bool is_one_frame(const char *bytes, size_t size) {
        uint32_t payload;
        if (size < HEADER_SIZE)
                return false;
        memcpy(&payload, bytes, 4);
        return HEADER_SIZE + (size_t) le32toh(payload) == size;
}

/* Takes bytes that were looked at before. */
static bool consume(int fd, size_t size) {
        static char nowhere[64 << 10];
        while (size > 0) {
                ssize_t n = recv(fd, nowhere, size < sizeof(nowhere) ? size : sizeof(nowhere), MSG_DONTWAIT);
                if (n <= 0)
                        return false;
                size -= (size_t) n;
        }
        return true;
}

void kernel_settle(struct kernel *kernel) {
        if (kernel->peeked > 0 && !consume(kernel->fds[MAKER_CHANNEL], kernel->peeked))
                kernel->out_of_step = true;
        kernel->peeked = 0;
}

static void on_channel(void *context, uint32_t events) {
        struct kernel *kernel = context;
        if (events & EPOLLOUT)
                flush(kernel);
        if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
                return;
        if (!make_room(kernel, kernel->inbound_size + (64 << 10))) {
                break_off(kernel);
                return;
        }
        size_t room = kernel->inbound_room - kernel->inbound_size;
        char *at = kernel->inbound + kernel->inbound_size;
        /* While a run is on: look first, write it down, then take it. A daemon killed in between loses nothing, unless
         * it takes the kernel along. */
        bool journaled = journal_open_run(kernel->journal), was_ending = kernel->ending;
        bool peeks = journaled && !kernel->ephemeral;
        ssize_t n = recv(kernel->fds[MAKER_CHANNEL], at, room, MSG_DONTWAIT | (peeks ? MSG_PEEK : 0));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) { /* closed by the process, which is ending or has: its agent tells how */
                loop_unwatch(&kernel->channel_watch);
                if (!kernel->exited)
                        kernel_signal(kernel, SIGKILL);
                return;
        }
        /* One whole answer is the usual case: it goes into the journal as the run's result, and need not be there
         * twice. */
        bool whole = kernel->inbound_size == 0 && is_one_frame(at, (size_t) n);
        if (journaled && !whole && journal_note_channel(kernel->journal, at, (size_t) n, NULL) < 0) {
                break_off(kernel);
                return;
        }
        kernel->peeked = peeks ? (size_t) n : 0;
        if (!whole)
                kernel_settle(kernel);
        kernel->inbound_size += (size_t) n;
        bool good = !kernel->out_of_step && handle_frames(kernel);
        if (kernel->deaf) {
                if (kernel->is_over && !was_ending)
                        end(kernel);
                return;
        }
        kernel_settle(kernel);
        if (!good || kernel->out_of_step)
                break_off(kernel);
}
