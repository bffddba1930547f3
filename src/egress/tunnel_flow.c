#include "egress/tunnel_flow.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "egress/proxy.h"
#include "egress/rules.h"
#include "egress/tunnel.h"

enum {
        FLOW_ROOM = 32 << 10,
        TURN_BYTES = 256 << 10, /* in one direction in one turn of the loop */
};

bool tunnel_is_half_closed(const struct tunnel *tunnel) {
        return tunnel->flows[SERVER].is_passed || (tunnel->flows[CLIENT].is_passed && tunnel->request.is_connect);
}

/* False: the tunnel is broken. */
static bool tunnel_fill(struct tunnel *tunnel, enum tunnel_side side) {
        struct flow *flow = &tunnel->flows[side];
        size_t room = flow->left < FLOW_ROOM ? (size_t) flow->left : FLOW_ROOM;
        ssize_t n = room ? read(tunnel->fds[side], flow->bytes, room) : 0;
        if (n < 0)
                return errno == EAGAIN || errno == EINTR;
        if (n == 0)
                flow->ended = true;
        flow->at = 0;
        flow->size = (size_t) n;
        flow->left -= (uint64_t) n;
        return true;
}

static bool tunnel_drain(struct tunnel *tunnel, enum tunnel_side side) {
        struct flow *flow = &tunnel->flows[side];
        ssize_t n = send(tunnel->fds[!side], flow->bytes + flow->at, flow->size, MSG_NOSIGNAL);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR;
        flow->at += (size_t) n;
        flow->size -= (size_t) n;
        return true;
}

/* Reads the status of the upstream proxy's response. If the upstream proxy did not connect, it would read the client's
 * next bytes as a new request, which the rules have not checked. So nothing more is read from the client then. */
static bool read_upstream_status(struct tunnel *tunnel) {
        static const char start[] = "HTTP/1.1 2";
        const struct flow *in = &tunnel->flows[SERVER];
        if (in->size < sizeof(start) - 1)
                return false; /* no proxy sends so few bytes at a time */
        tunnel->awaits_upstream = false;
        if (strncmp(in->bytes, "HTTP/1.", 7) != 0 || in->bytes[8] != ' ' || in->bytes[9] != '2')
                tunnel->flows[CLIENT].ended = tunnel->flows[CLIENT].is_passed = true;
        return true;
}

/* Reads bytes of this side into its buffer, if that is empty and reading is allowed now. */
static bool tunnel_prepare(struct tunnel *tunnel, enum tunnel_side side) {
        struct flow *flow = &tunnel->flows[side];
        bool waits = side == CLIENT && tunnel->awaits_upstream;
        if (flow->size == 0 && !waits && !flow->ended && !tunnel_fill(tunnel, side))
                return false;
        return side == CLIENT || !flow->size || !tunnel->awaits_upstream || read_upstream_status(tunnel);
}

/* Passes on the end of this side, after all its bytes. */
static void tunnel_pass_end(struct tunnel *tunnel, enum tunnel_side side) {
        struct flow *flow = &tunnel->flows[side];
        if (!flow->ended || flow->size > 0 || flow->is_passed)
                return;
        flow->is_passed = true;
        /* A request for a URL ends by its length, and some servers treat a half-closed connection as closed. */
        if (side == SERVER || tunnel->request.is_connect)
                (void) shutdown(tunnel->fds[!side], SHUT_WR);
}

/* Moves available bytes from this side to the other. False: the tunnel is broken. */
static bool tunnel_move(struct tunnel *tunnel, enum tunnel_side side) {
        struct flow *flow = &tunnel->flows[side];
        for (size_t moved = 0; moved < TURN_BYTES && !flow->is_passed;) {
                if (!tunnel_prepare(tunnel, side))
                        return false;
                size_t before = flow->size;
                if (before > 0 && !tunnel_drain(tunnel, side))
                        return false;
                moved += before - flow->size;
                if (before == 0 || flow->size > 0)
                        break;
        }
        tunnel_pass_end(tunnel, side);
        return true;
}

static bool tunnel_has_ended(const struct tunnel *tunnel) {
        return tunnel->flows[SERVER].is_passed && (tunnel->flows[CLIENT].is_passed || !tunnel->request.is_connect);
}

