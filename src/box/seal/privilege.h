/* Drops every privilege, in the one order that works. All return 0 or -errno and are usable between clone and exec. */
#pragma once

#include "box/limits.h"

/* A fresh, empty session keyring: keyrings are not namespaced and would show the caller's keys. */
int privilege_join_fresh_keyring(void);

/* For an exec of one of Glovebox's programs. Where uid 0 is not mapped it would take every capability away: what is
 * permitted becomes ambient. Programs that it starts do not inherit them. */
int privilege_pass_on(void);
int privilege_pass_on_no_more(void);

/* Bounding set, ambient set, securebits (locked), then all three process sets; and no_new_privs. Verified by reading
 * back; -EPERM if anything is left. */
int privilege_drop_all(void);

/* The same for a box with users, except that the capabilities to change users and to manage their files stay, in the
 * namespace of the box, for its root. */
int privilege_keep_for_users(void);
extern const char *const privilege_users_names[]; /* of these, ended by NULL */

/* Makes the process the first to be killed when the host's memory runs out. Needs /proc, and to be before Landlock,
 * which forbids it to the box. Never lowers what the host's administrator set. */
int privilege_offer_to_oom(void);

/* Resource limits that back the control groups. `weaker` (no memory or pids controller) adds the address-space and
 * process bounds that are all such a host has. */
int privilege_set_rlimits(const struct limits *limits, int has_memory_cgroup, int has_pids_cgroup);

/* Those of them that are counted per user: their values when a user namespace is made bound all of its users
 * together. */
int privilege_set_user_rlimits(const struct limits *limits, int has_pids_cgroup);
