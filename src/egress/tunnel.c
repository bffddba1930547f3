/* Theory of operation. A tunnel reads the head of one request, checks the rules, resolves the name, filters the
 * addresses, connects to one after the other, and then copies bytes. Each state has a time limit. A refusal is sent as
 * an HTTP response whose reason describes it; then the connection lingers until the client has read it. */
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
#include "egress/request.h"

enum {
        HEAD_MS = 15000,
        RESOLVE_MS = 20000,
        CONNECT_MS = 10000, /* to one address */
        IDLE_MS = 600000,
        HALF_CLOSED_MS = 60000,
        LINGER_MS = 2000,
        FLOW_ROOM = 32 << 10,
        TURN_BYTES = 256 << 10, /* of one direction per turn of the loop */
        LINGER_MAX = 256 << 10,
};

enum state { READING, RESOLVING, CONNECTING, PASSING, LINGERING };
enum side { CLIENT, SERVER };

/* From one side to the other. */
struct flow {
        char *bytes;
        size_t at, size;
        uint64_t left; /* may still be taken from its side */
        bool ended;    /* nothing more comes */
        bool is_passed; /* ... and the other side got that */
};

struct tunnel {
        struct guest *guest;
        struct tunnel *next, **back; /* among the guest's */
        enum state state;
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
        struct tunnel *next_lookup; /* in the guest's queue */
        bool queued;
        union egress_address addresses[RESOLVER_ADDRESSES_MAX];
        size_t n_addresses, next_address;
        struct flow flows[2]; /* by the side they come from */
        bool is_held;         /* the upstream proxy has not reported yet whether it connected */
        size_t lingered;
        bool is_counted; /* in its key's share */
};

static void on_client(void *context, uint32_t events);
static void on_server(void *context, uint32_t events);
static void start_lookups(struct guest *guest);

/* ---- watching and time ---- */

/* Without events to wait for there is no watch: a closed socket would wake the loop for ever. */
static bool tunnel_watch(struct tunnel *tunnel, enum side side, uint32_t events) {
        if (tunnel->watched[side] == events)
                return true;
        tunnel->watched[side] = events;
        if (!events)
                loop_unwatch(&tunnel->watches[side]);
        else if (tunnel->watches[side])
                return loop_watch_change(tunnel->watches[side], events) >= 0;
        else
                tunnel->watches[side] = loop_watch(tunnel->guest->proxy->loop, tunnel->fds[side], events,
                                                   side == CLIENT ? on_client : on_server, tunnel);
        return !events || tunnel->watches[side];
}

static void tunnel_fail(struct tunnel *tunnel, const struct refusal *refusal);
static void connect_next(struct tunnel *tunnel, int last_errno);

/* One side has sent everything. For a request for a URL that is usual, and its response may take long. */
static bool is_half_closed(const struct tunnel *tunnel) {
        return tunnel->flows[SERVER].is_passed || (tunnel->flows[CLIENT].is_passed && tunnel->request.is_connect);
}

static uint64_t patience_ms(const struct tunnel *tunnel) {
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
                return tunnel->is_held || is_half_closed(tunnel) ? HALF_CLOSED_MS : IDLE_MS;
        }
}

static void tunnel_on_time(void *context) {
        struct tunnel *tunnel = context;
        struct refusal refusal;
        uint64_t due_ms = tunnel->active_ms + patience_ms(tunnel);
        tunnel->timer = NULL;
        if (loop_now_ms() < due_ms) {
                tunnel->timer = loop_timer(tunnel->guest->proxy->loop, due_ms, tunnel_on_time, tunnel);
                if (!tunnel->timer)
                        tunnel_close(tunnel);
                return;
        }
        switch (tunnel->state) {
        case READING:
                refusal_set(&refusal, 408, "Send the whole head of a request at once.",
                            "the request did not come within %d s", HEAD_MS / 1000);
                tunnel_fail(tunnel, &refusal);
                break;
        case RESOLVING:
                refusal_set(&refusal, 504, "Try again, or ask the operator about the host's DNS servers.",
                            "no answer from DNS for %.120s", tunnel->host->name);
                tunnel_fail(tunnel, &refusal);
                break;
        case CONNECTING:
                connect_next(tunnel, ETIMEDOUT);
                break;
        default:
                tunnel_close(tunnel);
        }
}

/* Enters a state, with its time limit. */
static void tunnel_enter(struct tunnel *tunnel, enum state state) {
        tunnel->state = state;
        tunnel->active_ms = loop_now_ms();
        loop_timer_drop(&tunnel->timer);
        tunnel->timer =
                loop_timer(tunnel->guest->proxy->loop, tunnel->active_ms + patience_ms(tunnel), tunnel_on_time, tunnel);
}

