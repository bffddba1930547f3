/* `glovebox doctor`: what this host can enforce, what it cannot, and how to fix that. It changes nothing. */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/data_dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "box/host/host.h"
#include "cli/doctor_engines.h"
#include "cli/ui/option.h"
#include "cli/ui/terminal.h"
#include "cli/verb.h"
#include "image/image.h"
#include "image/layer.h"
#include "image/python.h"

struct doctor_request {
        bool json;
};

static const struct option_row rows[] = {
        { .name = "json", .kind = OPTION_FLAG, .offset = offsetof(struct doctor_request, json) },
};
static const struct option_table table = { .rows = rows, .n_rows = ELEMENTS(rows), .operands_anywhere = true };

/* ---- the image, checked after the needs of the box itself ---- */

static void probe_python(const struct host_report *report, struct host_row *row) {
        (void) report;
        struct python python;
        struct err err = { 0 };
        if (python_choose(-1, &python, &err) == 0)
                host_row_set(row, HOST_YES, "", "%s, %s (%s)", python.path, python.version, python.why);
        else
                host_row_set(row, HOST_NO,
                             "sudo apt-get install python3, or name an interpreter in $GLOVEBOX_PYTHON; "
                             "shell and commands run without",
                             "%.230s", err.message);
}

/* Below the data directory as it is: image_open would make what is missing. */
static int open_host_image(int *ret_fd, struct err *err) {
        char path[DATA_DIR_PATH_MAX];
        if (data_dir_find(path, err) < 0)
                return -1;
        _cleanup_fd_ int data_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        int fd = openat(data_fd, "images/host", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int shared_fd = image_open_shared_host(fd);
        if (shared_fd >= 0) {
                fd_close(&fd);
                fd = shared_fd;
        }
        if (fd < 0)
                return err_set(err, ERR_NOT_FOUND, "none was built yet");
        *ret_fd = fd;
        return 0;
}

static void probe_layer(const struct host_report *report, struct host_row *row) {
        (void) report;
        struct python python;
        struct err err = { 0 };
        _cleanup_fd_ int host_fd = -1, layer_fd = -1;
        if (open_host_image(&host_fd, &err) < 0 || python_choose(-1, &python, &err) < 0 ||
            layer_open(host_fd, &python, &layer_fd, &err) < 0)
                host_row_set(row, HOST_WEAKER,
                             err.code == ERR_NOT_FOUND
                                     ? "glovebox image build"
                                     : "glovebox image build, with $GLOVEBOX_DATA_DIR naming a directory of yours",
                             "%.230s", err.code == ERR_NOT_FOUND ? "none was built yet" : err.message);
        else if (layer_fd < 0)
                host_row_set(row, HOST_WEAKER, "glovebox image build", "none was built yet");
        else
                host_row_set(row, HOST_YES, "", "built");
}

static const struct host_probe image_probes[] = {
        { "python", "Python", HOST_NEED_ADVICE, probe_python },
        { "python_layer", "Python packages", HOST_NEED_ADVICE, probe_layer },
};

/* ---- printing ---- */

static const struct {
        const char *mark;
        enum terminal_style style;
} marks[] = {
        [HOST_YES] = { "✓", TERMINAL_GREEN },
        [HOST_WEAKER] = { "!", TERMINAL_YELLOW },
        [HOST_NO] = { "✗", TERMINAL_RED },
};

static const char *const headings[] = {
        [HOST_NEED_BOX] = "A box needs",
        [HOST_NEED_LIMITS] = "Its limits need",
        [HOST_NEED_ADVICE] = "Good to have",
};

static const char *const verdicts[] = {
        [HOST_VERDICT_FULL] = "This host can make boxes with full limits.",
        [HOST_VERDICT_WEAKER] = "This host can make boxes only with --allow-weaker: some limits cannot be enforced.",
        [HOST_VERDICT_IMPOSSIBLE] = "This host cannot make boxes as it is, not even with --allow-weaker.",
};

static void print_mark(enum host_state state) {
        (void) printf("  %s%s%s ", terminal_style(STDOUT_FILENO, marks[state].style), marks[state].mark,
                      terminal_style(STDOUT_FILENO, TERMINAL_PLAIN));
}

static void print_heading(const char *text) {
        (void) printf("\n%s%s%s\n", terminal_style(STDOUT_FILENO, TERMINAL_BOLD), text,
                      terminal_style(STDOUT_FILENO, TERMINAL_PLAIN));
}

static size_t title_width(const struct host_report *report) {
        size_t width = 0;
        for (size_t i = 0; i < report->n_rows; i++)
                if (strlen(report->rows[i].title) > width)
                        width = strlen(report->rows[i].title);
        return width;
}

static void print_rows(const struct host_report *report) {
        int width = (int) title_width(report);
        for (enum host_need need = HOST_NEED_BOX; need <= HOST_NEED_ADVICE; need++) {
                print_heading(headings[need]);
                for (size_t i = 0; i < report->n_rows; i++) {
                        const struct host_row *row = &report->rows[i];
                        if (row->need != need)
                                continue;
                        print_mark(row->state);
                        (void) printf("%-*s  %s\n", width, row->title, row->detail);
                }
        }
}

/* The worst first; a fix that several rows share is printed once. */
static void print_fixes(const struct host_report *report) {
        bool any = false;
        for (enum host_state state = HOST_NO; state > HOST_YES; state--)
                for (size_t i = 0; i < report->n_rows; i++) {
                        const struct host_row *row = &report->rows[i];
                        bool said = false;
                        for (size_t j = 0; j < i && !said; j++)
                                said = report->rows[j].state == state && strcmp(report->rows[j].fix, row->fix) == 0;
                        if (row->state != state || said)
                                continue;
                        if (!any)
                                print_heading("What to do");
                        any = true;
                        print_mark(state);
                        (void) printf("%s: %s\n", row->title, row->fix);
                }
}

static void print_text(const struct host_report *report, const json_t *engines) {
        (void) printf("Linux %s, control groups %s, %s%s\n", report->kernel, cgroup_kind_name(&report->cgroups),
                      report->root ? "root" : "an ordinary user", report->container[0] ? ", in a container" : "");
        print_rows(report);
        doctor_engines_print(engines);
        print_fixes(report);
        (void) printf("\n%s\n", verdicts[host_decide(report)]);
}

static int doctor_print_json(const struct host_report *report, json_t *engines, struct err *err) {
        json_t *checks = json_array();
        for (size_t i = 0; i < report->n_rows; i++) {
                const struct host_row *row = &report->rows[i];
                (void) json_array_append_new(checks, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "name", row->name,
                                                               "title", row->title, "need", host_need_name(row->need),
                                                               "state", host_state_name(row->state), "detail",
                                                               row->detail, "fix", row->fix));
        }
        enum host_verdict verdict = host_decide(report);
        json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:o, s:O}", "verdict", host_verdict_name(verdict),
                                   "summary", verdicts[verdict], "kernel", report->kernel, "cgroups",
                                   cgroup_kind_name(&report->cgroups), "root", report->root, "container",
                                   report->container[0] != '\0', "checks", checks, "engines", engines);
        int code =
                object && json_array_size(checks) == report->n_rows ? json_dumpf(object, stdout, JSON_INDENT(2)) : -1;
        json_decref(object);
        if (code < 0)
                return err_set(err, ERR_SYSTEM,
                               "cannot print the report as JSON: out of memory, or the output is closed");
        (void) printf("\n");
        return 0;
}

int verb_doctor(int argc, char **argv) {
        (void) argc;
        struct doctor_request request = { .json = false };
        struct option_rest rest;
        struct err err;
        if (option_parse(&table, &request, argv + 1, &rest, &err) < 0)
                return terminal_fail(&err);
        if (rest.help) {
                verb_print_help(stdout, verb_find("doctor"));
                return 0;
        }
        if (rest.operands[0]) {
                (void) err_set(&err, ERR_USAGE, "doctor takes no operand such as \"%.60s\"; see glovebox help doctor",
                               rest.operands[0]);
                return terminal_fail(&err);
        }
        static struct host_report report; /* tens of KiB: not for the stack */
        host_look(&report, image_probes, ELEMENTS(image_probes));
        json_t *engines = doctor_engines_look(host_decide(&report) != HOST_VERDICT_IMPOSSIBLE);
        int code = 0;
        if (!request.json)
                print_text(&report, engines);
        else
                code = doctor_print_json(&report, engines, &err);
        json_decref(engines);
        if (code < 0)
                return terminal_fail(&err);
        return host_decide(&report) == HOST_VERDICT_FULL ? 0 : 1;
}
