/* The host's abilities that matter for a box: each with its state, a description, and how to fix it. The probes change
 * nothing and need no privilege; they try things out in child processes if possible. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "box/cgroup/cgroup.h"

enum host_state { HOST_YES, HOST_WEAKER, HOST_NO };

/* What fails without it. */
enum host_need {
        HOST_NEED_BOX,    /* no box can be made */
        HOST_NEED_LIMITS, /* only with --allow-weaker */
        HOST_NEED_ADVICE, /* a second wall, or the host's own hardening */
};

struct host_row {
        const char *name;  /* "user_namespaces", for programs */
        const char *title; /* "user namespaces", for people */
        enum host_need need;
        enum host_state state;
        char detail[240];
        char fix[600]; /* "" when the state is HOST_YES */
};

enum { HOST_ROWS_MAX = 40 };

/* the result of a trial in a child process; see host_trial.h */
struct host_trial {
        int step;
        int sys_errno;
};

struct host_report {
        struct cgroup_host cgroups;
        struct host_trial trial;
        bool root;            /* the host's own superuser, not root of some user namespace */
        char container[64];   /* how a container was recognised, or "" */
        char kernel[80];
        struct host_row rows[HOST_ROWS_MAX];
        size_t n_rows;
};

/* One row of the table of probes. The probe may use the results of earlier probes, and calls host_row_set. */
struct host_probe {
        const char *name;
        const char *title;
        enum host_need need;
        void (*probe)(const struct host_report *report, struct host_row *row);
};

/* Runs every probe, then `more` of the caller (the layers above have theirs, such as the image's Python). */
void host_look(struct host_report *ret_report, const struct host_probe *more, size_t n_more);

/* How a container was recognised, or "". */
void host_find_container(char ret_mark[static 64]);

/* Sets the result of a probe. `fix` must say what to do unless the state is HOST_YES. */
void host_row_set(struct host_row *row, enum host_state state, const char *fix, const char *detail, ...)
        __attribute__((format(printf, 4, 5)));

enum host_verdict { HOST_VERDICT_FULL, HOST_VERDICT_WEAKER, HOST_VERDICT_IMPOSSIBLE };

enum host_verdict host_decide(const struct host_report *report);

const char *host_state_name(enum host_state state);       /* "yes", "weaker", "no" */
const char *host_need_name(enum host_need need);          /* "box", "limits", "advice" */
const char *host_verdict_name(enum host_verdict verdict); /* "full", "weaker", "impossible" */
