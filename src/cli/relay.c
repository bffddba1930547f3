#include "cli/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memory.h"

enum {
        CHUNK = 64 << 10,
        TIMEOUT_GRACE_MS = 500, /* between "please end" and the end */
        SIGNAL_GRACE_MS = 2000,
        DRAIN_GRACE_MS = 1000, /* milliseconds for the reader of the output, after a signal to stop */
        SPLICE_BYTES = 1 << 20,
};

/* The state of a relay while it runs. */
struct turn {
        struct relay *relay;
        int signal_fd;
        uint64_t started_ms, deadline_ms;
        bool ending; /* the process got a signal to end; at the deadline it is killed */
        bool dead;   /* the program is: only the pipes are left to drain */
        char *input; /* CHUNK bytes, from the first read on: most runs read nothing */
        size_t input_at, input_size;
};

/* Nothing more happens in the box. */
static void end_program(struct turn *turn) {
        turn->dead = true;
        turn->deadline_ms = clock_now_ms() + DRAIN_GRACE_MS;
        fd_close(&turn->relay->input_to_fd);
}

static void kill_program(struct turn *turn) {
        struct relay_target *target = turn->relay->target;
        if (!turn->dead)
                target->type->kill(target);
        end_program(turn);
}

static void ask_to_end(struct turn *turn, enum relay_end end, int signal_number, uint64_t grace_ms) {
        if (turn->ending || turn->dead) {
                kill_program(turn);
                return;
        }
        turn->ending = true;
        turn->relay->end = end;
        turn->deadline_ms = clock_now_ms() + grace_ms;
        struct relay_target *target = turn->relay->target;
        if (target->type->signal(target, signal_number) < 0)
                kill_program(turn);
}

/* ---- output ---- */

