#include "kernel/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pipe_peek.h"
#include "base/syscalls.h"
#include "kernel/kernel_channel.h"
#include "store/reaper.h"
#include "wire/frame.h"

enum {
        MAIN_PROCESS = 1, /* the id of the Python process at its agent */
        SHORT_RUN_US = 1000,
        UNMEASURED_MAX = 16,
        CALLER_LEAVES_MS = 50,
};

static void on_start_timeout(void *context);
static void on_control(void *context, uint32_t events);
static void on_status(void *context, uint32_t events);

/* A kernel that is taken over from the last daemon is idle or busy at once; a dead one stays dead. */
static const bool moves[KERNEL_STATES][KERNEL_STATES] = {
        [KERNEL_MAKING] = { [KERNEL_STARTING] = true,
                            [KERNEL_IDLE] = true,
                            [KERNEL_BUSY] = true,
                            [KERNEL_FAILED] = true },
        [KERNEL_STARTING] = { [KERNEL_IDLE] = true, [KERNEL_FAILED] = true },
        [KERNEL_FAILED] = { [KERNEL_FAILED] = true },
        [KERNEL_IDLE] = { [KERNEL_ATTACHING] = true, [KERNEL_BUSY] = true, [KERNEL_DEAD] = true },
        [KERNEL_ATTACHING] = { [KERNEL_IDLE] = true, [KERNEL_DEAD] = true },
        [KERNEL_BUSY] = { [KERNEL_IDLE] = true, [KERNEL_DEAD] = true },
        [KERNEL_DEAD] = { [KERNEL_DEAD] = true },
};

void kernel_set_state(struct kernel *kernel, enum kernel_state state) {
        static const char *const names[KERNEL_STATES] = { "being made", "starting", "failed", "idle",
                                                          "attaching",  "busy",     "dead" };
        if (!moves[kernel->state][state])
                daemon_log("kernel %s: it was %s and is %s, which cannot be; please report this", kernel->id,
                           names[kernel->state], names[state]);
        kernel->state = state;
}

