#include "cli/remote_run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "cli/input_feed.h"
#include "cli/run_hint.h"
#include "cli/ui/inline_image.h"
#include "cli/ui/json_print.h"
#include "cli/ui/terminal.h"
#include "cli/wait_note.h"

enum { EXIT_TIMEOUT = 124, EXIT_MEMORY = 137, ARTIFACTS_SHOWN = 20 };

/* A run that has waited this long behind another one says so on a terminal. */
static const struct timeval wait_note_after = { .tv_sec = 1 };

/* ---- signals ---- */

/* Handlers and not a signalfd: a write to a terminal or pipe without a reader must be interruptible too. */
static volatile sig_atomic_t n_signals, last_signal, alarm_rang;
static sig_atomic_t n_handled;
static int wake_pipe[2] = { -1, -1 };

static void note_signal(int number) {
        int saved = errno;
        last_signal = number;
        n_signals++;
        (void) !write(wake_pipe[1], "", 1);
        errno = saved;
}

static void note_alarm(int number) {
        int saved = errno;
        (void) number;
        alarm_rang = 1;
        (void) !write(wake_pipe[1], "", 1);
        errno = saved;
}

static const int caught[] = { SIGINT, SIGTERM, SIGHUP };

struct caught_signals {
        struct sigaction before[ELEMENTS(caught)], pipe_before, alarm_before;
};

static int catch_signals(struct caught_signals *ret_caught, struct err *err) {
        if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) < 0)
                return err_sys(err, errno, "making a pipe");
        n_signals = n_handled = 0;
        const struct sigaction ignore = { .sa_handler = SIG_IGN };
        (void) sigaction(SIGPIPE, &ignore, &ret_caught->pipe_before);
        const struct sigaction handler = { .sa_handler = note_signal }; /* no SA_RESTART: see above */
        for (size_t i = 0; i < ELEMENTS(caught); i++) {
                (void) sigaction(caught[i], NULL, &ret_caught->before[i]);
                if (ret_caught->before[i].sa_handler != SIG_IGN) /* nohup stays in force */
                        (void) sigaction(caught[i], &handler, NULL);
        }
        return 0;
}

/* For a person only: a pipe gets what the run writes, and nothing else. */
static void arm_wait_note(const struct remote_run *remote, struct caught_signals *ret_caught) {
        const struct sigaction handler = { .sa_handler = note_alarm, .sa_flags = SA_RESTART };
        alarm_rang = 0;
        (void) sigaction(SIGALRM, &handler, &ret_caught->alarm_before);
        if (remote->session && !remote->json && !remote->quiet && isatty(STDERR_FILENO))
                (void) setitimer(ITIMER_REAL, &(const struct itimerval) { .it_value = wait_note_after }, NULL);
}

static void disarm_wait_note(const struct caught_signals *before) {
        (void) setitimer(ITIMER_REAL, &(const struct itimerval) { 0 }, NULL);
        (void) sigaction(SIGALRM, &before->alarm_before, NULL);
}

static void release_signals(const struct caught_signals *before) {
        for (size_t i = 0; i < ELEMENTS(caught); i++)
                (void) sigaction(caught[i], &before->before[i], NULL);
        (void) sigaction(SIGPIPE, &before->pipe_before, NULL);
        fd_close(&wake_pipe[0]);
        fd_close(&wake_pipe[1]);
}

/* The first Ctrl-C goes to the run, which may still wait for another one. The second, or any other signal, ends this
 * process. */
static int handle_signals(struct remote_run *remote) {
        if (n_signals == n_handled)
                return 0;
        bool first = n_handled == 0 && n_signals == 1 && last_signal == SIGINT;
        n_handled = n_signals;
        remote->end_signal = last_signal;
        if (!first || !*remote->run_id)
                return 1;
        remote->interrupted = true;
        json_t *body =
                json_pack("{s:s, s:s, s:s}", "op", "run.cancel", "session", remote->session, "run", remote->run_id);
        int code = body ? daemon_client_post(remote->client, body, NULL) : -1;
        json_decref(body);
        /* sent at once: this may be in the middle of a blocked write */
        return code < 0 || message_queue_flush(&remote->client->queue, remote->client->fd) < 0;
}

static int take_wake(void *context) {
        struct remote_run *remote = context;
        char bytes[64];
        while (read(wake_pipe[0], bytes, sizeof(bytes)) > 0)
                ;
        if (alarm_rang && !remote->output_shown && n_signals == 0)
                wait_note_print(remote->client->path, remote->run_id);
        alarm_rang = 0;
        return handle_signals(remote);
}

/* ---- while it runs ---- */