static void relay_keep(struct relay_stream *stream, const char *bytes, size_t size) {
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

static void keep_tail(struct relay_stream *stream, const char *bytes, size_t size) {
        if (!stream->tail)
                return;
        if (size > RELAY_TAIL_BYTES) {
                bytes += size - RELAY_TAIL_BYTES;
                size = RELAY_TAIL_BYTES;
        }
        size_t kept = RELAY_TAIL_BYTES - size < stream->tail_size ? RELAY_TAIL_BYTES - size : stream->tail_size;
        memmove(stream->tail, stream->tail + stream->tail_size - kept, kept);
        memcpy(stream->tail + kept, bytes, size);
        stream->tail_size = kept + size;
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
        keep_tail(stream, stream->pending, (size_t) n);
        if (stream->to_fd < 0)
                relay_keep(stream, stream->pending, (size_t) n);
        else {
                stream->pending_at = 0;
                stream->pending_size = (size_t) n;
        }
}

/* At most PIPE_BUF at a time where the reader may be slow: poll promised room for that much. */
static bool write_stream(struct relay_stream *stream) {
        size_t size = stream->pending_size < stream->write_max ? stream->pending_size : stream->write_max;
        ssize_t n = write(stream->to_fd, stream->pending + stream->pending_at, size);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR;
        stream->pending_at += (size_t) n;
        stream->pending_size -= (size_t) n;
        return true;
}

static void drop_output(struct relay_stream *stream) {
        stream->pending_size = 0;
        stream->how = RELAY_COPIES;
        fd_close(&stream->from_fd);
}

/* False: it cannot be written. */
static bool splice_stream(struct relay_stream *stream) {
        ssize_t n = splice(stream->from_fd, NULL, stream->to_fd, NULL, SPLICE_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n > 0)
                stream->how = RELAY_SPLICES;
        else if (n == 0)
                drop_output(stream);
        else if (errno == EAGAIN) /* nothing to read, or no room to write */
                stream->how = stream->how == RELAY_SPLICES ? RELAY_SPLICES_WHEN_ROOM : RELAY_SPLICES;
        else if (errno == EINVAL)
                stream->how = RELAY_COPIES;
        else
                return errno == EINTR;
        return true;
}

static void choose_how(struct relay_stream *stream) {
        struct stat status;
        if (stream->to_fd < 0 || fstat(stream->to_fd, &status) < 0)
                return;
        stream->how = S_ISFIFO(status.st_mode) && !stream->tail ? RELAY_SPLICES : RELAY_COPIES;
        stream->write_max = S_ISREG(status.st_mode) ? CHUNK : PIPE_BUF;
}

static void watch_stream(const struct relay_stream *stream, struct pollfd *ret_watched) {
        if (stream->pending_size || stream->how == RELAY_SPLICES_WHEN_ROOM)
                *ret_watched = (struct pollfd) { .fd = stream->to_fd, .events = POLLOUT };
        else
                *ret_watched = (struct pollfd) { .fd = stream->from_fd, .events = POLLIN };
}

static void drop_all_output(struct turn *turn) {
        drop_output(&turn->relay->out);
        drop_output(&turn->relay->error);
}

static void serve_stream(struct turn *turn, struct relay_stream *stream, short revents) {
        if (!revents)
                return;
        if (stream->how != RELAY_COPIES && stream->from_fd >= 0) {
                if (splice_stream(stream))
                        return;
        } else if (!stream->pending_size) {
                read_stream(stream);
                return;
        } else if (write_stream(stream))
                return;
        /* EPIPE: like any program in a pipeline, it ends if its output has no reader. It is killed first: otherwise it
         * would see the closed pipe and print an error to the other stream. */
        if (turn->relay->end != RELAY_NO_READER)
                turn->relay->write_errno = errno;
        turn->relay->end = RELAY_NO_READER;
        kill_program(turn);
        drop_output(stream);
}

/* ---- input ---- */

static bool is_temporary(int code) {
        return code == EAGAIN || code == EINTR;
}

/* Input that was given as text. */
static void write_given_input(struct relay *relay) {
        ssize_t n = write(relay->input_to_fd, relay->input, relay->input_size);
        bool failed = n < 0 && !is_temporary(errno);
        if (n >= 0) {
                relay->input += n;
                relay->input_size -= (size_t) n;
        }
        if (relay->input_size == 0 || failed)
                fd_close(&relay->input_to_fd);
}

static void write_input(struct turn *turn) {
        ssize_t n = write(turn->relay->input_to_fd, turn->input + turn->input_at, turn->input_size);
        if (n >= 0) {
                turn->input_at += (size_t) n;
                turn->input_size -= (size_t) n;
        } else if (!is_temporary(errno))
                fd_close(&turn->relay->input_to_fd);
}

static void read_input(struct turn *turn) {
        if (!turn->input && !(turn->input = malloc(CHUNK)))
                return;
        ssize_t n = read(turn->relay->input_from_fd, turn->input, CHUNK);
        if (n > 0) {
                turn->input_at = 0;
                turn->input_size = (size_t) n;
        } else if (n == 0 || !is_temporary(errno))
                fd_close(&turn->relay->input_to_fd);
}

static void serve_input(struct turn *turn, short from_revents, short to_revents) {
        struct relay *relay = turn->relay;
        if (to_revents & (POLLERR | POLLHUP)) /* the process does not read any more */
                fd_close(&relay->input_to_fd);
        else if (relay->input && (to_revents & POLLOUT))
                write_given_input(relay);
        else if (turn->input_size && (to_revents & POLLOUT))
                write_input(turn);
        else if (from_revents)
                read_input(turn);
}

/* ---- the program and signals ---- */

static void serve_target(struct turn *turn, const struct pollfd *watched) {
        struct relay *relay = turn->relay;
        if (!relay->target->type->serve(relay->target, watched, &relay->outcome))
                return;
        if (!turn->ending || relay->outcome.end == RELAY_NOT_STARTED)
                relay->end = relay->outcome.end;
        relay->has_exited = relay->outcome.end == RELAY_EXITED;
        kill_program(turn);
}

static void serve_signal(struct turn *turn) {
        struct signalfd_siginfo info;
        if (read(turn->signal_fd, &info, sizeof(info)) != sizeof(info))
                return;
        if (turn->dead) { /* only output is left, and it is not read */
                turn->relay->end = RELAY_SIGNAL;
                turn->relay->end_signal = (int) info.ssi_signo;
                turn->relay->has_exited = false;
                drop_all_output(turn);
                return;
        }
        if (info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGUSR2) /* signals that do not end it */
                (void) turn->relay->target->type->signal(turn->relay->target, (int) info.ssi_signo);
        else {
                turn->relay->end_signal = (int) info.ssi_signo;
                ask_to_end(turn, RELAY_SIGNAL, (int) info.ssi_signo, SIGNAL_GRACE_MS);
        }
}

static int open_signals(sigset_t *ret_old, struct err *err) {
        static const int watched[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };
        sigset_t signals;
        sigemptyset(&signals);
        for (size_t i = 0; i < ELEMENTS(watched); i++) {
                struct sigaction before;
                /* nohup and & stay in force: a blocked signal reaches a signalfd even if it is ignored. */
                if (sigaction(watched[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
                        sigaddset(&signals, watched[i]);
        }
        (void) sigprocmask(SIG_BLOCK, &signals, ret_old);
        int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
        return fd < 0 ? err_sys(err, errno, "watching signals") : fd;
}

enum { W_OUT, W_ERROR, W_SIGNAL, W_INPUT_FROM, W_INPUT_TO, W_TARGET, W_COUNT = W_TARGET + RELAY_TARGET_FDS };

/* The program has ended, and all its output is in the pipes. */
static bool is_settled(const struct turn *turn) {
        return turn->dead && turn->relay->target->type->is_settled_by_end;
}

static int wait_ms(const struct turn *turn) {
        const struct relay *relay = turn->relay;
        if (is_settled(turn) && !relay->out.pending_size && !relay->error.pending_size &&
            relay->out.how != RELAY_SPLICES_WHEN_ROOM && relay->error.how != RELAY_SPLICES_WHEN_ROOM)
                return 0;
        if (turn->dead && turn->relay->end != RELAY_SIGNAL)
                return -1; /* a slow reader gets everything, however long it takes */
        uint64_t now = clock_now_ms();
        if (now >= turn->deadline_ms)
                return 0;
        uint64_t left = turn->deadline_ms - now;
        return left > INT_MAX ? INT_MAX : (int) left;
}

static bool takes_input(const struct relay *relay) {
        const struct relay_target *target = relay->target;
        return !target->type->takes_input || target->type->takes_input(target);
}

/* Nothing came, and nothing will. */
static void finish_stream(struct relay_stream *stream, short revents) {
        if (!revents && !stream->pending_size && stream->how != RELAY_SPLICES_WHEN_ROOM)
                fd_close(&stream->from_fd);
}

static void watch_input(const struct turn *turn, struct pollfd watched[static W_COUNT]) {
        const struct relay *relay = turn->relay;
        if (relay->input_to_fd < 0 || !takes_input(relay))
                return;
        bool has_input = turn->input_size || relay->input;
        watched[W_INPUT_TO] = (struct pollfd) { .fd = relay->input_to_fd, .events = has_input ? POLLOUT : 0 };
        if (!has_input)
                watched[W_INPUT_FROM] = (struct pollfd) { .fd = relay->input_from_fd, .events = POLLIN };
}

static void relay_watch_all(struct turn *turn, struct pollfd watched[static W_COUNT]) {
        struct relay *relay = turn->relay;
        for (size_t i = 0; i < W_COUNT; i++)
                watched[i] = (struct pollfd) { .fd = -1 };
        watch_stream(&relay->out, &watched[W_OUT]);
        watch_stream(&relay->error, &watched[W_ERROR]);
        watched[W_SIGNAL] = (struct pollfd) { .fd = turn->signal_fd, .events = POLLIN };
        if (turn->dead)
                return;
        (void) relay->target->type->watch(relay->target, &watched[W_TARGET]);
        watch_input(turn, watched);
}

static void take_turn(struct turn *turn) {
        struct relay *relay = turn->relay;
        struct pollfd watched[W_COUNT];
        relay_watch_all(turn, watched);
        if (poll(watched, W_COUNT, wait_ms(turn)) < 0)
                return;
        if (!turn->dead && clock_now_ms() >= turn->deadline_ms)
                ask_to_end(turn, RELAY_TIMEOUT, SIGTERM, TIMEOUT_GRACE_MS);
        else if (turn->dead && relay->end == RELAY_SIGNAL && clock_now_ms() >= turn->deadline_ms)
                drop_all_output(turn);
        bool was_settled = is_settled(turn);
        serve_stream(turn, &relay->out, watched[W_OUT].revents);
        serve_stream(turn, &relay->error, watched[W_ERROR].revents);
        if (was_settled) {
                finish_stream(&relay->out, watched[W_OUT].revents);
                finish_stream(&relay->error, watched[W_ERROR].revents);
        }
        if (watched[W_INPUT_FROM].revents || watched[W_INPUT_TO].revents)
                serve_input(turn, watched[W_INPUT_FROM].revents, watched[W_INPUT_TO].revents);
        if (watched[W_SIGNAL].revents)
                serve_signal(turn);
        if (!turn->dead)
                serve_target(turn, &watched[W_TARGET]);
}

static bool is_open(const struct relay_stream *stream) {
        return stream->from_fd >= 0 || stream->pending_size > 0;
}

int relay_run(struct relay *relay, struct err *err) {
        sigset_t old;
        struct turn turn = { .relay = relay, .signal_fd = -1, .started_ms = clock_now_ms() };
        turn.deadline_ms = turn.started_ms + relay->timeout_ms;
        /* Code in a rootless box can open its own pipes for reading and empty them after poll: a blocking read would
         * then miss the time limit. */
        if (fd_set_nonblocking(relay->out.from_fd) < 0 || fd_set_nonblocking(relay->error.from_fd) < 0)
                return err_sys(err, errno, "preparing to read the output");
        turn.signal_fd = open_signals(&old, err);
        if (turn.signal_fd < 0)
                return -1;
        (void) signal(SIGPIPE, SIG_IGN);
        choose_how(&relay->out);
        choose_how(&relay->error);
        if (relay->input_from_fd < 0 && !relay->input)
                fd_close(&relay->input_to_fd);
        else if (relay->input_to_fd >= 0)
                (void) fd_set_nonblocking(relay->input_to_fd);
        while (!turn.dead || is_open(&relay->out) || is_open(&relay->error)) {
                take_turn(&turn);
                if (turn.dead && relay->duration_ms == 0)
                        relay->duration_ms = clock_now_ms() - turn.started_ms;
        }
        free(turn.input);
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
