/* The process of the proxy: its boxes and their connections. */
#pragma once

#include "base/loop.h"
#include "egress/resolver.h"
#include "egress/rules.h"

enum {
        PROXY_BOXES_MAX = 4096,
        PROXY_TUNNELS_MAX = 4096,    /* of all boxes together */
        PROXY_TUNNELS_OF_BOX = 64, /* further connections wait in the listener's queue */
        PROXY_LOOKUPS_OF_BOX = 4,  /* at a time, so that slow names of one box do not delay other boxes */
};

struct tunnel;

struct proxy {
        struct loop *loop;
        const struct egress_operator *settings;
        struct resolver *resolver;
        struct proxy_box *boxes;
        size_t n_boxes;
        struct share_table shares; /* divide connections between keys */
        int orders_fd;
        struct loop_watch *orders_watch;
};

/* A box of the proxy. */
struct proxy_box {
        struct proxy *proxy;
        struct proxy_box *next;
        int listener_fd, pidfd;
        struct loop_watch *listener_watch, *pidfd_watch;
        struct loop_timer *pause_timer; /* after descriptors or shares ran out: until the next attempt */
        struct tunnel *tunnels;
        size_t n_tunnels, n_lookups;
        struct tunnel *waiting_lookups; /* a queue, linked by tunnel->next_lookup */
        struct egress_rules *rules;
};

/* The share that one connection of the box takes. */
#define proxy_box_claim(box) ((const struct share_claim) { .key = (box)->rules->key, .amount = 1 })
enum { PROXY_SHARE_TUNNELS, PROXY_SHARES };

/* Accepts connections again, unless the box has its maximum. Call it after a connection has ended. */
void proxy_box_listen(struct proxy_box *box);

/* Never returns. Receives boxes (order.h) from orders_fd and exits when that is closed. */
void proxy_run(const struct egress_operator *settings, int orders_fd) __attribute__((noreturn));