/* ---- beginning and end ---- */

void tunnel_open(struct guest *guest, int client_fd) {
        struct tunnel *tunnel = calloc(1, sizeof(*tunnel));
        if (!tunnel) {
                (void) close(client_fd);
                return;
        }
        *tunnel = (struct tunnel) {
                .guest = guest, .next = guest->tunnels, .back = &guest->tunnels, .fds = { client_fd, -1 }
        };
        if (guest->tunnels)
                guest->tunnels->back = &tunnel->next;
        guest->tunnels = tunnel;
        guest->n_tunnels++;
        tunnel->is_counted = share_take(&guest->proxy->shares, PROXY_SHARE_TUNNELS, &guest_claim(guest), NULL) == 0;
        (void) setsockopt(client_fd, IPPROTO_TCP, TCP_NODELAY, &(int) { 1 }, sizeof(int));
        tunnel_enter(tunnel, READING);
        tunnel->head = malloc(REQUEST_HEAD_MAX);
        if (!tunnel->is_counted || !tunnel->head || !tunnel->timer || !tunnel_watch(tunnel, CLIENT, EPOLLIN))
                tunnel_close(tunnel);
}

static void leave_lookups(struct tunnel *tunnel) {
        struct guest *guest = tunnel->guest;
        if (tunnel->lookup) {
                resolver_abandon(guest->proxy->resolver, &tunnel->lookup);
                guest->n_lookups--;
        }
        for (struct tunnel **at = &guest->wants_lookup; tunnel->queued && *at; at = &(*at)->next_lookup)
                if (*at == tunnel) {
                        *at = tunnel->next_lookup;
                        break;
                }
        tunnel->queued = false;
}

void tunnel_close(struct tunnel *tunnel) {
        struct guest *guest = tunnel->guest;
        leave_lookups(tunnel);
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
                share_give(&guest->proxy->shares, PROXY_SHARE_TUNNELS, &guest_claim(guest));
        free(tunnel);
        guest->n_tunnels--;
        guest_listen(guest);
}

/* ---- refusing ---- */

