#include "cli/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "wire/frame.h"

enum {
        CHUNK = 64 << 10,
        TIMEOUT_GRACE_MS = 500, /* between "please end" and the end */
        SIGNAL_GRACE_MS = 2000,
        DRAIN_GRACE_MS = 1000, /* for the reader of our output, once a signal told us to stop */
        MAIN_PROCESS = 1,
};

/* The part of a relay that lives only while it runs. */
struct turn {
        struct relay *relay;
        int signal_fd;
        uint64_t started_ms, deadline_ms;
        bool ending; /* the process was asked to end; at the deadline it is killed */
        bool dead;   /* the box is: only the pipes are left to drain */
        char input[CHUNK];
        size_t input_at, input_size;
};

static uint64_t now_ms(void) {
        struct timespec now;
        (void) clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
}

static void kill_box(struct turn *turn) {
        if (!turn->dead)
                (void) box_kill(turn->relay->box, NULL);
        turn->dead = true;
        turn->deadline_ms = now_ms() + DRAIN_GRACE_MS;
        fd_close(&turn->relay->input_to_fd);
}

static void ask_to_end(struct turn *turn, enum relay_end end, int signal_number, uint64_t grace_ms) {
        if (turn->ending || turn->dead) {
                kill_box(turn);
                return;
        }
        turn->ending = true;
        turn->relay->end = end;
        turn->deadline_ms = now_ms() + grace_ms;
        struct frame_writer payload = { 0 };
        frame_put_u32(&payload, (uint32_t) signal_number);
        frame_put_u32(&payload, 1);
        if (frame_send(turn->relay->box->control_fd, FRAME_SIGNAL, MAIN_PROCESS, &payload, NULL, 0) < 0)
                kill_box(turn);
        frame_writer_release(&payload);
}

/* ---- output ---- */

static void keep(struct relay_stream *stream, const char *bytes, size_t size) {
        size_t room = stream->kept_max - stream->kept_size;
        size_t taken = size < room ? size : room;
        char *grown = taken ? realloc(stream->kept, stream->kept_size + taken) : NULL;
        if (grown) {
                memcpy(grown + stream->kept_size, bytes, taken);
                stream->kept = grown;
                stream->kept_size += taken;
        } else
                taken = 0;
        stream->cut_bytes += size - taken;
}

static void read_stream(struct relay_stream *stream) {
        if (!stream->pending && !(stream->pending = malloc(CHUNK)))
                return;
        ssize_t n = read(stream->from_fd, stream->pending, CHUNK);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) {
                fd_close(&stream->from_fd);
                return;
        }
        if (stream->to_fd < 0)
                keep(stream, stream->pending, (size_t) n);
        else {
                stream->pending_at = 0;
                stream->pending_size = (size_t) n;
        }
}

/* At most PIPE_BUF at a time: poll promised room for that much, so a slow reader never blocks the relay. */
static bool write_stream(struct relay_stream *stream) {
        size_t size = stream->pending_size < PIPE_BUF ? stream->pending_size : PIPE_BUF;
        ssize_t n = write(stream->to_fd, stream->pending + stream->pending_at, size);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR;
        stream->pending_at += (size_t) n;
        stream->pending_size -= (size_t) n;
        return true;
}

static void watch_stream(const struct relay_stream *stream, struct pollfd *ret_watched) {
        if (stream->pending_size)
                *ret_watched = (struct pollfd) { .fd = stream->to_fd, .events = POLLOUT };
        else
                *ret_watched = (struct pollfd) { .fd = stream->from_fd, .events = POLLIN };
}

static void drop_output(struct relay_stream *stream) {
        stream->pending_size = 0;
        fd_close(&stream->from_fd);
}

static void drop_all_output(struct turn *turn) {
        drop_output(&turn->relay->out);
        drop_output(&turn->relay->error);
}

