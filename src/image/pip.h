/* Runs the host's pip to fill a directory with packages. The user's pip configuration (index, proxy, certificates)
 * applies, but does not change the destination. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Called with pip's current step, at each change and a few times a second in between. */
typedef void pip_report(void *context, const char *what);

struct pip_job {
        const char *interpreter;
        const char *work_dir; /* absolute, owned by Glovebox: current directory, temporary files */
        const char *target;   /* absolute */
        const char *const *packages;
        size_t n_packages;
        const char *requirements; /* absolute path of a file, or NULL */
        bool allow_source;        /* build what has no wheel: runs the packages' own code on this host */
        pip_report *report;       /* may be NULL */
        void *context;
};

/* Between interrupt_begin and interrupt_end, Ctrl-C ends pip and fails with ERR_GONE. The message of a failure is
 * pip's own last error and what to do about it. */
int pip_install(const struct pip_job *job, struct err *err);
