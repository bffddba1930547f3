/* Standard input of a run in a session (guest/kernel/glovebox_kernel/host_input.py), read only if the run requests it.
 * A child reads it and puts pieces into the session's own directory, where no code looks for files, each after the
 * kernel has taken the one before. So a run that reads nothing takes nothing, a terminal is read line by line, and a
 * run that ends does not wait for the input to end. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "client/socket_place.h"

struct input_feed {
        char token[33];
        pid_t pid;          /* 0: not started */
        unsigned *written;  /* how many pieces, shared with the child; or NULL */
        const struct socket_place *place;
        const char *session;
};

/* A fresh token; nothing is read yet. */
int input_feed_init(struct input_feed *feed, const struct socket_place *place, const char *session, struct err *err);

/* The run requested input with this token. Another token, or a second request, does nothing. */
void input_feed_start(struct input_feed *feed, const char *token);
void input_feed_stop(struct input_feed *feed);
