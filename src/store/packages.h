/* The packages of a session on the host's disk, and how a new set replaces the old one.
 *
 *   <state>/<id>/packages/          shown read-only in the session's boxes; its change time shows a new set
 *   <state>/<id>/packages/current/  the packages: a "user base" of Python's (lib/python3.11/site-packages, bin, …)
 *   <state>/<id>/packages/covers    there when a package covers one of the image: no kernel is forked from a nursery,
 *                                   which has imported the image's
 *   <state>/<id>/install/           where a helper box installs: current/, report.json, tmp/
 *
 * A helper box could leave anything in `install`: it is read by descriptor, no link in it is followed, and anything but
 * a plain tree within the session's limits is refused. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "box/limits.h"

/* Where boxes see them: in the session's, `packages`; in a helper's, `install`, and `packages` at the second place. */
#define PACKAGES_PLACE "/opt/glovebox/packages"
#define PACKAGES_BEFORE_PLACE "/opt/glovebox/packages-before"
#define PACKAGES_SITE PACKAGES_PLACE "/current/site" /* a link to site-packages, made by the helper */
#define PACKAGES_BIN PACKAGES_PLACE "/current/bin"

/* The session's directory of packages, made if missing; -errno. */
int packages_make_directory(const char *state_dir);

/* An empty `install`; -errno. */
int packages_make_staging(const char *state_dir);
void packages_drop_staging(const char *state_dir);

bool packages_cover_image(const char *state_dir);

/* Puts what lies in `install` in the place of `packages/current`, at once. *ret_report is {"installed": [{"name",
 * "version"}], "replaced": [names]}, cleaned. On failure nothing has changed. `install` is gone either way. May block
 * on the disk: call it in a child. */
int packages_settle(const char *state_dir, const struct limits *limits, json_t **ret_report, struct err *err);
