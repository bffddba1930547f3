#include "session/artifact_listing.h"

#include <stdlib.h>

#include "base/fd.h"
#include "base/helper_job.h"
#include "session/caller.h"
#include "session/manager.h"

enum { PATIENCE_MS = 60000 };

struct listing {
        struct caller *caller; /* NULL: it has left */
        artifact_listed *done;
        int workspace_fd;
};

static void listing_free(struct listing *listing) {
        if (listing->caller)
                listing->caller->held_by = NULL;
        fd_close(&listing->workspace_fd);
        free(listing);
}

static int list_in_child(const int *fds, int out_fd, void *context) {
        (void) context;
        struct artifact_list list = { 0 };
        struct json_writer bytes = { 0 };
        if (artifact_scan(fds[0], &list, NULL) < 0)
                return -1;
        artifact_list_pack(&list, &bytes);
        return bytes.failed ? -1 : fd_write_all(out_fd, bytes.bytes, bytes.size);
}

static void artifact_listing_on_listed(void *context, const char *bytes, size_t size) {
        struct listing *listing = context;
        struct caller *caller = listing->caller;
        artifact_listed *done = listing->done;
        struct artifact_list list = { 0 };
        int workspace_fd = take_fd(&listing->workspace_fd);
        listing_free(listing);
        if (caller && bytes && artifact_list_unpack(bytes, size, &list) == 0) {
                done(caller, &list, workspace_fd);
                return;
        }
        fd_close(&workspace_fd);
        if (caller)
                done(caller, NULL, -1);
}

int artifact_listing_get(struct caller *caller, int workspace_fd, artifact_listed *done, struct err *err) {
        struct artifact_list list = { 0 };
        if (artifact_scan_few(workspace_fd, &list)) {
                done(caller, &list, workspace_fd);
                return 0;
        }
        struct listing *listing = malloc(sizeof(*listing));
        if (!listing) {
                fd_close(&workspace_fd);
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        *listing = (struct listing) { caller, done, workspace_fd };
        caller->held_by = &listing->caller;
        char queue[HELPER_JOB_QUEUE_ROOM];
        helper_job_name_queue(workspace_fd, queue);
        const struct helper_job_order order = { .fds = { workspace_fd },
                                                .n_fds = 1,
                                                .timeout_ms = PATIENCE_MS,
                                                .queue = queue,
                                                .work = list_in_child,
                                                .done = artifact_listing_on_listed,
                                                .context = listing,
                                                manager_job_of(caller->manager, caller->owner) };
        if (helper_job_start(caller->manager->loop, &order, err))
                return 0;
        listing_free(listing);
        return -1;
}
