/* `glovebox serve`: the daemon, in the foreground or in the background (cli/serve_background.h). */
#include "cli/serve_verb.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/key.h"
#include "api/service.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/process_title.h"
#include "cli/box_rows.h"
#include "cli/engine_variables.h"
#include "cli/serve_background.h"
#include "cli/serve_check.h"
#include "cli/serve_init.h"
#include "cli/ui/terminal.h"
#include "cli/verb.h"
#include "daemon/daemon.h"
#include "mcp/channel.h"
#include "session/serve_options.h"

struct line {
        struct serve_options options;
        struct socket_choice where;
        struct service_settings service;
        const char *new_key;
        uint64_t port;
        bool background;
};

enum { PORT_NONE = 65536, PORT_STANDARD = 8080 };

#define FIELD(field) offsetof(struct line, field)

static const struct option_row rows[] = {
        { .name = "background",
          .kind = OPTION_FLAG,
          .offset = FIELD(background),
          .group = "Daemon",
          .help = "return when the daemon is ready; it logs to daemon.log in the data directory" },
        SOCKET_ROWS(FIELD(where)),
        { .name = "allow-read",
          .kind = OPTION_TEXT,
          .offset = FIELD(options.allow_read),
          .argument = "DIR:…",
          .group = "Daemon",
          .variable = "GLOVEBOX_ALLOW_READ",
          .help = "directories that programs on the socket may mount read-only; default: none. The command line needs "
                  "no list" },
        { .name = "allow-write",
          .kind = OPTION_TEXT,
          .offset = FIELD(options.allow_write),
          .argument = "DIR:…",
          .group = "Daemon",
          .variable = "GLOVEBOX_ALLOW_WRITE",
          .help = "directories that programs on the socket may mount writable" },
        { .name = "allow-full-network",
          .kind = OPTION_FLAG,
          .offset = FIELD(options.egress.allow_full),
          .group = "Network",
          .variable = "GLOVEBOX_ALLOW_FULL_NETWORK",
          .help = "allow boxes --network full: every public host" },
        EGRESS_ROWS(FIELD(options.egress)),
        { .name = "engine",
          .kind = OPTION_TEXT,
          .offset = FIELD(options.engine),
          .argument = "NAME",
          .group = "Engines",
          .variable = "SANDBOX_MODE",
          .standard = "auto",
          .help = "the engine of sessions that name none: auto, native, docker, podman, incus, "
                  "incus-vm or remote; auto is remote if --remote-url is given, else native, else docker, podman, incus" },
        { .name = "engine-image",
          .kind = OPTION_TEXT,
          .offset = FIELD(options.engines.image),
          .argument = "IMAGE",
          .group = "Engines",
          .variable = "DOCKER_SANDBOX_IMAGE",
          .help = "the image of sessions on docker and podman that name none" },
        { .name = "docker-socket",
          .kind = OPTION_TEXT,
          .offset = FIELD(options.engines.docker_socket),
          .argument = "PATH",
          .group = "Engines",
          .variable = "GLOVEBOX_DOCKER_SOCKET",
          .standard = "/var/run/docker.sock",
          .help = "where dockerd listens" },
        { .name = "podman-socket",
          .kind = OPTION_TEXT,
          .offset = FIELD(options.engines.podman_socket),
          .argument = "PATH",
          .group = "Engines",
          .variable = "GLOVEBOX_PODMAN_SOCKET",
          .standard = "/run/podman/podman.sock",
          .help = "where \"podman system service\" listens" },
        { .name = "incus-socket",
          .kind = OPTION_TEXT,
          .offset = FIELD(options.engines.incus_socket),
          .argument = "PATH",
          .group = "Engines",
          .variable = "INCUS_SOCKET",
          .help = "where incusd listens; default: unix.socket in $INCUS_DIR or /var/lib/incus" },
        { .name = "incus-image",
          .kind = OPTION_TEXT,
          .offset = FIELD(options.engines.incus_image),
          .argument = "IMAGE",
          .group = "Engines",
          .variable = "INCUS_SANDBOX_IMAGE",
          .help = "the image of sessions on incus that name none" },
        { .name = "engine-runtime",
          .kind = OPTION_TEXT,
          .offset = FIELD(options.engines.runtime),
          .argument = "NAME",
          .group = "Engines",
          .variable = "GLOVEBOX_ENGINE_RUNTIME",
          .help = "the runtime of all containers, for example runsc; without it the engine's own" },
        { .name = "gvisor-runtime",
          .kind = OPTION_TEXT,
          .offset = FIELD(options.engines.gvisor),
          .argument = "NAME",
          .group = "Engines",
          .variable = "GLOVEBOX_GVISOR_RUNTIME",
          .standard = "runsc",
          .help = "the name of gVisor's runtime in docker or podman, for sessions that demand it" },
        { .name = "remote-url",
          .kind = OPTION_TEXT,
          .offset = FIELD(options.engines.remote_url),
          .argument = "URL",
          .group = "Engines",
          .variable = "SANDBOX_API_URL",
          .help = "another Glovebox, which serves the sessions of the engine remote; its key is in $SANDBOX_API_KEY" },
        { .name = "remote-timeout",
          .kind = OPTION_DURATION,
          .offset = FIELD(options.engines.remote_timeout_ms),
          .argument = "TIME",
          .group = "Engines",
          .variable = "SANDBOX_API_TIMEOUT",
          .standard = "30s",
          .min = 100,
          .max = BOX_MS_PER_DAY,
          .help = "how long the remote may be out of reach before requests to it fail" },
        { .name = "remote-ca",
          .kind = OPTION_TEXT,
          .offset = FIELD(options.engines.remote_ca),
          .argument = "FILE",
          .group = "Engines",
          .variable = "GLOVEBOX_REMOTE_CA",
          .completion = COMPLETE_FILES,
          .help = "trust the certificates in this file for the remote, instead of the system's" },
        { .name = "pool",
          .kind = OPTION_COUNT,
          .offset = FIELD(options.pool),
          .argument = "NUMBER",
          .group = "Kernels",
          .variable = "GLOVEBOX_POOL",
          .standard = "2",
          .min = 0,
          .max = SERVE_POOL_MAX,
          .help = "sealed interpreters kept ready for ephemeral runs, and as many without preloaded modules" },
        { .name = "box-pool",
          .older_name = "stock",
          .kind = OPTION_COUNT,
          .offset = FIELD(options.box_pool),
          .argument = "NUMBER",
          .group = "Kernels",
          .variable = "GLOVEBOX_BOX_POOL",
          .older_variable = "GLOVEBOX_STOCK",
          .standard = "4",
          .min = 0,
          .max = SERVE_BOX_POOL_MAX,
          .help = "sealed boxes without an interpreter kept ready, for when the pool is empty" },
        { .name = "preload",
          .kind = OPTION_CODE,
          .offset = FIELD(options.preload),
          .argument = "LIST",
          .group = "Kernels",
          .variable = "GLOVEBOX_PRELOAD",
          .help = "modules imported in every interpreter, separated by commas; \"\" for none; default: numpy, pandas, "
                  "sklearn, pyarrow, rdkit, matplotlib and scipy, if the image has them" },
        { .name = "idle",
          .kind = OPTION_DURATION,
          .offset = FIELD(options.idle_ms),
          .argument = "TIME",
          .group = "Kernels",
          .variable = "IDLE_HIBERNATE_SEC",
          .alias = "SANDBOX_DOCKER_TIMEOUT",
          .standard = "900",
          .min = 0,
          .max = 365 * BOX_MS_PER_DAY,
          .help = "hibernate a session after this idle time; 0 for never" },
        { .name = "keep-outputs",
          .kind = OPTION_DURATION,
          .offset = FIELD(options.keep_outputs_ms),
          .argument = "TIME",
          .group = "Kernels",
          .variable = "GLOVEBOX_KEEP_OUTPUTS",
          .standard = "24h",
          .min = 0,
          .max = 365 * BOX_MS_PER_DAY,
          .help = "remove artifacts of ephemeral runs after this time; 0 for never" },
        { .name = "reserve-disk",
          .kind = OPTION_BYTES,
          .offset = FIELD(options.reserve_disk_bytes),
          .argument = "SIZE",
          .group = "Kernels",
          .variable = "GLOVEBOX_RESERVE_DISK",
          .min = 0,
          .max = 1024 * 1024 * GIB,
          .help = "keep this much free on the file system of the data directory: below it, runs that write are ended "
                  "and uploads refused; default: 1 GiB or 5 % of the file system, whichever is less" },
        { .name = "df-bytes",
          .kind = OPTION_BYTES,
          .offset = FIELD(options.df_bytes),
          .argument = "SIZE",
          .group = "Kernels",
          .variable = "DF_BYTES",
          .standard = "1m",
          .min = 1,
          .max = 1024 * GIB,
          .help = "trim writes tables larger than this to disk" },
        { .name = "np-bytes",
          .kind = OPTION_BYTES,
          .offset = FIELD(options.np_bytes),
          .argument = "SIZE",
          .group = "Kernels",
          .variable = "NP_BYTES",
          .standard = "1m",
          .min = 1,
          .max = 1024 * GIB,
          .help = "trim writes arrays larger than this to disk" },
        { .name = "port",
          .kind = OPTION_COUNT,
          .offset = FIELD(port),
          .argument = "NUMBER",
          .group = "Service",
          .variable = "SANDBOX_API_PORT",
          .min = 0,
          .max = 65535,
          .help = "serve the REST API on this TCP port too; 0 for any free port; 8080 if only --host is given. Without "
                  "--port and --host it is served on a UNIX socket only" },
        { .name = "host",
          .kind = OPTION_TEXT,
          .offset = FIELD(service.host),
          .argument = "ADDRESS",
          .group = "Service",
          .variable = "SANDBOX_API_HOST",
          .help = "the address to listen on; 127.0.0.1 if only --port is given" },
        { .name = "new-key",
          .kind = OPTION_TEXT,
          .offset = FIELD(new_key),
          .argument = "NAME",
          .group = "Service",
          .help = "create an API key and print it, once; only its hash is stored, in the file \"keys\" of the data "
                  "directory. Then serve, if --port or --host is given" },
        { .name = "names",
          .kind = OPTION_TEXT,
          .offset = FIELD(service.names),
          .argument = "NAME,…",
          .group = "Service",
          .variable = "SANDBOX_API_NAMES",
          .help = "host names that clients may use for the service, besides addresses and localhost" },
        { .name = "max-sandboxes",
          .kind = OPTION_COUNT,
          .offset = FIELD(service.sandboxes_max),
          .argument = "NUMBER",
          .group = "Service",
          .variable = "SANDBOX_MAX_CONTAINERS",
          .standard = "1000",
          .min = 1,
          .max = 4000,
          .help = "sandboxes of all keys together" },
        { .name = "max-memory",
          .kind = OPTION_BYTES,
          .offset = FIELD(options.ceiling.memory_bytes),
          .argument = "SIZE",
          .group = "Service",
          .variable = "SANDBOX_MAX_MEMORY",
          .min = LIMITS_MEMORY_MIN,
          .max = LIMITS_MEMORY_MAX,
          .help = "memory that a key may give to one sandbox; default: half of the host's" },
        { .name = "max-cpus",
          .kind = OPTION_THOUSANDTHS,
          .offset = FIELD(options.ceiling.cpu_thousandths),
          .argument = "NUMBER",
          .group = "Service",
          .variable = "SANDBOX_MAX_CPUS",
          .min = 10,
          .max = 1024 * 1000,
          .help = "processors that a key may give to one sandbox; default: all of the host's" },
        { .name = "max-timeout",
          .kind = OPTION_DURATION,
          .offset = FIELD(options.ceiling.timeout_ms),
          .argument = "TIME",
          .group = "Service",
          .variable = "SANDBOX_MAX_TIMEOUT",
          .standard = "1h",
          .min = 1,
          .max = 7 * BOX_MS_PER_DAY,
          .help = "time that a key may give to one run" },
        { .name = "key-sandboxes",
          .kind = OPTION_COUNT,
          .offset = FIELD(service.quota.sandboxes),
          .argument = "NUMBER",
          .group = "Service",
          .variable = "SANDBOX_KEY_SANDBOXES",
          .standard = "0",
          .min = 0,
          .max = 4000,
          .help = "sandboxes of one key, unless the key has its own quota; 0 for no limit" },
        { .name = "key-runs",
          .kind = OPTION_COUNT,
          .offset = FIELD(service.quota.runs),
          .argument = "NUMBER",
          .group = "Service",
          .variable = "SANDBOX_KEY_RUNS",
          .standard = "256",
          .min = 0,
          .max = 100000,
          .help = "concurrent runs of one key, waiting ones included; 0 for no limit" },
        { .name = "key-rate",
          .kind = OPTION_COUNT,
          .offset = FIELD(service.quota.rate),
          .argument = "NUMBER",
          .group = "Service",
          .variable = "SANDBOX_KEY_RATE",
          .standard = "0",
          .min = 0,
          .max = 100000000,
          .help = "requests of one key per minute; 0 for no limit" },
        { .name = "key-share",
          .kind = OPTION_COUNT,
          .offset = FIELD(options.key_share_percent),
          .argument = "PERCENT",
          .group = "Service",
          .variable = "SANDBOX_KEY_SHARE",
          .standard = "50",
          .min = 1,
          .max = 100,
          .help = "the part of each shared resource (sandboxes, runs, requests, boxes being made, output of slow "
                  "readers) that one key may use if there are others; 100 for no limit" },
        { .name = "upload",
          .kind = OPTION_BYTES,
          .offset = FIELD(service.upload_max),
          .argument = "SIZE",
          .group = "Service",
          .variable = "SANDBOX_UPLOAD",
          .standard = "1g",
          .min = 1 << 10,
          .max = 1024 * GIB,
          .help = "the largest upload; the sandbox's disk limit applies too" },
        { .name = "drain",
          .kind = OPTION_DURATION,
          .offset = FIELD(options.drain_ms),
          .argument = "TIME",
          .group = "Service",
          .variable = "SANDBOX_DRAIN",
          .standard = "10s",
          .min = 0,
          .max = BOX_MS_PER_DAY,
          .help = "how long a stop waits for open answers; runs continue in any case" },
        BOX_IMAGE_ROW(FIELD(options.image), SHOWN),
        LIMIT_ROWS(FIELD(options.limits), SHOWN),
        BOX_WEAKER_ROW(FIELD(options.allow_weaker)),
        { .name = "audit-size",
          .kind = OPTION_BYTES,
          .offset = FIELD(options.audit_bytes),
          .argument = "SIZE",
          .group = "Output",
          .variable = "GLOVEBOX_AUDIT_SIZE",
          .standard = "16m",
          .min = 0,
          .max = 1024 * GIB,
          .help = "rotate audit.log in the data directory at this size; four old files are kept; 0 for no log" },
        { .name = "verbose",
          .letter = 'v',
          .kind = OPTION_FLAG,
          .offset = FIELD(options.verbose),
          .group = "Output",
          .help = "log every request; $DEBUG set to 1 does the same" },
};
/* Of other servers. */
static const struct option_habit habits[] = {
        { "d", "to run it in the background: --background" },
        { "detach", "to run it in the background: --background" },
        { "daemon", "to run it in the background: --background" },
        { NULL, NULL },
};
const struct option_table serve_option_table = {
        .rows = rows, .n_rows = ELEMENTS(rows), .operands_anywhere = true, .habits = habits
};