static void serve_stream(struct turn *turn, struct relay_stream *stream, short revents) {
        if (!revents)
                return;
        if (!stream->pending_size) {
                read_stream(stream);
                return;
        }
        if (write_stream(stream))
                return;
        /* EPIPE: like any other program in a pipeline, we end when nobody reads. Killed first: a program that lives to
         * see its pipe closed would say so on the other stream. */
        if (turn->relay->end != RELAY_NO_READER)
                turn->relay->write_errno = errno;
        turn->relay->end = RELAY_NO_READER;
        kill_box(turn);
        drop_output(stream);
}

/* ---- input ---- */

static void serve_input(struct turn *turn, short from_revents, short to_revents) {
        struct relay *relay = turn->relay;
        if (to_revents & (POLLERR | POLLHUP)) { /* the process does not read any more */
                fd_close(&relay->input_to_fd);
                return;
        }
        if (turn->input_size && (to_revents & POLLOUT)) {
                ssize_t n = write(relay->input_to_fd, turn->input + turn->input_at, turn->input_size);
                if (n >= 0) {
                        turn->input_at += (size_t) n;
                        turn->input_size -= (size_t) n;
                } else if (errno != EAGAIN && errno != EINTR)
                        fd_close(&relay->input_to_fd);
        } else if (from_revents) {
                ssize_t n = read(relay->input_from_fd, turn->input, sizeof(turn->input));
                if (n > 0) {
                        turn->input_at = 0;
                        turn->input_size = (size_t) n;
                } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
                        fd_close(&relay->input_to_fd);
                }
        }
}

/* ---- agent and signals ---- */

static void serve_agent(struct turn *turn) {
        struct relay *relay = turn->relay;
        struct frame frame;
        if (frame_receive(relay->box->control_fd, &frame) < 0) {
                if (!turn->ending)
                        relay->end = RELAY_BOX_DIED;
                kill_box(turn);
                return;
        }
        struct frame_reader fields = frame_read(&frame);
        uint32_t number = 0;
        if (frame.type == FRAME_EXITED && frame.id == MAIN_PROCESS && frame_get_u32(&fields, &number) &&
            frame_get_u64(&fields, &relay->cpu_us) && frame_get_u64(&fields, &relay->memory_peak_kib)) {
                if (!turn->ending)
                        relay->end = RELAY_EXITED;
                relay->wait_status = (int) number;
                kill_box(turn);
        } else if (frame.type == FRAME_FAILED && frame_get_u32(&fields, &number)) {
                char *step = NULL;
                relay->end = RELAY_NOT_STARTED;
                relay->failed_errno = (int) number;
                if (frame_get_text(&fields, &step))
                        (void) snprintf(relay->failed_step, sizeof(relay->failed_step), "%s", step);
                free(step);
                kill_box(turn);
        }
        frame_release(&frame);
}

static void serve_signal(struct turn *turn) {
        struct signalfd_siginfo info;
        if (read(turn->signal_fd, &info, sizeof(info)) != sizeof(info))
                return;
        turn->relay->end_signal = (int) info.ssi_signo;
        if (turn->dead) { /* only output is left, and whoever should read it does not */
                turn->relay->end = RELAY_SIGNAL;
                drop_all_output(turn);
                return;
        }
        ask_to_end(turn, RELAY_SIGNAL, (int) info.ssi_signo, SIGNAL_GRACE_MS);
}

static int open_signals(sigset_t *ret_old, struct err *err) {
        sigset_t signals;
        sigemptyset(&signals);
        sigaddset(&signals, SIGINT);
        sigaddset(&signals, SIGTERM);
        sigaddset(&signals, SIGHUP);
        sigaddset(&signals, SIGQUIT);
        (void) sigprocmask(SIG_BLOCK, &signals, ret_old);
        int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
        return fd < 0 ? err_sys(err, errno, "watching signals") : fd;
}

enum { W_OUT, W_ERROR, W_AGENT, W_SIGNAL, W_INPUT_FROM, W_INPUT_TO, W_COUNT };

