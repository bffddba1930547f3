/* The options of `glovebox run`, and the step from a command line to a request. */
#pragma once

#include "cli/run_request.h"
#include "cli/ui/option.h"
#include "client/socket_place.h"

enum { RUN_LANGUAGE_BY_NAME = -1 };

/* What the options are written into. */
struct run_options {
        struct run_request request;
        const char *code_text; /* -c, or NULL */
        const char *module;    /* -m, or NULL */
        bool alone;
        int language;          /* enum run_language, or RUN_LANGUAGE_BY_NAME */
        struct socket_choice where; /* a daemon's socket, if one is running */
        bool no_daemon;
        bool warm; /* start a daemon if none is running */
};

#define RUN_OPTIONS_DEFAULT ((struct run_options) { .request = RUN_REQUEST_DEFAULT, .language = RUN_LANGUAGE_BY_NAME })

extern const struct option_table run_option_table;

/* Rules that concern more than one option. */
int run_options_check(const struct run_options *options, struct err *err);
