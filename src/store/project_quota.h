/* Project quotas (ext4 and XFS, mounted with prjquota): the kernel itself bounds what a directory tree holds. Only root
 * can set them, and only from outside of a user namespace, so that no box can change its own.
 * */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Makes the directory, which must be empty, a project of its own with these limits. `name` chooses the project's number
 * together with what is taken already. -errno: there are no quotas here, or they are not enforced; nothing was changed.
 */
int project_quota_set(int dir_fd, const char *name, uint64_t bytes, uint64_t files);

/* True if it is one of Glovebox's projects, with enforced limits. */
bool project_quota_is_set(int dir_fd);

/* What one of Glovebox's projects holds. The limits do not bind processes of root: it has to look. -errno */
int project_quota_used(int dir_fd, uint64_t *ret_bytes, uint64_t *ret_files);

/* Changes the limits of one of Glovebox's projects. -errno */
int project_quota_change(int dir_fd, uint64_t bytes, uint64_t files);

/* Removes its limits: the number is free for another project when the files are gone. */
void project_quota_clear(int dir_fd);

/* ---- for its test ---- */

/* The first number to try for this name, and the next one. */
uint32_t project_quota_number(const char *name);
uint32_t project_quota_next(uint32_t number);
bool project_quota_is_ours(uint32_t number);
