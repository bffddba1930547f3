/* Theory of operation. A tunnel reads the head of one request, checks the rules, resolves the name, filters the
 * addresses, tries to connect to one after the other, and then copies bytes. Each state has a time limit. A refusal is
 * sent as an HTTP response with the reason in its status line; then the tunnel lingers until the client has read it. */
#include "egress/tunnel.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "egress/filter.h"
#include "egress/tunnel_flow.h"

enum {
        HEAD_MS = 15000,
        RESOLVE_MS = 20000,
        CONNECT_MS = 10000, /* to one address */
        IDLE_MS = 600000,
        HALF_CLOSED_MS = 60000,
        LINGER_MS = 2000,
        LINGER_MAX = 256 << 10,
};

static void on_client(void *context, uint32_t events);
static void on_server(void *context, uint32_t events);
static void proxy_box_start_lookups(struct proxy_box *box);

/* ---- watches and timers ---- */

/* Without events to wait for, the watch is removed: epoll reports a closed socket always, so the loop would spin. */
bool tunnel_watch(struct tunnel *tunnel, enum tunnel_side side, uint32_t events) {
        if (tunnel->watched[side] == events)
                return true;
        tunnel->watched[side] = events;
        if (!events)
                loop_unwatch(&tunnel->watches[side]);
        else if (tunnel->watches[side])
                return loop_watch_change(tunnel->watches[side], events) >= 0;
        else
                tunnel->watches[side] = loop_watch(tunnel->box->proxy->loop, tunnel->fds[side], events,
                                                   side == CLIENT ? on_client : on_server, tunnel);
        return !events || tunnel->watches[side];
}

static void tunnel_refuse(struct tunnel *tunnel, const struct refusal *refusal);
static void tunnel_connect_next(struct tunnel *tunnel, int last_errno);

static uint64_t tunnel_timeout_ms(const struct tunnel *tunnel) {
        switch (tunnel->state) {
        case READING:
                return HEAD_MS;
        case RESOLVING:
                return RESOLVE_MS;
        case CONNECTING:
                return CONNECT_MS;
        case LINGERING:
                return LINGER_MS;
        default:
                return tunnel->awaits_upstream || tunnel_is_half_closed(tunnel) ? HALF_CLOSED_MS : IDLE_MS;
        }
}

static void on_tunnel_timer(void *context) {
        struct tunnel *tunnel = context;
        struct refusal refusal;
        uint64_t due_ms = tunnel->active_ms + tunnel_timeout_ms(tunnel);
        tunnel->timer = NULL;
        if (loop_now_ms() < due_ms) {
                tunnel->timer = loop_timer(tunnel->box->proxy->loop, due_ms, on_tunnel_timer, tunnel);
                if (!tunnel->timer)
                        tunnel_close(tunnel);
                return;
        }
        switch (tunnel->state) {
        case READING:
                refusal_set(&refusal, 408, "Send the whole head of a request at once.",
                            "the request did not come within %d s", HEAD_MS / 1000);
                tunnel_refuse(tunnel, &refusal);
                break;
        case RESOLVING:
                refusal_set(&refusal, 504, "Try again, or ask the operator about the host's DNS servers.",
                            "no answer from DNS for %.120s", tunnel->host->name);
                tunnel_refuse(tunnel, &refusal);
                break;
        case CONNECTING:
                tunnel_connect_next(tunnel, ETIMEDOUT);
                break;
        default:
                tunnel_close(tunnel);
        }
}

void tunnel_enter(struct tunnel *tunnel, enum tunnel_state state) {
        tunnel->state = state;
        tunnel->active_ms = loop_now_ms();
        loop_timer_drop(&tunnel->timer);
        tunnel->timer = loop_timer(tunnel->box->proxy->loop, tunnel->active_ms + tunnel_timeout_ms(tunnel),
                                   on_tunnel_timer, tunnel);
}

/* ---- beginning and end ---- */

void tunnel_open(struct proxy_box *box, int client_fd) {
        struct tunnel *tunnel = calloc(1, sizeof(*tunnel));
        if (!tunnel) {
                (void) close(client_fd);
                return;
        }
        *tunnel = (struct tunnel) { .box = box, .next = box->tunnels, .back = &box->tunnels, .fds = { client_fd, -1 } };
        if (box->tunnels)
                box->tunnels->back = &tunnel->next;
        box->tunnels = tunnel;
        box->n_tunnels++;
        tunnel->is_counted = share_take(&box->proxy->shares, PROXY_SHARE_TUNNELS, &proxy_box_claim(box), NULL) == 0;
        (void) setsockopt(client_fd, IPPROTO_TCP, TCP_NODELAY, &(int) { 1 }, sizeof(int));
        tunnel_enter(tunnel, READING);
        tunnel->head = malloc(REQUEST_HEAD_MAX);
        if (!tunnel->is_counted || !tunnel->head || !tunnel->timer || !tunnel_watch(tunnel, CLIENT, EPOLLIN))
                tunnel_close(tunnel);
}

