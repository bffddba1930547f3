#include "cli/run_state.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/data_dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/random_id.h"
#include "box/spec.h"
#include "cli/result.h"
#include "cli/run_hint.h"
#include "cli/run_leftovers.h"
#include "cli/run_program.h"
#include "cli/ui/limit_text.h"
#include "cli/ui/terminal.h"

enum { OUTPUT_KEPT_MAX = 1 << 20, OUTPUT_PIPE_BYTES = 1 << 20 };
enum { EXIT_TIMEOUT = 124, EXIT_CANNOT_WRITE = 125, EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127, EXIT_MEMORY = 137 };

/* Before the run: afterwards, its artifacts would be lost. */
static int check_output_dir(const char *path, struct err *err) {
        struct stat status;
        if (stat(path, &status) == 0)
                return S_ISDIR(status.st_mode) && faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0
                               ? 0
                               : err_set(err, ERR_USAGE,
                                         "--output-dir: %.600s is not a directory that you may write to", path);
        _cleanup_free_ char *copy = strdup(path);
        const char *parent = copy ? dirname(copy) : "/";
        if (faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) == 0)
                return 0;
        return err_set(err, ERR_USAGE, "--output-dir: cannot make %.600s: %.600s %s", path, parent,
                       access(parent, F_OK) < 0 ? "does not exist; create it first"
                                                : "is not a directory that you may write to");
}

int run_begin(const struct run_request *request, struct run *ret_run, struct err *err) {
        *ret_run = RUN_NONE;
        ret_run->request = request;
        if (request->output_dir && check_output_dir(request->output_dir, err) < 0)
                return -1;
        int code = random_id_make(ret_run->id);
        return code < 0 ? err_sys(err, -code, "reading random bytes") : data_dir_open(ret_run->data_dir, err);
}

/* The directory for artifacts is made for the run, and removed if it stays empty. */
static void tidy_workspace(const struct run *run) {
        if (run->workspace_source_fd >= 0 && !run->had_artifacts_dir)
                (void) unlinkat(run->workspace_source_fd, "artifacts", AT_REMOVEDIR);
}

void run_release(struct run *run) {
        relay_release(&run->relay);
        tidy_workspace(run);
        fd_close(&run->workspace_fd);
        fd_close(&run->workspace_source_fd);
        artifact_list_release(&run->before);
        artifact_list_release(&run->artifacts);
        json_decref(run->isolation);
        run->isolation = NULL;
}

struct policy run_policy(const struct run *run) {
        return (struct policy) { .is_operator = true, .state_dir = run->data_dir };
}

