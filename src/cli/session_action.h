/* The verbs below `glovebox session`: their common command line, and those with files of their own. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "box/limits.h"
#include "cli/session_verb.h"
#include "client/daemon_client.h"

/* The command line of every verb but `new`. */
struct session_line {
        struct socket_choice where;
        bool json, names, trim, keep_files, all;
        const char *key; /* of the service: the sandboxes of this key */
        const char *run;
        const char *engine, *image; /* the target of `move` */
        uint64_t limit, timeout_ms;
        struct limits limits; /* what `set` changes; 0: no change */
};

/* The names of sessions as the operator gives them, an array of strings. With a key, only those of that key. */
int session_list_names(struct daemon_client *client, const char *key, bool awake_only, json_t **ret_names,
                       struct err *err);

int session_action_hibernate(struct daemon_client *client, const struct session_line *line, char **names,
                             struct err *err);
int session_action_move(struct daemon_client *client, const struct session_line *line, char **names, struct err *err);
int session_action_install(struct daemon_client *client, const struct session_line *line, char **names,
                           struct err *err);
