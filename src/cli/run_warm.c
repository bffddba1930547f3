/* A run in a box of the daemon: one of its pool, or one that it makes for this run, with a Python forked from the
 * nursery. The daemon hands the box over; from then on the run goes on as in a box that this process made. */
#include "cli/run_warm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/build.h"
#include "base/fd.h"
#include "base/memory.h"
#include "box/spec.h"
#include "cli/local_run.h"
#include "cli/program_target.h"
#include "cli/run_phases.h"
#include "cli/run_program.h"
#include "cli/run_script_files.h"
#include "cli/run_state.h"
#include "cli/session_request.h"
#include "egress/egress.h"
#include "kernel/kernel_choice.h"

struct warm_run {
        struct run run;
        struct daemon_client client;
        struct program_target target;
        struct helper_program egress;
        struct egress_rules *rules; /* NULL: no network */
        struct local_run listed; /* as soon as the daemon does not list it any more */
};

static void warm_run_release(struct warm_run *warm) {
        local_run_end(&warm->listed);
        run_release(&warm->run);
        program_target_release(&warm->target);
        daemon_client_close(&warm->client);
        helper_program_stop(&warm->egress);
        free(warm->rules);
}

/* ---- asking ---- */

static bool wants_network(const struct run_request *request) {
        return request->network != RUN_NETWORK_NONE || request->n_hosts > 0;
}

static bool suits_light_kernel(const struct run_request *request) {
        return request->language != RUN_PYTHON ||
               (request->code && kernel_choice_is_light(request->code, request->code_size));
}

/* Variables are the program's, not the box's: with them any box will do. The proxy is ours, as in a run made here. */
static json_t *make_body(const struct run_options *options, struct err *err) {
        const struct run_request *request = &options->request;
        struct session_options creation = { .run = *options };
        creation.run.request.n_env = creation.run.request.n_hosts = 0;
        creation.run.request.network = RUN_NETWORK_NONE;
        json_t *body = json_pack("{s:s, s:b, s:b}", "op", "program", "light", (int) suits_light_kernel(request),
                                 "listener", (int) wants_network(request));
        char path[300], what[81];
        run_program_path(request, path, sizeof(path));
        run_program_describe(request, what, sizeof(what));
        if (body && json_object_set_new(body, "what", json_string(what)) == 0 &&
            session_request_put(&creation, body, err) == 0 &&
            (!request->code_source ||
             json_object_set_new(body, "script",
                                 json_string(request->is_alone ? request->code_source : request->script_dir)) == 0) &&
            (!request->code_source ||
             json_object_set_new(body, "script_at", json_string(request->is_alone ? path : BOX_CODE_DIR)) == 0) &&
            (!request->code_source || json_object_set_new(body, "operator", json_true()) == 0))
                return body;
        json_decref(body);
        return NULL;
}

/* ---- what it is to run: texts, each ended by NUL ---- */

static int make_payload(const struct run_request *request, char **ret_payload, size_t *ret_size, struct err *err) {
        char path[300];
        size_t n = 0;
        run_program_path(request, path, sizeof(path));
        bool is_python = request->language == RUN_PYTHON;
        /* "": the image's own shell */
        const char *interpreter = request->language == RUN_OTHER ? request->interpreter : "";
        _cleanup_free_ char **argv = run_program_argv(request, interpreter, path, err);
        if (!argv)
                return -1;
        char **words = argv + (is_python ? 1 : 0); /* the Python in the box has its own path */
        while (words[n])
                n++;
        FILE *stream = open_memstream(ret_payload, ret_size);
        if (!stream)
                return err_sys(err, errno, "preparing the program");
        (void) fprintf(stream, "%s%c%s%c%zu%c", is_python ? "python" : "exec", 0,
                       request->directory ? request->directory : "", 0, n, 0);
        for (size_t i = 0; i < n; i++)
                (void) fprintf(stream, "%s%c", words[i], 0);
        for (size_t i = 0; i < request->n_env; i++)
                (void) fprintf(stream, "%s%c", request->env[i], 0);
        return fclose(stream) == 0 ? 0 : err_sys(err, errno, "preparing the program");
}

/* ---- network ---- */

static int start_proxy(struct warm_run *warm, struct err *err) {
        const struct run_request *request = warm->run.request;
        if (!wants_network(request))
                return 0;
        warm->rules = malloc(sizeof(*warm->rules));
        if (!warm->rules)
                return err_set(err, ERR_SYSTEM, "out of memory");
        return run_request_rules(request, warm->rules, err) < 0
                       ? -1
                       : egress_start(&request->egress, "", &warm->egress, err);
}

static int open_network(struct warm_run *warm, struct err *err) {
        char network[64];
        if (!warm->rules)
                return 0;
        (void) json_object_set_new(warm->run.isolation, "network",
                                   json_string(egress_rules_describe(warm->rules, network)));
        return egress_admit(&warm->egress, warm->target.fds[PROGRAM_LISTENER], warm->target.fds[PROGRAM_AGENT],
                            warm->rules, err);
}

/* ---- the run ---- */

