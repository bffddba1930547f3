/* The daemon: listeners, signals, clients and the front end over HTTP. Its session manager (session/manager.h) has the
 * sessions. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "session/manager.h"

struct client;
struct serve_options;

enum {
        DAEMON_CLIENTS_MAX = 1024,
        DAEMON_CHANNELS_MAX = 512, /* connections of API keys with the socket's protocol, besides those */
        DAEMON_SWEEP_MS = 10000, /* how often idle sessions are looked for */
};

struct daemon {
        struct session_manager manager;
        int listen_fd, spare_fd; /* spare_fd is closed to accept and refuse a connection when descriptors run out */
        bool made_socket_dir;    /* it is removed at the end if it is empty: its name may have been a mistake */
        uint64_t hung_up_ms;     /* when that was last logged */
        struct loop_watch *listen_watch, *signal_watch;
        int signal_fd;
        struct loop_timer *sweep_timer;
        struct client *clients;
        size_t n_clients, n_channels;
        bool end_sessions;       /* they do not outlive this daemon */
        void *front;             /* of options->front */
        char front_address[128]; /* where it answers over TCP, "http://…", or "" */
        struct loop_timer *drain_timer;
        uint64_t remote_swept_ms; /* sessions that were left at the remote */
};

/* Serves until it must stop (shutdown request, SIGTERM, SIGINT): 0. -1 with err when it could not start
 * (ERR_BUSY: another daemon serves this socket or this data directory) or could not go on. */
int serve_run(const struct serve_options *options, struct err *err);

/* The daemon around a manager: for operations about the daemon itself. */
static inline struct daemon *daemon_of(struct session_manager *manager) {
        return (struct daemon *) ((char *) manager - offsetof(struct daemon, manager));
}
