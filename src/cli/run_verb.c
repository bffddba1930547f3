#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "cli/image_command.h"
#include "cli/limit_note.h"
#include "cli/run_code.h"
#include "cli/run_phases.h"
#include "cli/run_script_files.h"
#include "cli/run_warm.h"
#include "cli/ui/terminal.h"
#include "cli/verb.h"
#include "engine/engine.h"

static void options_release(struct run_options *options) {
        run_request_release(&options->request);
}

/* No code, and standard input is a terminal: print the usage, as an error. */
static int fail_without_code(void) {
        (void) fprintf(stderr,
                       "glovebox: nothing to run; give a file, -c CODE, or -- COMMAND:\n%s"
                       "\"glovebox run --help\" explains the options.\n",
                       verb_find("run")->synopsis);
        return err_code_exit_status(ERR_USAGE);
}

/* The box of a run is handed over to this process, as only a native one can be. */
static int check_engine(const struct run_request *request, struct err *err) {
        const char *engine = request->engine ? request->engine : "auto", *level = request->isolation;
        enum engine_isolation isolation = ENGINE_CONTAINER;
        bool is_native = strcmp(engine, "auto") == 0 || engine_is_native(engine);
        if (!is_native && !engine_find(engine, err))
                return -1;
        if (level && engine_parse_isolation(level, &isolation, err) < 0)
                return -1;
        if (is_native && isolation == ENGINE_CONTAINER)
                return 0;
        return err_set(err, ERR_UNSUPPORTED,
                       "glovebox run makes native boxes only; for another engine or a stronger wall use a session: "
                       "glovebox exec NAME%s%.40s%s%.40s --image IMAGE -c CODE, then glovebox session rm NAME",
                       is_native ? "" : " --engine ", is_native ? "" : engine, level ? " --isolation " : "",
                       level ? level : "");
}

int verb_run(int argc, char **argv) {
        (void) argc;
        _cleanup_(options_release) struct run_options options = RUN_OPTIONS_DEFAULT;
        struct option_rest rest;
        struct err err = { 0 };
        if (option_parse(&run_option_table, &options, argv + 1, &rest, &err) < 0)
                return terminal_fail(&err);
        if (rest.help) {
                verb_print_help(stdout, verb_find("run"));
                return 0;
        }
        if (check_engine(&options.request, &err) < 0 || run_options_check(&options, &err) < 0)
                return terminal_fail(&err);
        int chosen = run_code_choose(&options, &rest, &err);
        if (chosen == RUN_CODE_NONE)
                return fail_without_code();
        if (chosen < 0 || image_command_choose(&options.request, &err) < 0 ||
            run_script_files_choose(&options.request, &err) < 0)
                return terminal_fail(&err);
        limit_note_print(&options.request);
        run_phases_begin(options.request.verbose);
        int status = run_warm(&options, &err);
        if (status == RUN_WARM_NOT_HERE)
                status =
                        run_script_files_confirm(&options.request, &err) < 0 ? -1 : run_execute(&options.request, &err);
        run_phases_report();
        return status < 0 ? terminal_fail(&err) : status;
}