static void tunnel_cancel_lookup(struct tunnel *tunnel) {
        struct proxy_box *box = tunnel->box;
        if (tunnel->lookup) {
                resolver_cancel(box->proxy->resolver, &tunnel->lookup);
                box->n_lookups--;
        }
        for (struct tunnel **at = &box->waiting_lookups; tunnel->is_queued && *at; at = &(*at)->next_lookup)
                if (*at == tunnel) {
                        *at = tunnel->next_lookup;
                        break;
                }
        tunnel->is_queued = false;
}

void tunnel_close(struct tunnel *tunnel) {
        struct proxy_box *box = tunnel->box;
        tunnel_cancel_lookup(tunnel);
        loop_timer_drop(&tunnel->timer);
        for (size_t i = 0; i < 2; i++) {
                loop_unwatch(&tunnel->watches[i]);
                fd_close(&tunnel->fds[i]);
                free(tunnel->flows[i].bytes);
        }
        free(tunnel->head);
        request_release(&tunnel->request);
        *tunnel->back = tunnel->next;
        if (tunnel->next)
                tunnel->next->back = tunnel->back;
        if (tunnel->is_counted)
                share_give(&box->proxy->shares, PROXY_SHARE_TUNNELS, &proxy_box_claim(box));
        free(tunnel);
        box->n_tunnels--;
        proxy_box_listen(box);
}

/* ---- refusing ---- */

/* Sends the response in one call: it fits into the empty buffer of any socket. */
static void tunnel_refuse(struct tunnel *tunnel, const struct refusal *refusal) {
        char answer[3000], body[2400];
        tunnel_cancel_lookup(tunnel);
        loop_unwatch(&tunnel->watches[SERVER]);
        tunnel->watched[SERVER] = 0;
        fd_close(&tunnel->fds[SERVER]);
        int body_size = snprintf(body, sizeof(body), "glovebox: %s.\n%s\n", refusal->reason, refusal->advice);
        int size = snprintf(answer, sizeof(answer),
                            "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n"
                            "X-Glovebox-Error: egress\r\n\r\n%s",
                            refusal->status, refusal->reason, body_size, body);
        tunnel_enter(tunnel, LINGERING);
        if (!tunnel->timer || send(tunnel->fds[CLIENT], answer, (size_t) size, MSG_NOSIGNAL) != size ||
            shutdown(tunnel->fds[CLIENT], SHUT_WR) < 0 || !tunnel_watch(tunnel, CLIENT, EPOLLIN))
                tunnel_close(tunnel);
}

/* Discards bytes that the client still sends: closing a socket with unread bytes would reset the connection before the
 * client reads the response. */
static void tunnel_linger(struct tunnel *tunnel) {
        static char discarded[64 << 10];
        ssize_t n = read(tunnel->fds[CLIENT], discarded, sizeof(discarded));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        tunnel->n_discarded += n > 0 ? (size_t) n : 0;
        if (n <= 0 || tunnel->n_discarded > LINGER_MAX)
                tunnel_close(tunnel);
}

/* ---- connecting ---- */

static void tunnel_connect_next(struct tunnel *tunnel, int last_errno) {
        for (;;) {
                loop_unwatch(&tunnel->watches[SERVER]);
                tunnel->watched[SERVER] = 0;
                fd_close(&tunnel->fds[SERVER]);
                if (tunnel->next_address == tunnel->n_addresses)
                        break;
                union egress_address *address = &tunnel->addresses[tunnel->next_address++];
                egress_address_set_port(address, tunnel->port);
                tunnel->fds[SERVER] = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
                if (tunnel->fds[SERVER] >= 0 &&
                    (connect(tunnel->fds[SERVER], &address->any, egress_address_size(address)) == 0 ||
                     errno == EINPROGRESS)) {
                        tunnel_enter(tunnel, CONNECTING);
                        if (!tunnel->timer || !tunnel_watch(tunnel, SERVER, EPOLLOUT))
                                tunnel_close(tunnel);
                        return;
                }
                last_errno = errno;
        }
        struct refusal refusal;
        refusal_set(&refusal, 502, "The rules allow it, but the connection failed. Is the host up, and the port right?",
                    "%.150s port %u cannot be reached: %s", tunnel->host->name, tunnel->port, strerror(last_errno));
        tunnel_refuse(tunnel, &refusal);
}

static void tunnel_on_connected(struct tunnel *tunnel) {
        int code = 0;
        socklen_t size = sizeof(code);
        if (getsockopt(tunnel->fds[SERVER], SOL_SOCKET, SO_ERROR, &code, &size) < 0)
                code = errno;
        if (code)
                tunnel_connect_next(tunnel, code);
        else
                tunnel_start_passing(tunnel);
}

/* ---- resolving ---- */

static void tunnel_connect_to(struct tunnel *tunnel, const union egress_address *addresses, size_t count,
                              bool is_pinned) {
        struct refusal refusal;
        memcpy(tunnel->addresses, addresses, count * sizeof(*addresses));
        tunnel->n_addresses = is_pinned ? count
                                        : egress_filter_addresses(tunnel->box->proxy->settings, tunnel->rule,
                                                                  tunnel->host, tunnel->addresses, count, &refusal);
        if (tunnel->n_addresses)
                tunnel_connect_next(tunnel, 0);
        else
                tunnel_refuse(tunnel, &refusal);
}

