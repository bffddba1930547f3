#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "link.h"
#include "terminal.h"

struct streams streams_none(void) {
        return (struct streams) { .input = { .fd = -1 }, .outputs = { { .fd = -1 }, { .fd = -1 } } };
}

int streams_open(struct streams *ret_streams, int ret_theirs[static 3]) {
        struct streams streams = streams_none();
        int ends[3][2] = { { -1, -1 }, { -1, -1 }, { -1, -1 } };
        int code = 0;
        for (size_t i = 0; i < 3 && code == 0; i++)
                if ((code = i ? fd_make_pipe_from_box(ends[i]) : fd_make_pipe_to_box(ends[i])) == 0)
                        code = fd_set_nonblocking(ends[i][i ? 0 : 1]);
        if (code < 0) {
                for (size_t i = 0; i < 6; i++)
                        fd_close(&ends[i / 2][i % 2]);
                return code;
        }
        streams.input.fd = ends[0][1];
        for (size_t i = 0; i < 2; i++)
                streams.outputs[i] = (struct stream_output) { .fd = ends[i + 1][0], .left = UINT64_MAX };
        ret_theirs[0] = ends[0][0];
        ret_theirs[1] = ends[1][1];
        ret_theirs[2] = ends[2][1];
        *ret_streams = streams;
        return 0;
}

/* ---- input ---- */

static void drop_queue(struct stream_input *input) {
        free(input->queue);
        input->queue = NULL;
        input->start = input->size = 0;
}

static void close_input(struct stream_input *input) {
        input->taken += input->size;
        drop_queue(input);
        fd_close(&input->fd);
}

void streams_release(struct streams *streams) {
        close_input(&streams->input);
        for (size_t i = 0; i < 2; i++)
                fd_close(&streams->outputs[i].fd);
}

/* Writes as much as the process takes, and returns how much; input that is closed takes everything. */
static size_t give_input(struct streams *streams, const char *bytes, size_t size) {
        size_t given = 0;
        while (given < size && streams->input.fd >= 0) {
                ssize_t n = write(streams->input.fd, bytes + given, size - given);
                if (n > 0)
                        given += (size_t) n;
                else if (n < 0 && errno == EAGAIN)
                        return given;
                else if (n == 0 || errno != EINTR)
                        fd_close(&streams->input.fd);
        }
        return size;
}

static void report_taken(const struct streams *streams, uint32_t id) {
        struct frame_writer payload = { 0 };
        frame_put_u64(&payload, streams->input.taken);
        link_send(FRAME_TAKEN, id, &payload);
        frame_writer_release(&payload);
}

static void move_input(struct streams *streams, uint32_t id) {
        struct stream_input *input = &streams->input;
        size_t given = give_input(streams, input->queue + input->start, input->size);
        input->start += given;
        input->size -= given;
        input->taken += given;
        if (given > 0)
                report_taken(streams, id);
        if (input->size > 0)
                return;
        drop_queue(input);
        if (input->ending)
                close_input(input);
}

bool streams_put_input(struct streams *streams, uint32_t id, const char *bytes, size_t size) {
        struct stream_input *input = &streams->input;
        if (size > STREAM_INPUT_MAX - input->size)
                return false;
        size_t given = size; /* what comes after INPUT_END is dropped */
        if (!input->ending)
                given = input->size ? 0 : give_input(streams, bytes, size);
        if (given < size) {
                if (!input->queue && !(input->queue = malloc(STREAM_INPUT_MAX)))
                        return false;
                memmove(input->queue, input->queue + input->start, input->size);
                input->start = 0;
                memcpy(input->queue + input->size, bytes + given, size - given);
                input->size += size - given;
        }
        input->taken += given;
        if (given > 0)
                report_taken(streams, id);
        return true;
}

void streams_end_input(struct streams *streams, uint32_t id) {
        struct stream_input *input = &streams->input;
        if (input->ending || input->fd < 0)
                return;
        if (streams->terminal) { /* no end of file: a key ends the input */
                char key = terminal_end_key(input->fd);
                (void) streams_put_input(streams, id, &key, 1);
                return;
        }
        input->ending = true;
        if (input->size == 0)
                close_input(input);
}

/* ---- output ---- */

static size_t output_window(const struct streams *streams) {
        uint64_t edge =
                streams->acknowledged > UINT64_MAX - STREAM_WINDOW ? UINT64_MAX : streams->acknowledged + STREAM_WINDOW;
        uint64_t open = edge > streams->sent ? edge - streams->sent : 0;
        return open < STREAM_CHUNK ? (size_t) open : STREAM_CHUNK;
}

static ssize_t read_some(int fd, char *bytes, size_t max) {
        ssize_t n;
        do
                n = read(fd, bytes, max);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : n;
}

/* One OUTPUT, if the host has room. False: nothing was there, or it has ended. */
static bool move_output(struct streams *streams, size_t which, uint32_t id) {
        struct stream_output *output = &streams->outputs[which];
        size_t max = output_window(streams);
        if (output->fd < 0 || max == 0 || link_is_full())
                return false;
        if (output->left < max)
                max = (size_t) output->left;
        if (max == 0) {
                fd_close(&output->fd);
                return false;
        }
        struct frame_writer payload = { 0 };
        frame_put_u32(&payload, (uint32_t) which + 1);
        char *bytes = frame_begin_bytes(&payload, max);
        ssize_t n = bytes ? read_some(output->fd, bytes, max) : -ENOMEM;
        if (n > 0) {
                frame_end_bytes(&payload, max, (size_t) n);
                link_send(FRAME_OUTPUT, id, &payload);
                streams->sent += (uint64_t) n;
                if (output->left != UINT64_MAX)
                        output->left -= (uint64_t) n;
        } else if (n != -EAGAIN) /* a terminal returns EIO when its other side is closed */
                fd_close(&output->fd);
        frame_writer_release(&payload);
        return n > 0;
}

void streams_limit_output(struct streams *streams) {
        close_input(&streams->input);
        for (size_t i = 0; i < 2; i++) {
                int waiting = 0;
                /* A terminal hangs up on all its processes when its session's leader dies: read it to its end. */
                if (!streams->terminal && streams->outputs[i].fd >= 0)
                        streams->outputs[i].left =
                                ioctl(streams->outputs[i].fd, FIONREAD, &waiting) < 0 ? 0 : (uint64_t) waiting;
        }
}

bool streams_drain(struct streams *streams, uint32_t id) {
        for (size_t i = 0; i < 2; i++) {
                while (move_output(streams, i, id))
                        ;
                if (output_window(streams) > 0 && !link_is_full())
                        fd_close(&streams->outputs[i].fd); /* there was nothing more */
        }
        return streams->outputs[0].fd < 0 && streams->outputs[1].fd < 0;
}

/* ---- turns ---- */

void streams_wait(struct streams *streams, struct polls *polls) {
        struct stream_input *input = &streams->input;
        bool reading = output_window(streams) > 0 && !link_is_full();
        input->place = input->fd >= 0 && input->size > 0 ? polls_add(polls, input->fd, POLLOUT) : 0;
        for (size_t i = 0; i < 2; i++) {
                struct stream_output *output = &streams->outputs[i];
                output->place = output->fd >= 0 && reading ? polls_add(polls, output->fd, POLLIN) : 0;
        }
}

void streams_move(struct streams *streams, uint32_t id, const struct polls *polls) {
        if (polls_happened(polls, streams->input.place))
                move_input(streams, id);
        for (size_t i = 0; i < 2; i++)
                if (polls_happened(polls, streams->outputs[i].place))
                        (void) move_output(streams, i, id);
}
