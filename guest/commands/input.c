#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "channel.h"

#define DIRECTORY "/run/session"
#define MIME "application/x-glovebox-input"

enum { ASK_AGAIN_MS = 2000, PAUSE_MAX_MS = 20, PIECE_MAX = 16 << 20 };

struct input input_of(json_t *request) {
        struct input input = { .fd = -1, .id = json_object_get(request, "id"), .pause_ms = 1 };
        const char *token = json_string_value(json_object_get(request, "input"));
        size_t size = token ? strlen(token) : 0;
        input.is_offered = size >= 8 && size < sizeof(input.token) && strspn(token, "0123456789abcdef") == size;
        if (input.is_offered)
                (void) strcpy(input.token, token);
        return input;
}

static void piece_path(const struct input *input, unsigned number, char ret_path[static 160]) {
        (void) snprintf(ret_path, 160, DIRECTORY "/input-%s-%u", input->token, number);
}

static void ask(struct input *input) {
        if (input->next > 0 || clock_now_ms() - input->asked_ms < ASK_AGAIN_MS)
                return;
        input->asked_ms = clock_now_ms();
        channel_send_json(CHANNEL_DISPLAY, json_pack("{s:O?, s:{s:s}}", "id", input->id, "data", MIME, input->token));
}

static bool take_piece(struct input *input) {
        char path[160];
        piece_path(input, input->next, path);
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        free(input->piece);
        input->piece = NULL;
        input->size = input->at = 0;
        if (fd < 0 || fd_read_to_end(fd, PIECE_MAX, &input->piece, &input->size) < 0)
                return false;
        input->next++;
        input->has_ended = input->size == 0;
        (void) unlink(path);
        return true;
}

static int rest(struct input *input) {
        int pause_ms = input->pause_ms;
        input->pause_ms = pause_ms * 2 < PAUSE_MAX_MS ? pause_ms * 2 : PAUSE_MAX_MS;
        return pause_ms;
}

int input_move(struct input *input) {
        while (input->fd >= 0) {
                (void) fd_set_nonblocking(input->fd);
                if (input->at < input->size) {
                        ssize_t n = write(input->fd, input->piece + input->at, input->size - input->at);
                        if (n < 0 && errno == EAGAIN)
                                return rest(input);
                        if (n < 0 && errno != EINTR)
                                fd_close(&input->fd); /* the command has closed its input */
                        input->at += n > 0 ? (size_t) n : 0;
                        input->pause_ms = 1;
                        continue;
                }
                if (input->has_ended) {
                        fd_close(&input->fd);
                        break;
                }
                ask(input);
                if (!take_piece(input))
                        return rest(input);
        }
        return -1;
}

void input_end(struct input *input) {
        char path[160];
        fd_close(&input->fd);
        free(input->piece);
        for (unsigned i = 0; input->is_offered && i < 2; i++) {
                piece_path(input, input->next + i, path);
                (void) unlink(path);
        }
}
