/* `glovebox run`, carried out: a box is made, one process runs in it, its output is passed on, everything goes.
 *
 * Theory of operation. This process opens what the box may see (image, workspace, mounts), makes the box (box.c), asks
 * its agent to start one process with three pipes as its standard streams, and relays (relay.c) until that process has
 * ended. A keeper cleans up if we are killed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/place.h"
#include "box/box.h"
#include "box/environment.h"
#include "box/identity.h"
#include "box/policy.h"
#include "box/report.h"
#include "box/tree.h"
#include "cli/limit_text.h"
#include "cli/relay.h"
#include "cli/result.h"
#include "cli/run_request.h"
#include "cli/terminal.h"
#include "egress/egress.h"
#include "session/artifact.h"
#include "wire/frame.h"

enum { OUTPUT_KEPT_MAX = 1 << 20 };
enum { EXIT_TIMEOUT = 124, EXIT_CANNOT_WRITE = 125, EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127, EXIT_MEMORY = 137 };

/* What is open while a run goes on; released on every way out. */
struct run {
        const struct run_request *request;
        char id[33];
        char data_dir[4096];
        bool rootless;
        struct cgroup_host host;
        struct image image;
        int lease_fd;
        uid_t host_uid;
        gid_t host_gid;
        int workspace_fd;        /* the tree shown in the box */
        int workspace_source_fd; /* the directory that --workspace named, or -1 */
        char workspace_path[4096];
        bool had_artifacts_dir;
        struct box_mount mounts[RUN_MOUNTS_MAX + 1];
        size_t n_mounts;
        struct artifact_list before, artifacts;
        struct egress egress;
        struct egress_rules *rules; /* NULL: no network */
        int listener_fd;
        char network[64]; /* for the report */
        struct box box;
        struct relay relay;
        struct cgroup_usage usage;
};

/* The directory for artifacts is made for the run, and goes again if it was not used. */
static void tidy_workspace(const struct run *run) {
        if (run->workspace_source_fd >= 0 && !run->had_artifacts_dir)
                (void) unlinkat(run->workspace_source_fd, "artifacts", AT_REMOVEDIR);
}

static void run_release(struct run *run) {
        relay_release(&run->relay);
        (void) box_end(&run->box, NULL, NULL);
        egress_stop(&run->egress);
        fd_close(&run->listener_fd);
        free(run->rules);
        tidy_workspace(run);
        for (size_t i = 0; i < run->n_mounts; i++)
                fd_close(&run->mounts[i].tree_fd);
        fd_close(&run->workspace_fd);
        fd_close(&run->workspace_source_fd);
        fd_close(&run->lease_fd);
        image_close(&run->image);
        artifact_list_release(&run->before);
        artifact_list_release(&run->artifacts);
}

static int make_id(char ret_id[static 33], struct err *err) {
        unsigned char random[16];
        if (getrandom(random, sizeof(random), 0) != sizeof(random))
                return err_sys(err, errno, "asking for random bytes");
        for (size_t i = 0; i < sizeof(random); i++)
                (void) sprintf(ret_id + 2 * i, "%02x", random[i]);
        return 0;
}

/* ---- what the box may see ---- */

static int open_mount(struct run *run, const struct policy *policy, const char *source, const char *destination,
                      bool writable, struct err *err) {
        if (policy_check_destination(destination, err) < 0)
                return -1;
        _cleanup_fd_ int source_fd = -1;
        if (policy_open_source(policy, source, writable, &source_fd, err) < 0)
                return -1;
        struct stat status;
        if (fstat(source_fd, &status) < 0)
                return err_sys(err, errno, "looking at %s", source);
        int tree = tree_clone_owned(source_fd, writable, run->lease_fd >= 0, run->host_uid, run->host_gid);
        if (tree < 0)
                return tree_explain(tree, source, err);
        run->mounts[run->n_mounts++] = (struct box_mount) { tree, S_ISDIR(status.st_mode), writable, destination };
        return 0;
}