/* ---- in the foreground ---- */

static void say_ready(void *context) {
        const struct line *line = context;
        const struct serve_options *options = &line->options;
        daemon_log("serving at %s", *options->socket_link ? options->socket_link : options->socket_path);
}

static void say_engine(const struct serve_options *options, const char *name, const char *why) {
        daemon_log("engine %s (%s)", name, why);
        engine_variables_warn(&options->engines, name);
}

static int serve_here(struct line *line, struct err *err) {
        line->options.engine_chosen = say_engine;
        line->options.ready = say_ready;
        line->options.ready_context = line;
        return serve_run(&line->options, err);
}

/* ---- the command line ---- */

static bool wants_debug(void) {
        const char *text = getenv("DEBUG");
        return text && strcmp(text, "1") == 0;
}

/* Only the hash is kept: child processes and readers of /proc/PID/environ do not see the key. */
static int serve_take_key(struct line *line, struct err *err) {
        char *plain = getenv("SANDBOX_API_KEY");
        bool is_remote = engine_has_remote(&line->options.engines);
        int code = 0;
        if (is_remote && plain && *plain) { /* of the remote, not of the service here: its keys are in a file */
                line->options.engines.remote_key = strdup(plain);
                if (!line->options.engines.remote_key)
                        return err_set(err, ERR_SYSTEM, "out of memory");
        } else if (plain && *plain)
                code = api_key_hash("default", plain, &line->service.key, err);
        if (plain) {
                process_title_erase(plain); /* where it was before, which /proc/PID/environ shows */
                explicit_bzero(plain, strlen(plain));
        }
        (void) unsetenv("SANDBOX_API_KEY");
        return code < 0 ? err_prefix(err, "SANDBOX_API_KEY") : 0;
}