static void on_resolved(void *context, const struct lookup_result *result) {
        struct tunnel *tunnel = context;
        struct proxy_box *box = tunnel->box;
        tunnel->lookup = NULL;
        box->n_lookups--;
        if (result->count)
                tunnel_connect_to(tunnel, result->addresses, result->count, false);
        else {
                struct refusal refusal;
                refusal_set(&refusal, 502, "Check the spelling; the name is looked up on the host, not in the box.",
                            "%.150s cannot be resolved: %s", tunnel->host->name,
                            result->code ? gai_strerror(result->code) : "no address");
                tunnel_refuse(tunnel, &refusal);
        }
        proxy_box_start_lookups(box);
}

static void proxy_box_start_lookups(struct proxy_box *box) {
        while (box->waiting_lookups && box->n_lookups < PROXY_LOOKUPS_OF_BOX) {
                struct tunnel *tunnel = box->waiting_lookups;
                box->waiting_lookups = tunnel->next_lookup;
                tunnel->is_queued = false;
                tunnel->lookup = resolver_look_up(box->proxy->resolver, box->rules->key, box, tunnel->host->name,
                                                  on_resolved, tunnel);
                if (tunnel->lookup)
                        box->n_lookups++;
                else {
                        struct refusal refusal;
                        refusal_set(&refusal, 503, "Try again in a moment.", "too many names wait to be resolved");
                        tunnel_refuse(tunnel, &refusal);
                }
        }
}

static void tunnel_resolve(struct tunnel *tunnel) {
        struct proxy_box *box = tunnel->box;
        struct tunnel **last = &box->waiting_lookups;
        tunnel_enter(tunnel, RESOLVING);
        if (!tunnel->timer) {
                tunnel_close(tunnel);
                return;
        }
        while (*last)
                last = &(*last)->next_lookup;
        tunnel->next_lookup = NULL;
        tunnel->is_queued = true;
        *last = tunnel;
        proxy_box_start_lookups(box);
}

/* ---- the request ---- */

static void tunnel_decide(struct tunnel *tunnel) {
        static const struct egress_rule for_upstream = { .trusted = true };
        const struct egress_host *host = &tunnel->request.host;
        const struct egress_upstream *upstream = &tunnel->box->rules->upstream;
        struct refusal refusal;
        union egress_address address;
        tunnel->rule = egress_rules_match(tunnel->box->rules, host, tunnel->request.port);
        if (!tunnel->rule) { /* before the lookup: a name in a DNS query can carry data out of the box */
                egress_refuse_host(tunnel->box->rules, host, tunnel->request.port, &refusal);
                tunnel_refuse(tunnel, &refusal);
                return;
        }
        tunnel->host = upstream->port ? &upstream->host : host;
        tunnel->port = upstream->port ? upstream->port : tunnel->request.port;
        if (upstream->port) {
                tunnel->rule = &for_upstream;
                host = tunnel->host;
        }
        const char *pin = egress_operator_find_pin(tunnel->box->proxy->settings, host);
        if (egress_address_parse(pin ? pin : host->is_address ? host->name : "", &address))
                tunnel_connect_to(tunnel, &address, 1, pin != NULL);
        else
                tunnel_resolve(tunnel);
}

static void tunnel_read_head(struct tunnel *tunnel) {
        ssize_t n = read(tunnel->fds[CLIENT], tunnel->head + tunnel->head_used, REQUEST_HEAD_MAX - tunnel->head_used);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) {
                tunnel_close(tunnel);
                return;
        }
        struct refusal refusal;
        tunnel->head_used += (size_t) n;
        long size = request_scan(tunnel->head, tunnel->head_used, &tunnel->head_scanned, &refusal);
        if (size == 0)
                return;
        if (size < 0 || request_parse(tunnel->head, (size_t) size, &tunnel->request, &refusal) < 0) {
                tunnel_refuse(tunnel, &refusal);
                return;
        }
        tunnel->head_used -= (size_t) size;
        memmove(tunnel->head, tunnel->head + size, tunnel->head_used);
        (void) tunnel_watch(tunnel, CLIENT, 0); /* further bytes of the client stay in the socket */
        tunnel_decide(tunnel);
}

static void on_client(void *context, uint32_t events) {
        struct tunnel *tunnel = context;
        (void) events;
        if (tunnel->state == READING)
                tunnel_read_head(tunnel);
        else if (tunnel->state == LINGERING)
                tunnel_linger(tunnel);
        else if (tunnel->state == PASSING)
                tunnel_pass_bytes(tunnel);
}

static void on_server(void *context, uint32_t events) {
        struct tunnel *tunnel = context;
        (void) events;
        if (tunnel->state == CONNECTING)
                tunnel_on_connected(tunnel);
        else if (tunnel->state == PASSING)
                tunnel_pass_bytes(tunnel);
}
