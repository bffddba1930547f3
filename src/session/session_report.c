/* What is told about a session: its state, its limits, its isolation, its journal. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "box/host/report.h"
#include "session/held_back.h"
#include "session/network.h"
#include "session/session_engine.h"
#include "session/serve_options.h"
#include "session/session.h"

int session_open_journal(const struct session *session, struct journal **ret_journal, struct err *err) {
        char path[1100];
        (void) snprintf(path, sizeof(path), "%s/journal", session->state_dir);
        _cleanup_fd_ int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0)
                return err_set(err, ERR_NOT_FOUND, "session %s has not run anything yet", session->row.name);
        bool torn;
        return journal_open(dir, ret_journal, &torn, err);
}

/* What differs in a box of another engine. Its sealing is ours (guest/entry), its namespaces are the engine's. */
static void tell_engine(const struct session *session, const struct session_engine *engine, json_t *report) {
        static const char *const namespaces[] = { "mount", "pid", "network", "ipc", "uts", "cgroup" };
        bool is_gvisor = strcmp(engine->runtime, session->manager->options->engines.gvisor) == 0;
        json_t *names = json_array(), *weaker = json_array();
        for (size_t i = 0; i < ELEMENTS(namespaces); i++)
                json_array_append_new(names, json_string(namespaces[i]));
        json_array_append_new(weaker, json_string("user: no user namespace; the user of the box is one of the host's, "
                                                  "without any capability"));
        json_object_set_new(report, "engine", json_string(engine->name));
        json_object_set_new(report, "isolation", json_string(is_gvisor ? "gvisor" : "container"));
        json_object_set_new(report, "runtime", *engine->runtime ? json_string(engine->runtime) : json_null());
        json_object_set_new(report, "namespaces", names);
        json_object_set_new(report, "weaker", weaker);
        json_object_set_new(report, "uid_map", json_null());
        if (is_gvisor)
                json_object_set_new(report, "landlock_abi", json_integer(0));
}

json_t *session_isolation(const struct session *session) {
        struct image image = { 0 };
        (void) snprintf(image.name, sizeof(image.name), "%s", session->row.image);
        _cleanup_free_ struct egress_rules *rules = NULL;
        char network[64];
        (void) network_rules_of(session, &rules, NULL);
        const struct box_spec spec = { .image = &image, .limits = session->row.limits,
                                       .host_uid = session->kernel ? session->kernel->host_uid : 0,
                                       .network = rules ? egress_rules_describe(rules, network) : NULL };
        json_t *report = report_make(&spec, &session->manager->host, session->manager->rootless);
        struct session_engine engine = session_engine_of(&session->row);
        if (*engine.name)
                tell_engine(session, &engine, report);
        else
                json_object_set_new(report, "isolation", json_string("container"));
        /* Its user id on the host is leased when the box is made. */
        if (!session->kernel || session->kernel->state == KERNEL_MAKING)
                json_object_set_new(report, "uid_map", json_null());
        json_object_set_new(report, "disk",
                            json_pack("{s:I, s:I, s:s}", "bytes", (json_int_t) session->row.limits.disk_bytes, "files",
                                      (json_int_t) session->row.limits.disk_files, "by", disk_bounded_by(session)));
        return report;
}

const char *session_state_name(const struct session *session) {
        static const char *const names[] = { "new", "idle", "running", "trimmed", "asleep", "lost" };
        return names[session->state];
}

json_t *session_to_json(const struct session *session, bool is_brief) {
        const struct limits *limits = &session->row.limits;
        struct cgroup_usage usage = { 0 };
        if (session->kernel && session->kernel->cgroup.host)
                cgroup_read_usage(&session->kernel->cgroup, &usage);
        json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b}", "id", session->row.id,
                                 "name", session->row.name, "state", session_state_name(session), "image",
                                 session->row.image, "mode", session->row.mode, "workspace", session->workspace,
                                 "created", (json_int_t) session->row.created_ms, "used",
                                 (json_int_t) session->row.used_ms, "memory_bytes", (json_int_t) usage.memory_now_bytes,
                                 "cpu_ms", (json_int_t) (usage.cpu_us / 1000), "pid",
                                 (json_int_t) (session->kernel ? session->kernel->pid : 0), "allow_weaker",
                                 (int) session->row.allow_weaker);
        if (!json)
                return json_object();
        json_object_set_new(json, "limits",
                            json_pack("{s:I, s:f, s:I, s:I, s:I, s:I, s:I}", "memory_bytes",
                                      (json_int_t) limits->memory_bytes, "cpus",
                                      (double) limits->cpu_thousandths / 1000, "pids", (json_int_t) limits->pids,
                                      "timeout_ms", (json_int_t) limits->timeout_ms, "tmp_bytes",
                                      (json_int_t) limits->tmp_bytes, "disk_bytes", (json_int_t) limits->disk_bytes,
                                      "disk_files", (json_int_t) limits->disk_files));
        struct session_engine engine = session_engine_of(&session->row);
        json_object_set_new(json, "engine", json_string(*engine.name ? engine.name : "native"));
        if (*session->row.owner)
                json_object_set_new(json, "key", json_string(session->row.owner));
        if (session->held_back)
                json_object_set_new(json, "held_back", is_brief ? held_back_brief(session->held_back)
                                                                  : json_incref(session->held_back));
        return json;
}
