/* The channel of a kernel: frames to it and from it. */
#include "kernel/kernel_channel.h"

#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/random_id.h"
#include "kernel/kernel_output.h"

enum {
        HEADER_SIZE = 8,
        REPLIES_FREE = 8 << 20, /* bytes of a run's replies that are read without delay */
        INBOUND_KEPT = 1 << 20, /* of the buffer for frames, when it is empty */
        INBOUND_TURN = 64 << 10,
        FRAME_AT_ONCE = 4096, /* PIPE_BUF: a pipe takes it whole or not at all */
        PIECE_HEAD = 12,
        PIECE_MAX = FRAME_AT_ONCE - HEADER_SIZE - PIECE_HEAD,
        REPEATED_MAX = 10000,
        MEMORY_PATIENCE_MS = 60000, /* for memory that the daemon does not have */
        STEP_GRACE_MS = 5000, /* for the reaction to an interrupt */
};

/* ---- frames out ---- */

static void kernel_channel_flush(struct kernel *kernel);

static void drop_outbound(struct kernel *kernel) {
        free(kernel->outbound);
        kernel->outbound = NULL;
        kernel->outbound_at = kernel->outbound_size = 0;
}

static void on_requests(void *context, uint32_t events) {
        struct kernel *kernel = context;
        if (events & EPOLLERR) /* the pipe has no reader: the kernel is ending */
                loop_unwatch(&kernel->requests_watch);
        else
                kernel_channel_flush(kernel);
}

/* A frame is written whole or not at all: none is larger than what a pipe takes at once (PIPE_BUF). A daemon that is
 * killed leaves no half of one, and the next one may send it again. */
static void kernel_channel_flush(struct kernel *kernel) {
        bool is_full = false;
        while (kernel->outbound_at < kernel->outbound_size && !is_full) {
                const char *frame = kernel->outbound + kernel->outbound_at;
                uint32_t payload;
                memcpy(&payload, frame, 4);
                size_t size = HEADER_SIZE + (size_t) le32toh(payload);
                ssize_t n = write(kernel->fds[MAKER_REQUESTS], frame, size);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno != EAGAIN)
                        break; /* its end is on the way */
                is_full = n < 0;
                kernel->outbound_at += n < 0 ? 0 : size;
        }
        if (!is_full)
                drop_outbound(kernel);
        /* Only while it waits: a pipe without a reader would wake the loop again and again. */
        if (!is_full)
                loop_unwatch(&kernel->requests_watch);
        else if (!kernel->requests_watch)
                kernel->requests_watch =
                        loop_watch(kernel->loop, kernel->fds[MAKER_REQUESTS], EPOLLOUT, on_requests, kernel);
}

static void put_header(char *at, enum kernel_frame type, size_t size) {
        uint32_t size_le = htole32((uint32_t) size);
        memset(at, 0, HEADER_SIZE);
        memcpy(at, &size_le, 4);
        at[4] = (char) type;
}

/* Takes the place of what was to be sent. A large frame goes in pieces: whole size, offset, type, bytes. */
static int put_frame(struct kernel *kernel, enum kernel_frame type, const char *payload, size_t size) {
        bool fits = HEADER_SIZE + size <= FRAME_AT_ONCE;
        size_t n_pieces = fits ? 1 : (size + PIECE_MAX - 1) / PIECE_MAX;
        size_t room = size + n_pieces * (size_t) (HEADER_SIZE + (fits ? 0 : PIECE_HEAD));
        char *at = malloc(room);
        if (!at)
                return -ENOMEM;
        drop_outbound(kernel);
        kernel->outbound = at;
        kernel->outbound_size = room;
        if (fits) {
                put_header(at, type, size);
                memcpy(at + HEADER_SIZE, payload, size);
                return 0;
        }
        for (size_t done = 0; done < size;) {
                size_t piece = size - done < PIECE_MAX ? size - done : PIECE_MAX;
                const uint32_t head[] = { htole32((uint32_t) size), htole32((uint32_t) done), htole32(type) };
                put_header(at, KERNEL_PIECE, PIECE_HEAD + piece);
                memcpy(at + HEADER_SIZE, head, PIECE_HEAD);
                memcpy(at + HEADER_SIZE + PIECE_HEAD, payload + done, piece);
                at += HEADER_SIZE + PIECE_HEAD + piece;
                done += piece;
        }
        return 0;
}

