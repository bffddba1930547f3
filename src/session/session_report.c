/* What is told about a session: its state, its limits, its isolation, its journal. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/memory.h"
#include "box/host/report.h"
#include "session/network.h"
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
        /* Its user id on the host is leased when the box is made. */
        if (!session->kernel || session->kernel->state == KERNEL_MAKING)
                json_object_set_new(report, "uid_map", json_null());
        json_object_set_new(report, "disk",
                            json_pack("{s:I, s:I, s:s}", "bytes", (json_int_t) session->row.limits.disk_bytes, "files",
                                      (json_int_t) session->row.limits.disk_files, "by", disk_bounded_by(session)));
        return report;
}
