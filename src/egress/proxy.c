#include "egress/proxy.h"

#include <errno.h>
#include <grp.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/memory.h"
#include "base/signals.h"
#include "box/host/identity.h"
#include "box/seal/landlock.h"
#include "box/seal/privilege.h"
#include "box/seal/seccomp.h"
#include "egress/order.h"
#include "egress/tunnel.h"

enum {
        PAUSE_MS = 100,
        ACCEPTS_PER_TURN = 16,
        PROXY_UID = IDENTITY_FIRST_UID + IDENTITY_COUNT, /* after the ids of boxes: no other process has it */
        NOBODY = 65534,
};

/* ---- boxes ---- */

static void on_listener(void *context, uint32_t events);

static bool is_full(const struct guest *guest) {
        return guest->n_tunnels >= PROXY_TUNNELS_OF_GUEST ||
               !share_has_room(&guest->proxy->shares, PROXY_SHARE_TUNNELS, &guest_claim(guest));
}

static void on_pause_over(void *context) {
        struct guest *guest = context;
        guest->pause_timer = NULL;
        guest_listen(guest);
}

static void pause_listening(struct guest *guest) {
        loop_unwatch(&guest->listener_watch);
        if (!guest->pause_timer)
                guest->pause_timer = loop_timer(guest->proxy->loop, loop_now_ms() + PAUSE_MS, on_pause_over, guest);
}

void guest_listen(struct guest *guest) {
        if (guest->listener_fd < 0 || guest->listener_watch || guest->pause_timer ||
            guest->n_tunnels >= PROXY_TUNNELS_OF_GUEST)
                return;
        if (is_full(guest)) {
                pause_listening(guest);
                return;
        }
        guest->listener_watch = loop_watch(guest->proxy->loop, guest->listener_fd, EPOLLIN, on_listener, guest);
        if (!guest->listener_watch)
                pause_listening(guest);
}

