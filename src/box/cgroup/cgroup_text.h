/* Parses the kernel's files about control groups: pure functions over text, so that every kind of host can be tested on
 * one. They make no system calls. All return 0 or -errno: -ENOENT if the text does not have the answer, -ENAMETOOLONG
 * if the answer does not fit. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { CGROUP_PATH_MAX = 512 };

/* Where one hierarchy is mounted. */
struct cgroup_mount {
        char root[CGROUP_PATH_MAX]; /* which part of the hierarchy is shown there; "/" for all of it */
        char point[CGROUP_PATH_MAX];
        bool read_only;
};

/* Finds in /proc/self/mountinfo the v1 hierarchy that holds `controller`, or the cgroup2 tree when it is NULL. Where
 * one is mounted more than once, a writable mount is preferred, then the first. */
int cgroup_text_find_mount(const char *mountinfo, const char *controller, struct cgroup_mount *ret_mount);

/* Finds in /proc/self/cgroup our own group in the v1 hierarchy of `controller`, or in the cgroup2 tree for NULL. */
int cgroup_text_find_own(const char *proc_cgroup, const char *controller, char ret_path[static CGROUP_PATH_MAX]);

/* The directory of the group `path` as visible through `mount`. -ENOENT when it lies outside what the mount shows. */
int cgroup_text_locate(const struct cgroup_mount *mount, const char *path, char ret_dir[static CGROUP_PATH_MAX]);

/* The deepest directory that holds both (equal paths hold each other). Both are absolute, without "." or "..". */
void cgroup_text_common(const char *a, const char *b, char ret_dir[static CGROUP_PATH_MAX]);

/* Is this one of the words of a list separated by blanks or commas, such as cgroup.controllers? */
bool cgroup_text_has_word(const char *text, const char *word);

/* The number on the line "key number", as in cpu.stat, memory.events and memory.oom_control. */
int cgroup_text_find_number(const char *text, const char *key, uint64_t *ret_number);

/* The next process id of a cgroup.procs list; moves *text behind it. False at the end. Ids that are not positive (a
 * process of an outer pid namespace shows as 0) are left out: kill(0) would be our own death. */
bool cgroup_text_next_pid(const char **text, int *ret_pid);

/* A name of a directory we may create boxes in: relative, one or more plain components. */
bool cgroup_text_is_relative(const char *path);