void tunnel_pass_bytes(struct tunnel *tunnel) {
        bool was_half_closed = tunnel_is_half_closed(tunnel);
        tunnel->active_ms = loop_now_ms();
        if (!tunnel_move(tunnel, CLIENT) || !tunnel_move(tunnel, SERVER) || tunnel_has_ended(tunnel)) {
                tunnel_close(tunnel);
                return;
        }
        if (tunnel_is_half_closed(tunnel) && !was_half_closed)
                tunnel_enter(tunnel, PASSING); /* restarts the timer with a shorter limit */
        for (enum tunnel_side side = CLIENT; side <= SERVER; side++) {
                const struct flow *in = &tunnel->flows[side], *out = &tunnel->flows[!side];
                bool is_read = in->size == 0 && !in->ended && !(side == CLIENT && tunnel->awaits_upstream);
                uint32_t events = (is_read ? EPOLLIN : 0) | (out->size ? EPOLLOUT : 0);
                if (!tunnel_watch(tunnel, side, events)) {
                        tunnel_close(tunnel);
                        return;
                }
        }
}

/* Fills the buffer of a flow with its first bytes. */
static bool tunnel_load(struct flow *flow, const char *first, size_t first_size, const char *second,
                        size_t second_size) {
        size_t room = first_size + second_size > FLOW_ROOM ? first_size + second_size : FLOW_ROOM;
        flow->bytes = malloc(room);
        if (!flow->bytes)
                return false;
        if (first_size)
                memcpy(flow->bytes, first, first_size);
        if (second_size)
                memcpy(flow->bytes + first_size, second, second_size);
        flow->size = first_size + second_size;
        return true;
}

/* The first bytes for the server, or for the upstream proxy; the caller frees them. */
static char *first_bytes(const struct tunnel *tunnel) {
        const struct request *request = &tunnel->request;
        const struct egress_upstream *upstream = &tunnel->box->rules->upstream;
        char shown[EGRESS_SHOWN_ROOM], *bytes = NULL, login[sizeof(upstream->authorization) + 32] = "";
        if (!upstream->port)
                return strdup(request->head ? request->head : "");
        (void) egress_host_show(&request->host, request->port, shown);
        if (*upstream->authorization)
                (void) snprintf(login, sizeof(login), "Proxy-Authorization: %s\r\n", upstream->authorization);
        int size;
        if (request->is_connect)
                size = asprintf(&bytes, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", shown, shown, login);
        else { /* an upstream proxy needs the URL in the request line */
                const char *path = strchr(request->head, ' ') + 1, *headers = strchr(path, '\n') + 1;
                size = asprintf(&bytes, "%.*shttp://%s%.*s%s%s", (int) (path - request->head), request->head, shown,
                                (int) (headers - path), path, login, headers);
        }
        return size < 0 ? NULL : bytes;
}

void tunnel_start_passing(struct tunnel *tunnel) {
        static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";
        const struct request *request = &tunnel->request;
        struct flow *out = &tunnel->flows[CLIENT], *in = &tunnel->flows[SERVER];
        size_t early = tunnel->head_used;
        out->left = in->left = UINT64_MAX;
        if (!request->is_connect) {
                if (early > request->body_size)
                        early = (size_t) request->body_size; /* a second request is not passed on */
                out->left = request->body_size - early;
        }
        /* With an upstream proxy, that one answers the CONNECT. */
        bool answers_connect = request->is_connect && !tunnel->box->rules->upstream.port;
        tunnel->awaits_upstream = request->is_connect && !answers_connect;
        _cleanup_free_ char *bytes = first_bytes(tunnel);
        bool good = bytes && !(tunnel->awaits_upstream && early) &&
                    tunnel_load(out, bytes, strlen(bytes), tunnel->head, early) &&
                    tunnel_load(in, established, answers_connect ? sizeof(established) - 1 : 0, NULL, 0);
        free(tunnel->head);
        tunnel->head = NULL;
        (void) setsockopt(tunnel->fds[SERVER], IPPROTO_TCP, TCP_NODELAY, &(int) { 1 }, sizeof(int));
        tunnel_enter(tunnel, PASSING);
        if (!good || !tunnel->timer)
                tunnel_close(tunnel);
        else
                tunnel_pass_bytes(tunnel);
}
