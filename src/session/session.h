/* A session: a name, a directory, a kernel when one is needed, and the runs that wait for it. An ephemeral run is a
 * session without a name that ends with its only run. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/helper_job.h"
#include "kernel/kernel.h"
#include "session/disk.h"
#include "session/manager.h"
#include "session/run.h"
#include "store/artifact.h"

/* Where its variables are. Only session_set_state writes it. */
enum session_state {
        SESSION_NEW,     /* no kernel yet */
        SESSION_IDLE,
        SESSION_RUNNING,
        SESSION_TRIMMED, /* the kernel lives; its large data are on disk */
        SESSION_ASLEEP,  /* no kernel; everything is on disk */
        SESSION_LOST,    /* the kernel died; files are there, variables are not */
        SESSION_STATES
};

/* The open request to its kernel that is not a run. */
enum session_question {
        SESSION_ASKED_NOTHING,
        SESSION_ASKED_TRIM,
        SESSION_ASKED_TRIM_INSTEAD, /* instead of a sleep that a variable prevents */
        SESSION_ASKED_SLEEP,
        SESSION_ASKED_WAKE,
        SESSION_ASKED_PACKAGES,
};

/* Is it being removed? */
enum session_removal {
        SESSION_STAYS,
        SESSION_GOES,
        SESSION_GOES_LISTED, /* and it still has a row in the registry */
};

/* Name in the state directory under which the workspace is kept while the session is being removed. */
#define SESSION_REMOVED_WORKSPACE "removed"

/* Of a session whose kernel becomes a program of the caller's (session/program.h). */
struct session_program {
        char what[81];            /* for `ps`: its program, as its caller reports it */
        bool wants_listener;      /* its caller has a proxy of its own */
        bool is_asked_to_end;     /* by `glovebox kill` */
        struct loop_timer *timer; /* ends it if its caller does not */
};

/* Of a session at another Glovebox (daemon/remote.h): its kernel, files and journal are there. */
struct session_remote {
        char state[12];      /* as last reported, or "" */
        bool is_made_there;  /* the other Glovebox has it */
        bool is_moving_there; /* its instance is being made for it */
};

/* The files below artifacts/, as last seen (session/artifact_collect.h). */
struct session_artifacts {
        struct artifact_list seen;    /* as they were after the last run, */
        struct json_writer seen_many; /* or, if they were many, in packed form, */
        bool is_seen;                 /* `seen` or `seen_many` is set */
        int64_t empty_since_ns;       /* change time of a directory that was seen empty, or 0 */
        int64_t run_since_ns;         /* start of the time in which the active run may have changed something */
        struct helper_job *job;       /* examines many files, or copies those of an ephemeral run; the answer waits */
        void (*on_collected)(struct session *session);
        struct json_writer collected; /* what it found: an array */
        bool is_collected;
        struct kernel_reply outcome; /* the kernel's answer, which waits for it; empty if the kernel is dead */
};

struct session {
        struct session_manager *manager;
        struct session *next, **backlink; /* among all; what points here */
        struct session *next_by_id, *next_by_name;
        enum session_state state;
        enum session_removal removal;
        bool keep_files; /* when it is removed */
        struct registry_session row;
        char state_dir[1024], workspace[1024]; /* both "" if it is ephemeral and has no given workspace */
        int workspace_fd;                      /* open while there is a kernel, or -1 */

        bool ephemeral;
        bool is_program; /* then `program` holds */
        bool is_remote;  /* then `remote` holds */
        struct session_program program;
        struct session_remote remote;

        struct kernel *kernel;
        bool is_inherited;             /* the vault had its kernel */
        bool from_pool, needs_new_box; /* a box of the pool was tried, and was not suitable */
        struct egress_rules *granted;  /* owned; the network of an install; NULL: as in the row */
        enum session_question asked;
        struct caller *caller;   /* the caller of a trim or sleep */
        json_t *held_back;       /* names that kept it from sleeping, or NULL */
        json_t *wake_report;     /* variables that were lost in a sleep, for the next result; or NULL */
        struct install *install; /* that is under way, or NULL */
        struct install *helps;   /* this is the helper box of an install */

