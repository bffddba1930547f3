/* The table of abilities and how the report is made from it. The probes themselves are in host_probes.c. */
#include "box/host/host.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/memory.h"
#include "box/cgroup/cgroup_file.h"
#include "box/host/container_view.h"
#include "box/host/host_probes.h"
#include "box/host/host_trial.h"
#include "box/host/identity.h"

const char *host_state_name(enum host_state state) {
        static const char *const names[] = { [HOST_YES] = "yes", [HOST_WEAKER] = "weaker", [HOST_NO] = "no" };
        return names[state];
}

const char *host_need_name(enum host_need need) {
        static const char *const names[] = {
                [HOST_NEED_BOX] = "box", [HOST_NEED_LIMITS] = "limits", [HOST_NEED_ADVICE] = "advice"
        };
        return names[need];
}

const char *host_verdict_name(enum host_verdict verdict) {
        static const char *const names[] = {
                [HOST_VERDICT_FULL] = "full", [HOST_VERDICT_WEAKER] = "weaker", [HOST_VERDICT_IMPOSSIBLE] = "impossible"
        };
        return names[verdict];
}

void host_row_set(struct host_row *row, enum host_state state, const char *fix, const char *detail, ...) {
        row->state = state;
        va_list args;
        va_start(args, detail);
        (void) vsnprintf(row->detail, sizeof(row->detail), detail, args);
        va_end(args);
        (void) snprintf(row->fix, sizeof(row->fix), "%s", state == HOST_YES ? "" : fix);
}

/* The whole id range is mapped onto itself only in the first user namespace. */
static bool is_host_root(void) {
        char text[256];
        unsigned inside, outside, count;
        return geteuid() == 0 && cgroup_file_read(AT_FDCWD, "/proc/self/uid_map", text, sizeof(text)) > 0 &&
               sscanf(text, "%u %u %u", &inside, &outside, &count) == 3 && outside == 0 && count == 4294967295u;
}

void host_find_container(char ret_mark[static 64]) {
        static const char *const marks[] = { "/.dockerenv", "/run/.containerenv", "/run/systemd/container" };
        static const char *const words[] = {
                "/docker", "/kubepods", "/lxc", "/libpod", "/containerd", "/machine.slice"
        };
        char text[2048];
        ret_mark[0] = '\0';
        for (size_t i = 0; i < ELEMENTS(marks); i++)
                if (access(marks[i], F_OK) == 0) {
                        (void) snprintf(ret_mark, 64, "%s exists", marks[i]);
                        return;
                }
        if (cgroup_file_read(AT_FDCWD, "/proc/1/cgroup", text, sizeof(text)) < 0)
                return;
        for (size_t i = 0; i < ELEMENTS(words); i++)
                if (strstr(text, words[i])) {
                        (void) snprintf(ret_mark, 64, "/proc/1/cgroup names %s", words[i]);
                        return;
                }
}

static void run_probe(struct host_report *report, const struct host_probe *probe) {
        if (report->n_rows == HOST_ROWS_MAX)
                return;
        struct host_row *row = &report->rows[report->n_rows];
        *row = (struct host_row) { .name = probe->name, .title = probe->title, .need = probe->need };
        probe->probe(report, row);
        report->n_rows++;
}

void host_look(struct host_report *ret_report, const struct host_probe *more, size_t n_more) {
        struct host_report *report = ret_report;
        *report = (struct host_report) { .root = is_host_root() };
        if (identity_has_sys_admin())
                container_view_open(); /* for this process: as a box would find it */
        struct utsname name;
        if (uname(&name) == 0)
                (void) snprintf(report->kernel, sizeof(report->kernel), "%.79s", name.release);
        cgroup_host_look(&report->cgroups);
        host_find_container(report->container);
        report->trial = host_try_namespaces();
        for (size_t i = 0; i < host_probes_count; i++)
                run_probe(report, &host_probes[i]);
        for (size_t i = 0; i < n_more; i++)
                run_probe(report, &more[i]);
}

enum host_verdict host_decide(const struct host_report *report) {
        enum host_verdict verdict = HOST_VERDICT_FULL;
        for (size_t i = 0; i < report->n_rows; i++) {
                if (report->rows[i].state != HOST_NO)
                        continue;
                if (report->rows[i].need == HOST_NEED_BOX)
                        return HOST_VERDICT_IMPOSSIBLE;
                if (report->rows[i].need == HOST_NEED_LIMITS)
                        verdict = HOST_VERDICT_WEAKER;
        }
        return verdict;
}