static void rotate_some(void *context) {
        enum { BETWEEN_MS = 1 };
        struct kernel *kernel = context;
        kernel->rotate_timer = NULL;
        if (journal_rotate_some(kernel->journal))
                kernel->rotate_timer = loop_timer(kernel->loop, loop_now_ms() + BETWEEN_MS, rotate_some, kernel);
}

int kernel_request(struct kernel *kernel, const struct journal_request *asked, struct err *err) {
        if (!kernel_is_free(kernel))
                return err_set(err, ERR_BUSY, "the kernel is busy");
        if (asked->size > KERNEL_REQUEST_MAX)
                return err_set(err, ERR_LIMIT, "more than %d bytes of code", KERNEL_REQUEST_MAX);
        if (put_frame(kernel, asked->type, asked->payload, asked->size) < 0)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        struct journal_request request = *asked;
        request.carried = kernel->ephemeral ? 0 : (uint32_t) (kernel->inbound_size - kernel->inbound_at);
        if (kernel->ephemeral)
                request.payload = NULL; /* it is not sent again */
        if ((asked->is_run ? journal_begin : journal_ask)(kernel->journal, &request, err) < 0) {
                drop_outbound(kernel);
                return -1;
        }
        if (!kernel->rotate_timer)
                rotate_some(kernel);
        kernel_watch_output(kernel);
        kernel_set_state(kernel, KERNEL_BUSY);
        cpu_weight_begin(kernel);
        kernel->reply_bytes = kernel->n_repeated = 0;
        kernel_channel_flush(kernel);
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

static bool inbound_make_room(struct kernel *kernel, size_t size) {
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

/* Its answer came before, or is lost: then nothing else reports it. Answers come in order, so one that is still to come
 * cannot be the answer to this request. */
static bool take_repeated(struct kernel *kernel, const char *id, size_t size) {
        const struct journal_request *open = journal_open_request(kernel->journal);
        if (kernel->state != KERNEL_BUSY || !open || strlen(open->id) != size || memcmp(open->id, id, size) != 0)
                return true;
        kernel_set_state(kernel, KERNEL_IDLE);
        if (open->is_run)
                kernel_drain(kernel);
        kernel->listener->frame(kernel, KERNEL_REPEATED, NULL);
        return true;
}

/* ---- after damage ---- */

enum { PONG_SIZE = HEADER_SIZE + sizeof(((struct kernel *) NULL)->pong) - 1 };

static void on_in_step(struct kernel *kernel) {
        const struct journal_request *open = journal_open_request(kernel->journal);
        kernel->is_out_of_step = false;
        loop_timer_drop(&kernel->step_timer);
        if (open)
                (void) take_repeated(kernel, open->id, strlen(open->id));
        else
                kernel->listener->frame(kernel, KERNEL_PONG, NULL);
        /* The next daemon begins at a frame: behind the mark of the request that is open by now, or at nothing. */
        if (!kernel_is_dead(kernel) && !journal_open_request(kernel->journal) &&
            kernel->inbound_at == kernel->inbound_size)
                (void) journal_clear_inbox(kernel->journal, NULL);
}

/* True when the PONG is there: what follows it are frames. */
static bool skip_to_pong(struct kernel *kernel) {
        char pong[PONG_SIZE];
        put_header(pong, KERNEL_PONG, PONG_SIZE - HEADER_SIZE);
        memcpy(pong + HEADER_SIZE, kernel->pong, PONG_SIZE - HEADER_SIZE);
        const char *found = memmem(kernel->inbound, kernel->inbound_size, pong, PONG_SIZE);
        if (found) {
                kernel->inbound_at = (size_t) (found - kernel->inbound) + PONG_SIZE;
                on_in_step(kernel);
                return true;
        }
        size_t kept = kernel->inbound_size < PONG_SIZE - 1 ? kernel->inbound_size : PONG_SIZE - 1;
        memmove(kernel->inbound, kernel->inbound + kernel->inbound_size - kept, kept);
        kernel->inbound_size = kept;
        return false;
}

/* It is busy with something that has no time limit any more. A run that the journal knows has one of its own. */
static void on_step_late(void *context) {
        struct kernel *kernel = context;
        uint64_t waited_ms = loop_now_ms() - kernel->step_began_ms;
        kernel->step_timer = NULL;
        if (waited_ms > kernel->step_timeout_ms + STEP_GRACE_MS) {
                kernel_give_up(kernel, "its journal was damaged, and it did not end what it was doing");
                return;
        }
        kernel_signal(kernel, SIGINT);
        kernel->step_timer = loop_timer(kernel->loop, loop_now_ms() + STEP_GRACE_MS / 10, on_step_late, kernel);
}

static bool put_again(struct kernel *kernel);

/* The request goes first: a daemon that died before it sent it has recorded it. Not if records are damaged: the kernel
 * knows only its last request again, and this may be an earlier one, which must not run twice. */
static void kernel_find_step(struct kernel *kernel, uint64_t timeout_ms) {
        char frame[PONG_SIZE];
        daemon_log("kernel %s: what it answered to the last daemon is incomplete; its variables are kept", kernel->id);
        journal_set_gap(kernel->journal, true);
        journal_skip_received(kernel->journal);
        kernel->inbound_at = kernel->inbound_size = kernel->scanned = 0;
        kernel->is_out_of_step = true;
        if (random_id_make(kernel->pong) < 0) {
                kernel_give_up(kernel, "out of randomness");
                return;
        }
        put_header(frame, KERNEL_PING, PONG_SIZE - HEADER_SIZE);
        memcpy(frame + HEADER_SIZE, kernel->pong, PONG_SIZE - HEADER_SIZE);
        if (journal_is_torn(kernel->journal) || !put_again(kernel))
                drop_outbound(kernel);
        char *grown = realloc(kernel->outbound, kernel->outbound_size + PONG_SIZE);
        if (!grown) {
                kernel_give_up(kernel, ERR_DAEMON_MEMORY);
                return;
        }
        memcpy(grown + kernel->outbound_size, frame, PONG_SIZE);
        kernel->outbound = grown;
        kernel->outbound_size += PONG_SIZE;
        kernel_channel_flush(kernel);
        kernel->step_began_ms = loop_now_ms();
        kernel->step_timeout_ms = timeout_ms;
        if (!journal_open_run(kernel->journal))
                kernel->step_timer = loop_timer(kernel->loop, kernel->step_began_ms + timeout_ms, on_step_late, kernel);
}

/* ---- frames in, one by one ---- */

static bool is_json(enum kernel_frame type) {
        return type == KERNEL_RESULT || type == KERNEL_ANSWER || type == KERNEL_DISPLAY;
}

/* Scans a payload as it arrives, so that nothing slow remains to be done at its end. */
static bool scan_payload(struct kernel *kernel, enum kernel_frame type, const char *payload, size_t size) {
        if (!is_json(type))
                return true;
        if (kernel->scanned == 0)
                json_scan_start(&kernel->scan, kernel_field_names);
        bool good = json_scan_feed(&kernel->scan, payload + kernel->scanned, size - kernel->scanned);
        kernel->scanned = size;
        return good;
}

/* Handles one whole frame. False if the kernel is dead afterwards, or broke the protocol. */
static bool handle_frame(struct kernel *kernel, enum kernel_frame type, const char *payload, size_t size) {
        struct kernel_reply reply = { 0 };
        if (is_json(type) && !json_scan_is_object(&kernel->scan))
                return false;
        if (is_json(type))
                reply = kernel_reply_of(&kernel->scan, payload, size);
        switch (type) {
        case KERNEL_READY:
                if (kernel->state != KERNEL_STARTING)
                        return kernel->replays;
                kernel_set_state(kernel, KERNEL_IDLE);
                loop_timer_drop(&kernel->start_timer);
                kernel_measure(kernel); /* the start belongs to no run */
                kernel->listener->ready(kernel);
                return true;
        case KERNEL_RESULT:
        case KERNEL_ANSWER:
                if (kernel->state != KERNEL_BUSY)
                        return kernel->replays; /* the last daemon dealt with it */
                kernel_set_state(kernel, KERNEL_IDLE);
                cpu_reserve_end(kernel);
                drop_outbound(kernel); /* of a request that was sent again, and need not be */
                loop_unwatch(&kernel->requests_watch);
                if (journal_open_run(kernel->journal))
                        kernel_drain(kernel);
                kernel->listener->frame(kernel, type, &reply);
                return true;
        case KERNEL_DISPLAY:
                if (kernel->state != KERNEL_BUSY)
                        return kernel->replays;
                kernel->listener->frame(kernel, type, &reply);
                return true;
        case KERNEL_REPEATED:
                return ++kernel->n_repeated <= REPEATED_MAX && take_repeated(kernel, payload, size);
        default:
                return false;
        }
}

/* Takes whole frames from the front of the buffer. */
static bool handle_frames(struct kernel *kernel) {
        bool good = true;
        if (kernel->is_out_of_step && !skip_to_pong(kernel))
                return true;
        while (good && kernel->connection != KERNEL_IGNORED &&
               kernel->inbound_size - kernel->inbound_at >= HEADER_SIZE) {
                const char *head = kernel->inbound + kernel->inbound_at, *payload = head + HEADER_SIZE;
                enum kernel_frame type = (unsigned char) head[4];
                uint32_t size;
                memcpy(&size, head, 4);
                size = le32toh(size);
                size_t there = kernel->inbound_size - kernel->inbound_at - HEADER_SIZE;
                if (size > KERNEL_REPLY_MAX || head[5] || head[6] || head[7] ||
                    !scan_payload(kernel, type, payload, there < size ? there : size))
                        return false;
                if (there < size)
                        break;
                kernel->inbound_at += HEADER_SIZE + (size_t) size; /* before it is handed on: the next request may be
                                                                    * sent from there */
                kernel->scanned = 0;
                good = handle_frame(kernel, type, payload, size);
        }
        if (!kernel->inbound) /* it ended meanwhile */
                return good;
        /* Once for all of them: a flood of tiny frames must not cost a move of the rest for each. */
        memmove(kernel->inbound, kernel->inbound + kernel->inbound_at, kernel->inbound_size - kernel->inbound_at);
        kernel->inbound_size -= kernel->inbound_at;
        kernel->inbound_at = 0;
        if (kernel->inbound_size == 0)
                give_room(kernel);
        return good;
}

/* Bytes from its pipe, by way of the inbox when another daemon may need them. Returns how many, 0 when it has closed
 * the pipe, or -errno. */
static ssize_t take_bytes(struct kernel *kernel, char *at, size_t room) {
        if (kernel->ephemeral) {
                ssize_t n = read(kernel->fds[MAKER_REPLIES], at, room);
                return n < 0 ? (errno == EINTR ? -EAGAIN : -errno) : n;
        }
        size_t size = 0;
        bool closed = false;
        struct err err;
        if (journal_receive(kernel->journal, kernel->fds[MAKER_REPLIES], room, &size, &closed, &err) < 0)
                return err.code == ERR_LIMIT ? -EPROTO : err.sys_errno == ENOMEM ? -ENOMEM : -EIO;
        if (size == 0)
                return closed ? 0 : -EAGAIN;
        return journal_read_received(kernel->journal, at, room, &size, NULL) < 0 ? -EIO : (ssize_t) size;
}

/* Nothing is lost: its replies wait in the pipe until there is memory, but not forever. */
static void wait_for_memory(struct kernel *kernel) {
        uint64_t now_ms = loop_now_ms();
        if (!kernel->short_since_ms) {
                kernel->short_since_ms = now_ms;
                daemon_log("the daemon is short of memory: what kernel %s answers has to wait", kernel->id);
        }
        if (kernel->connection != KERNEL_CONNECTED || now_ms - kernel->short_since_ms > MEMORY_PATIENCE_MS)
                kernel_give_up(kernel, "the daemon ran out of memory for what it answered");
        else
                kernel_pause_watch(kernel, kernel->replies_watch);
}

/* Handles a failed read. */
static void on_trouble(struct kernel *kernel, int code) {
        if (code == -ENOMEM)
                wait_for_memory(kernel);
        else if (code == -EIO)
                kernel_give_up(kernel, "the daemon could not write down what it answered");
        else
                kernel_break_off(kernel);
}

void kernel_on_replies(void *context, uint32_t events) {
        struct kernel *kernel = context;
        (void) events;
        if (!inbound_make_room(kernel, kernel->inbound_size + INBOUND_TURN)) {
                wait_for_memory(kernel);
                return;
        }
        bool was_ending = kernel->connection != KERNEL_CONNECTED;
        ssize_t n = take_bytes(kernel, kernel->inbound + kernel->inbound_size, INBOUND_TURN);
        if (n == -EAGAIN)
                return;
        if (n == -ENOMEM || n == -EIO || n == -EPROTO) {
                on_trouble(kernel, (int) n);
                return;
        }
        kernel->short_since_ms = 0;
        if (n <= 0) { /* closed by the process, which is ending or has ended: its agent reports how */
                loop_unwatch(&kernel->replies_watch);
                if (!kernel->exited)
                        kernel_signal(kernel, SIGKILL);
                return;
        }
        kernel->inbound_size += (size_t) n;
        kernel->reply_bytes += (size_t) n;
        bool good = handle_frames(kernel);
        if (kernel->connection == KERNEL_IGNORED) {
                if (kernel->end_cause == KERNEL_END_OVER && !was_ending)
                        kernel_end(kernel);
                return;
        }
        if (!good)
                kernel_break_off(kernel);
        else if (kernel->reply_bytes > REPLIES_FREE)
                kernel_pause_watch(kernel, kernel->replies_watch);
}

/* ---- after a dead daemon ---- */

/* Its frames to the last daemon. False when they are malformed. */
static bool replay_received_frames(struct kernel *kernel) {
        kernel->replays = true;
        journal_unread(kernel->journal);
        bool good = true;
        for (size_t size = 1; good && size > 0 && kernel->connection != KERNEL_IGNORED;) {
                if (!inbound_make_room(kernel, kernel->inbound_size + INBOUND_TURN)) {
                        kernel->host_trouble = "the daemon had no memory for what it answered";
                        break;
                }
                good = journal_read_received(kernel->journal, kernel->inbound + kernel->inbound_size, INBOUND_TURN,
                                             &size, NULL) == 0;
                if (!good)
                        break;
                kernel->inbound_size += size;
                good = handle_frames(kernel);
        }
        kernel->replays = false;
        return (good && !kernel->host_trouble) || kernel->connection == KERNEL_IGNORED;
}

/* Puts the open request at the front of what is to be sent, if it is known. */
static bool put_again(struct kernel *kernel) {
        const struct journal_request *open = journal_open_request(kernel->journal);
        _cleanup_free_ char *payload = NULL;
        size_t size = 0;
        return open && journal_read_request(kernel->journal, &payload, &size, NULL) == 0 &&
               put_frame(kernel, open->type, payload, size) == 0;
}

static void send_again(struct kernel *kernel) {
        const struct journal_request *open = journal_open_request(kernel->journal);
        if (put_again(kernel))
                kernel_channel_flush(kernel);
        else if (open) /* it is unknown what it was */
                (void) take_repeated(kernel, open->id, strlen(open->id));
}

void kernel_resume(struct kernel *kernel, uint64_t timeout_ms) {
        if (kernel->state == KERNEL_BUSY)
                kernel_watch_output(kernel);
        bool is_in_step = !journal_has_gap(kernel->journal) && replay_received_frames(kernel) &&
                          !journal_is_torn(kernel->journal);
        if (kernel->host_trouble)
                kernel_give_up(kernel, kernel->host_trouble);
        else if (kernel->connection != KERNEL_CONNECTED || kernel_is_dead(kernel))
                return;
        else if (!is_in_step)
                kernel_find_step(kernel, timeout_ms);
        else if (kernel->state == KERNEL_BUSY)
                send_again(kernel);
}
