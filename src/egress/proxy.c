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
        PROXY_UID = IDENTITY_FIRST_UID + IDENTITY_COUNT, /* the id after those of boxes: no other process has it */
        NOBODY = 65534,
};

/* ---- boxes ---- */

static void on_listener(void *context, uint32_t events);

static bool proxy_box_is_full(const struct proxy_box *box) {
        return box->n_tunnels >= PROXY_TUNNELS_OF_BOX ||
               !share_has_room(&box->proxy->shares, PROXY_SHARE_TUNNELS, &proxy_box_claim(box));
}

static void on_listen_pause_over(void *context) {
        struct proxy_box *box = context;
        box->pause_timer = NULL;
        proxy_box_listen(box);
}

static void proxy_box_pause(struct proxy_box *box) {
        loop_unwatch(&box->listener_watch);
        if (!box->pause_timer)
                box->pause_timer = loop_timer(box->proxy->loop, loop_now_ms() + PAUSE_MS, on_listen_pause_over, box);
}

void proxy_box_listen(struct proxy_box *box) {
        if (box->listener_fd < 0 || box->listener_watch || box->pause_timer || box->n_tunnels >= PROXY_TUNNELS_OF_BOX)
                return;
        if (proxy_box_is_full(box)) {
                proxy_box_pause(box);
                return;
        }
        box->listener_watch = loop_watch(box->proxy->loop, box->listener_fd, EPOLLIN, on_listener, box);
        if (!box->listener_watch)
                proxy_box_pause(box);
}

static void on_listener(void *context, uint32_t events) {
        struct proxy_box *box = context;
        (void) events;
        for (int i = 0; i < ACCEPTS_PER_TURN && !proxy_box_is_full(box); i++) {
                int fd = accept4(box->listener_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
                        return;
                if (fd < 0) {
                        proxy_box_pause(box);
                        return;
                }
                tunnel_open(box, fd);
        }
        if (box->n_tunnels >= PROXY_TUNNELS_OF_BOX)
                loop_unwatch(&box->listener_watch); /* until one of its tunnels is closed */
        else if (proxy_box_is_full(box))
                proxy_box_pause(box); /* a tunnel of another box may end, and this box gets no event for that */
}

static void proxy_box_remove(struct proxy_box *box) {
        struct proxy *proxy = box->proxy;
        loop_unwatch(&box->listener_watch);
        loop_unwatch(&box->pidfd_watch);
        loop_timer_drop(&box->pause_timer);
        fd_close(&box->listener_fd);
        fd_close(&box->pidfd);
        while (box->tunnels)
                tunnel_close(box->tunnels);
        for (struct proxy_box **at = &proxy->boxes; *at; at = &(*at)->next)
                if (*at == box) {
                        *at = box->next;
                        break;
                }
        proxy->n_boxes--;
        free(box->rules);
        free(box);
}

static void on_box_gone(void *context, uint32_t events) {
        (void) events;
        proxy_box_remove(context);
}

/* Takes ownership of the descriptors. */
static void proxy_add_box(struct proxy *proxy, const struct egress_rules *rules, size_t size,
                          int fds[static ORDER_FDS]) {
        struct proxy_box *box = calloc(1, sizeof(*box));
        struct egress_rules *copy = malloc(size);
        if (!box || !copy || proxy->n_boxes == PROXY_BOXES_MAX) {
                free(box);
                free(copy);
                fd_close(&fds[ORDER_LISTENER]);
                fd_close(&fds[ORDER_PIDFD]);
                return;
        }
        memcpy(copy, rules, size);
        *box = (struct proxy_box) { .proxy = proxy,
                                    .next = proxy->boxes,
                                    .listener_fd = fds[ORDER_LISTENER],
                                    .pidfd = fds[ORDER_PIDFD],
                                    .rules = copy };
        proxy->boxes = box;
        proxy->n_boxes++;
        box->pidfd_watch = loop_watch(proxy->loop, box->pidfd, EPOLLIN, on_box_gone, box);
        if (!box->pidfd_watch)
                proxy_box_remove(box);
        else
                proxy_box_listen(box);
}

static void on_box_order(void *context, uint32_t events) {
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
                proxy_add_box(proxy, &rules, (size_t) size, fds);
                return;
        }
        fd_close(&fds[ORDER_LISTENER]);
        fd_close(&fds[ORDER_PIDFD]);
}

/* ---- the process ---- */

/* Changes to an unprivileged user id, if the process is root. Every container maps the last id of the list. */
static int proxy_drop_user(void) {
        if (geteuid() != 0)
                return 0;
        /* Keeps capabilities over the change of ids, because dropping the bounding set needs them. privilege_drop_all
         * drops them afterwards. */
        if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
                return -errno;
        (void) setgroups(0, NULL); /* fails in a user namespace of an ordinary user, which has no groups to drop */
        static const unsigned ids[] = { PROXY_UID, NOBODY };
        for (size_t i = 0; i < ELEMENTS(ids); i++)
                if (setresgid(ids[i], ids[i], ids[i]) == 0 && setresuid(ids[i], ids[i], ids[i]) == 0)
                        return 0;
        return errno == EINVAL ? 0 : -errno; /* this user namespace does not map the ids: keep the current one */
}

static int proxy_seal(void) {
        static const struct rlimit no_core = { 1, 1 }; /* 1, not 0: see privilege.c */
        struct rlimit files;
        if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
                files.rlim_cur = files.rlim_max;
                (void) setrlimit(RLIMIT_NOFILE, &files);
        }
        (void) setrlimit(RLIMIT_CORE, &no_core);
        int code = privilege_join_fresh_keyring();
        if (code == 0)
                code = proxy_drop_user();
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
        /* A lookup blocks a thread of the resolver: limit how long it waits for a dead name server. */
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
        proxy.shares.n_keys = 1; /* assume several keys, so that no key gets all connections */
        if (loop_make(&proxy.loop, &err) < 0 || resolver_make(proxy.loop, &proxy.resolver, &err) < 0)
                _exit(EXIT_FAILURE);
        proxy.orders_watch = loop_watch(proxy.loop, orders_fd, EPOLLIN, on_box_order, &proxy);
        if (proxy.orders_watch)
                (void) loop_run(proxy.loop, &err);
        _exit(EXIT_FAILURE);
}
