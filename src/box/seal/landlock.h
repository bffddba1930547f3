/* Landlock: a second line of defence behind the mount namespace. It allows reading below /, and writing only where a
 * box may write; it forbids abstract sockets and signals to processes outside of the box. */
#pragma once

#include <stddef.h>

/* The ABI of this kernel; 0 if it has none (doctor and the report show that); -errno if it cannot be determined. */
int landlock_abi(void);

/* Builds the rule set over paths as seen now and restricts the calling process for good; writable is a list of
 * files, and of directories that may be written below. Rights the ABI does not know are left out. Needs no_new_privs.
 * Returns 0 or -errno; usable between clone and exec; fatal for the caller except when landlock_abi() is 0. */
int landlock_restrict(const char *const *writable, size_t n_writable);