/* The answer fits into the empty buffer of any socket. */
static void tunnel_fail(struct tunnel *tunnel, const struct refusal *refusal) {
        char answer[3000], body[2400];
        leave_lookups(tunnel);
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

/* Discards what the client still sends: closing with unread bytes would reset the connection before it reads the
 * answer. */
static void tunnel_linger(struct tunnel *tunnel) {
        static char nowhere[64 << 10];
        ssize_t n = read(tunnel->fds[CLIENT], nowhere, sizeof(nowhere));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        tunnel->lingered += n > 0 ? (size_t) n : 0;
        if (n <= 0 || tunnel->lingered > LINGER_MAX)
                tunnel_close(tunnel);
}

/* ---- passing bytes ---- */

/* False: the tunnel is broken. */
static bool tunnel_fill(struct tunnel *tunnel, enum side side) {
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

static bool tunnel_drain(struct tunnel *tunnel, enum side side) {
        struct flow *flow = &tunnel->flows[side];
        ssize_t n = send(tunnel->fds[!side], flow->bytes + flow->at, flow->size, MSG_NOSIGNAL);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR;
        flow->at += (size_t) n;
        flow->size -= (size_t) n;
        return true;
}

/* The upstream proxy has answered. If it did not connect, it would read the client's next bytes as a new request, which
 * the rules have not checked; so the client is not read any more. */
static bool read_verdict(struct tunnel *tunnel) {
        static const char start[] = "HTTP/1.1 2";
        const struct flow *in = &tunnel->flows[SERVER];
        if (in->size < sizeof(start) - 1)
                return false; /* no proxy sends less at a time */
        tunnel->is_held = false;
        if (strncmp(in->bytes, "HTTP/1.", 7) != 0 || in->bytes[8] != ' ' || in->bytes[9] != '2')
                tunnel->flows[CLIENT].ended = tunnel->flows[CLIENT].is_passed = true;
        return true;
}

/* Gets bytes of this side into its buffer, if that is empty and they may come now. */
static bool tunnel_prepare(struct tunnel *tunnel, enum side side) {
        struct flow *flow = &tunnel->flows[side];
        bool waits = side == CLIENT && tunnel->is_held; /* for the answer of the proxy behind this one */
        if (flow->size == 0 && !waits && !flow->ended && !tunnel_fill(tunnel, side))
                return false;
        return side == CLIENT || !flow->size || !tunnel->is_held || read_verdict(tunnel);
}

/* Passes on the end of this side, after all its bytes. */
static void tunnel_pass_end(struct tunnel *tunnel, enum side side) {
        struct flow *flow = &tunnel->flows[side];
        if (!flow->ended || flow->size > 0 || flow->is_passed)
                return;
        flow->is_passed = true;
        /* A request for a URL is complete by its length; some servers take a closed half for a client gone. */
        if (side == SERVER || tunnel->request.is_connect)
                (void) shutdown(tunnel->fds[!side], SHUT_WR);
}

/* Moves what can be moved from this side to the other. False: the tunnel is broken. */
static bool tunnel_move(struct tunnel *tunnel, enum side side) {
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

static bool is_over(const struct tunnel *tunnel) {
        return tunnel->flows[SERVER].is_passed && (tunnel->flows[CLIENT].is_passed || !tunnel->request.is_connect);
}

static void pass_bytes(struct tunnel *tunnel) {
        bool was_half_closed = is_half_closed(tunnel);
        tunnel->active_ms = loop_now_ms();
        if (!tunnel_move(tunnel, CLIENT) || !tunnel_move(tunnel, SERVER) || is_over(tunnel)) {
                tunnel_close(tunnel);
                return;
        }
        if (is_half_closed(tunnel) && !was_half_closed)
                tunnel_enter(tunnel, PASSING); /* with less patience */
        for (enum side side = CLIENT; side <= SERVER; side++) {
                const struct flow *in = &tunnel->flows[side], *out = &tunnel->flows[!side];
                bool is_read = in->size == 0 && !in->ended && !(side == CLIENT && tunnel->is_held);
                uint32_t events = (is_read ? EPOLLIN : 0) | (out->size ? EPOLLOUT : 0);
                if (!tunnel_watch(tunnel, side, events)) {
                        tunnel_close(tunnel);
                        return;
                }
        }
}

/* What came behind the head goes first. */
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
static char *first_words(const struct tunnel *tunnel) {
        const struct request *request = &tunnel->request;
        const struct egress_via *via = &tunnel->guest->rules->via;
        char shown[EGRESS_SHOWN_ROOM], *words = NULL, login[sizeof(via->authorization) + 32] = "";
        if (!via->port)
                return strdup(request->head ? request->head : "");
        (void) egress_host_show(&request->host, request->port, shown);
        if (*via->authorization)
                (void) snprintf(login, sizeof(login), "Proxy-Authorization: %s\r\n", via->authorization);
        int size;
        if (request->is_connect)
                size = asprintf(&words, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", shown, shown, login);
        else { /* the URL once more in the request line */
                const char *path = strchr(request->head, ' ') + 1, *headers = strchr(path, '\n') + 1;
                size = asprintf(&words, "%.*shttp://%s%.*s%s%s", (int) (path - request->head), request->head, shown,
                                (int) (headers - path), path, login, headers);
        }
        return size < 0 ? NULL : words;
}

static void start_passing(struct tunnel *tunnel) {
        static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";
        const struct request *request = &tunnel->request;
        struct flow *out = &tunnel->flows[CLIENT], *in = &tunnel->flows[SERVER];
        size_t early = tunnel->head_used;
        out->left = in->left = UINT64_MAX;
        if (!request->is_connect) {
                if (early > request->body_size)
                        early = (size_t) request->body_size; /* a second request is not passed on behind the first */
                out->left = request->body_size - early;
        }
        /* An upstream proxy reports by itself whether a connection is established. */
        bool ours_to_say = request->is_connect && !tunnel->guest->rules->via.port;
        tunnel->is_held = request->is_connect && !ours_to_say;
        _cleanup_free_ char *words = first_words(tunnel);
        bool good = words && !(tunnel->is_held && early) &&
                    tunnel_load(out, words, strlen(words), tunnel->head, early) &&
                    tunnel_load(in, established, ours_to_say ? sizeof(established) - 1 : 0, NULL, 0);
        free(tunnel->head);
        tunnel->head = NULL;
        (void) setsockopt(tunnel->fds[SERVER], IPPROTO_TCP, TCP_NODELAY, &(int) { 1 }, sizeof(int));
        tunnel_enter(tunnel, PASSING);
        if (!good || !tunnel->timer)
                tunnel_close(tunnel);
        else
                pass_bytes(tunnel);
}

/* ---- connecting ---- */

static void connect_next(struct tunnel *tunnel, int last_errno) {
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
        tunnel_fail(tunnel, &refusal);
}

static void on_connected(struct tunnel *tunnel) {
        int code = 0;
        socklen_t size = sizeof(code);
        if (getsockopt(tunnel->fds[SERVER], SOL_SOCKET, SO_ERROR, &code, &size) < 0)
                code = errno;
        if (code)
                connect_next(tunnel, code);
        else
                start_passing(tunnel);
}

/* ---- resolving ---- */

static void connect_to(struct tunnel *tunnel, const union egress_address *addresses, size_t count, bool is_pinned) {
        struct refusal refusal;
        memcpy(tunnel->addresses, addresses, count * sizeof(*addresses));
        tunnel->n_addresses = is_pinned ? count
                                        : egress_filter_addresses(tunnel->guest->proxy->settings, tunnel->rule,
                                                                  tunnel->host, tunnel->addresses, count, &refusal);
        if (tunnel->n_addresses)
                connect_next(tunnel, 0);
        else
                tunnel_fail(tunnel, &refusal);
}

static void on_resolved(void *context, const struct lookup_result *result) {
        struct tunnel *tunnel = context;
        struct guest *guest = tunnel->guest;
        tunnel->lookup = NULL;
        guest->n_lookups--;
        if (result->count)
                connect_to(tunnel, result->addresses, result->count, false);
        else {
                struct refusal refusal;
                refusal_set(&refusal, 502, "Check the spelling; the name is looked up on the host, not in the box.",
                            "%.150s cannot be resolved: %s", tunnel->host->name,
                            result->code ? gai_strerror(result->code) : "no address");
                tunnel_fail(tunnel, &refusal);
        }
        start_lookups(guest);
}

static void start_lookups(struct guest *guest) {
        while (guest->wants_lookup && guest->n_lookups < PROXY_LOOKUPS_OF_GUEST) {
                struct tunnel *tunnel = guest->wants_lookup;
                guest->wants_lookup = tunnel->next_lookup;
                tunnel->queued = false;
                tunnel->lookup = resolver_ask(guest->proxy->resolver, guest->rules->key, guest, tunnel->host->name,
                                              on_resolved, tunnel);
                if (tunnel->lookup)
                        guest->n_lookups++;
                else {
                        struct refusal refusal;
                        refusal_set(&refusal, 503, "Try again in a moment.", "too many names wait to be resolved");
                        tunnel_fail(tunnel, &refusal);
                }
        }
}

static void tunnel_resolve(struct tunnel *tunnel) {
        struct guest *guest = tunnel->guest;
        struct tunnel **last = &guest->wants_lookup;
        tunnel_enter(tunnel, RESOLVING);
        if (!tunnel->timer) {
                tunnel_close(tunnel);
                return;
        }
        while (*last)
                last = &(*last)->next_lookup;
        tunnel->next_lookup = NULL;
        tunnel->queued = true;
        *last = tunnel;
        start_lookups(guest);
}

/* ---- the request ---- */

static void tunnel_decide(struct tunnel *tunnel) {
        static const struct egress_rule for_via = { .trusted = true };
        const struct egress_host *host = &tunnel->request.host;
        const struct egress_via *via = &tunnel->guest->rules->via;
        struct refusal refusal;
        union egress_address address;
        tunnel->rule = egress_rules_match(tunnel->guest->rules, host, tunnel->request.port);
        if (!tunnel->rule) { /* before the name is looked up: a name can be a message */
                egress_refuse_host(tunnel->guest->rules, host, tunnel->request.port, &refusal);
                tunnel_fail(tunnel, &refusal);
                return;
        }
        tunnel->host = via->port ? &via->host : host;
        tunnel->port = via->port ? via->port : tunnel->request.port;
        if (via->port) {
                tunnel->rule = &for_via;
                host = tunnel->host;
        }
        const char *pin = egress_operator_find_pin(tunnel->guest->proxy->settings, host);
        if (egress_address_parse(pin ? pin : host->is_address ? host->name : "", &address))
                connect_to(tunnel, &address, 1, pin != NULL);
        else
                tunnel_resolve(tunnel);
}

static void read_head(struct tunnel *tunnel) {
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
                tunnel_fail(tunnel, &refusal);
                return;
        }
        tunnel->head_used -= (size_t) size;
        memmove(tunnel->head, tunnel->head + size, tunnel->head_used);
        (void) tunnel_watch(tunnel, CLIENT, 0); /* whatever else it has to say waits */
        tunnel_decide(tunnel);
}

static void on_client(void *context, uint32_t events) {
        struct tunnel *tunnel = context;
        (void) events;
        if (tunnel->state == READING)
                read_head(tunnel);
        else if (tunnel->state == LINGERING)
                tunnel_linger(tunnel);
        else if (tunnel->state == PASSING)
                pass_bytes(tunnel);
}

static void on_server(void *context, uint32_t events) {
        struct tunnel *tunnel = context;
        (void) events;
        if (tunnel->state == CONNECTING)
                on_connected(tunnel);
        else if (tunnel->state == PASSING)
                pass_bytes(tunnel);
}
