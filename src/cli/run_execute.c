/* Carries out a `glovebox run` without a daemon: makes a box, runs one process in it, passes on its output, removes the
 * box.
 *
 * Theory of operation. This process opens what the box may see (image, workspace, mounts), makes the box (box.c),
 * requests one process with three pipes as its standard streams from the agent, and relays (relay.c) until that process
 * has ended. A watchdog removes the box if this process is killed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/box.h"
#include "box/host/host_trial.h"
#include "box/host/identity.h"
#include "box/host/report.h"
#include "box/policy.h"
#include "box/seal/environment.h"
#include "box/seal/tree.h"
#include "cli/box_target.h"
#include "cli/local_run.h"
#include "cli/run_phases.h"
#include "cli/run_program.h"
#include "cli/run_script_files.h"
#include "cli/run_state.h"
#include "cli/run_warm.h"
#include "egress/egress.h"
#include "spawn/image_cache.h"
#include "spawn/kernel_files.h"
#include "wire/frame.h"

#define START_PATH IMAGE_KERNEL_PATH "/start" /* of a Python: guest/kernel/start/sitecustomize.py */

/* Resources of a run, released on every path. */
struct cold_run {
        struct run run;
        bool rootless;
        struct cgroup_host host;
        struct image image;
        int lease_fd;
        uid_t host_uid;
        gid_t host_gid;
        struct box_mount mounts[RUN_MOUNTS_MAX + 3]; /* and /data, the script's directory, the additions */
        size_t n_mounts;
        struct helper_program egress;
        struct egress_rules *rules; /* NULL: no network */
        int listener_fd;
        char network[64]; /* for the report */
        struct box box;
        struct box_target target;
        bool has_extras;
        struct local_run listed;
};

static void cold_run_release(struct cold_run *cold) {
        relay_release(&cold->run.relay);
        local_run_end(&cold->listed);
        (void) box_end(&cold->box, NULL, NULL);
        helper_program_stop(&cold->egress);
        fd_close(&cold->listener_fd);
        free(cold->rules);
        run_release(&cold->run);
        for (size_t i = 0; i < cold->n_mounts; i++)
                fd_close(&cold->mounts[i].tree_fd);
        fd_close(&cold->lease_fd);
        image_close(&cold->image);
}

/* ---- what the box may see ---- */

static int run_add_tree(struct cold_run *cold, int source_fd, const char *shown, const char *destination, bool writable,
                        struct err *err) {
        struct stat status;
        if (fstat(source_fd, &status) < 0)
                return err_sys(err, errno, "looking at %s", shown);
        int tree = tree_clone_owned(source_fd, writable, cold->lease_fd >= 0, cold->host_uid, cold->host_gid);
        if (tree < 0)
                return tree_explain(tree, shown, err);
        cold->mounts[cold->n_mounts++] = (struct box_mount) { tree, S_ISDIR(status.st_mode), writable, destination };
        return 0;
}

static int open_mount(struct cold_run *cold, const struct policy *policy, const char *source, const char *destination,
                      bool writable, struct err *err) {
        _cleanup_fd_ int source_fd = -1;
        if (policy_check_destination(destination, err) < 0 ||
            policy_open_source(policy, source, writable, &source_fd, err) < 0)
                return -1;
        return run_add_tree(cold, source_fd, source, destination, writable, err);
}

/* The script's directory; the script alone comes as a copy, with the box. */
static int open_neighbours(struct cold_run *cold, const struct policy *policy, struct err *err) {
        const struct run_request *request = cold->run.request;
        _cleanup_fd_ int source_fd = -1;
        if (!request->code_source || request->is_alone)
                return 0;
        if (policy_open_source(policy, request->script_dir, false, &source_fd, err) < 0)
                return -1;
        return run_add_tree(cold, source_fd, request->script_dir, BOX_CODE_DIR, false, err);
}

/* Additions for a Python program. Without these files it runs without the additions. */
static int open_extras(struct cold_run *cold, struct err *err) {
        char path[4200];
        if (cold->run.request->language != RUN_PYTHON || kernel_files_find(path, sizeof(path), NULL) < 0)
                return 0;
        _cleanup_fd_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return 0;
        int tree = tree_clone(fd, false); /* readable by all: no ids need to be mapped */
        if (tree < 0)
                return tree_explain(tree, path, err);
        cold->mounts[cold->n_mounts++] = (struct box_mount) { tree, true, false, IMAGE_KERNEL_PATH };
        cold->has_extras = true;
        return 0;
}

