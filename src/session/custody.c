#include "session/custody.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/memory.h"
#include "session/session.h"

static void on_vault(void *context, uint32_t events);

static void disconnect(struct daemon *daemon) {
        loop_unwatch(&daemon->vault_watch);
        vault_close(&daemon->vault);
}

static int connect_to_vault(struct daemon *daemon, bool *ret_new, struct err *err) {
        char path[4200];
        (void) snprintf(path, sizeof(path), "%s/vault.sock", daemon->data_dir);
        if (vault_open(path, &daemon->vault, ret_new, err) < 0)
                return -1;
        daemon->vault_watch = loop_watch(daemon->loop, daemon->vault.fd, EPOLLIN, on_vault, daemon);
        if (!daemon->vault_watch) {
                disconnect(daemon);
                return err_set(err, ERR_SYSTEM, "out of descriptors or memory for the vault");
        }
        helper_started(&daemon->helpers[HELPER_VAULT], daemon->vault.pid > 0 ? daemon->vault.pid : 1);
        return 0;
}

/* ---- another vault ---- */

static void put_all(struct daemon *daemon) {
        size_t n = 0;
        for (struct session *session = daemon->sessions; session; session = session->next) {
                const struct kernel *kernel = session->kernel;
                if (session->ephemeral || !kernel || !kernel->was_ready || kernel->state == KERNEL_DEAD)
                        continue;
                custody_put(session);
                n++;
        }
        if (n > 0 && daemon->vault.fd >= 0)
                daemon_log("the new vault holds %zu living kernels", n);
}

static int start(void *context, struct err *err) {
        struct daemon *daemon = context;
        bool is_new;
        if (connect_to_vault(daemon, &is_new, err) < 0)
                return -1;
        put_all(daemon);
        return 0;
}

/* One that does not answer is no use, and what it holds is here as well. */
static void give_up(struct daemon *daemon, bool is_hung) {
        if (is_hung && daemon->vault.pid > 0)
                (void) kill(daemon->vault.pid, SIGKILL);
        disconnect(daemon);
        helper_died(&daemon->helpers[HELPER_VAULT]);
}

/* It speaks only when asked, and is waited for then: this is its end, or an answer that came too late. */
static void on_vault(void *context, uint32_t events) {
        struct daemon *daemon = context;
        char byte;
        (void) events;
        if (recv(daemon->vault.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        give_up(daemon, false);
}

/* ---- the daemon's side ---- */

int custody_open(struct daemon *daemon, struct err *err) {
        daemon->helpers[HELPER_VAULT].start = start;
        return connect_to_vault(daemon, &daemon->vault_is_new, err);
}

void custody_make_sure(struct daemon *daemon) {
        struct helper *helper = &daemon->helpers[HELPER_VAULT];
        struct err err;
        if (!helper->is_wanted)
                return; /* the start failed before there was one */
        if (daemon->vault.fd >= 0)
                on_vault(daemon, 0);
        if (daemon->vault.fd < 0 && start(daemon, &err) < 0)
                daemon_log("no session survives the end of this daemon: %s", err.message);
}

void custody_close(struct daemon *daemon) {
        helper_retire(&daemon->helpers[HELPER_VAULT]);
        disconnect(daemon);
}

/* A vault that ended is replaced when its end is heard of, and gets this kernel then; one that is slow, now. */
static void judge(struct daemon *daemon, const char *name, const struct err *err) {
        if (err->code == ERR_TIMEOUT)
                give_up(daemon, true);
        else if (err->code != ERR_GONE)
                daemon_log("session %s: will not survive this daemon: %s", name, err->message);
}

void custody_put(struct session *session) {
        struct kernel *kernel = session->kernel;
        struct daemon *daemon = session->daemon;
        if (session->ephemeral || daemon->vault.fd < 0)
                return;
        /* The vault holds a row of descriptors without holes: which slots they are goes into the note. */
        int fds[MAKER_FDS];
        size_t n_fds = 0;
        unsigned slots = 0;
        for (unsigned i = 0; i < MAKER_FDS; i++) {
                if (kernel->fds[i] < 0)
                        continue;
                slots |= 1u << i;
                fds[n_fds++] = kernel->fds[i];
        }
        _cleanup_free_ char *note = NULL;
        int size = asprintf(&note, "{\"session\": \"%s\", \"group\": \"%s\", \"pid\": %d, \"slots\": %u, \"protocol\": %d}",
                            session->row.id, kernel->group, (int) kernel->pid, slots, KERNEL_PROTOCOL);
        struct err err;
        if (size < 0) {
                note = NULL;
                (void) err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                judge(daemon, session->row.name, &err);
        } else if (vault_put(&daemon->vault, kernel->id, note, (size_t) size, fds, n_fds, &err) < 0)
                judge(daemon, session->row.name, &err);
}

void custody_drop(struct daemon *daemon, const char *kernel_id) {
        struct err err;
        if (daemon->vault.fd >= 0 && vault_drop(&daemon->vault, kernel_id, &err) < 0 && err.code == ERR_TIMEOUT)
                give_up(daemon, true);
}
