#include "daemon/remote_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

enum { NUMBER = 1, PIECE = 256 << 10 };

struct remote_client remote_client_make(int fd) {
        (void) fcntl(fd, F_SETFL, 0); /* blocking: this process has nothing else to do */
        return (struct remote_client) { .fd = fd, .parser = message_parser_make(MESSAGE_FROM_DAEMON) };
}

static int remote_client_lost(struct err *err) {
        return err_set(err, ERR_GONE, "the connection to the remote broke; try again");
}

static enum err_code code_of(const char *name) {
        for (int code = 1; name && code < ERR_CODES; code++)
                if (strcmp(err_code_name((enum err_code) code), name) == 0)
                        return (enum err_code) code;
        return ERR_SYSTEM;
}

static int remote_client_take_answer(const struct message *message, json_t **ret_answer, struct err *err) {
        json_t *answer = json_loadb(message->bytes, message->size, JSON_REJECT_DUPLICATES, NULL);
        json_t *error = json_object_get(answer, "error");
        if (json_is_true(json_object_get(answer, "ok"))) {
                *ret_answer = answer;
                return 0;
        }
        const char *words = json_string_value(json_object_get(error, "message"));
        (void) err_set(err, code_of(json_string_value(json_object_get(error, "code"))), "the remote: %.800s",
                       words ? words : "its answer is damaged");
        json_decref(answer);
        return -1;
}

static int remote_client_finish(struct remote_client *remote, remote_client_piece *piece, void *context,
                                json_t **ret_answer, struct err *err) {
        for (;;) {
                struct message message;
                int n = message_receive(remote->fd, &remote->parser, &message);
                if (n == -EINTR)
                        continue;
                if (n != 1)
                        return remote_client_lost(err);
                if (message.type == MESSAGE_ANSWER)
                        return remote_client_take_answer(&message, ret_answer, err);
                if (message.type == MESSAGE_DATA && piece && piece(context, message.bytes, message.size, err) < 0)
                        return -1;
        }
}

static int remote_client_begin(struct remote_client *remote, const json_t *request, struct err *err) {
        _cleanup_free_ char *text = json_dumps(request, JSON_COMPACT);
        if (!text)
                return err_set(err, ERR_SYSTEM, "out of memory");
        return message_send(remote->fd, MESSAGE_REQUEST, NUMBER, text, strlen(text)) < 0 ? remote_client_lost(err) : 0;
}

int remote_client_ask(struct remote_client *remote, json_t *request, remote_client_piece *piece, void *context,
                      json_t **ret_answer, struct err *err) {
        int code = remote_client_begin(remote, request, err) < 0
                           ? -1
                           : remote_client_finish(remote, piece, context, ret_answer, err);
        json_decref(request);
        return code;
}

int remote_client_send_file(struct remote_client *remote, json_t *request, int file_fd, struct err *err) {
        _cleanup_free_ char *bytes = malloc(PIECE);
        json_t *answer = NULL;
        ssize_t n = 0;
        int code = bytes ? remote_client_begin(remote, request, err) : err_set(err, ERR_SYSTEM, "out of memory");
        json_decref(request);
        while (code == 0 && (n = read(file_fd, bytes, PIECE)) > 0)
                code = message_send(remote->fd, MESSAGE_DATA, NUMBER, bytes, (size_t) n) < 0 ? remote_client_lost(err)
                                                                                             : 0;
        if (code == 0 && n < 0)
                return err_sys(err, errno, "reading a file");
        if (code == 0)
                code = message_send(remote->fd, MESSAGE_END, NUMBER, "", 0) < 0
                               ? remote_client_lost(err)
                               : remote_client_finish(remote, NULL, NULL, &answer, err);
        json_decref(answer);
        return code;
}
