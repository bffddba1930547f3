/* Rows of options that several verbs share: the properties of a box, and the daemon's socket. `at` is the offset of the
 * struct that a row writes into. SHOWN or UNSHOWN: whether the help names the built-in default. It does not for
 * sessions, whose defaults are the daemon's. */
/* Tables: clang-format would break them in the middle of a row. */
/* clang-format off */
#pragma once

#include <stddef.h>

#include "box/limits.h"
#include "cli/run_request.h"
#include "cli/ui/option.h"
#include "client/socket_place.h"

#define SHOWN(text) text
#define UNSHOWN(text) NULL

#define BOX_MS_PER_DAY (24ull * 60 * 60 * 1000)
#define LIMIT_AT(at, field) ((at) + offsetof(struct limits, field))

#define LIMIT_TIMEOUT_ROW(at, STANDARD)                                                                              \
        { .name = "timeout", .kind = OPTION_DURATION, .offset = LIMIT_AT(at, timeout_ms), .argument = "TIME",        \
          .group = "Limits", .variable = "GLOVEBOX_TIMEOUT", .standard = STANDARD("60s"), .min = 1,                  \
          .max = 7 * BOX_MS_PER_DAY, .help = "wall-clock time, in seconds or for example 500ms, 2m, 1h" }

#define LIMIT_ROWS(at, STANDARD)                                                                                     \
        { .name = "memory", .kind = OPTION_BYTES, .offset = LIMIT_AT(at, memory_bytes), .argument = "SIZE",          \
          .group = "Limits", .variable = "GLOVEBOX_MEMORY", .alias = "SANDBOX_DOCKER_MEMORY",                        \
          .standard = STANDARD("512m"), .min = LIMITS_MEMORY_MIN,                                                    \
          .max = LIMITS_MEMORY_MAX, .hint = "with less, a Python interpreter may not even start",                    \
          .help = "memory of all processes in the box together" },                                                   \
        { .name = "cpus", .kind = OPTION_THOUSANDTHS, .offset = LIMIT_AT(at, cpu_thousandths),                       \
          .argument = "NUMBER", .group = "Limits", .variable = "GLOVEBOX_CPUS",                                      \
          .alias = "SANDBOX_DOCKER_CPU", .standard = STANDARD("1"),                                                  \
          .min = 10, .max = 1024 * 1000,                                                                             \
          .help = "processors, for example 0.5 or 2; thread pools inside are sized by it" },                         \
        { .name = "pids", .kind = OPTION_COUNT, .offset = LIMIT_AT(at, pids), .argument = "NUMBER",                  \
          .group = "Limits", .variable = "GLOVEBOX_PIDS", .standard = STANDARD("50"), .min = 1, .max = 32768,        \
          .help = "processes and threads together" },                                                                \
        LIMIT_TIMEOUT_ROW(at, STANDARD),                                                                             \
        { .name = "tmp-size", .kind = OPTION_BYTES, .offset = LIMIT_AT(at, tmp_bytes), .argument = "SIZE",           \
          .group = "Limits", .variable = "GLOVEBOX_TMP_SIZE", .standard = STANDARD("100m"), .min = 1 * MIB,          \
          .max = 64 * GIB, .help = "size of /tmp" },                                                                 \
        { .name = "disk", .kind = OPTION_BYTES, .offset = LIMIT_AT(at, disk_bytes), .argument = "SIZE",              \
          .group = "Limits", .variable = "GLOVEBOX_DISK", .standard = STANDARD("1g"), .min = 1 * MIB,                \
          .max = 1024 * GIB, .help = "size of the workspace, and of the largest file anywhere" }

#define BOX_IMAGE_ROW(at, STANDARD)                                                                                  \
        { .name = "image", .kind = OPTION_TEXT, .offset = at, .argument = "NAME", .group = "Code",                   \
          .variable = "GLOVEBOX_IMAGE", .alias = "SANDBOX_DOCKER_IMAGE", .standard = STANDARD("host"),               \
          .completion = COMPLETE_IMAGES,                                                                             \
          .help = "the file system to run in; see \"glovebox image list\"" }

#define BOX_ENGINE_ROWS(at)                                                                                          \
        { .name = "engine", .kind = OPTION_TEXT, .offset = REQUEST_AT(at, engine), .argument = "NAME",               \
          .group = "Isolation",                                                                                      \
          .help = "the engine of its boxes: auto, native, docker, podman, incus or remote; default: the daemon's" }, \
        { .name = "isolation", .kind = OPTION_TEXT, .offset = REQUEST_AT(at, isolation), .argument = "LEVEL",        \
          .group = "Isolation",                                                                                      \
          .help = "refuse anything weaker than container, gvisor or vm" }