static void on_listener(void *context, uint32_t events) {
        struct guest *guest = context;
        (void) events;
        for (int i = 0; i < ACCEPTS_PER_TURN && !is_full(guest); i++) {
                int fd = accept4(guest->listener_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
                        return;
                if (fd < 0) {
                        pause_listening(guest);
                        return;
                }
                tunnel_open(guest, fd);
        }
        if (guest->n_tunnels >= PROXY_TUNNELS_OF_GUEST)
                loop_unwatch(&guest->listener_watch); /* until one of its own ends */
        else if (is_full(guest))
                pause_listening(guest); /* another thread of another box may end without a notification */
}

static void guest_dismiss(struct guest *guest) {
        struct proxy *proxy = guest->proxy;
        loop_unwatch(&guest->listener_watch);
        loop_unwatch(&guest->pidfd_watch);
        loop_timer_drop(&guest->pause_timer);
        fd_close(&guest->listener_fd);
        fd_close(&guest->pidfd);
        while (guest->tunnels)
                tunnel_close(guest->tunnels);
        for (struct guest **at = &proxy->guests; *at; at = &(*at)->next)
                if (*at == guest) {
                        *at = guest->next;
                        break;
                }
        proxy->n_guests--;
        free(guest->rules);
        free(guest);
}

static void on_box_gone(void *context, uint32_t events) {
        (void) events;
        guest_dismiss(context);
}

/* Takes the descriptors. */
static void proxy_admit(struct proxy *proxy, const struct egress_rules *rules, size_t size, int fds[static ORDER_FDS]) {
        struct guest *guest = calloc(1, sizeof(*guest));
        struct egress_rules *copy = malloc(size);
        if (!guest || !copy || proxy->n_guests == PROXY_GUESTS_MAX) {
                free(guest);
                free(copy);
                fd_close(&fds[ORDER_LISTENER]);
                fd_close(&fds[ORDER_PIDFD]);
                return;
        }
        memcpy(copy, rules, size);
        *guest = (struct guest) { .proxy = proxy,
                                  .next = proxy->guests,
                                  .listener_fd = fds[ORDER_LISTENER],
                                  .pidfd = fds[ORDER_PIDFD],
                                  .rules = copy };
        proxy->guests = guest;
        proxy->n_guests++;
        guest->pidfd_watch = loop_watch(proxy->loop, guest->pidfd, EPOLLIN, on_box_gone, guest);
        if (!guest->pidfd_watch)
                guest_dismiss(guest);
        else
                guest_listen(guest);
}

static void on_order(void *context, uint32_t events) {
        struct proxy *proxy = context;
        static struct egress_rules rules; /* large: not on the stack */
        int fds[ORDER_FDS];
        (void) events;
        ssize_t size = fd_passing_receive(proxy->orders_fd, &rules, sizeof(rules), fds, ORDER_FDS, MSG_DONTWAIT);
        if (size == -EAGAIN)
                return;
        if (size < 0)
                _exit(EXIT_SUCCESS); /* the parent has ended */
        if (rules.n_rules <= EGRESS_RULES_MAX && (size_t) size == order_size(&rules) && fds[ORDER_LISTENER] >= 0 &&
            fds[ORDER_PIDFD] >= 0) {
                proxy_admit(proxy, &rules, (size_t) size, fds);
                return;
        }
        fd_close(&fds[ORDER_LISTENER]);
        fd_close(&fds[ORDER_PIDFD]);
}

/* ---- the process ---- */

/* A user id of its own if we are root and the id is mapped; the last one works in every container. */
static int drop_user(void) {
        if (geteuid() != 0)
                return 0;
        /* Capabilities stay over the change of ids, for dropping the bounding set; then all go. */
        if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
                return -errno;
        (void) setgroups(0, NULL); /* refused in a user namespace of an ordinary user; it has none to drop */
        static const unsigned ids[] = { PROXY_UID, NOBODY };
        for (size_t i = 0; i < ELEMENTS(ids); i++)
                if (setresgid(ids[i], ids[i], ids[i]) == 0 && setresuid(ids[i], ids[i], ids[i]) == 0)
                        return 0;
        return errno == EINVAL ? 0 : -errno; /* no such id in this user namespace: keep the current one */
}

static int proxy_seal(void) {
        static const struct rlimit no_core = { 1, 1 }; /* not 0: see privilege.c */
        struct rlimit files;
        if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
                files.rlim_cur = files.rlim_max;
                (void) setrlimit(RLIMIT_NOFILE, &files);
        }
        (void) setrlimit(RLIMIT_CORE, &no_core);
        int code = privilege_join_fresh_keyring();
        if (code == 0)
                code = drop_user();
        if (code == 0)
                code = privilege_drop_all();
        if (code == 0 && landlock_abi() > 0)
                code = landlock_restrict(NULL, 0);
        if (code == 0)
                code = seccomp_install();
        return code;
}

void proxy_run(const struct egress_operator *settings, int orders_fd) {
        static struct proxy proxy;
        struct err err = { 0 };
        sigset_t none;
        sigemptyset(&none);
        signals_reset();
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        (void) signal(SIGINT, SIG_IGN); /* Ctrl-C is for the parent */
        (void) signal(SIGHUP, SIG_IGN);
        /* A name server that does not answer costs a thread for so long. */
        (void) setenv("RES_OPTIONS", "timeout:3 attempts:2", 1);
        if (proxy_seal() < 0)
                _exit(EXIT_FAILURE);
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of ids, which clears it */
        proxy = (struct proxy) { .settings = settings, .orders_fd = orders_fd };
        static const struct share_row rows[PROXY_SHARES] = {
                [PROXY_SHARE_TUNNELS] = { .what = "connections of the proxy",
                                          .remedy = "close some",
                                          .total = PROXY_TUNNELS_MAX,
                                          .operator_too = true },
        };
        share_table_open(&proxy.shares, rows, PROXY_SHARES, 0);
        proxy.shares.n_keys = 1; /* assume several keys, so that no key gets everything */
        if (loop_make(&proxy.loop, &err) < 0 || resolver_make(proxy.loop, &proxy.resolver, &err) < 0)
                _exit(EXIT_FAILURE);
        proxy.orders_watch = loop_watch(proxy.loop, orders_fd, EPOLLIN, on_order, &proxy);
        if (proxy.orders_watch)
                (void) loop_run(proxy.loop, &err);
        _exit(EXIT_FAILURE);
}
