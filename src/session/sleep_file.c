#include "session/sleep_file.h"

#include <stdio.h>

#include "base/log.h"
#include "session/session.h"
#include "store/tenant_file.h"

#define UNREADABLE SLEEP_FILE ".unreadable"

/* Code in the box writes to this directory, too. */
static const char *kernel_directory(const struct session *session, char buffer[static 1100]) {
        (void) snprintf(buffer, 1100, "%s/kernel", session->state_dir);
        return buffer;
}

bool sleep_file_exists(const struct session *session) {
        char directory[1100];
        return !session->ephemeral && tenant_file_exists(kernel_directory(session, directory), SLEEP_FILE);
}

void sleep_file_remove(const struct session *session) {
        char directory[1100];
        if (!session->ephemeral)
                tenant_file_remove(kernel_directory(session, directory), SLEEP_FILE);
}

void sleep_file_set_aside(const struct session *session, const char *why) {
        char directory[1100];
        tenant_file_rename(kernel_directory(session, directory), SLEEP_FILE, UNREADABLE);
        daemon_log("session %s: cannot be woken: %.300s; the file is kept as %s/" UNREADABLE, session->row.name, why,
                   directory);
}