static int open_workspace(struct cold_run *cold, struct err *err) {
        struct run *run = &cold->run;
        const struct limits *limits = &run->request->limits;
        const struct policy policy = run_policy(run);
        if (run_open_workspace(run, &policy, err) < 0)
                return -1;
        if (run->workspace_source_fd >= 0) {
                run->workspace_fd = tree_clone_owned(run->workspace_source_fd, true, cold->lease_fd >= 0,
                                                     cold->host_uid, cold->host_gid);
                return run->workspace_fd < 0 ? tree_explain(run->workspace_fd, run->request->workspace, err) : 0;
        }
        run->workspace_fd =
                tree_make_tmpfs(limits->disk_bytes, limits->disk_files, cold->host_uid, cold->host_gid, 0755);
        if (run->workspace_fd < 0)
                return err_sys(err, -run->workspace_fd, "making a workspace");
        run_script_files_link(run->request, run->workspace_fd);
        return 0;
}

static int open_everything(struct cold_run *cold, struct err *err) {
        struct run *run = &cold->run;
        const struct run_request *request = run->request;
        if (identity_enter(&cold->rootless, err) < 0)
                return -1;
        cgroup_host_look(&cold->host);
        if (image_open(run->data_dir, request->image, &cold->image, err) < 0 ||
            identity_lease(&cold->host_uid, &cold->host_gid, &cold->lease_fd, err) < 0)
                return -1;
        const struct policy policy = run_policy(run);
        if (open_workspace(cold, err) < 0)
                return -1;
        if (request->data && open_mount(cold, &policy, request->data, "/data", false, err) < 0)
                return -1;
        for (size_t i = 0; i < request->n_mounts; i++) {
                const struct run_mount *mount = &request->mounts[i];
                if (open_mount(cold, &policy, mount->source, mount->destination, mount->writable, err) < 0)
                        return -1;
        }
        return open_neighbours(cold, &policy, err) < 0 ? -1 : open_extras(cold, err);
}

/* ---- what the box may reach ---- */

/* The proxy is started first: if that fails, no box is made. */
static int start_proxy(struct cold_run *cold, struct err *err) {
        const struct run_request *request = cold->run.request;
        if (request->network == RUN_NETWORK_NONE && request->n_hosts == 0)
                return 0;
        cold->rules = malloc(sizeof(*cold->rules));
        if (!cold->rules)
                return err_set(err, ERR_SYSTEM, "out of memory");
        if (run_request_rules(request, cold->rules, err) < 0)
                return -1;
        (void) egress_rules_describe(cold->rules, cold->network);
        return egress_start(&request->egress, "", &cold->egress, err);
}

static int open_network(struct cold_run *cold, struct err *err) {
        if (!cold->rules)
                return 0;
        int code = egress_admit(&cold->egress, cold->listener_fd, cold->box.pidfd, cold->rules, err);
        fd_close(&cold->listener_fd);
        return code;
}

/* ---- what runs ---- */

static const char *interpreter_of(const struct cold_run *cold, struct err *err) {
        const struct run_request *request = cold->run.request;
        if (request->language == RUN_OTHER || request->language == RUN_COMMAND)
                return request->interpreter;
        const char *interpreter = request->language == RUN_PYTHON ? cold->image.python : cold->image.shell;
        if (*interpreter)
                return interpreter;
        (void) err_set(err, ERR_NOT_FOUND, "image %s has no %s; choose another image, or run a command with --",
                       cold->image.name, request->language == RUN_PYTHON ? "python3" : "shell");
        return NULL;
}

static char **make_environment(const struct cold_run *cold, struct err *err) {
        static const char name[] = "PYTHONPATH=";
        const struct run_request *request = cold->run.request;
        char **environment = environment_make(&cold->image, &request->limits, cold->rules != NULL, request->env, err);
        for (size_t i = 0; environment && cold->has_extras && environment[i]; i++) {
                char *with = NULL;
                if (strncmp(environment[i], name, sizeof(name) - 1) != 0)
                        continue;
                if (asprintf(&with, "%s" START_PATH ":%s", name, environment[i] + sizeof(name) - 1) < 0) {
                        environment_free(environment);
                        (void) err_set(err, ERR_SYSTEM, "out of memory");
                        return NULL;
                }
                free(environment[i]);
                environment[i] = with;
        }
        return environment;
}