static int write_out(struct remote_run *remote, int fd, const char *bytes, size_t size) {
        while (size > 0) {
                ssize_t n = write(fd, bytes, size);
                if (n < 0 && errno == EINTR) {
                        if (handle_signals(remote))
                                return -1;
                        continue;
                }
                if (n < 0) {
                        remote->end_signal = SIGPIPE;
                        return -1;
                }
                remote->output_shown = true;
                bytes += n;
                size -= (size_t) n;
        }
        return 0;
}

static int remote_run_take_output(void *context, enum message_type type, const char *bytes, size_t size) {
        struct remote_run *remote = context;
        if (type != MESSAGE_OUT && memmem(bytes, size, RUN_HINT_PIP_REFUSAL, strlen(RUN_HINT_PIP_REFUSAL)))
                remote->pip_refused = true;
        if (type != MESSAGE_OUT && run_hint_is_about_network(bytes, size))
                remote->network_missed = true;
        return write_out(remote, type == MESSAGE_OUT ? STDOUT_FILENO : STDERR_FILENO, bytes, size);
}

/* The text of a MIME bundle, or NULL. */
static const char *bundle_text(const json_t *bundle) {
        return json_string_value(json_object_get(bundle, "text/plain"));
}

static int show_text(struct remote_run *remote, const char *text) {
        size_t size = text ? strlen(text) : 0;
        if (size == 0)
                return 0;
        if (write_out(remote, STDOUT_FILENO, text, size) < 0)
                return -1;
        return text[size - 1] == '\n' ? 0 : write_out(remote, STDOUT_FILENO, "\n", 1);
}

/* A display is `data` of the event where it has one, or the event itself. */
static const json_t *bundle_of(const json_t *display) {
        const json_t *data = json_object_get(display, "data");
        return data ? data : display;
}

/* A picture where the terminal can show it, otherwise the text; the path of a figure stands among the artifacts. */
static int show_bundle(struct remote_run *remote, const json_t *bundle) {
        const char *png = json_string_value(json_object_get(bundle, "image/png"));
        _cleanup_free_ char *picture = png ? inline_image_make(inline_image_choose(), png) : NULL;
        return show_text(remote, picture ? picture : bundle_text(bundle));
}

static int remote_run_take_event(void *context, const json_t *event) {
        struct remote_run *remote = context;
        const char *name = json_string_value(json_object_get(event, "event"));
        if (!name || strcmp(name, "display") != 0)
                return 0;
        const json_t *asks = json_object_get(bundle_of(event), "application/x-glovebox-input");
        if (asks) {
                if (remote->feed)
                        input_feed_start(remote->feed, json_string_value(asks));
                return 0;
        }
        if (!remote->show_value)
                return 0;
        remote->displays_shown++;
        return show_bundle(remote, bundle_of(event));
}

int remote_run_call(struct remote_run *remote, struct daemon_request *request, json_t **ret_result, struct err *err) {
        struct caught_signals before;
        int code = remote->session ? random_id_make(remote->run_id) : 0;
        if (code < 0)
                return err_sys(err, -code, "reading random bytes");
        if (remote->session)
                (void) json_object_set_new(request->body, "run_id", json_string(remote->run_id));
        if (catch_signals(&before, err) < 0)
                return -1;
        arm_wait_note(remote, &before);
        request->wake_fd = wake_pipe[0];
        request->calls = (struct daemon_calls) { .output = remote->json ? NULL : remote_run_take_output,
                                                 .event = remote->json ? NULL : remote_run_take_event,
                                                 .wake = take_wake,
                                                 .context = remote };
        code = daemon_client_call(remote->client, request, ret_result, err);
        disarm_wait_note(&before);
        release_signals(&before);
        return code;
}

/* ---- afterwards ---- */

static const char *remote_run_text_at(const json_t *object, const char *key) {
        const char *text = json_string_value(json_object_get(object, key));
        return text && *text ? text : NULL;
}

int remote_run_exit_status(const json_t *result) {
        const char *status = remote_run_text_at(result, "status");
        const json_t *exit_code = json_object_get(result, "exit_code");
        static const struct {
                const char *status;
                int exit_status;
        } fixed[] = { { "timeout", EXIT_TIMEOUT }, { "oom", EXIT_MEMORY }, { "interrupted", 128 + SIGINT } };
        for (size_t i = 0; status && i < ELEMENTS(fixed); i++)
                if (strcmp(status, fixed[i].status) == 0)
                        return fixed[i].exit_status;
        bool good = status && strcmp(status, "ok") == 0;
        int code = json_is_integer(exit_code) ? (int) (json_integer_value(exit_code) & 0xff) : good ? 0 : 1;
        return !good && code == 0 ? 1 : code; /* a failure must not look like success */
}

