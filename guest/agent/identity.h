/* The user of a process, in a box with users. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

enum { IDENTITY_GROUPS_MAX = 64, IDENTITY_TEXT_MAX = 256 };

struct identity {
        uid_t uid;
        gid_t gid;
        gid_t groups[IDENTITY_GROUPS_MAX];
        size_t n_groups;
        char name[IDENTITY_TEXT_MAX], home[IDENTITY_TEXT_MAX], shell[IDENTITY_TEXT_MAX];
};

/* The sandbox's own user, which does not depend on /etc. */
struct identity identity_of_sandbox(void);

/* By name or number, from /etc/passwd and /etc/group of the box. -ENOENT: there is none; -errno. */
int identity_find(const char *user, struct identity *ret_identity);

/* Becomes it, for an exec: raises what is permitted first. Users other than root have no capability afterwards. */
int identity_become(const struct identity *identity);

/* Of the agent itself. In a box with users its effective capabilities are empty, but for the moment of a signal; in
 * others it has none, and nothing is done. 0 or -errno. */
int identity_begin(void); /* this is a box with users */
int identity_rise(void);
int identity_rest(void);