static int open_workspace(struct run *run, const struct policy *policy, struct err *err) {
        const struct run_request *request = run->request;
        if (!request->workspace) {
                run->workspace_fd = tree_make_tmpfs(request->limits.disk_bytes, request->limits.disk_files,
                                                    run->host_uid, run->host_gid, 0755);
                return run->workspace_fd < 0 ? err_sys(err, -run->workspace_fd, "making a workspace") : 0;
        }
        if (policy_open_source(policy, request->workspace, true, &run->workspace_source_fd, err) < 0)
                return -1;
        struct stat status;
        if (fstat(run->workspace_source_fd, &status) < 0)
                return err_sys(err, errno, "looking at %s", request->workspace);
        if (!S_ISDIR(status.st_mode))
                return err_set(err, ERR_USAGE, "--workspace: %s is not a directory", request->workspace);
        char link[64];
        (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", run->workspace_source_fd);
        ssize_t length = readlink(link, run->workspace_path, sizeof(run->workspace_path) - 1);
        if (length < 0)
                return err_sys(err, errno, "resolving %s", request->workspace);
        run->workspace_path[length] = '\0';
        run->had_artifacts_dir = faccessat(run->workspace_source_fd, "artifacts", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
        if (artifact_scan(run->workspace_source_fd, &run->before, err) < 0)
                return -1;
        run->workspace_fd = tree_clone_owned(run->workspace_source_fd, true, run->lease_fd >= 0, run->host_uid,
                                             run->host_gid);
        if (run->workspace_fd < 0)
                return tree_explain(run->workspace_fd, request->workspace, err);
        return 0;
}

static int open_everything(struct run *run, struct err *err) {
        const struct run_request *request = run->request;
        if (make_id(run->id, err) < 0 || place_data_dir(run->data_dir, err) < 0 ||
            identity_enter(&run->rootless, err) < 0)
                return -1;
        cgroup_host_look(&run->host);
        if (image_open(run->data_dir, request->image, &run->image, err) < 0 ||
            identity_lease(&run->host_uid, &run->host_gid, &run->lease_fd, err) < 0)
                return -1;
        const struct policy policy = { .operator = true, .state_dir = run->data_dir };
        if (open_workspace(run, &policy, err) < 0)
                return -1;
        if (request->data && open_mount(run, &policy, request->data, "/data", false, err) < 0)
                return -1;
        for (size_t i = 0; i < request->n_mounts; i++) {
                const struct run_mount *mount = &request->mounts[i];
                if (open_mount(run, &policy, mount->source, mount->destination, mount->writable, err) < 0)
                        return -1;
        }
        return 0;
}

/* ---- what the box may reach ---- */

/* The proxy is started first: a box that has to do without it is not worth making. */
static int start_proxy(struct run *run, struct err *err) {
        const struct run_request *request = run->request;
        if (request->network == RUN_NETWORK_NONE && request->n_hosts == 0)
                return 0;
        run->rules = malloc(sizeof(*run->rules));
        if (!run->rules)
                return err_set(err, ERR_SYSTEM, "out of memory");
        if (run_request_rules(request, run->rules, err) < 0)
                return -1;
        (void) egress_rules_describe(run->rules, run->network);
        return egress_start(&request->egress, &run->egress, err);
}

static int open_network(struct run *run, struct err *err) {
        if (!run->rules)
                return 0;
        int code = egress_admit(&run->egress, run->listener_fd, run->box.pidfd, run->rules, err);
        fd_close(&run->listener_fd);
        return code;
}

/* ---- what runs ---- */

/* argv of the process: the interpreter of the image before the code, then the caller's arguments. */
static char **make_argv(const struct run *run, const char *code_path, struct err *err) {
        const struct run_request *request = run->request;
        const char *interpreter = request->language == RUN_PYTHON ? run->image.python : run->image.shell;
        if (request->language != RUN_COMMAND && !*interpreter) {
                (void) err_set(err, ERR_NOT_FOUND, "image %s has no %s; choose another image, or run a command with --",
                               run->image.name, request->language == RUN_PYTHON ? "python3" : "shell");
                return NULL;
        }
        size_t n_args = 0;
        while (request->args && request->args[n_args])
                n_args++;
        char **argv = calloc(n_args + 3, sizeof(*argv));
        if (!argv) {
                (void) err_set(err, ERR_SYSTEM, "out of memory");
                return NULL;
        }
        size_t n = 0;
        if (request->language != RUN_COMMAND) {
                argv[n++] = (char *) interpreter;
                argv[n++] = (char *) code_path;
        }
        for (size_t i = 0; i < n_args; i++)
                argv[n++] = request->args[i];
        return argv;
}

static int open_pipes(struct run *run, int ret_theirs[static 3], struct err *err) {
        int ends[3][2] = { { -1, -1 }, { -1, -1 }, { -1, -1 } };
        for (size_t i = 0; i < 3; i++)
                if (pipe2(ends[i], O_CLOEXEC) < 0)
                        return err_sys(err, errno, "making a pipe");
        struct relay *relay = &run->relay;
        relay->input_to_fd = ends[0][1];
        relay->out = (struct relay_stream) { .from_fd = ends[1][0], .to_fd = run->request->json ? -1 : STDOUT_FILENO,
                                             .kept_max = OUTPUT_KEPT_MAX };
        relay->error = (struct relay_stream) { .from_fd = ends[2][0], .to_fd = run->request->json ? -1 : STDERR_FILENO,
                                               .kept_max = OUTPUT_KEPT_MAX };
        relay->input_from_fd = run->request->stdin_is_code ? -1 : STDIN_FILENO;
        relay->timeout_ms = run->request->limits.timeout_ms;
        relay->box = &run->box;
        ret_theirs[0] = ends[0][0];
        ret_theirs[1] = ends[1][1];
        ret_theirs[2] = ends[2][1];
        return 0;
}

static int start_process(struct run *run, char *const *argv, char *const *environment, struct err *err) {
        int theirs[3] = { -1, -1, -1 };
        int code = open_pipes(run, theirs, err);
        struct frame_writer payload = { 0 };
        if (code == 0) {
                frame_put_text(&payload, BOX_WORKSPACE);
                frame_put_texts(&payload, argv);
                frame_put_texts(&payload, environment);
                int sent = frame_send(run->box.control_fd, FRAME_START, 1, &payload, theirs, 3);
                if (sent == -E2BIG)
                        code = err_set(err, ERR_USAGE,
                                       "the arguments and the environment are larger than 1 MiB together");
                else if (sent < 0)
                        code = err_sys(err, -sent, "speaking to the agent");
        }
        frame_writer_release(&payload);
        for (size_t i = 0; i < 3; i++)
                fd_close(&theirs[i]);
        return code;
}

static int run_in_box(struct run *run, struct err *err) {
        const struct run_request *request = run->request;
        char code_path[300] = "", box_name[64];
        if (request->code)
                (void) snprintf(code_path, sizeof(code_path), BOX_CODE_DIR "/%s", request->code_name);
        (void) snprintf(box_name, sizeof(box_name), "run-%.32s", run->id);
        struct box_spec spec = {
                .name = box_name,
                .image = &run->image,
                .limits = request->limits,
                .allow_weaker = request->allow_weaker,
                .kept = true,
                .host_uid = run->host_uid,
                .host_gid = run->host_gid,
                .workspace_fd = run->workspace_fd,
                .mounts = run->mounts,
                .n_mounts = run->n_mounts,
                .code_name = request->code ? request->code_name : NULL,
                .code = request->code,
                .code_size = request->code_size,
                .ret_listener_fd = run->rules ? &run->listener_fd : NULL,
        };
        _cleanup_free_ char **argv = make_argv(run, code_path, err);
        if (!argv)
                return -1;
        char **environment = environment_make(&run->image, &request->limits, run->rules != NULL, request->env, err);
        if (!environment)
                return -1;
        int code = box_start(&spec, &run->host, &run->box, err);
        if (code == 0)
                code = open_network(run, err);
        if (code == 0)
                code = start_process(run, argv, environment, err);
        environment_free(environment);
        if (code == 0)
                code = relay_run(&run->relay, err);
        if (code == 0)
                code = box_end(&run->box, &run->usage, err);
        return code;
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
        char message[600];
};

static void judge_memory(const struct run *run, struct verdict *verdict) {
        verdict->status = RUN_OOM;
        verdict->exit_code = EXIT_MEMORY;
        verdict->error.name = "memory_limit";
        limit_text_memory(verdict->message, sizeof(verdict->message), run->request->limits.memory_bytes,
                          run->usage.memory_peak_bytes);
}

static void judge_not_started(const struct run *run, struct verdict *verdict) {
        const struct relay *relay = &run->relay;
        bool missing = relay->failed_errno == ENOENT;
        const char *what = run->request->language == RUN_COMMAND ? run->request->args[0] : run->image.python;
        verdict->status = RUN_ERROR;
        verdict->exit_code = missing ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
        verdict->error.name = missing ? "command_not_found" : "cannot_run";
        (void) snprintf(verdict->message, sizeof(verdict->message), "cannot run \"%.200s\": %s%s", what,
                        missing ? "there is no such command in image " : strerror(relay->failed_errno),
                        missing ? run->image.name : "");
}

static void judge(const struct run *run, struct verdict *ret) {
        const struct relay *relay = &run->relay;
        *ret = (struct verdict) { .status = RUN_OK };
        switch (relay->end) {
        case RELAY_EXITED:
                if (WIFEXITED(relay->wait_status))
                        ret->exit_code = WEXITSTATUS(relay->wait_status);
                else
                        ret->exit_code = 128 + WTERMSIG(relay->wait_status);
                if (ret->exit_code != 0)
                        ret->status = WIFSIGNALED(relay->wait_status) ? RUN_KILLED : RUN_ERROR;
                break;
        case RELAY_TIMEOUT:
                ret->status = RUN_TIMEOUT;
                ret->exit_code = EXIT_TIMEOUT;
                ret->error.name = "timeout";
                limit_text_timeout(ret->message, sizeof(ret->message), relay->timeout_ms);
                break;
        case RELAY_SIGNAL:
                ret->status = RUN_INTERRUPTED;
                ret->exit_code = 128 + relay->end_signal;
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

static int print_json(const struct run *run, const struct verdict *verdict, struct err *err) {
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
        const struct box_spec spec = { .image = &run->image,
                                       .limits = run->request->limits,
                                       .host_uid = run->host_uid,
                                       .network = run->rules ? run->network : NULL };
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
                .cpu_ms = (run->usage.cpu_us > relay->cpu_us ? run->usage.cpu_us : relay->cpu_us) / 1000,
                .memory_peak_bytes =
                        run->usage.memory_peak_bytes ? run->usage.memory_peak_bytes : relay->memory_peak_kib * 1024,
                .error = verdict->error.name ? &verdict->error : NULL,
                .artifacts = artifacts,
                .n_artifacts = list->count,
                .artifacts_cut = list->cut,
                .isolation = report_make(&spec, &run->host, run->rootless),
        };
        json_t *json = run_result_to_json(&result);
        json_decref(result.isolation);
        _cleanup_free_ char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
        json_decref(json);
        if (!text)
                return err_set(err, ERR_SYSTEM, "out of memory");
        if (puts(text) == EOF || fflush(stdout) == EOF)
                return err_sys(err, errno, "writing the result");
        return 0;
}

static void print_messages(const struct run *run, const struct verdict *verdict) {
        if (verdict->error.name)
                (void) fprintf(stderr, "glovebox: %s\n", verdict->message);
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

int run_execute(const struct run_request *request, struct err *err) {
        _cleanup_(run_release) struct run run = { .request = request, .lease_fd = -1, .workspace_fd = -1,
                                                  .workspace_source_fd = -1, .egress = EGRESS_DOWN, .listener_fd = -1,
                                                  .box = { .pidfd = -1, .control_fd = -1 } };
        run.relay.out.from_fd = run.relay.error.from_fd = run.relay.input_to_fd = -1;
        if (open_everything(&run, err) < 0 || start_proxy(&run, err) < 0 || run_in_box(&run, err) < 0 ||
            collect_artifacts(&run, err) < 0)
                return -1;
        struct verdict verdict;
        judge(&run, &verdict);
        if (request->json) {
                if (print_json(&run, &verdict, err) < 0)
                        return -1;
        } else
                print_messages(&run, &verdict);
        return verdict.exit_code;
}