static void print_harmless(const char *before, const char *text) {
        char line[5000];
        (void) snprintf(line, sizeof(line), "%s%s", before, text);
        terminal_make_harmless(line);
        (void) fprintf(stderr, "glovebox: %s\n", line);
}

static void report_error(const json_t *result) {
        const json_t *error = json_object_get(result, "error");
        const char *traceback = remote_run_text_at(error, "traceback"), *message = remote_run_text_at(error, "message");
        if (!message)
                message = json_is_string(error) ? json_string_value(error) : NULL;
        if (traceback)
                (void) fprintf(stderr, "%s%s", traceback, traceback[strlen(traceback) - 1] == '\n' ? "" : "\n");
        else if (!message)
                message = remote_run_text_at(error, "name");
        /* a limit's message explains what the traceback of the interrupted code cannot */
        if (message && !(traceback && strstr(traceback, message)))
                print_harmless("", message);
        const char *name = remote_run_text_at(error, "name");
        bool is_removed = name && strcmp(name, "removed") == 0; /* its files as well */
        if (!is_removed && json_is_true(json_object_get(result, "variables_lost")) &&
            !(message && strstr(message, "variables are lost")))
                (void) fprintf(stderr, "glovebox: the session's variables are lost; its files stay\n");
}

static void report_cut(const json_t *result) {
        static const struct {
                const char *key, *name;
        } streams[] = { { "stdout_cut_bytes", "standard output" }, { "stderr_cut_bytes", "standard error" } };
        for (size_t i = 0; i < ELEMENTS(streams); i++) {
                json_int_t cut = json_integer_value(json_object_get(result, streams[i].key));
                if (cut > 0)
                        (void) fprintf(stderr,
                                       "glovebox: %lld bytes of %s were cut; write large output to a file in "
                                       "/workspace\n",
                                       (long long) cut, streams[i].name);
        }
}

static void report_artifacts(const json_t *result) {
        const json_t *artifacts = json_object_get(result, "artifacts");
        size_t count = json_array_size(artifacts);
        for (size_t i = 0; i < count && i < ARTIFACTS_SHOWN; i++) {
                const json_t *artifact = json_array_get(artifacts, i);
                const char *path = remote_run_text_at(artifact, "host_path");
                if (!path)
                        path = remote_run_text_at(artifact, "path");
                if (path)
                        print_harmless("artifact ", path);
        }
        if (count > ARTIFACTS_SHOWN)
                (void) fprintf(stderr, "glovebox: and %zu more artifacts\n", count - ARTIFACTS_SHOWN);
}

/* Reasons why programs in a box fail, and remedies. */
static void report_refusals(const struct remote_run *remote, const json_t *result) {
        if (remote->pip_refused && remote->session)
                (void) fprintf(stderr,
                               "glovebox: pip installs nothing in a box; install from outside with: glovebox session "
                               "install %s PACKAGE\n",
                               remote->session);
        else if (remote->network_missed && remote->session && remote_run_exit_status(result) != 0)
                (void) fprintf(stderr,
                               "glovebox: a session reaches only the hosts that are allowed when it is made: glovebox "
                               "session new NAME --allow-host HOST\n");
}

int remote_run_report(const struct remote_run *remote, const json_t *result, struct err *err) {
        if (remote->json)
                return json_print_answer(result, err) < 0 ? -1 : remote_run_exit_status(result);
        struct remote_run writing = *remote;
        int code = 0;
        if (remote->show_value) {
                const json_t *displays = json_object_get(result, "displays");
                for (size_t i = remote->displays_shown; code == 0 && i < json_array_size(displays); i++)
                        code = show_bundle(&writing, bundle_of(json_array_get(displays, i)));
                if (code == 0)
                        code = show_bundle(&writing, json_object_get(result, "result"));
        }
        report_error(result);
        if (remote_run_text_at(result, "warning"))
                print_harmless("", remote_run_text_at(result, "warning"));
        report_cut(result);
        if (!remote->quiet) {
                report_refusals(remote, result);
                report_artifacts(result);
        }
        return code < 0 ? 128 + SIGPIPE : remote_run_exit_status(result);
}

int remote_run_leave(const struct remote_run *remote) {
        const char *session = remote->session;
        if (!session || remote->end_signal == SIGPIPE)
                return 128 + remote->end_signal;
        if (remote->interrupted)
                (void) fprintf(stderr,
                               "glovebox: the run was interrupted and is not waited for; if it has not reacted within "
                               "2 s, its interpreter is ended and the variables of session %s are lost (its files "
                               "stay); the next call says so\n",
                               session);
        else
                (void) fprintf(stderr,
                               "glovebox: the run goes on without you; \"glovebox logs %s\" shows it, \"glovebox kill "
                               "%s\" stops it\n",
                               session, session);
        return 128 + remote->end_signal;
}
