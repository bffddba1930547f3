/* The kernel of an image without Python: it runs commands, and nothing else.
 *
 * Theory of operation. In boxes of other engines the agent starts this program in place of the interpreter, with the
 * interpreter's command as its arguments, and it becomes the interpreter if the image has one. Otherwise it serves the
 * kernel's protocol (docs/KERNEL-PROTOCOL.md) itself: requests on descriptor 3, replies on 4, the commands' output on 1
 * and 2. One request at a time, in one thread. SIGINT interrupts the command that runs. Requests to run code get an
 * error that names what is missing. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "channel.h"
#include "command.h"

#define NO_PYTHON                                                                                                      \
        "this image has no Python: it serves commands only (glovebox exec SESSION -- COMMAND); for code use an image " \
        "with python3 (3.9 or later) in its PATH"

/* The channel is broken: ends the process. */
enum { EXIT_CHANNEL = 76 };

static char last_id[256];

/* After a takeover the new host repeats a request that has no answer. */
static bool is_repeated(json_t *id) {
        const char *text = json_string_value(id);
        if (!text || !*text || strlen(text) >= sizeof(last_id))
                return false;
        if (strcmp(text, last_id) == 0) {
                channel_send(CHANNEL_REPEATED, text, strlen(text));
                return true;
        }
        (void) strcpy(last_id, text);
        return false;
}

static void answer(json_t *id, const char *trouble) {
        json_t *reply = json_pack("{s:O?, s:b, s:s}", "id", id, "ok", 0, "error", trouble);
        channel_send_json(CHANNEL_ANSWER, reply);
}

static void send_result(json_t *id, const char *status, int exit_code, json_t *error) {
        channel_send_json(CHANNEL_RESULT, json_pack("{s:O?, s:s, s:i, s:i, s:n, s:i, s:o?, s:[]}", "id", id, "status",
                                                    status, "exit_code", exit_code, "execution_count", 0, "result",
                                                    "displays", 0, "error", error, "figures"));
}

static void execute(json_t *request, int signal_fd) {
        json_t *id = json_object_get(request, "id");
        if (is_repeated(id))
                return;
        if (!json_object_get(request, "argv")) {
                send_result(id, "error", 1,
                            json_pack("{s:s, s:s, s:s}", "name", "NoPython", "value", NO_PYTHON, "traceback",
                                      "NoPython: " NO_PYTHON "\n"));
                return;
        }
        bool interrupted = false;
        int code = command_run(request, signal_fd, &interrupted);
        if (code < 0)
                answer(id, "argv must be a list of texts, env an object of texts");
        else if (interrupted)
                send_result(id, "interrupted", 130,
                            json_pack("{s:s, s:s, s:s}", "name", "KeyboardInterrupt", "value", "", "traceback",
                                      "KeyboardInterrupt\n"));
        else
                send_result(id, code == 0 ? "ok" : "error", code, NULL);
}

static void serve(const struct channel_frame *frame, int signal_fd) {
        if (frame->type == CHANNEL_PING) {
                channel_send(CHANNEL_PONG, frame->payload, frame->size);
                return;
        }
        json_t *request = json_loadb(frame->payload, frame->size, JSON_REJECT_DUPLICATES, NULL);
        json_t *id = json_object_get(request, "id");
        if (!json_is_object(request))
                answer(NULL, "the request is no JSON object");
        else if (frame->type == CHANNEL_EXECUTE)
                execute(request, signal_fd);
        else if (!is_repeated(id))
                answer(id, NO_PYTHON);
        json_decref(request);
}

static int take_signals(void) {
        sigset_t taken;
        sigemptyset(&taken);
        sigaddset(&taken, SIGINT);
        sigaddset(&taken, SIGCHLD);
        sigaddset(&taken, SIGPIPE);
        if (sigprocmask(SIG_BLOCK, &taken, NULL) < 0)
                return -1;
        sigdelset(&taken, SIGPIPE);
        return signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Between two commands: ignores interrupts, and reaps processes that were left in the background. */
static void forget_signals(int signal_fd) {
        struct signalfd_siginfo ignored[8];
        while (read(signal_fd, ignored, sizeof(ignored)) > 0)
                ;
        command_reap();
}

int main(int argc, char **argv) {
        if (argc < 2)
                return 2;
        (void) execvp(argv[1], argv + 1);
        if (errno != ENOENT && errno != EACCES && errno != ENOTDIR) {
                (void) dprintf(STDERR_FILENO, "glovebox: %s: %s\n", argv[1], strerror(errno));
                return 126;
        }
        int signal_fd = take_signals();
        if (signal_fd < 0 || !channel_open())
                return EXIT_CHANNEL;
        json_t *ready = json_pack("{s:i, s:i, s:s}", "protocol", 2, "pid", (int) getpid(), "python", "");
        channel_send_json(CHANNEL_READY, ready);
        struct channel_frame frame;
        int code;
        while ((code = channel_receive(&frame)) > 0) {
                forget_signals(signal_fd);
                serve(&frame, signal_fd);
                free(frame.payload);
        }
        if (code < 0)
                (void) dprintf(STDERR_FILENO, "glovebox kernel: the channel is broken: it ends\n");
        return code < 0 ? EXIT_CHANNEL : 0;
}
