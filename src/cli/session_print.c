#include "cli/session_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/units.h"
#include "cli/ui/table.h"
#include "cli/ui/terminal.h"

static const char *session_print_text_at(const json_t *object, const char *key) {
        return json_string_value(json_object_get(object, key));
}

const char *session_print_name(const json_t *session, char ret_text[static 140]) {
        const char *name = session_print_text_at(session, "name"), *key = session_print_text_at(session, "key");
        (void) snprintf(ret_text, 140, "%s%s%s", key ? key : "", key ? "/" : "", name ? name : "");
        return ret_text;
}

static uint64_t session_print_number_at(const json_t *object, const char *key) {
        json_int_t value = json_integer_value(json_object_get(object, key));
        return value > 0 ? (uint64_t) value : 0;
}

static uint64_t wall_clock_ms(void) {
        struct timespec now;
        (void) clock_gettime(CLOCK_REALTIME, &now);
        return (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
}

/* Moments are milliseconds since 1970. */
static void add_age(struct table *table, const json_t *object, const char *key) {
        uint64_t at = session_print_number_at(object, key), now = wall_clock_ms();
        char text[32];
        table_add(table, at == 0 ? NULL : format_age(now > at ? now - at : 0, text));
}

static void add_bytes(struct table *table, const json_t *object, const char *key) {
        uint64_t bytes = session_print_number_at(object, key);
        char text[32];
        table_add(table, bytes ? units_format_bytes(bytes, text) : NULL);
}

void session_print_list(const json_t *sessions) {
        static const char *const headings[] = { "NAME", "STATE", "IMAGE", "MEMORY", "LIMIT", "USED", "AGE" };
        struct table table = table_make(headings, ELEMENTS(headings));
        for (size_t i = 0; i < json_array_size(sessions); i++) {
                const json_t *session = json_array_get(sessions, i);
                char name[140];
                table_add(&table, session_print_name(session, name));
                table_add(&table, session_print_text_at(session, "state"));
                table_add(&table, session_print_text_at(session, "image"));
                add_bytes(&table, session, "memory_bytes");
                add_bytes(&table, json_object_get(session, "limits"), "memory_bytes");
                add_age(&table, session, "used");
                add_age(&table, session, "created");
        }
        table_print(&table, stdout);
        table_release(&table);
}

void session_print_names(const json_t *sessions) {
        for (size_t i = 0; i < json_array_size(sessions); i++) {
                char name[140];
                (void) session_print_name(json_array_get(sessions, i), name);
                terminal_make_harmless(name);
                (void) puts(name);
        }
}

/* ---- one of them ---- */

static void add_row(struct table *table, const char *name, const char *text) {
        if (!text || !*text)
                return;
        table_add(table, name);
        table_add(table, text);
}

/* The limit of its workspace, and who keeps it: `by` is of the isolation report. */
static void add_disk(struct table *table, const json_t *limits, const char *by) {
        static const char *const words[][2] = {
                { "quota", ", enforced by the kernel (project quota)" },
                { "watched", ", measured by the daemon while code runs" },
                { "tmpfs", ", enforced by the kernel (tmpfs)" },
        };
        char bytes[32], text[100];
        const char *how = "";
        if (by && strcmp(by, "none") == 0) {
                add_row(table, "disk", "no limit (a directory of your own)");
                return;
        }
        for (size_t i = 0; by && i < ELEMENTS(words); i++)
                if (strcmp(by, words[i][0]) == 0)
                        how = words[i][1];
        (void) snprintf(text, sizeof(text), "%s%s",
                        units_format_bytes(session_print_number_at(limits, "disk_bytes"), bytes), how);
        add_row(table, "disk", session_print_number_at(limits, "disk_bytes") ? text : NULL);
}

static void add_limits(struct table *table, const json_t *limits, const char *disk_by) {
        char bytes[32], text[100];
        static const struct {
                const char *name, *key;
        } sizes[] = { { "memory limit", "memory_bytes" }, { "/tmp", "tmp_bytes" } };
        for (size_t i = 0; i < ELEMENTS(sizes); i++)
                if (session_print_number_at(limits, sizes[i].key))
                        add_row(table, sizes[i].name,
                                units_format_bytes(session_print_number_at(limits, sizes[i].key), bytes));
        add_disk(table, limits, disk_by);
        double cpus = json_number_value(json_object_get(limits, "cpus"));
        (void) snprintf(text, sizeof(text), "%g", cpus);
        add_row(table, "processors", cpus > 0 ? text : NULL);
        (void) snprintf(text, sizeof(text), "%" PRIu64, session_print_number_at(limits, "pids"));
        add_row(table, "processes", session_print_number_at(limits, "pids") ? text : NULL);
        (void) snprintf(text, sizeof(text), "%g s", (double) session_print_number_at(limits, "timeout_ms") / 1000);
        add_row(table, "time limit", session_print_number_at(limits, "timeout_ms") ? text : NULL);
}

static void add_held_back(struct table *table, const json_t *names) {
        for (size_t i = 0; i < json_array_size(names); i++) {
                const json_t *held = json_array_get(names, i);
                const char *name = session_print_text_at(held, "name");
                add_row(table, i == 0 ? "held awake by" : " ",
                        strcmp(name, "*") == 0 ? session_print_text_at(held, "why") : name);
        }
}

static void add_moment(struct table *table, const char *name, const json_t *session, const char *key) {
        uint64_t at = session_print_number_at(session, key), now = wall_clock_ms();
        char age[32], text[64];
        (void) snprintf(text, sizeof(text), "%s%s", format_age(now > at ? now - at : 0, age),
                        now >= at + 1000 ? " ago" : "");
        add_row(table, name, at ? text : NULL);
}

static void add_isolation(struct table *table, const json_t *isolation) {
        const json_t *weaker = json_object_get(isolation, "weaker");
        if (!json_is_object(isolation))
                return; /* it has no box now */
        add_row(table, "network", session_print_text_at(isolation, "network"));
        add_row(table, "isolation", json_array_size(weaker) == 0 ? "full" : "weaker (--allow-weaker)");
        for (size_t i = 0; i < json_array_size(weaker); i++)
                add_row(table, " ", json_string_value(json_array_get(weaker, i)));
}

void session_print_one(const json_t *session) {
        static const char *const texts[][2] = {
                { "name", "name" },           { "key", "key" },     { "id", "id" },
                { "state", "state" },         { "image", "image" }, { "mode", "mode" },
                { "workspace", "workspace" },
        };
        struct table table = table_make(NULL, 0);
        table.n_columns = 2;
        for (size_t i = 0; i < ELEMENTS(texts); i++)
                add_row(&table, texts[i][0], session_print_text_at(session, texts[i][1]));
        char text[32];
        if (session_print_number_at(session, "memory_bytes"))
                add_row(&table, "memory", units_format_bytes(session_print_number_at(session, "memory_bytes"), text));
        (void) snprintf(text, sizeof(text), "%" PRIu64, session_print_number_at(session, "pid"));
        add_row(&table, "pid", session_print_number_at(session, "pid") ? text : NULL);
        add_moment(&table, "created", session, "created");
        add_moment(&table, "used", session, "used");
        add_limits(&table, json_object_get(session, "limits"),
                   session_print_text_at(json_object_get(json_object_get(session, "isolation"), "disk"), "by"));
        add_isolation(&table, json_object_get(session, "isolation"));
        add_held_back(&table, json_object_get(session, "held_back"));
        table_print(&table, stdout);
        table_release(&table);
        const json_t *runs = json_object_get(session, "runs");
        if (json_array_size(runs) > 0) {
                (void) puts("");
                session_print_runs(runs);
        }
}

void session_print_runs(const json_t *runs) {
        static const char *const headings[] = { "RUN", "STATUS", "TIME", "OUTPUT", "AGE" };
        struct table table = table_make(headings, ELEMENTS(headings));
        for (size_t i = 0; i < json_array_size(runs); i++) {
                const json_t *run = json_array_get(runs, i);
                const json_t *duration = json_object_get(run, "duration_ms");
                table_add(&table, session_print_text_at(run, "run_id"));
                table_add(&table, json_is_false(json_object_get(run, "ended")) ? "running"
                                                                               : session_print_text_at(run, "status"));
                if (json_is_number(duration))
                        table_add_format(&table, "%.3f s", json_number_value(duration) / 1000);
                else
                        table_add(&table, NULL);
                uint64_t bytes =
                        session_print_number_at(run, "stdout_bytes") + session_print_number_at(run, "stderr_bytes");
                char text[32];
                table_add(&table, bytes ? units_format_bytes(bytes, text) : NULL);
                add_age(&table, run, "began");
        }
        table_print(&table, stdout);
        table_release(&table);
}

/* ---- the daemon ---- */

static void add_nursery(struct table *table, const char *title, const json_t *nursery) {
        char text[100];
        if (json_is_object(nursery)) {
                (void) snprintf(text, sizeof(text), "%s%s%" PRIu64,
                                session_print_text_at(nursery, "state") ? session_print_text_at(nursery, "state") : "",
                                session_print_text_at(nursery, "state") ? ", pid " : "pid ",
                                session_print_number_at(nursery, "pid"));
                add_row(table, title, text);
        } else
                add_row(table, title, json_string_value(nursery));
}

static void add_supervisor(struct table *table, const json_t *nursery) {
        char text[40];
        uint64_t pid = session_print_number_at(nursery, "supervisor_pid");
        if (pid == 0)
                return;
        (void) snprintf(text, sizeof(text), "running, pid %" PRIu64, pid);
        add_row(table, "supervisor", text);
}

/* One row for each process: "running, pid 12", "restarting, 3 restarts", "off". */
static void add_helpers(struct table *table, const json_t *helpers) {
        const char *name;
        json_t *helper;
        json_object_foreach ((json_t *) (uintptr_t) helpers, name, helper) {
                const char *state = session_print_text_at(helper, "state");
                uint64_t restarts = session_print_number_at(helper, "restarts"),
                         pid = session_print_number_at(helper, "pid");
                char text[100], of_pid[32] = "", of_restarts[40] = "";
                if (pid > 0)
                        (void) snprintf(of_pid, sizeof(of_pid), ", pid %" PRIu64, pid);
                if (restarts > 0)
                        (void) snprintf(of_restarts, sizeof(of_restarts), ", %" PRIu64 " restarts", restarts);
                (void) snprintf(text, sizeof(text), "%.20s%s%s", state ? state : "?", of_pid, of_restarts);
                add_row(table, name, text);
        }
}

static void add_engines(struct table *table, const json_t *status) {
        char text[480];
        size_t i;
        json_t *engine;
        if (!session_print_text_at(status, "engine_why"))
                return; /* a daemon of an older build */
        (void) snprintf(text, sizeof(text), "%s (%s)", session_print_text_at(status, "engine"),
                        session_print_text_at(status, "engine_why"));
        add_row(table, "engine", text);
        json_array_foreach (json_object_get(status, "engines"), i, engine)
                if (strcmp(session_print_text_at(engine, "name"), session_print_text_at(status, "engine")) != 0) {
                        bool is_there = json_is_true(json_object_get(engine, "there"));
                        const char *why = session_print_text_at(engine, "why");
                        if (is_there || why)
                                (void) snprintf(text, sizeof(text), "%s%s",
                                                is_there ? "is there" : "is not there: ", is_there ? "" : why);
                        else
                                (void) snprintf(text, sizeof(text), "is not there: needs %s",
                                                session_print_text_at(engine, "needs"));
                        add_row(table, session_print_text_at(engine, "name"), text);
                }
}

void status_print(const json_t *status) {
        const json_t *daemon = json_object_get(status, "daemon"), *pool = json_object_get(status, "pool");
        static const char *const texts[] = { "version", "socket", "api", "data_dir", "image", "python" };
        struct table table = table_make(NULL, 0);
        table.n_columns = 2;
        char text[100], bytes[32];
        (void) snprintf(text, sizeof(text), "running, pid %" PRIu64, session_print_number_at(daemon, "pid"));
        add_row(&table, "daemon", text);
        uint64_t uptime_ms = session_print_number_at(daemon, "uptime_ms");
        add_row(&table, "up for", uptime_ms < 1000 ? "less than a second" : format_age(uptime_ms, text));
        if (session_print_number_at(daemon, "memory_bytes"))
                add_row(&table, "memory", units_format_bytes(session_print_number_at(daemon, "memory_bytes"), bytes));
        for (size_t i = 0; i < ELEMENTS(texts); i++)
                add_row(&table, strcmp(texts[i], "data_dir") == 0 ? "data" : texts[i],
                        session_print_text_at(daemon, texts[i]));
        add_engines(&table, status);
        (void) snprintf(text, sizeof(text), "%" PRIu64 " of %" PRIu64 " ready", session_print_number_at(pool, "ready"),
                        session_print_number_at(pool, "wanted"));
        if (session_print_number_at(pool, "light_wanted")) {
                size_t size = strlen(text);
                (void) snprintf(text + size, sizeof(text) - size, ", light %" PRIu64 " of %" PRIu64,
                                session_print_number_at(pool, "light_ready"),
                                session_print_number_at(pool, "light_wanted"));
        }
        add_row(&table, "pool", text);
        add_supervisor(&table, json_object_get(status, "nursery"));
        add_nursery(&table, "nursery", json_object_get(status, "nursery"));
        add_nursery(&table, "light nursery", json_object_get(status, "light_nursery"));
        add_helpers(&table, json_object_get(status, "helpers"));
        const json_t *storage = json_object_get(status, "storage");
        if (json_is_true(json_object_get(storage, "reserve_in_use")))
                add_row(&table, "disk", "full: the daemon's reserve is in use, and new runs are refused");
        else if (storage)
                add_row(&table, "disk free", units_format_bytes(session_print_number_at(storage, "free_bytes"), bytes));
        const json_t *sessions = json_object_get(status, "sessions");
        (void) snprintf(text, sizeof(text), "%zu", json_array_size(sessions));
        add_row(&table, "sessions", text);
        table_print(&table, stdout);
        table_release(&table);
        if (json_array_size(sessions) > 0) {
                (void) puts("");
                session_print_list(sessions);
        }
}