struct kernel *kernel_make(struct loop *loop, const struct cgroup_host *host, const struct kernel_listener *listener,
                           void *owner, const struct maker_request *request) {
        struct kernel *kernel = calloc(1, sizeof(*kernel));
        if (!kernel)
                return NULL;
        kernel->loop = loop;
        kernel->host = host;
        kernel->listener = listener;
        kernel->owner = owner;
        kernel->ephemeral = request->ephemeral || request->is_program;
        kernel->light = request->light;
        (void) snprintf(kernel->id, sizeof(kernel->id), "%s", request->kernel_id);
        (void) snprintf(kernel->group, sizeof(kernel->group), "%s", request->group);
        (void) snprintf(kernel->engine, sizeof(kernel->engine), "%s", request->engine);
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
static void kernel_close_parts(struct kernel *kernel) {
        loop_timer_drop(&kernel->start_timer);
        loop_timer_drop(&kernel->caller_timer);
        loop_timer_drop(&kernel->step_timer);
        loop_timer_drop(&kernel->pause_timer);
        loop_timer_drop(&kernel->late_timer);
        loop_timer_drop(&kernel->rotate_timer);
        loop_unwatch(&kernel->replies_watch);
        loop_unwatch(&kernel->requests_watch);
        loop_unwatch(&kernel->control_watch);
        loop_unwatch(&kernel->status_watch);
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                loop_unwatch(&kernel->output_watch[i]);
        if (kernel->fds[MAKER_PIDFD] >= 0 && kernel->connection != KERNEL_IGNORED)
                (void) sys_pidfd_send_signal(kernel->fds[MAKER_PIDFD], SIGKILL);
        cpu_reserve_release(kernel);
        cpu_weight_forget(kernel);
        cgroup_meter_close(&kernel->meter);
        if (*kernel->engine && kernel->fds[MAKER_CONTROL] >= 0)
                reaper_remove_box(kernel->engine, kernel->group);
        if (kernel->cgroup.host)
                reaper_bury(&kernel->cgroup, take_fd(&kernel->fds[MAKER_PIDFD]), take_fd(&kernel->fds[MAKER_LEASE]));
        for (size_t i = 0; i < MAKER_FDS; i++)
                if (i != MAKER_WORKSPACE) /* the artifacts of an ephemeral run are still to be read */
                        fd_close(&kernel->fds[i]);
        frame_inbox_release(&kernel->control_inbox);
        free(kernel->inbound);
        free(kernel->outbound);
        kernel->inbound = kernel->outbound = NULL;
        kernel->inbound_at = kernel->inbound_size = kernel->inbound_room = kernel->outbound_size = 0;
        kernel_set_state(kernel, kernel_was_ready(kernel) ? KERNEL_DEAD : KERNEL_FAILED);
}

void kernel_free(struct kernel *kernel) {
        if (!kernel)
                return;
        /* Its maker has died, and had not delivered what it had made. */
        if (kernel->state == KERNEL_MAKING && !*kernel->engine)
                (void) cgroup_destroy_by_name(kernel->host, kernel->group, NULL);
        kernel_close_parts(kernel);
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
        bool torn = false;
        int code = journal_open(dir, &kernel->journal, &torn, err);
        if (torn)
                daemon_log("%s: records of the journal were damaged or incomplete; the runs that they were about are "
                           "lost or have no result",
                           path);
        return code;
}

static int kernel_watch_all(struct kernel *kernel, struct err *err) {
        if ((!*kernel->engine && cgroup_adopt(kernel->host, kernel->group, &kernel->cgroup, err) < 0) ||
            open_journal(kernel, err) < 0)
                return -1;
        /* The agent's socket too: an agent that does not read, or stops in the middle of a frame, blocks nothing
         * else. */
        const int nonblocking[] = { MAKER_REQUESTS, MAKER_REPLIES, MAKER_OUT, MAKER_ERR, MAKER_CONTROL };
        for (size_t i = 0; i < ELEMENTS(nonblocking); i++)
                if (fd_set_nonblocking(kernel->fds[nonblocking[i]]) < 0)
                        return err_sys(err, errno, "preparing the kernel's channels");
        kernel->replies_watch =
                loop_watch(kernel->loop, kernel->fds[MAKER_REPLIES], EPOLLIN, kernel_on_replies, kernel);
        kernel->control_watch = loop_watch(kernel->loop, kernel->fds[MAKER_CONTROL], EPOLLIN, on_control, kernel);
        if (kernel->fds[MAKER_STATUS] >= 0)
                kernel->status_watch = loop_watch(kernel->loop, kernel->fds[MAKER_STATUS], EPOLLIN, on_status, kernel);
        if (!kernel->replies_watch || !kernel->control_watch ||
            (kernel->fds[MAKER_STATUS] >= 0 && !kernel->status_watch))
                return err_sys(err, ENOMEM, "out of descriptors or memory for another kernel");
        if (*kernel->engine) /* its groups are the engine's */
                cgroup_meter_open_of(kernel->pid, &kernel->meter);
        else
                cgroup_meter_open(&kernel->cgroup, &kernel->meter);
        return 0;
}

int kernel_take(struct kernel *kernel, struct maker_reply *reply, struct err *err) {
        if (!reply->good) {
                kernel_set_state(kernel, KERNEL_FAILED);
                for (size_t i = 0; i < MAKER_FDS; i++) /* what had been made before it failed */
                        fd_close(&reply->fds[i]);
                *err = reply->err;
                return -1;
        }
        memcpy(kernel->fds, reply->fds, sizeof(kernel->fds));
        kernel->pid = reply->pid;
        (void) snprintf(kernel->group, sizeof(kernel->group), "%s", reply->group);
        kernel->host_uid = reply->host_uid;
        kernel_set_state(kernel, KERNEL_STARTING);
        if (kernel_watch_all(kernel, err) < 0 || journal_clear_inbox(kernel->journal, err) < 0) {
                kernel_close_parts(kernel);
                return -1;
        }
        kernel->start_timer =
                loop_timer(kernel->loop, loop_now_ms() + KERNEL_START_TIMEOUT_MS, on_start_timeout, kernel);
        return 0;
}

bool kernel_can_attach(const struct kernel *kernel) {
        return kernel->ephemeral && kernel->fds[MAKER_KERNEL] >= 0;
}

int kernel_attached(struct kernel *kernel, struct maker_reply *reply, struct err *err) {
        if (kernel->state != KERNEL_ATTACHING)
                return 0; /* it died meanwhile, and the listener was informed */
        kernel_set_state(kernel, KERNEL_IDLE);
        if (reply->fds[MAKER_WORKSPACE] >= 0) {
                fd_close(&kernel->fds[MAKER_WORKSPACE]);
                kernel->fds[MAKER_WORKSPACE] = take_fd(&reply->fds[MAKER_WORKSPACE]);
        }
        if (reply->good)
                return 0;
        *err = reply->err;
        return -1;
}

int kernel_adopt(struct kernel *kernel, pid_t pid, int fds[static MAKER_FDS], struct err *err) {
        memcpy(kernel->fds, fds, sizeof(kernel->fds));
        kernel->pid = pid;
        if (kernel_watch_all(kernel, err) < 0) {
                if (err_is_shortage(err)) /* the vault has it for the next daemon */
                        kernel_let_go(kernel);
                kernel_close_parts(kernel);
                return -1;
        }
        kernel_set_state(kernel, journal_open_request(kernel->journal) ? KERNEL_BUSY : KERNEL_IDLE);
        kernel->weight.level = CPU_WEIGHT_UNKNOWN; /* as the last daemon left it */
        cpu_weight_watch(kernel);
        cpu_reserve_take_over(kernel);
        kernel_measure(kernel);
        return 0;
}

/* ---- its end ---- */

/* The last message of a kernel that never became ready: one line of its standard error, made printable. */
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

/* Why its agent could not start it. */
static void keep_failure(struct kernel *kernel, struct frame_reader fields) {
        uint32_t number;
        _cleanup_free_ char *step = NULL;
        if (frame_get_u32(&fields, &number) && frame_get_text(&fields, &step))
                (void) snprintf(kernel->last_words, sizeof(kernel->last_words), "%.200s: %s", step,
                                strerror((int) number));
}

static void on_start_timeout(void *context) {
        struct kernel *kernel = context;
        kernel->start_timer = NULL;
        (void) snprintf(kernel->last_words, sizeof(kernel->last_words), "it was not ready after %d s",
                        KERNEL_START_TIMEOUT_MS / 1000);
        kernel_kill(kernel);
}

void kernel_end(struct kernel *kernel) {
        if (kernel_is_dead(kernel))
                return;
        if (!kernel_was_ready(kernel) && !*kernel->last_words)
                keep_last_words(kernel);
        if (journal_open_run(kernel->journal))
                kernel_drain(kernel);
        if (kernel->end_cause != KERNEL_END_OVER)
                kernel_measure(kernel); /* before the groups go: was it the memory limit? */
        kernel_close_parts(kernel);
        kernel->listener->ended(kernel);
}

void kernel_give_up(struct kernel *kernel, const char *why) {
        kernel->host_trouble = why;
        if (kernel->connection != KERNEL_CONNECTED)
                loop_unwatch(&kernel->replies_watch);
        else
                kernel_end(kernel);
}

void kernel_break_off(struct kernel *kernel) {
        kernel_note_end(kernel, KERNEL_END_PROTOCOL);
        if (kernel->connection != KERNEL_CONNECTED)
                loop_unwatch(&kernel->replies_watch); /* its end is being dealt with */
        else
                kernel_end(kernel);
}

/* The process has ended, but its last frames may still be in the pipe: a result, or the end of a sleep. */
static void read_last_frames(struct kernel *kernel) {
        enum { TURNS_MAX = 2 * (KERNEL_REPLY_MAX >> 16) };
        if (kernel->connection == KERNEL_CONNECTED)
                kernel->connection = KERNEL_ENDING;
        for (int turn = 0; turn < TURNS_MAX && kernel->replies_watch && kernel->connection != KERNEL_IGNORED; turn++) {
                if (pipe_waiting(kernel->fds[MAKER_REPLIES]) == 0)
                        break;
                kernel_on_replies(kernel, EPOLLIN);
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
                read_last_frames(kernel);
                kernel_end(kernel); /* the agent is gone, and all of the box with it */
                return;
        }
        struct frame_reader fields = frame_read(&frame);
        uint32_t status;
        bool gone = frame.type == FRAME_FAILED;
        if (gone && !kernel_was_ready(kernel))
                keep_failure(kernel, fields);
        if (frame.type == FRAME_EXITED && frame.id == MAIN_PROCESS && frame_get_u32(&fields, &status)) {
                kernel->exited = gone = true;
                kernel->wait_status = (int) status;
        }
        frame_release(&frame);
        if (!gone)
                return;
        read_last_frames(kernel);
        kernel_end(kernel);
}

static void on_caller_late(void *context) {
        struct kernel *kernel = context;
        kernel->caller_timer = NULL;
        kernel_end(kernel);
}

/* The caller of a program has its wait status now, and leaves when it has read the output. Removing the box before that
 * would take the processors from a caller who waits for nothing else. */
static bool leaves_end_to_caller(struct kernel *kernel) {
        if (!kernel->handed_over || !kernel->exited || kernel->connection != KERNEL_CONNECTED)
                return false;
        kernel->caller_timer = loop_timer(kernel->loop, loop_now_ms() + CALLER_LEAVES_MS, on_caller_late, kernel);
        if (kernel->caller_timer)
                loop_unwatch(&kernel->status_watch);
        return kernel->caller_timer;
}

/* A forked kernel is not its agent's child: how it ended comes from its supervisor. */
static void on_status(void *context, uint32_t events) {
        struct kernel *kernel = context;
        (void) events;
        /* Its last replies are handled before its end. */
        if (kernel->replies_watch && pipe_waiting(kernel->fds[MAKER_REPLIES]) > 0) {
                kernel_on_replies(kernel, EPOLLIN);
                return;
        }
        int status;
        if (fd_read_exactly(kernel->fds[MAKER_STATUS], &status, sizeof(status)) == 0) {
                kernel->exited = true;
                kernel->wait_status = status;
        }
        if (!leaves_end_to_caller(kernel))
                kernel_end(kernel);
}

void kernel_let_go(struct kernel *kernel) {
        cpu_reserve_release(kernel);
        cpu_weight_forget(kernel);
        fd_close(&kernel->fds[MAKER_PIDFD]);
        *kernel->engine = '\0'; /* its box belongs to the caller now */
        cgroup_release(&kernel->cgroup);
}

void kernel_note_end(struct kernel *kernel, enum kernel_end_cause cause) {
        if (cause > kernel->end_cause)
                kernel->end_cause = cause;
}

void kernel_kill(struct kernel *kernel) {
        if (kernel_is_dead(kernel) || (kernel->fds[MAKER_PIDFD] < 0 && !*kernel->engine))
                return;
        if (*kernel->engine && (kernel->fds[MAKER_PIDFD] < 0 || sys_pidfd_send_signal(kernel->fds[MAKER_PIDFD], 0) < 0))
                reaper_remove_box(kernel->engine, kernel->group); /* no pidfd that works: its engine ends it */
        /* The kernel dies with its agent. Until then it would raise at end of file and fault in about 50 pages. */
        if (kernel->end_cause == KERNEL_END_OVER && kernel->fds[MAKER_KERNEL] >= 0)
                (void) sys_pidfd_send_signal(kernel->fds[MAKER_KERNEL], SIGKILL);
        (void) sys_pidfd_send_signal(kernel->fds[MAKER_PIDFD], SIGKILL);
        kernel->connection = KERNEL_IGNORED;
        loop_unwatch(&kernel->replies_watch);
}

void kernel_hand_over(struct kernel *kernel) {
        loop_unwatch(&kernel->replies_watch);
        fd_close(&kernel->fds[MAKER_REQUESTS]);
        fd_close(&kernel->fds[MAKER_REPLIES]);
        fd_close(&kernel->fds[MAKER_OUT]);
        fd_close(&kernel->fds[MAKER_ERR]);
        kernel->handed_over = true;
        kernel_set_state(kernel, KERNEL_BUSY);
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
        if (!kernel->cgroup.host && !*kernel->engine)
                return;
        cgroup_meter_read(&kernel->meter, &kernel->usage);
        if (kernel->cpu_us_before > kernel->usage.cpu_us) /* the estimates of short runs were too high */
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