static int connect_to(const struct run_options *options, struct warm_run *warm, struct err *err) {
        struct socket_place place;
        if (socket_place_choose(&options->where, true, &place, err) < 0)
                return -1;
        if (options->warm)
                return daemon_client_open(&place, DAEMON_START | DAEMON_ANY_VERSION, &warm->client, err);
        return daemon_client_connect(place.address, &warm->client, err);
}

/* A daemon that was started before an upgrade makes boxes of the older version. */
static bool is_other_build(const struct warm_run *warm) {
        const char *build = json_string_value(json_object_get(warm->target.box, "version"));
        return !build || strcmp(build, build_name()) != 0;
}

static int run_warm_start(struct warm_run *warm, struct err *err) {
        struct run *run = &warm->run;
        _cleanup_free_ char *payload = NULL;
        size_t size = 0;
        if (make_payload(run->request, &payload, &size, err) < 0 ||
            program_target_start(&warm->target, payload, size, err) < 0)
                return -1;
        run->relay.input_to_fd = take_fd(&warm->target.fds[PROGRAM_REQUESTS]);
        run->relay.out.from_fd = take_fd(&warm->target.fds[PROGRAM_OUT]);
        run->relay.error.from_fd = take_fd(&warm->target.fds[PROGRAM_ERR]);
        run_fill_relay(run, &warm->target.base);
        return 0;
}

/* The daemon has exited, and the next one has no record of the program: `glovebox ps` and `kill` find it by its file.
 * */
static void on_orphaned(void *context) {
        struct warm_run *warm = context;
        const char *id = json_string_value(json_object_get(warm->target.box, "id"));
        if (!id || warm->listed.fd >= 0)
                return;
        local_run_name(&warm->listed, warm->run.data_dir, id);
        local_run_announce(&warm->listed, warm->run.request);
}

static int carry_out(struct warm_run *warm, struct err *err) {
        struct run *run = &warm->run;
        const struct run_request *request = run->request;
        run->isolation = json_incref(json_object_get(warm->target.box, "isolation"));
        if (!request->workspace)
                run->workspace_fd = take_fd(&warm->target.fds[PROGRAM_WORKSPACE]);
        run_script_files_link(request, run->workspace_fd);
        warm->target.orphaned = on_orphaned;
        warm->target.context = warm;
        if (open_network(warm, err) < 0 || run_warm_start(warm, err) < 0)
                return -1;
        run_phase("start");
        if (relay_run(&run->relay, err) < 0)
                return -1;
        run_phase("run");
        local_run_end(&warm->listed);
        const struct relay *relay = &run->relay;
        if (request->json || relay->end != RELAY_EXITED || relay->outcome.wait_status != 0)
                program_target_ask_usage(&warm->target);
        run->usage = warm->target.usage;
        int status = run_conclude(run, err);
        run_phase("results");
        return status;
}

/* Kept until the box is made: a request that the daemon refuses is most often refused here, too, in the same words. */
static struct err reason_for_here;

/* Not if there is no daemon, which is no error. */
static void run_warm_explain(const struct run_request *request, const struct err *err) {
        bool is_absent = err->code == ERR_NOT_FOUND || err->code == ERR_GONE || err->code == ERR_PERMISSION;
        if (!is_absent || request->verbose)
                reason_for_here = *err;
}

void run_warm_tell_reason(void) {
        if (reason_for_here.code != ERR_NONE)
                (void) fprintf(stderr, "glovebox: the box is made here, which takes longer: %s\n",
                               reason_for_here.message);
}

int run_warm(const struct run_options *options, struct err *err) {
        const struct run_request *request = &options->request;
        _cleanup_(warm_run_release) struct warm_run warm = { .run = RUN_NONE,
                                                             .client = DAEMON_CLIENT_NONE,
                                                             .target = PROGRAM_TARGET_NONE,
                                                             .egress = HELPER_PROGRAM_DOWN,
                                                             .listed = LOCAL_RUN_NONE };
        struct err why = { 0 };
        if (options->no_daemon || request->needs_own_box)
                return RUN_WARM_NOT_HERE;
        if (connect_to(options, &warm, &why) < 0) {
                if (options->warm)
                        run_warm_explain(&(struct run_request) { .verbose = true }, &why);
                else if (request->verbose)
                        run_warm_explain(request, &why);
                return RUN_WARM_NOT_HERE;
        }
        run_phase("connect");
        json_t *body = run_begin(request, &warm.run, err) < 0 || run_open_workspace(&warm.run, NULL, err) < 0 ||
                                       start_proxy(&warm, err) < 0
                               ? NULL
                               : make_body(options, err);
        if (!body)
                return RUN_WARM_FAILED;
        int code = program_target_ask(&warm.target, &warm.client, body, &why);
        json_decref(body);
        if (code < 0 || is_other_build(&warm)) {
                if (code == 0 || why.code == ERR_USAGE)
                        (void) err_set(&why, ERR_UNSUPPORTED,
                                       "the daemon is of another build; restart it with \"glovebox stop\" and "
                                       "\"glovebox serve --background\" (sessions stay)");
                run_warm_explain(request, &why);
                return RUN_WARM_NOT_HERE;
        }
        run_phase_way(json_string_value(json_object_get(warm.target.box, "way")));
        run_phase("box");
        int status = carry_out(&warm, err);
        return status < 0 ? RUN_WARM_FAILED : status;
}