/* The limits that a key may request: those of the operator, else those of the host; never less than the defaults. */
static void settle_ceiling(struct serve_options *options) {
        static const struct limits usual = { .pids = 4096,
                                             .timeout_ms = 3600 * 1000,
                                             .tmp_bytes = 4 * GIB,
                                             .disk_bytes = 64 * GIB,
                                             .disk_files = 10 * 1000 * 1000 };
        struct limits host = usual;
        host.memory_bytes = (uint64_t) sysconf(_SC_PHYS_PAGES) * (uint64_t) sysconf(_SC_PAGESIZE) / 2;
        host.cpu_thousandths = (uint64_t) sysconf(_SC_NPROCESSORS_ONLN) * 1000;
        static const size_t fields[] = {
                offsetof(struct limits, memory_bytes), offsetof(struct limits, cpu_thousandths),
                offsetof(struct limits, pids),         offsetof(struct limits, timeout_ms),
                offsetof(struct limits, tmp_bytes),    offsetof(struct limits, disk_bytes),
                offsetof(struct limits, disk_files)
        };
        for (size_t i = 0; i < ELEMENTS(fields); i++) {
                uint64_t *most = (uint64_t *) ((char *) &options->ceiling + fields[i]);
                uint64_t standard = *(uint64_t *) ((char *) &options->limits + fields[i]);
                if (*most == 0)
                        *most = *(uint64_t *) ((char *) &host + fields[i]);
                if (*most < standard)
                        *most = standard;
        }
}

