#include "session/network.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/memory.h"
#include "session/serve_options.h"
#include "session/session.h"

enum { RESTART_PAUSE_MS = 1000 };

int network_rules_of(const struct session *session, struct egress_rules **ret_rules, struct err *err) {
        const struct registry_session *row = &session->row;
        if (session->granted) {
                *ret_rules = malloc(sizeof(**ret_rules));
                if (!*ret_rules)
                        return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                **ret_rules = *session->granted;
                (void) snprintf((*ret_rules)->key, sizeof((*ret_rules)->key), "%s", row->owner);
                return 0;
        }
        json_t *options = *row->options ? json_loads(row->options, JSON_REJECT_DUPLICATES, NULL) : NULL;
        const json_t *network = json_object_get(options, "network");
        _cleanup_free_ struct egress_rules *rules = network ? malloc(sizeof(*rules)) : NULL;
        int code = network && !rules ? err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY) : 0;
        if (rules)
                code = egress_rules_parse(network, &session->daemon->options->egress, rules, err);
        json_decref(options);
        if (code < 0)
                return -1;
        if (rules)
                (void) snprintf(rules->key, sizeof(rules->key), "%s", row->owner);
        *ret_rules = rules && rules->mode != EGRESS_NONE ? take_ptr(rules) : NULL;
        return 0;
}

/* ---- the process ---- */

static void on_event(void *context, uint32_t events);

static int start(struct daemon *daemon, struct err *err) {
        if (daemon->egress.fd >= 0)
                return 0;
        if (egress_start(&daemon->options->egress, &daemon->egress, err) < 0)
                return -1;
        daemon->egress_started_ms = loop_now_ms();
        helper_started(&daemon->helpers[HELPER_EGRESS], daemon->egress.pid);
        daemon->egress_watch = loop_watch(daemon->loop, daemon->egress.fd, EPOLLIN, on_event, daemon);
        if (daemon->egress_watch)
                return 0;
        egress_stop(&daemon->egress);
        return err_set(err, ERR_SYSTEM, "out of memory for the proxy");
}

void network_stop(struct daemon *daemon) {
        loop_timer_drop(&daemon->egress_timer);
        loop_unwatch(&daemon->egress_watch);
        egress_stop(&daemon->egress);
}

static void on_restart(void *context) {
        struct daemon *daemon = context;
        daemon->egress_timer = NULL;
        network_connect(daemon);
}

static void restart_later(struct daemon *daemon) {
        uint64_t at_ms = daemon->egress_started_ms + RESTART_PAUSE_MS; /* at once, unless it died at once */
        if (!daemon->egress_timer)
                daemon->egress_timer = loop_timer(daemon->loop, at_ms, on_restart, daemon);
}

/* Connections break; the listening sockets are still ours, and the next proxy gets them. */
static void on_died(struct daemon *daemon) {
        daemon_log("the proxy has died; starting another");
        network_stop(daemon);
        daemon->helpers[HELPER_EGRESS].pid = 0; /* its restart is here, since boxes are to be admitted again */
        daemon->helpers[HELPER_EGRESS].n_restarts++;
        for (struct session *session = daemon->sessions; session; session = session->next)
                if (session->kernel)
                        session->kernel->admitted = false;
        restart_later(daemon);
}

static void on_event(void *context, uint32_t events) {
        struct daemon *daemon = context;
        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
                on_died(daemon);
                return;
        }
        (void) loop_watch_change(daemon->egress_watch, EPOLLIN);
        network_connect(daemon);
}

/* ---- boxes ---- */

int network_admit(struct daemon *daemon, int listener_fd, int pidfd, const struct egress_rules *rules,
                  struct err *err) {
        if (start(daemon, err) < 0)
                return -1;
        return egress_admit(&daemon->egress, listener_fd, pidfd, rules, err);
}

static bool is_waiting(const struct kernel *kernel) {
        return kernel && kernel->rules && !kernel->admitted && kernel->fds[MAKER_LISTENER] >= 0 &&
               kernel->fds[MAKER_PIDFD] >= 0;
}

void network_connect(struct daemon *daemon) {
        struct err err;
        for (struct session *session = daemon->sessions; session; session = session->next) {
                struct kernel *kernel = session->kernel;
                if (!is_waiting(kernel) || daemon->egress_timer)
                        continue;
                kernel->admitted = network_admit(daemon, kernel->fds[MAKER_LISTENER], kernel->fds[MAKER_PIDFD],
                                                 kernel->rules, &err) == 0;
                if (kernel->admitted)
                        continue;
                if (err.code == ERR_BUSY) { /* goes on when it has read what there is */
                        (void) loop_watch_change(daemon->egress_watch, EPOLLIN | EPOLLOUT);
                        return;
                }
                if (err.code != ERR_GONE) /* its end is told by on_event */
                        daemon_log("session %s has no network for now: %s", session->row.name, err.message);
                daemon->egress_started_ms = loop_now_ms();
                restart_later(daemon);
        }
}