static int run_start_process(struct cold_run *cold, char *const *argv, char *const *environment, struct err *err) {
        int theirs[3] = { -1, -1, -1 };
        cold->target = box_target_make(&cold->box);
        int code = run_open_pipes(&cold->run, &cold->target.base, theirs, err);
        struct frame_writer payload = { 0 };
        if (code == 0) {
                frame_put_text(&payload, cold->run.request->directory ? cold->run.request->directory : BOX_WORKSPACE);
                frame_put_texts(&payload, argv);
                frame_put_texts(&payload, environment);
                int sent = frame_send(cold->box.control_fd, FRAME_START, 1, &payload, theirs, 3);
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

static int run_in_box(struct cold_run *cold, const struct box_spec *spec, char *const *argv, struct err *err) {
        char **environment = make_environment(cold, err);
        if (!environment)
                return -1;
        run_warm_tell_reason();
        int code = box_start(spec, &cold->host, &cold->box, err);
        if (code == 0)
                local_run_announce(&cold->listed, cold->run.request);
        if (code == 0)
                code = open_network(cold, err);
        run_phase("box");
        if (code == 0)
                code = run_start_process(cold, argv, environment, err);
        environment_free(environment);
        if (code == 0)
                code = relay_run(&cold->run.relay, err);
        run_phase("run");
        local_run_end(&cold->listed); /* before the watchdog goes */
        return code == 0 ? box_end(&cold->box, &cold->run.usage, err) : code;
}

/* As the daemon reports it for its boxes. */
static json_t *make_report(const struct cold_run *cold, const struct box_spec *spec) {
        json_t *report = report_make(spec, &cold->host, cold->rootless);
        const char *bounded_by = cold->run.workspace_source_fd >= 0 ? "none" : "tmpfs";
        (void) json_object_set_new(report, "disk",
                                   json_pack("{s:I, s:I, s:s}", "bytes", (json_int_t) spec->limits.disk_bytes, "files",
                                             (json_int_t) spec->limits.disk_files, "by", bounded_by));
        return report;
}

static int carry_out(struct cold_run *cold, struct err *err) {
        const struct run_request *request = cold->run.request;
        char code_path[300], box_name[64];
        bool has_copy = request->source == RUN_FROM_FILE && request->is_alone;
        run_program_path(request, code_path, sizeof(code_path));
        (void) snprintf(box_name, sizeof(box_name), "run-%.32s", cold->run.id);
        const struct box_spec spec = {
                .name = box_name,
                .image = &cold->image,
                .limits = request->limits,
                .allow_weaker = request->allow_weaker,
                .without_proc = request->allow_weaker && host_refuses_proc(),
                .kept = true,
                .kept_file = cold->listed.path,
                .host_uid = cold->host_uid,
                .host_gid = cold->host_gid,
                .workspace_fd = cold->run.workspace_fd,
                .mounts = cold->mounts,
                .n_mounts = cold->n_mounts,
                .code_name = has_copy ? request->code_name : NULL,
                .code = request->code,
                .code_size = request->code_size,
                .ret_listener_fd = cold->rules ? &cold->listener_fd : NULL,
                .network = cold->rules ? cold->network : NULL,
        };
        const char *interpreter = interpreter_of(cold, err);
        _cleanup_free_ char **argv = interpreter ? run_program_argv(request, interpreter, code_path, err) : NULL;
        if (!argv)
                return -1;
        if (request->json)
                cold->run.isolation = make_report(cold, &spec);
        return run_in_box(cold, &spec, argv, err);
}

int run_execute(const struct run_request *request, struct err *err) {
        _cleanup_(cold_run_release) struct cold_run cold = { .run = RUN_NONE,
                                                             .lease_fd = -1,
                                                             .egress = HELPER_PROGRAM_DOWN,
                                                             .listener_fd = -1,
                                                             .box = { .pidfd = -1, .control_fd = -1 },
                                                             .listed = LOCAL_RUN_NONE };
        if (run_begin(request, &cold.run, err) < 0)
                return -1;
        local_run_name(&cold.listed, cold.run.data_dir, cold.run.id);
        if (open_everything(&cold, err) < 0 || start_proxy(&cold, err) < 0)
                return -1;
        run_phase("files");
        int status = carry_out(&cold, err) < 0 ? -1 : run_conclude(&cold.run, err);
        run_phase("results");
        return status;
}