/* SANDBOX_DOCKER_IMAGE (--image) is the image of sessions whatever makes them: with docker and podman one of theirs. */
static void settle_image(struct serve_options *options) {
        bool is_container =
                options->engine && (strcmp(options->engine, "docker") == 0 || strcmp(options->engine, "podman") == 0);
        if (!is_container || *options->engines.image || strcmp(options->image, "host") == 0)
                return;
        options->engines.image = options->image;
        options->image = "host";
}

static int serve_read_line(struct line *line, char **args, bool *ret_help, struct err *err) {
        struct option_rest rest;
        if (option_parse(&serve_option_table, line, args, &rest, err) < 0)
                return -1;
        *ret_help = rest.help;
        if (rest.help)
                return 0;
        if (rest.operands[0])
                return err_set(err, ERR_USAGE, "serve takes no operand; leave \"%.60s\" out", rest.operands[0]);
        struct socket_place place;
        if (engine_variables_read(&line->options.engines, err) < 0 || serve_take_key(line, err) < 0 ||
            socket_place_choose(&line->where, false, &place, err) < 0 || data_dir_open(line->options.data_dir, err) < 0)
                return -1;
        (void) snprintf(line->options.socket_path, sizeof(line->options.socket_path), "%s", place.address);
        line->options.socket_dir_is_ours = place.in_runtime_dir;
        if (strcmp(place.path, place.address) != 0)
                (void) snprintf(line->options.socket_link, sizeof(line->options.socket_link), "%s", place.path);
        (void) snprintf(line->options.project, sizeof(line->options.project), "%s", place.project);
        line->options.verbose |= wants_debug();
        settle_image(&line->options);
        if (serve_check(&line->options, &line->service, err) < 0)
                return -1;
        settle_ceiling(&line->options);
        line->options.front_rows = channel_rows;
        line->options.front = &service_front;
        line->options.front_settings = &line->service;
        if (line->service.host || line->port != PORT_NONE) {
                line->service.port = (uint16_t) (line->port == PORT_NONE ? PORT_STANDARD : line->port);
                if (!line->service.host)
                        line->service.host = "127.0.0.1";
        }
        return 0;
}

