/* The system calls that code in a box may make. The program is compiled when Glovebox is built, not at each start. */
#pragma once

#include <linux/filter.h>

/* The program of the default profile: allow-list; unknown calls answer ENOSYS, forbidden ones EPERM, foreign socket
 * families EAFNOSUPPORT; a foreign ABI kills. */
extern const struct sock_fprog seccomp_program;

/* The same, but for the calls with which a nursery makes kernels, and a short program that closes these: the two
 * together are the default profile. A kernel has the first from its nursery, since translating the whole profile anew
 * for each kernel takes 50 µs. One that still waits for its mounts (box/late_mounts.h) keeps what finishes its sealing
 * (Landlock and seccomp). */
extern const struct sock_fprog seccomp_nursery_program, seccomp_closing_program, seccomp_early_closing_program;

/* SHA-256 of the program's bytes in hex, for the isolation report. */
extern const char seccomp_program_sha256[65];

/* Installs it on this process (which must have no_new_privs). The filter applies to the caller from here on. Returns 0
 * or -errno; usable between clone and exec. */
int seccomp_install(void);

/* For a nursery; and for a kernel that was forked from it, which may have to wait for the second step. */
int seccomp_install_nursery(void);
int seccomp_close_early(void);
int seccomp_close(void);
