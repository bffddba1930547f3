/* The options of the daemon. `glovebox serve` fills them, serve_run reads them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/data_dir.h"
#include "base/err.h"
#include "box/limits.h"
#include "egress/rules.h"
#include "engine/engine.h"

#define SERVE_RESERVE_STANDARD UINT64_MAX /* session/disk.c computes it */

enum { SERVE_SOCKET_PATH_MAX = 108, SERVE_POOL_MAX = 64, SERVE_BOX_POOL_MAX = 64 };

struct daemon;
struct serve_options;
struct socket_row;

/* A front end beside the socket. It belongs to a higher layer, which passes it down. */
struct serve_front {
        /* Opened when everything else is there; `settings` is the front's own. */
        int (*open)(struct daemon *daemon, const void *settings, void **ret_front, struct err *err);

        /* Accepts nothing new; calls back, once, when no answer is open. */
        void (*drain)(void *front, void (*on_drained)(void *context), void *context);
        void (*close)(void *front);
};

struct serve_options {
        char socket_path[SERVE_SOCKET_PATH_MAX]; /* absolute */
        char socket_link[DATA_DIR_PATH_MAX];        /* a link to it in a project, or "" */
        bool socket_dir_is_ours;                 /* one of runtime_dirs */
        char project[DATA_DIR_PATH_MAX];            /* the project's directory, absolute and resolved, or "" */
        char data_dir[DATA_DIR_PATH_MAX];           /* as data_dir_open gave it */

        /* what sessions and ephemeral runs get unless they ask for something else */
        const char *image;
        struct limits limits;
        struct limits ceiling; /* what keys of the service may ask for at most; 0: no bound */
        bool allow_weaker;

        const char *engine; /* that makes boxes unless a session asks for another; NULL: auto */
        struct engine_settings engines;
        /* Called once at the start: which engine serves, and why. NULL is fine. */
        void (*engine_chosen)(const struct serve_options *options, const char *name, const char *why);

        /* what callers of the socket may show to a box: directories separated by colons, NULL for none */
        const char *allow_read, *allow_write;

        struct egress_operator egress; /* what boxes may reach, and what their clients may not ask for */

        uint64_t pool;       /* kernels kept ready; 0: none */
        uint64_t box_pool;   /* boxes kept without a kernel; 0: none */
        const char *preload; /* modules separated by commas or blanks; NULL: the image's own list; "": none */
        uint64_t idle_ms;    /* until a session is hibernated; 0: never */
        uint64_t keep_outputs_ms; /* how long artifacts of ephemeral runs are kept; 0: for ever */
        uint64_t df_bytes;   /* DataFrames, Series and Tables above this are trimmed */
        uint64_t np_bytes;   /* arrays above this are trimmed */
        uint64_t reserve_disk_bytes; /* kept free on the file system of the data directory */
        uint64_t audit_bytes; /* of the audit log, before it is rotated; 0: none */
        uint64_t key_share_percent; /* of what keys share, for one of them; 0: the standard */
        uint64_t drain_ms;   /* how long the end waits for open requests */
        bool verbose;

        const struct socket_row *front_rows; /* operations of layers above, ended by a NULL name; NULL: none */
        const struct serve_front *front; /* NULL: none */
        const void *front_settings;

        /* Called once, when clients can connect. NULL is fine. */
        void (*ready)(void *context);
        void *ready_context;
};