static int make_key(const struct line *line, struct err *err) {
        char key[API_KEY_SIZE], path[DATA_DIR_PATH_MAX + 16];
        (void) snprintf(path, sizeof(path), "%s/keys", line->options.data_dir);
        if (api_key_make(key, err) < 0 || api_keys_append(path, line->new_key, key, err) < 0)
                return -1;
        (void) printf("%s\n", key);
        (void) fprintf(stderr, "glovebox: this is the key \"%s\"; it is not shown again%s\n", line->new_key,
                       line->service.host ? "" : "; serve with --port NUMBER");
        return fflush(stdout) == 0 ? 0 : err_sys(err, errno, "printing the key");
}

int verb_serve(int argc, char **argv) {
        (void) argc;
        if (getpid() == 1)
                serve_init();
        struct line line = { .options = { .image = "host",
                                          .engines = ENGINE_SETTINGS_DEFAULT,
                                          .limits = LIMITS_DEFAULT,
                                          .pool = 2,
                                          .box_pool = 4,
                                          .idle_ms = 900 * 1000,
                                          .keep_outputs_ms = BOX_MS_PER_DAY,
                                          .df_bytes = MIB,
                                          .np_bytes = MIB,
                                          .drain_ms = 10000,
                                          .reserve_disk_bytes = SERVE_RESERVE_STANDARD,
                                          .audit_bytes = 16 * MIB },
                             .service = { .sandboxes_max = 1000, .quota = { .runs = 256 }, .upload_max = GIB },
                             .port = PORT_NONE };
        struct err err = { 0 };
        bool help = false;
        if (serve_read_line(&line, argv + 1, &help, &err) < 0)
                return terminal_fail(&err);
        if (help) {
                verb_print_help(stdout, verb_find("serve"));
                return 0;
        }
        if (line.new_key && make_key(&line, &err) < 0)
                return terminal_fail(&err);
        if (line.new_key && !line.service.host)
                return 0;
        int code = line.background ? serve_in_background(&line.options, &line.service, &err) : serve_here(&line, &err);
        return code < 0 ? terminal_fail(&err) : 0;
}
