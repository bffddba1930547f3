/* `pip install` into a session.
 *
 * Theory of operation. Nothing is installed by the daemon, nor in the session's own box, which has no network and may
 * not write to its packages. Step by step, and none of them makes the daemon's loop wait: 1. a helper job reads the
 * settings of the host's own pip (guest/kernel/glovebox_kernel/pip_settings.py); 2. a helper box, an ephemeral session
 * with the session's image and limits, installs into an empty directory
 *     (install.py beside it). It alone may reach the hosts that pip's settings name. Its run is streamed as any other;
 *  3. when the box is gone, a job looks at what it left and puts it in the place of the old packages, at once
 *     (store/packages.h). A helper that failed or was killed has changed nothing;
 *  4. the kernel, if it is free, is asked which of the new packages it has imported in another version.
 * One install at a time for each session; its runs go on meanwhile. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct caller;
struct install;
struct maker_request;
struct session;

enum { INSTALL_TIMEOUT_MS = 300000 };

/* Begins an install of `packages`, a list of texts that requirement_check accepts. The caller is answered later. */
int install_begin(struct session *session, struct caller *caller, json_t *packages, uint64_t timeout_ms,
                  struct err *err);

/* The session is being removed. True when the install ends later, and then calls session_remove again. */
bool install_stop(struct install *install);

/* The session's record is being freed, with the daemon. */
void install_abandon(struct install *install);

/* ---- for its helper box ---- */

/* Sets what differs in the helper box from the box of an ephemeral session. */
void install_fill_request(const struct install *install, struct maker_request *request);

/* The directory that its box writes to, to be measured. */
void install_staging(const struct install *install, char *ret_path, size_t room);

/* The record of the helper session is being freed: its box was removed. */
void install_helper_gone(struct install *install);

/* ---- for the session's kernel ---- */

/* The kernel's answer to PACKAGES; NULL if it died. */
void install_kernel_answered(struct install *install, json_t *answer);
