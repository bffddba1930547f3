/* Describes a session: its isolation, its journal. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "box/host/host_trial.h"
#include "box/host/report.h"
#include "session/network.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "session/session_config.h"
#include "session/session_engine.h"

int session_open_journal(const struct session *session, struct journal **ret_journal, struct err *err) {
        char path[1100];
        (void) snprintf(path, sizeof(path), "%s/journal", session->state_dir);
        _cleanup_fd_ int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0 && errno != ENOENT)
                return err_sys(err, errno, "cannot open the journal of session %s", session->row.name);
        if (dir < 0)
                return err_set(err, ERR_NOT_FOUND, "session %s has not run anything yet", session->row.name);
        bool torn;
        return journal_open(dir, ret_journal, &torn, err);
}

/* The differences of a box of another engine: guest/entry seals it, and the engine made its namespaces. */
static void report_engine(const struct session *session, const struct session_engine *engine, json_t *report) {
        static const char *const namespaces[] = { "mount", "pid", "network", "ipc", "uts", "cgroup" };
        const struct engine *maker = engine_find(engine->name, NULL);
        bool is_gvisor = strcmp(engine->runtime, session->manager->options->engines.gvisor) == 0;
        const struct engine_settings *settings = &session->manager->options->engines;
        bool is_users = maker && engine_is_rootless(maker, settings); /* rootless podman */
        bool has_users = maker && (maker->has_users || is_users);
        enum engine_isolation isolation = is_gvisor ? ENGINE_GVISOR : maker ? maker->isolation : ENGINE_CONTAINER;
        json_t *names = json_array(), *weaker = json_array();
        for (size_t i = 0; i < ELEMENTS(namespaces); i++)
                json_array_append_new(names, json_string(namespaces[i]));
        if (has_users)
                json_array_append_new(names, json_string("user"));
        else
                json_array_append_new(weaker, json_string("user: no user namespace; the user of the box is one of the "
                                                          "host's, without any capability"));
        if (maker && !engine_has_bounds(maker, settings))
                json_array_append_new(weaker, json_string("memory, pids, cpu: a user's engine has no control groups of "
                                                          "version 1; only the address space of each process and the "
                                                          "processes of this user are bounded"));
        json_object_set_new(report, "engine", json_string(engine->name));
        json_object_set_new(report, "isolation", json_string(engine_isolation_name(isolation)));
        json_object_set_new(report, "runtime", *engine->runtime ? json_string(engine->runtime) : json_null());
        json_object_set_new(report, "namespaces", names);
        json_object_set_new(report, "weaker", weaker);
        if (!has_users)
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
        const struct box_spec spec = { .image = &image,
                                       .limits = session->row.limits,
                                       .without_proc = session->row.allow_weaker && host_refuses_proc(),
                                       .users = session_config_has_users(&session->row),
                                       .host_uid = session->kernel ? session->kernel->host_uid : 0,
                                       .network = rules ? egress_rules_describe(rules, network) : NULL };
        json_t *report = report_make(&spec, &session->manager->host, session->manager->rootless);
        struct session_engine engine = session_engine_of(&session->row);
        if (*engine.name)
                report_engine(session, &engine, report);
        /* Its user id on the host is leased when the box is made. */
        if (!session->kernel || session->kernel->state == KERNEL_MAKING)
                json_object_set_new(report, "uid_map", json_null());
        json_object_set_new(report, "disk",
                            json_pack("{s:I, s:I, s:s}", "bytes", (json_int_t) session->row.limits.disk_bytes, "files",
                                      (json_int_t) session->row.limits.disk_files, "by", disk_bounded_by(session)));
        return report;
}