int run_open_workspace(struct run *run, const struct policy *policy, struct err *err) {
        const struct run_request *request = run->request;
        if (!request->workspace)
                return 0;
        if (policy && policy_open_source(policy, request->workspace, true, &run->workspace_source_fd, err) < 0)
                return -1;
        if (!policy && (run->workspace_source_fd = open(request->workspace, O_PATH | O_CLOEXEC)) < 0)
                return policy_fail_missing(request->workspace, errno, err);
        struct stat status;
        if (fstat(run->workspace_source_fd, &status) < 0)
                return err_sys(err, errno, "looking at %s", request->workspace);
        if (!S_ISDIR(status.st_mode))
                return err_set(err, ERR_USAGE, "--workspace: %s is not a directory", request->workspace);
        int code = fd_path(run->workspace_source_fd, run->workspace_path, sizeof(run->workspace_path));
        if (code < 0)
                return err_sys(err, -code, "resolving %s", request->workspace);
        run->had_artifacts_dir = faccessat(run->workspace_source_fd, "artifacts", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
        if (artifact_scan(run->workspace_source_fd, &run->before, err) < 0)
                return -1;
        return 0;
}

/* ---- streams ---- */

void run_fill_relay(struct run *run, struct relay_target *target) {
        const struct run_request *request = run->request;
        struct relay *relay = &run->relay;
        relay->target = target;
        relay->timeout_ms = request->limits.timeout_ms;
        relay->out.to_fd = request->json ? -1 : STDOUT_FILENO;
        relay->error.to_fd = request->json ? -1 : STDERR_FILENO;
        relay->out.kept_max = relay->error.kept_max = OUTPUT_KEPT_MAX;
        relay->input_from_fd = request->stdin_is_code ? -1 : STDIN_FILENO;
        if (run_program_reads_code(request)) {
                relay->input = request->code;
                relay->input_size = request->code_size;
        }
        relay->error.tail = run->last_words; /* for hints */
}

int run_open_pipes(struct run *run, struct relay_target *target, int ret_theirs[static 3], struct err *err) {
        int ends[3][2] = { { -1, -1 }, { -1, -1 }, { -1, -1 } }, code;
        for (size_t i = 0; i < 3; i++)
                if ((code = i ? fd_make_pipe_from_box(ends[i]) : fd_make_pipe_to_box(ends[i])) < 0)
                        return err_sys(err, -code, "making a pipe");
        /* Fewer turns for much output. Linux refuses it to a user with many such pipes, which does no harm. */
        (void) fcntl(ends[1][1], F_SETPIPE_SZ, OUTPUT_PIPE_BYTES);
        run->relay.input_to_fd = ends[0][1];
        run->relay.out.from_fd = ends[1][0];
        run->relay.error.from_fd = ends[2][0];
        run_fill_relay(run, target);
        ret_theirs[0] = ends[0][0];
        ret_theirs[1] = ends[1][1];
        ret_theirs[2] = ends[2][1];
        return 0;
}

/* ---- what came of it ---- */

static int collect_artifacts(struct run *run, struct err *err) {
        const struct run_request *request = run->request;
        int from_fd = run->workspace_source_fd >= 0 ? run->workspace_source_fd : run->workspace_fd;
        if (artifact_scan(from_fd, &run->artifacts, err) < 0)
                return -1;
        artifact_keep_changed(&run->artifacts, &run->before);
        if (run->workspace_source_fd >= 0 && !request->output_dir)
                return artifact_locate(&run->artifacts, run->workspace_path, err);
        if (run->artifacts.count == 0)
                return 0;
        char out_dir[4200];
        if (request->output_dir)
                (void) snprintf(out_dir, sizeof(out_dir), "%s", request->output_dir);
        else {
                if (data_dir_mark(run->data_dir, err) < 0)
                        return -1;
                (void) snprintf(out_dir, sizeof(out_dir), "%s/outputs", run->data_dir);
                if (mkdir(out_dir, 0700) < 0 && errno != EEXIST)
                        return err_sys(err, errno, "making %s", out_dir);
                (void) snprintf(out_dir, sizeof(out_dir), "%s/outputs/%s", run->data_dir, run->id);
        }
        return artifact_copy_out(from_fd, &run->artifacts, out_dir, request->limits.disk_bytes, err);
}

struct verdict {
        enum run_status status;
        int exit_code;
        struct run_error error;
        char message[600]; /* of the error; without one, words about the signal that ended it */
        char warning[RUN_LEFTOVERS_TEXT_MAX]; /* "": none */
};

static void judge_memory(const struct run *run, struct verdict *verdict) {
        verdict->status = RUN_OOM;
        verdict->exit_code = EXIT_MEMORY;
        verdict->error.name = "memory_limit";
        limit_text_memory(verdict->message, sizeof(verdict->message), run->request->limits.memory_bytes,
                          run->usage.memory_peak_bytes);
}

/* A program beside the caller, which the box does not show. */
static bool is_hidden_file(const struct run_request *request, const char *what) {
        return request->language == RUN_COMMAND && !request->workspace && strncmp(what, "./", 2) == 0 &&
               access(what, F_OK) == 0;
}

static void judge_not_started(const struct run *run, struct verdict *verdict) {
        const struct relay *relay = &run->relay;
        int code = relay->outcome.failed_errno;
        bool missing = code == ENOENT;
        static const char *const languages[] = { [RUN_PYTHON] = "python3", [RUN_BASH] = "bash" };
        const struct run_request *request = run->request;
        const char *what = request->language == RUN_COMMAND ? request->args[0]
                           : request->language == RUN_OTHER ? request->interpreter
                                                            : languages[request->language];
        verdict->status = RUN_ERROR;
        verdict->exit_code = missing ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
        verdict->error.name = missing ? "command_not_found" : "cannot_run";
        (void) snprintf(verdict->message, sizeof(verdict->message), "cannot run \"%.200s\": %s%s", what,
                        missing ? "there is no such command in image " : strerror(code), missing ? request->image : "");
        if (missing && is_hidden_file(request, what))
                (void) snprintf(verdict->message, sizeof(verdict->message),
                                "cannot run \"%.200s\": it is in this directory, which the box does not show; write "
                                "glovebox run %.200s, or add --workspace . to show it, writable, as /workspace",
                                what, what + 2);
}

static int exit_code_of(int wait_status) {
        return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

/* As a shell does: a broken pipe and Ctrl-C need no words. With --quiet it is as without a shell. */
static void judge_signalled(const struct run *run, int number, struct verdict *verdict) {
        verdict->status = RUN_KILLED;
        if (number == SIGPIPE || number == SIGINT || run->request->quiet)
                return;
        (void) snprintf(verdict->message, sizeof(verdict->message), "the program was ended by signal %d (%s)", number,
                        strsignal(number));
}

static void judge_interrupted(const struct relay *relay, struct verdict *verdict) {
        /* A program may catch the signal and end with a status of its own; 0 would hide the interrupt. */
        verdict->exit_code = relay->has_exited ? exit_code_of(relay->outcome.wait_status) : 0;
        verdict->exit_code = verdict->exit_code ? verdict->exit_code : 128 + relay->end_signal;
        verdict->status = RUN_INTERRUPTED;
        if (relay->end_signal != SIGTERM)
                return;
        (void) snprintf(verdict->message, sizeof(verdict->message),
                        "the run was ended from outside, by \"glovebox kill\" or another SIGTERM");
}

static void run_state_judge(const struct run *run, struct verdict *ret) {
        const struct relay *relay = &run->relay;
        *ret = (struct verdict) { .status = RUN_OK };
        switch (relay->end) {
        case RELAY_EXITED:
                ret->exit_code = exit_code_of(relay->outcome.wait_status);
                if (WIFSIGNALED(relay->outcome.wait_status))
                        judge_signalled(run, WTERMSIG(relay->outcome.wait_status), ret);
                else if (ret->exit_code != 0)
                        ret->status = RUN_ERROR;
                break;
        case RELAY_TIMEOUT:
                ret->status = RUN_TIMEOUT;
                ret->exit_code = EXIT_TIMEOUT;
                ret->error.name = "timeout";
                limit_text_timeout(ret->message, sizeof(ret->message), relay->timeout_ms);
                break;
        case RELAY_SIGNAL:
                judge_interrupted(relay, ret);
                break;
        case RELAY_NO_READER:
                ret->status = RUN_INTERRUPTED;
                ret->exit_code = 128 + SIGPIPE;
                if (relay->write_errno == EPIPE)
                        break;
                ret->exit_code = EXIT_CANNOT_WRITE;
                ret->error.name = "output";
                (void) snprintf(ret->message, sizeof(ret->message),
                                "the output could not be written: %s; the run was stopped",
                                strerror(relay->write_errno));
                break;
        case RELAY_NOT_STARTED:
                judge_not_started(run, ret);
                break;
        case RELAY_BOX_DIED:
                ret->status = RUN_KILLED;
                ret->exit_code = 128 + SIGKILL;
                ret->error.name = "box_died";
                (void) snprintf(ret->message, sizeof(ret->message), "the box was killed from outside");
                break;
        }
        if (run->usage.oom_kills > 0 && ret->exit_code != 0 && relay->end != RELAY_TIMEOUT &&
            relay->end != RELAY_SIGNAL)
                judge_memory(run, ret);
        if (ret->error.name)
                ret->error.value = ret->error.message = ret->message;
}

static int run_state_print_json(const struct run *run, const struct verdict *verdict, struct err *err) {
        const struct artifact_list *list = &run->artifacts;
        _cleanup_free_ struct run_artifact *artifacts = calloc(list->count + 1, sizeof(*artifacts));
        _cleanup_free_ char(*paths)[4200] = calloc(list->count + 1, sizeof(*paths));
        if (!artifacts || !paths)
                return err_set(err, ERR_SYSTEM, "out of memory");
        for (size_t i = 0; i < list->count; i++) {
                (void) snprintf(paths[i], sizeof(paths[i]), BOX_WORKSPACE "/%s", list->items[i].path);
                artifacts[i] = (struct run_artifact) { paths[i], list->items[i].host_path,
                                                       artifact_mime(list->items[i].path), list->items[i].size };
        }
        const struct relay *relay = &run->relay;
        struct run_result result = {
                .run_id = run->id,
                .status = verdict->status,
                .output = { relay->out.kept, relay->out.kept_size, relay->out.cut_bytes },
                .error_output = { relay->error.kept, relay->error.kept_size, relay->error.cut_bytes },
                .exit_code = verdict->exit_code,
                .timed_out = verdict->status == RUN_TIMEOUT,
                .oom_killed = run->usage.oom_kills > 0,
                .duration_ms = relay->duration_ms,
                .cpu_ms =
                        (run->usage.cpu_us > relay->outcome.cpu_us ? run->usage.cpu_us : relay->outcome.cpu_us) / 1000,
                .memory_peak_bytes = run->usage.memory_peak_bytes ? run->usage.memory_peak_bytes
                                                                  : relay->outcome.memory_peak_kib * 1024,
                .error = verdict->error.name ? &verdict->error : NULL,
                .artifacts = artifacts,
                .n_artifacts = list->count,
                .artifacts_cut = list->cut,
                .isolation = run->isolation,
                .warning = *verdict->warning ? verdict->warning : NULL,
        };
        json_t *json = run_result_to_json(&result);
        _cleanup_free_ char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
        json_decref(json);
        if (!text)
                return err_set(err, ERR_SYSTEM, "out of memory");
        if (puts(text) != EOF && fflush(stdout) != EOF)
                return verdict->exit_code;
        return errno == EPIPE ? 128 + SIGPIPE : err_sys(err, errno, "writing the result");
}

static void print_messages(const struct run *run, const struct verdict *verdict) {
        if (*verdict->message)
                (void) fprintf(stderr, "glovebox: %s\n", verdict->message);
        if (*verdict->warning)
                (void) fprintf(stderr, "glovebox: %s\n", verdict->warning);
        if (run->artifacts.cut)
                (void) fprintf(stderr,
                               "glovebox: not all artifacts were kept: there are too many, they are nested too deep "
                               "or together larger than --disk; raise --disk, or write them to a --workspace\n");
        if (run->request->quiet || run->workspace_source_fd >= 0)
                return;
        for (size_t i = 0; i < run->artifacts.count && i < 20; i++) {
                char shown[4300]; /* the run chose this name, and may have meant it for the terminal */
                (void) snprintf(shown, sizeof(shown), "%s", run->artifacts.items[i].host_path);
                terminal_make_harmless(shown);
                (void) fprintf(stderr, "glovebox: artifact %s\n", shown);
        }
        if (run->artifacts.count > 20)
                (void) fprintf(stderr, "glovebox: and %zu more artifacts\n", run->artifacts.count - 20);
}

int run_conclude(struct run *run, struct err *err) {
        if (collect_artifacts(run, err) < 0)
                return -1;
        struct verdict verdict;
        run_state_judge(run, &verdict);
        if (run->relay.end == RELAY_EXITED && run->workspace_source_fd < 0 && !run->request->quiet &&
            !run_leftovers_describe(run->request, run->workspace_fd, verdict.warning))
                *verdict.warning = '\0';
        int status = verdict.exit_code;
        if (run->request->json)
                status = run_state_print_json(run, &verdict, err);
        else
                print_messages(run, &verdict);
        if (verdict.exit_code != 0 && run->relay.end == RELAY_EXITED)
                run_hint_print(run->request, run->last_words, run->relay.error.tail_size);
        return status;
}
