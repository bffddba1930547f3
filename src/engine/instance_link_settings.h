/* The first message from the daemon to the helper that connects to instances. */
#pragma once

#include <stddef.h>

enum { INSTANCE_LINK_PATH_MAX = 1024, INSTANCE_LINK_ENVIRONMENT_MAX = 4096 };

struct instance_link_settings {
        char incus_socket[INSTANCE_LINK_PATH_MAX], incus_remote[INSTANCE_LINK_PATH_MAX];
        char program[INSTANCE_LINK_PATH_MAX], kernel_dir[INSTANCE_LINK_PATH_MAX];
        size_t environment_size;
        char environment[INSTANCE_LINK_ENVIRONMENT_MAX]; /* "NAME=VALUE" and NUL, for the client of Incus */
};

/* Serves until the daemon closes its end of orders_fd. */
_Noreturn void instance_link_run(const struct instance_link_settings *settings, int orders_fd);
