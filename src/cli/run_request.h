/* The request of a `glovebox run`: parsed and checked for form; only the code was opened. The command line makes it,
 * run_execute carries it out. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "box/limits.h"
#include "cli/ui/option.h"
#include "egress/rules.h"

enum run_language { RUN_PYTHON, RUN_BASH, RUN_COMMAND, RUN_OTHER };

/* Where the program comes from. */
enum run_source { RUN_FROM_TEXT, RUN_FROM_INPUT, RUN_FROM_FILE, RUN_FROM_MODULE, RUN_FROM_COMMAND };

enum run_network { RUN_NETWORK_NONE, RUN_NETWORK_FULL };

extern const struct option_choice run_request_networks[];

struct run_mount {
        char *source; /* as typed: may be relative, may not exist; the policy opens and judges it */
        char *destination; /* absolute */
        bool writable;
};

enum { RUN_MOUNTS_MAX = 64, RUN_ENV_MAX = 1024, RUN_CODE_MAX_BYTES = 4 << 20 };

struct run_request {
        enum run_language language;
        enum run_source source;
        const char *module; /* RUN_FROM_MODULE */
        char interpreter[256]; /* RUN_OTHER: as in a #! line, or a name to be found in PATH */
        const char *interpreter_argument; /* that the #! line gives it, or NULL; points into owned_code's copy */
        const char *code; /* NULL for a command or module; no NUL inside, one after the end */
        size_t code_size;
        const char *code_name; /* "main.py", "main.sh", or the script's base name; NULL for a command */
        bool stdin_is_code; /* standard input was read to its end */
        char *code_source; /* owned: the script, an absolute path */
        char *script_name; /* owned: its name there */
        char *script_dir; /* owned: the directory on the host that holds it, which is shown unless is_alone */
        bool is_alone; /* the script is shown without what is beside it */
        char alone_reason[200]; /* why, unless it was asked for */
        bool needs_own_box; /* only a box that is made here can have it: the script is a pipe, or the like */
        char **args; /* NULL-terminated: argv of a command, or the arguments after the code */
        struct limits limits;
        const char *image;
        const char *engine, *isolation; /* of a session; NULL: the daemon's choice */
        const char *workspace; /* directory to show as /workspace, or NULL for an empty one, deleted afterwards */
        const char *data; /* directory to show read-only as /data, or NULL */
        const char *output_dir; /* where the artifacts are copied to at the end, or NULL */
        struct run_mount *mounts; /* owned; no destination twice */
        size_t n_mounts;
        char **env; /* owned; NULL-terminated "K=V", no K twice; NULL when there is none */
        size_t n_env;
        enum run_network network;
        const char *hosts[EGRESS_RULES_MAX]; /* what it may reach besides; checked for form */
        size_t n_hosts;
        struct egress_operator egress; /* the user's own rules on hosts */
        bool json;
        bool allow_weaker;
        bool quiet;
        bool verbose;
        const char *directory; /* where a command starts if it is there, or NULL: the workspace */
        json_t *image_config; /* owned: what cli/image_command.h points to */
        char **image_words; /* owned; the same */
        char *owned_argument;
        char *owned_code; /* what `code` points to when it was read from a file */
};

#define RUN_REQUEST_DEFAULT ((struct run_request) { .limits = LIMITS_DEFAULT, .image = "host" })

/* Frees what the request owns; its other strings are borrowed from the command line and the environment. */
void run_request_release(struct run_request *request);

/* "SRC:DST", "SRC:DST:ro", "SRC:DST:rw". A source may hold colons, a destination may not. */
int run_request_add_mount(struct run_request *request, const char *what, const char *text, struct err *err);

/* "K=V", or "K" to copy the variable from this process. A later one replaces an earlier one. */
int run_request_add_env(struct run_request *request, const char *what, const char *text, struct err *err);

/* The same two for rows of options; `request` is a struct run_request. */
int run_request_parse_mount(const char *what, const char *text, void *request, struct err *err);
int run_request_parse_env(const char *what, const char *text, void *request, struct err *err);

/* "HOST[:PORT]"; `request` is a struct run_request. */
int run_request_parse_host(const char *what, const char *text, void *request, struct err *err);

/* "HOST" and "NAME=ADDRESS"; `operator` is a struct egress_operator. */
int run_request_parse_private(const char *what, const char *text, void *settings, struct err *err);
int run_request_parse_pin(const char *what, const char *text, void *settings, struct err *err);

/* What the request may reach. */
int run_request_rules(const struct run_request *request, struct egress_rules *ret_rules, struct err *err);

/* Makes the box, runs the request in it, passes output on, cleans up. Returns the exit status (>= 0), or -1 with err
 * when the box could not be made. */
int run_execute(const struct run_request *request, struct err *err);