#define BOX_WEAKER_ROW(at)                                                                                           \
        { .name = "allow-weaker", .kind = OPTION_FLAG, .offset = at, .group = "Isolation",                           \
          .variable = "GLOVEBOX_ALLOW_WEAKER",                                                                       \
          .help = "run even if this host cannot enforce every limit (see \"glovebox doctor\"); the isolation "       \
                  "report then names what is missing" }

/* `at` is the offset of a struct run_request. */
#define REQUEST_AT(at, field) ((at) + offsetof(struct run_request, field))

#define BOX_ENV_ROW(at)                                                                                              \
        { .name = "env", .letter = 'e', .kind = OPTION_PARSED, .offset = at, .parse = run_request_parse_env,         \
          .argument = "NAME[=VALUE]", .group = "Code",                                                               \
          .help = "set a variable in the box; without a value, pass on your own; may be repeated. "                  \
                  "The box sees no other variable of your environment" }

#define BOX_FILE_ROWS(at, WITHOUT_WORKSPACE)                                                                         \
        { .name = "workspace", .kind = OPTION_TEXT, .offset = REQUEST_AT(at, workspace), .argument = "DIR",          \
          .group = "Files", .completion = COMPLETE_DIRECTORIES,                                                      \
          .help = "mount this directory, writable, as /workspace; by default " WITHOUT_WORKSPACE },                  \
        { .name = "data", .kind = OPTION_TEXT, .offset = REQUEST_AT(at, data), .argument = "DIR",                    \
          .group = "Files", .completion = COMPLETE_DIRECTORIES,                                                      \
          .help = "mount this directory, read-only, as /data" },                                                     \
        { .name = "mount", .kind = OPTION_PARSED, .offset = at, .parse = run_request_parse_mount,                    \
          .argument = "SRC:DST[:ro|rw]", .group = "Files", .completion = COMPLETE_FILES,                             \
          .help = "mount a file or directory of the host at DST, read-only unless :rw is given; may be repeated" }

/* `at` is the offset of a struct run_request; `networks` are the choices of the file that has the rows. */
#define BOX_NETWORK_ROWS(at, STANDARD)                                                                               \
        { .name = "network", .kind = OPTION_CHOICE, .offset = REQUEST_AT(at, network), .argument = "MODE",           \
          .group = "Network", .variable = "GLOVEBOX_NETWORK", .standard = STANDARD("none"),                          \
          .choices = run_request_networks, .hint = "to name single hosts use --allow-host",                          \
          .help = "none: no network but the box's own loopback; full: every public host, through a proxy" },         \
        { .name = "allow-host", .kind = OPTION_PARSED, .offset = at, .parse = run_request_parse_host,                \
          .argument = "HOST[:PORT]", .group = "Network",                                                             \
          .help = "allow this host, through the proxy in the box's http_proxy variables; .DOMAIN for a "             \
                  "domain and everything below it; default ports 80 and 443; may be repeated" }

/* The operator's rules on hosts; `at` is the offset of a struct egress_operator. */
#define EGRESS_ROWS(at)                                                                                              \
        { .name = "egress-allow-private", .kind = OPTION_PARSED, .offset = at, .parse = run_request_parse_private,   \
          .argument = "HOST", .group = "Network",                                                                    \
          .help = "allow a private address for this host (or .DOMAIN), if other options allow the host; may be "     \
                  "repeated" },                                                                                      \
        { .name = "egress-host", .kind = OPTION_PARSED, .offset = at, .parse = run_request_parse_pin,                \
          .argument = "NAME=ADDRESS", .group = "Network",                                                            \
          .help = "resolve this name to this address, private or not, without DNS; may be repeated" }

/* `at` is the offset of a struct socket_choice. */
#define SOCKET_AT(at, field) ((at) + offsetof(struct socket_choice, field))

#define SOCKET_ROWS(at)                                                                                              \
        { .name = "socket", .kind = OPTION_TEXT, .offset = SOCKET_AT(at, socket), .argument = "PATH",                \
          .group = "Daemon", .completion = COMPLETE_FILES,                                                           \
          .help = "the daemon's socket; default: $GLOVEBOX_SOCKET, the project's, or the user's" },                  \
        { .name = "socket-dir", .kind = OPTION_TEXT, .offset = SOCKET_AT(at, socket_dir), .argument = "DIR",         \
          .group = "Daemon", .completion = COMPLETE_DIRECTORIES,                                                     \
          .help = "the directory of the socket kernel.sock, for a project whose file system has no UNIX sockets" },  \
        { .name = "project", .kind = OPTION_TEXT, .offset = SOCKET_AT(at, project), .argument = "DIR",               \
          .group = "Daemon", .variable = "WORKSPACE_DIR", .completion = COMPLETE_DIRECTORIES,                        \
          .help = "a directory with its own daemon, at DIR/.sandbox/kernel.sock" }
