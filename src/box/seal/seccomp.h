/* The system calls that code in a box may make. The program is compiled when Glovebox is built, not at each start. */
#pragma once

#include <linux/filter.h>

/* The program of the default profile: allow-list; unknown calls answer ENOSYS, forbidden ones EPERM, foreign socket
 * families EAFNOSUPPORT; a foreign ABI kills. */
extern const struct sock_fprog seccomp_program;

/* The same, but for the calls that finish a sealing (Landlock and seccomp), and a short program that closes these: the
 * two together are the default profile. A box that still waits for its mounts (box/late_mounts.h) has the first one. */
extern const struct sock_fprog seccomp_early_program, seccomp_closing_program;

/* SHA-256 of the program's bytes in hex, for the isolation report. */
extern const char seccomp_program_sha256[65];

/* Installs it on this process (which must have no_new_privs). The filter applies to the caller from here on. Returns 0
 * or -errno; usable between clone and exec. */
int seccomp_install(void);

/* The same in two steps. */
int seccomp_install_early(void);
int seccomp_install_closing(void);
