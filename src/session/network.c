#include "session/network.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/memory.h"
#include "egress/egress.h"
#include "egress/rules.h"
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
                code = egress_rules_parse(network, &session->manager->options->egress, rules, err);
        json_decref(options);
        if (code < 0)
                return -1;
        if (rules)
                (void) snprintf(rules->key, sizeof(rules->key), "%s", row->owner);
        *ret_rules = rules && rules->mode != EGRESS_NONE ? take_ptr(rules) : NULL;
        return 0;
}

/* ---- the process ---- */

static void network_on_event(void *context, uint32_t events);

static int network_start(struct session_manager *manager, struct err *err) {
        if (manager->egress.fd >= 0)
                return 0;
        if (egress_start(&manager->options->egress, manager->data_dir, &manager->egress, err) < 0)
                return -1;
        manager->egress_started_ms = loop_now_ms();
        helper_started(&manager->helpers[HELPER_EGRESS], manager->egress.pid);
        manager->egress_watch = loop_watch(manager->loop, manager->egress.fd, EPOLLIN, network_on_event, manager);
        if (manager->egress_watch)
                return 0;
        helper_program_stop(&manager->egress);
        return err_set(err, ERR_SYSTEM, "out of memory for the proxy");
}

void network_stop(struct session_manager *manager) {
        loop_timer_drop(&manager->egress_timer);
        loop_unwatch(&manager->egress_watch);
        helper_program_stop(&manager->egress);
}

static void on_restart(void *context) {
        struct session_manager *manager = context;
        manager->egress_timer = NULL;
        network_connect(manager);
}

static void restart_later(struct session_manager *manager) {
        uint64_t at_ms = manager->egress_started_ms + RESTART_PAUSE_MS; /* at once, unless it died at once */
        if (!manager->egress_timer)
                manager->egress_timer = loop_timer(manager->loop, at_ms, on_restart, manager);
}

/* Connections break. The daemon still has the listening sockets, and the next proxy gets them. */
static void on_died(struct session_manager *manager) {
        daemon_log("the proxy has died; starting another");
        network_stop(manager);
        manager->helpers[HELPER_EGRESS].pid = 0; /* restarted here, because it needs all boxes again */
        manager->helpers[HELPER_EGRESS].n_restarts++;
        for (struct session *session = manager->sessions; session; session = session->next)
                if (session->kernel)
                        session->kernel->admitted = false;
        restart_later(manager);
}

static void network_on_event(void *context, uint32_t events) {
        struct session_manager *manager = context;
        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
                on_died(manager);
                return;
        }
        (void) loop_watch_change(manager->egress_watch, EPOLLIN);
        network_connect(manager);
}

/* ---- boxes ---- */

/* Descriptors are borrowed. */
static int network_admit(struct session_manager *manager, int listener_fd, int pidfd, const struct egress_rules *rules,
                         struct err *err) {
        if (network_start(manager, err) < 0)
                return -1;
        return egress_admit(&manager->egress, listener_fd, pidfd, rules, err);
}

static bool is_waiting(const struct kernel *kernel) {
        return kernel && kernel->rules && !kernel->admitted && kernel->fds[MAKER_LISTENER] >= 0 &&
               kernel->fds[MAKER_PIDFD] >= 0;
}

void network_connect(struct session_manager *manager) {
        struct err err;
        for (struct session *session = manager->sessions; session; session = session->next) {
                struct kernel *kernel = session->kernel;
                if (!is_waiting(kernel) || manager->egress_timer)
                        continue;
                kernel->admitted = network_admit(manager, kernel->fds[MAKER_LISTENER], kernel->fds[MAKER_PIDFD],
                                                 kernel->rules, &err) == 0;
                if (kernel->admitted)
                        continue;
                if (err.code == ERR_BUSY) { /* continues when the proxy has read the queue */
                        (void) loop_watch_change(manager->egress_watch, EPOLLIN | EPOLLOUT);
                        return;
                }
                if (err.code != ERR_GONE) /* network_on_event handles its end */
                        daemon_log("session %s has no network for now: %s", session->row.name, err.message);
                manager->egress_started_ms = loop_now_ms();
                restart_later(manager);
        }
}
