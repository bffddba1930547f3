/* The daemon's side of a kernel: a box with a Python in it, its channel, its pipes, its journal.
 *
 * Everything that arrives through the channel and the pipes may be written by an attacker: frames are bounded, their
 * types must be legal now, and a malformed frame ends the kernel, never the daemon. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "box/cgroup/cgroup.h"
#include "box/cgroup/cgroup_meter.h"
#include "journal/journal.h"
#include "kernel/cpu_reserve.h"
#include "kernel/cpu_weight.h"
#include "kernel/kernel_reply.h"
#include "spawn/maker.h"
#include "wire/frame.h"

/* Types of channel frames: docs/KERNEL-PROTOCOL.md. */
enum kernel_frame {
        KERNEL_EXECUTE = 1,
        KERNEL_PING = 2,
        KERNEL_TRIM = 3,
        KERNEL_SLEEP = 4,
        KERNEL_WAKE = 5,
        KERNEL_CONTEXT = 6,
        KERNEL_PACKAGES = 7,
        KERNEL_PIECE = 8, /* of a frame that is too large to be written at once */
        KERNEL_READY = 128,
        KERNEL_RESULT = 129,
        KERNEL_DISPLAY = 130,
        KERNEL_PONG = 131,
        KERNEL_ANSWER = 132,
        KERNEL_REPEATED = 133, /* it has done this request already */
};

/* Of the channel and of the descriptors in the vault: a kernel of another one cannot be taken over. */
enum { KERNEL_PROTOCOL = 2 };

enum {
        KERNEL_REQUEST_MAX = 32 << 20,
        KERNEL_REPLY_MAX = 3 << 20, /* one frame: a result, a display */
        KERNEL_START_TIMEOUT_MS = 120000,
};

/* Only kernel_set_state writes it. */
enum kernel_state {
        KERNEL_MAKING,   /* asked for; no box yet */
        KERNEL_STARTING, /* the box is ready, Python is not */
        KERNEL_FAILED,   /* it died before it was ready; only this record is left */
        KERNEL_IDLE,
        KERNEL_ATTACHING, /* ready; the maker shows its box a workspace, data or a script */
        KERNEL_BUSY, /* a run or another request is in progress */
        KERNEL_DEAD, /* as KERNEL_FAILED, but it was ready once */
        KERNEL_STATES
};

/* How far the connection is still used. It only changes in this order. */
enum kernel_connection {
        KERNEL_CONNECTED,
        KERNEL_ENDING, /* its process has ended: nothing more is sent to it, and its last frames are read */
        KERNEL_IGNORED, /* killed: further frames are ignored */
};

/* Why it is being ended, if not by itself. A later row counts more than an earlier one. */
enum kernel_end_cause {
        KERNEL_END_OWN,       /* the daemon has not ended it */
        KERNEL_END_PROTOCOL,  /* the code in it broke the protocol */
        KERNEL_END_OVER,      /* its only run is answered: nothing about its end is reported */
        KERNEL_END_REQUESTED, /* a restart or a sleep: its variables are not lost */
};

struct egress_rules;
struct kernel;

/* The callbacks. All are called from the loop; a kernel may be freed from within `ended` only. */
struct kernel_listener {
        void (*ready)(struct kernel *kernel);
        void (*failed)(struct kernel *kernel, const struct err *err); /* it could not be made; then it is dead */
        void (*output)(struct kernel *kernel);                        /* the journal has a new event */
        /* One whole frame of types RESULT, DISPLAY or ANSWER; or REPEATED: the open request was answered before, and
         * the answer is lost; or PONG: it is free now, and had been busy with something unknown. */
        void (*frame)(struct kernel *kernel, enum kernel_frame type, const struct kernel_reply *reply);
        void (*ended)(struct kernel *kernel); /* the process has exited; the fields below have the reason */
};

struct kernel {
        struct loop *loop;
        const struct cgroup_host *host;
        const struct kernel_listener *listener;
        void *owner; /* for the listener */

        char id[27], group[48];
        char engine[16]; /* that made its box; "": native */
        char state_dir[1024], workspace[1024]; /* of this kernel; "" when it is ephemeral */
        bool ephemeral; /* its workspace is a tmpfs, its journal has no name, and it ends with the daemon */
        bool light;
        enum kernel_state state;
        pid_t pid;
        uid_t host_uid;
        int fds[MAKER_FDS];
        struct egress_rules *rules; /* owned; NULL: no network */
        bool admitted; /* the proxy that is running serves it */
        struct cgroup cgroup;
        struct cgroup_meter meter;
        struct cpu_weight weight;
        struct cpu_reserve reserve;
        struct journal *journal;

        struct loop_watch *replies_watch, *requests_watch, *control_watch, *status_watch;
        struct loop_watch *output_watch[JOURNAL_STREAMS];
        struct frame_inbox control_inbox; /* a frame of the agent's that has begun */
        char *inbound; /* a frame that has begun */
        size_t inbound_at, inbound_size, inbound_room; /* up to inbound_at it is dealt with */
        struct json_scan scan; /* of that frame's payload */
        size_t scanned; /* bytes of it */
        char *outbound; /* frames that did not fit into the pipe yet; each of them is written at once */
        size_t outbound_at, outbound_size;

        bool is_out_of_step; /* frames are skipped up to the PONG with */
        char pong[33]; /* this */
        struct loop_timer *step_timer; /* if it comes that late, the kernel is interrupted, and then ended */
        uint64_t step_began_ms, step_timeout_ms;