        struct run *runs;        /* the first one is active, or next */
        uint64_t waiting_number; /* of the last run that was stored (waiting_run.h) */
        bool light;              /* its only run needs no preloaded modules */
        bool gives_contents;     /* its result has the contents of its artifacts */
        uint64_t used_ms;        /* monotonic */
        bool is_unproven; /* its first run made it, and no kernel of it was ready yet: a failure leaves nothing */
        bool touched;            /* used since the registry was updated */
        struct session_artifacts artifacts;
        struct disk_use disk;
        void (*disk_report)(struct session *session, const struct kernel_reply *outcome);
};

/* Makes a session from its row: directories, record. Named ones are added to the registry by session_create. */
struct session *session_make(struct session_manager *manager, const struct registry_session *row, bool ephemeral,
                             struct err *err);
void session_free(struct session *session); /* the record and its kernel; files stay */

/* By name or id among the owner's; the operator, "", finds those of others by id, and by "key/name". */
struct session *session_find(struct session_manager *manager, const char *owner, const char *name);
bool session_is_seen_by(const struct session *session, const char *owner);
struct session *session_create(struct session_manager *manager, const struct registry_session *row, struct err *err);

/* Removes it: answers its runs, kills the kernel, and removes the files unless they are kept. */
void session_remove(struct session *session, bool keep_files);

/* Answers all that wait with an error. */
void session_fail_runs(struct session *session, const struct err *err);

enum { SESSION_RUNS_MAX = 64 }; /* waiting or active */

/* Queues a run and starts it as soon as the kernel is ready. Takes the run; one that cannot be started is freed, with
 * the reason in run->refusal. */
void session_submit(struct session *session, struct run *run);

/* Takes the next steps: orders a kernel, wakes it, starts a run. An ephemeral session whose run cannot be started is
 * freed. */
void session_advance(struct session *session);

/* The maker has added the requested mounts to the box of its kernel, which is from the pool; or could not. */
void session_attached(struct session *session, struct maker_reply *reply);

/* Ends a run for this reason; false if it is ending already. */
bool session_end_run(struct run *run, enum run_reason reason);

/* True if a run was active. */
bool session_interrupt(struct session *session);
void session_restart(struct session *session);

/* Ends a run whose caller has disconnected: interrupts it, or removes it from the queue. An ephemeral session may be
 * freed by this. */
void session_cancel(struct session *session, struct run *run);

/* Requests a sleep or a trim from the kernel; the answer goes to the caller (may be NULL). */
int session_hibernate(struct session *session, bool trim_only, struct caller *caller, struct err *err);

/* Sends the kernel PACKAGES with these fields (without the id), after an install. -1: it is busy. */
int session_ask_packages(struct session *session, const char *fields);

/* Returns a kernel that survived the last daemon to its session, which may have none afterwards. Takes the descriptors.
 * -1: there were too few descriptors or too little memory; the kernel lives, and the vault still has it. */
int session_adopt(struct session *session, pid_t pid, int fds[static MAKER_FDS], const char *kernel_id,
                  const char *group, struct err *err);

/* The journal of a session without a kernel; the caller closes it. */
int session_open_journal(const struct session *session, struct journal **ret_journal, struct err *err);

/* The isolation report of its boxes: a new reference. */
json_t *session_isolation(const struct session *session);

/* Changes its state. A transition that is not in the table is a bug: it is logged, and made anyway. */
void session_set_state(struct session *session, enum session_state state);
const char *session_state_name(const struct session *session);

/* True if its kernel is being ended on request. Then the next run waits for another one. */
static inline bool session_ends_kernel(const struct session *session) {
        return session->kernel && session->kernel->end_cause == KERNEL_END_REQUESTED;
}

static inline bool session_is_going(const struct session *session) {
        return session->removal != SESSION_STAYS;
}

/* Where the workspace is for reading: a descriptor that the caller closes, or -errno. */
int session_open_workspace(const struct session *session);

/* The same for the directory that its boxes see as /run/session. */
int session_open_kernel_directory(const struct session *session);