static int wait_ms(const struct turn *turn) {
        if (turn->dead && turn->relay->end != RELAY_SIGNAL)
                return -1; /* a slow reader gets everything, however long it takes */
        uint64_t now = now_ms();
        if (now >= turn->deadline_ms)
                return 0;
        uint64_t left = turn->deadline_ms - now;
        return left > INT_MAX ? INT_MAX : (int) left;
}

static void take_turn(struct turn *turn) {
        struct relay *relay = turn->relay;
        struct pollfd watched[W_COUNT];
        for (size_t i = 0; i < W_COUNT; i++)
                watched[i] = (struct pollfd) { .fd = -1 };
        watch_stream(&relay->out, &watched[W_OUT]);
        watch_stream(&relay->error, &watched[W_ERROR]);
        watched[W_SIGNAL] = (struct pollfd) { .fd = turn->signal_fd, .events = POLLIN };
        if (!turn->dead) {
                watched[W_AGENT] = (struct pollfd) { .fd = relay->box->control_fd, .events = POLLIN };
                if (relay->input_to_fd >= 0) {
                        watched[W_INPUT_TO] = (struct pollfd) { .fd = relay->input_to_fd,
                                                                .events = turn->input_size ? POLLOUT : 0 };
                        if (!turn->input_size)
                                watched[W_INPUT_FROM] = (struct pollfd){ .fd = relay->input_from_fd, .events = POLLIN };
                }
        }
        if (poll(watched, W_COUNT, wait_ms(turn)) < 0)
                return;
        if (!turn->dead && now_ms() >= turn->deadline_ms)
                ask_to_end(turn, RELAY_TIMEOUT, SIGTERM, TIMEOUT_GRACE_MS);
        else if (turn->dead && relay->end == RELAY_SIGNAL && now_ms() >= turn->deadline_ms)
                drop_all_output(turn);
        serve_stream(turn, &relay->out, watched[W_OUT].revents);
        serve_stream(turn, &relay->error, watched[W_ERROR].revents);
        if (watched[W_INPUT_FROM].revents || watched[W_INPUT_TO].revents)
                serve_input(turn, watched[W_INPUT_FROM].revents, watched[W_INPUT_TO].revents);
        if (watched[W_SIGNAL].revents)
                serve_signal(turn);
        if (!turn->dead && watched[W_AGENT].revents)
                serve_agent(turn);
}

static bool is_open(const struct relay_stream *stream) {
        return stream->from_fd >= 0 || stream->pending_size > 0;
}

int relay_run(struct relay *relay, struct err *err) {
        sigset_t old;
        struct turn turn = { .relay = relay, .signal_fd = -1, .started_ms = now_ms() };
        turn.deadline_ms = turn.started_ms + relay->timeout_ms;
        /* Code in a rootless box may open its own pipes for reading and take back what poll has promised us: a read
         * that waited for it would be deaf to the clock. */
        if (fd_set_nonblocking(relay->out.from_fd) < 0 || fd_set_nonblocking(relay->error.from_fd) < 0)
                return err_sys(err, errno, "preparing to read the output");
        turn.signal_fd = open_signals(&old, err);
        if (turn.signal_fd < 0)
                return -1;
        (void) signal(SIGPIPE, SIG_IGN);
        if (relay->input_from_fd < 0)
                fd_close(&relay->input_to_fd);
        else if (relay->input_to_fd >= 0)
                (void) fd_set_nonblocking(relay->input_to_fd);
        while (!turn.dead || is_open(&relay->out) || is_open(&relay->error)) {
                take_turn(&turn);
                if (turn.dead && relay->duration_ms == 0)
                        relay->duration_ms = now_ms() - turn.started_ms;
        }
        fd_close(&turn.signal_fd);
        (void) sigprocmask(SIG_SETMASK, &old, NULL);
        return 0;
}

void relay_release(struct relay *relay) {
        struct relay_stream *streams[] = { &relay->out, &relay->error };
        for (size_t i = 0; i < 2; i++) {
                fd_close(&streams[i]->from_fd);
                free(streams[i]->kept);
                free(streams[i]->pending);
                streams[i]->kept = streams[i]->pending = NULL;
        }
        fd_close(&relay->input_to_fd);
}