        struct loop_timer *start_timer; /* until it is ready */
        struct loop_timer *caller_timer; /* its program has ended, and its caller is about to leave */

        /* how it ended */
        char last_words[400]; /* the end of its output, if it died before it was ready */
        bool handed_over; /* to the caller of a program, who reads the wait status, too */
        bool exited; /* wait_status is known */
        int wait_status;
        const char *host_trouble; /* why it was ended, if its code was not the cause; else NULL */
        uint64_t short_since_ms; /* since when the daemon has no memory for its frames; 0: it has */
        enum kernel_connection connection;
        enum kernel_end_cause end_cause;
        struct cgroup_usage usage; /* as of the last kernel_measure */
        uint64_t cpu_us_before, oom_kills_before; /* when the run began */
        unsigned n_unmeasured; /* runs since that were too short to be measured */
        size_t reply_bytes; /* since the last request */
        struct loop_timer *pause_timer; /* it sends too much: reading pauses */
        struct loop_timer *late_timer; /* it has printed something that is to be shown by then */
        struct loop_timer *rotate_timer; /* old runs are leaving its journal */
        size_t n_repeated; /* frames of that type since the last request */
        bool replays; /* its replies to the last daemon are read again */
};

/* A record for a kernel that the maker was asked for (request->kernel_id) or that the vault gave back. */
struct kernel *kernel_make(struct loop *loop, const struct cgroup_host *host, const struct kernel_listener *listener,
                           void *owner, const struct maker_request *request);
void kernel_free(struct kernel *kernel); /* kills it if it runs; NULL is fine */

/* Changes its state. A move that is not in the table is a bug: it is logged, and made anyway. */
void kernel_set_state(struct kernel *kernel, enum kernel_state state);

/* The box is ready: takes the reply's descriptors. */
int kernel_take(struct kernel *kernel, struct maker_reply *reply, struct err *err);

/* True if a mount can still be added to its box, which waits in the pool. Its state is KERNEL_ATTACHING while the maker
 * does so; then kernel_attached takes the reply. After a failure it cannot be used. */
bool kernel_can_attach(const struct kernel *kernel);
int kernel_attached(struct kernel *kernel, struct maker_reply *reply, struct err *err);

/* The same for a kernel that outlived its daemon: `fds` are taken over; it is idle or busy as its journal says. When
 * the owner knows what is open, kernel_resume hands on what was answered so far, and sends the open request again: the
 * kernel ignores one that it has. It may be dead or free afterwards.
 *
 * If its journal was damaged or has a gap, it may be busy with an unknown run, and where the next frame begins is
 * unknown. Then it is sent a PING, and everything before its PONG is skipped: at worst a result is lost, and no
 * variable. It gets timeout_ms for that. */
int kernel_adopt(struct kernel *kernel, pid_t pid, int fds[static MAKER_FDS], struct err *err);
void kernel_resume(struct kernel *kernel, uint64_t timeout_ms);

/* Records a request and sends it. The kernel must be idle; it is busy until a RESULT or ANSWER comes. The id is in the
 * payload, too. */
int kernel_request(struct kernel *kernel, const struct journal_request *request, struct err *err);

/* Takes what the pipes hold now into the journal. */
void kernel_drain(struct kernel *kernel);

/* Sends a signal to the Python process: through its agent, or directly if it was forked from a nursery. */
void kernel_signal(struct kernel *kernel, int signal_number);

/* Another process has a copy of its channel and uses it from now on (a program). Its end is still reported here. */
void kernel_hand_over(struct kernel *kernel);

/* Frees the record without ending the kernel: the vault holds its descriptors. */
void kernel_let_go(struct kernel *kernel);

/* Kills the whole box; `ended` is called from the loop. Frames that arrive in between are ignored. */
void kernel_kill(struct kernel *kernel);

/* Notes why it is being ended. */
void kernel_note_end(struct kernel *kernel, enum kernel_end_cause cause);

static inline bool kernel_is_dead(const struct kernel *kernel) {
        return kernel->state == KERNEL_DEAD || kernel->state == KERNEL_FAILED;
}

/* True from its READY on, also when it is dead. */
static inline bool kernel_was_ready(const struct kernel *kernel) {
        return kernel->state != KERNEL_MAKING && kernel->state != KERNEL_STARTING && kernel->state != KERNEL_FAILED;
}

/* True if a request can be sent to it now. */
static inline bool kernel_is_free(const struct kernel *kernel) {
        return kernel->state == KERNEL_IDLE && kernel->connection == KERNEL_CONNECTED && !kernel->is_out_of_step;
}

/* Marks the start of a run: usage from now on is its own. It reads nothing, because the last measurement is still
 * valid. */
void kernel_mark_usage(struct kernel *kernel);

/* Reads the usage into kernel->usage: oom_kills and cpu_us since the mark, and the peak of memory. After its death, the
 * usage that was read at the end. */
void kernel_measure(struct kernel *kernel);

/* The same at the end of a run, unless the run was shorter than a millisecond: then reading would take too long, so its
 * duration counts as CPU time, and the peak of memory stays. */
void kernel_measure_run(struct kernel *kernel, uint64_t took_us);

/* Called when the answer is sent: corrects such estimates before they add up. */
void kernel_catch_up(struct kernel *kernel);
