/* A tunnel as its two files share it: tunnel.c leads it through its states, tunnel_flow.c passes bytes. */
#pragma once

#include "base/loop.h"
#include "egress/request.h"
#include "egress/resolver.h"

enum tunnel_state { READING, RESOLVING, CONNECTING, PASSING, LINGERING };
enum tunnel_side { CLIENT, SERVER };

/* One direction of a tunnel. */
struct flow {
        char *bytes;
        size_t at, size;
        uint64_t left; /* bytes that may still be read from its side */
        bool ended;    /* its side has sent everything */
        bool is_passed; /* the end was passed on to the other side */
};

struct tunnel {
        struct proxy_box *box;
        struct tunnel *next, **back; /* in the list of the box */
        enum tunnel_state state;
        int fds[2];
        struct loop_watch *watches[2];
        uint32_t watched[2];
        struct loop_timer *timer;
        uint64_t active_ms;
        char *head; /* until the request is parsed */
        size_t head_used, head_scanned;
        struct request request;
        const struct egress_rule *rule;
        const struct egress_host *host; /* where to connect: the request's host, or the upstream proxy */
        uint16_t port;
        struct lookup *lookup;
        struct tunnel *next_lookup; /* in the queue of the box */
        bool is_queued;
        union egress_address addresses[RESOLVER_ADDRESSES_MAX];
        size_t n_addresses, next_address;
        struct flow flows[2]; /* by the side that sends */
        bool awaits_upstream; /* the upstream proxy has not reported yet whether it connected */
        size_t n_discarded;
        bool is_counted; /* in its key's share */
};

/* Changes the state and starts its time limit. */
void tunnel_enter(struct tunnel *tunnel, enum tunnel_state state);

/* Waits for these events of the socket from now on. False: no memory. */
bool tunnel_watch(struct tunnel *tunnel, enum tunnel_side side, uint32_t events);

/* True if one side has sent everything. A request for a URL ends with its body, and its response may take long. So
 * there only the end of the server's side counts. */
bool tunnel_is_half_closed(const struct tunnel *tunnel);

/* The server is connected: passes on the request, or answers it, and then all bytes. May close the tunnel. */
void tunnel_start_passing(struct tunnel *tunnel);

/* Passes on what there is in both directions. May close the tunnel. */
void tunnel_pass_bytes(struct tunnel *tunnel);
