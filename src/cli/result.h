/* The result of a run, and its JSON form, which is the same in every interface. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum run_status { RUN_OK, RUN_ERROR, RUN_TIMEOUT, RUN_OOM, RUN_KILLED, RUN_INTERRUPTED, RUN_STATUSES };

/* The kept part of a stream: any bytes. */
struct run_output {
        const char *bytes;
        size_t size;
        uint64_t cut_bytes; /* how many more there were */
};

/* The error. Strings may be NULL. */
struct run_error {
        const char *name; /* "memory_limit", "ValueError" */
        const char *value;
        const char *message; /* for people: what happened, why, what to do */
        const char *traceback;
};

/* A file that the run created or changed. */
struct run_artifact {
        const char *path;      /* inside the box */
        const char *host_path; /* on the host, or NULL when it is gone with the box */
        const char *mime;      /* or NULL when unknown */
        uint64_t size;
};

/* Everything is borrowed. */
struct run_result {
        const char *run_id;
        enum run_status status;
        struct run_output output;       /* standard output */
        struct run_output error_output; /* standard error */
        int exit_code;
        bool timed_out;
        bool oom_killed;
        uint64_t duration_ms;
        uint64_t cpu_ms;
        uint64_t memory_peak_bytes;
        const struct run_error *error; /* or NULL */
        const struct run_artifact *artifacts;
        size_t n_artifacts;
        bool artifacts_cut; /* there were more */
        json_t *value;     /* the last expression as a MIME bundle, or NULL */
        json_t *displays;  /* array of MIME bundles, or NULL for none */
        json_t *isolation; /* the isolation report, or NULL */
        const char *warning; /* or NULL */
};

/* A new reference, or NULL when memory ran out. Bytes that are not UTF-8 become U+FFFD. */
json_t *run_result_to_json(const struct run_result *result);
