/* The proxy's process: its boxes and their connections. */
#pragma once

#include "base/loop.h"
#include "egress/resolver.h"
#include "egress/rules.h"

enum {
        PROXY_GUESTS_MAX = 4096,
        PROXY_TUNNELS_MAX = 4096,    /* of all boxes together */
        PROXY_TUNNELS_OF_GUEST = 64, /* further ones wait in the listener's queue */
        PROXY_LOOKUPS_OF_GUEST = 4,  /* at a time, so that one box's slow names do not hold up all others' */
};

struct tunnel;

struct proxy {
        struct loop *loop;
        const struct egress_operator *settings;
        struct resolver *resolver;
        struct guest *guests;
        size_t n_guests;
        struct share_table shares; /* of connections, between keys */
        int orders_fd;
        struct loop_watch *orders_watch;
};

/* A box. */
struct guest {
        struct proxy *proxy;
        struct guest *next;
        int listener_fd, pidfd;
        struct loop_watch *listener_watch, *pidfd_watch;
        struct loop_timer *pause_timer; /* after descriptors ran out: the time of the next attempt */
        struct tunnel *tunnels;
        size_t n_tunnels, n_lookups;
        struct tunnel *wants_lookup; /* a queue, linked by the tunnels themselves */
        struct egress_rules *rules;
};

/* One connection of the box's. */
#define guest_claim(guest) ((const struct share_claim) { .key = (guest)->rules->key, .amount = 1 })
enum { PROXY_SHARE_TUNNELS, PROXY_SHARES };

/* Room again for one more connection: the listener is watched, unless the box is full. */
void guest_listen(struct guest *guest);

/* Never returns. Orders (egress.h) come from orders_fd; when it closes the process ends. */
void proxy_run(const struct egress_operator *settings, int orders_fd) __attribute__((noreturn));
