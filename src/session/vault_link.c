#include "session/vault_link.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/memory.h"
#include "session/session.h"

static void on_vault(void *context, uint32_t events);

static void vault_link_disconnect(struct session_manager *manager) {
        loop_unwatch(&manager->vault_watch);
        vault_close(&manager->vault);
}

static int connect_to_vault(struct session_manager *manager, bool *ret_new, struct err *err) {
        char path[4200];
        (void) snprintf(path, sizeof(path), "%s/vault.sock", manager->data_dir);
        if (vault_open(path, &manager->vault, ret_new, err) < 0)
                return -1;
        manager->vault_watch = loop_watch(manager->loop, manager->vault.fd, EPOLLIN, on_vault, manager);
        if (!manager->vault_watch) {
                vault_link_disconnect(manager);
                return err_set(err, ERR_SYSTEM, "out of descriptors or memory for the vault");
        }
        helper_started(&manager->helpers[HELPER_VAULT], manager->vault.pid > 0 ? manager->vault.pid : 1);
        return 0;
}

/* ---- another vault ---- */

static void put_all(struct session_manager *manager) {
        size_t n = 0;
        for (struct session *session = manager->sessions; session; session = session->next) {
                const struct kernel *kernel = session->kernel;
                if (session->ephemeral || !kernel || !kernel_was_ready(kernel) || kernel_is_dead(kernel))
                        continue;
                vault_link_put(session);
                n++;
        }
        if (n > 0 && manager->vault.fd >= 0)
                daemon_log("the new vault holds %zu living kernels", n);
}

static int vault_link_start(void *context, struct err *err) {
        struct session_manager *manager = context;
        bool is_new;
        if (connect_to_vault(manager, &is_new, err) < 0)
                return -1;
        put_all(manager);
        return 0;
}

/* A vault that does not answer is useless, and the daemon has copies of all that it holds. */
static void give_up_vault(struct session_manager *manager, bool is_hung) {
        if (is_hung && manager->vault.pid > 0)
                (void) kill(manager->vault.pid, SIGKILL);
        vault_link_disconnect(manager);
        helper_died(&manager->helpers[HELPER_VAULT]);
}

/* The vault only answers requests, and the daemon waits for each answer: so this is its end, or a late answer. */
static void on_vault(void *context, uint32_t events) {
        struct session_manager *manager = context;
        char byte;
        (void) events;
        if (recv(manager->vault.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        give_up_vault(manager, false);
}

/* ---- the daemon's side ---- */

int vault_link_open(struct session_manager *manager, struct err *err) {
        manager->helpers[HELPER_VAULT].start = vault_link_start;
        return connect_to_vault(manager, &manager->vault_is_new, err);
}

void vault_link_make_sure(struct session_manager *manager) {
        struct helper *helper = &manager->helpers[HELPER_VAULT];
        struct err err;
        if (!helper->is_wanted)
                return; /* the start failed before there was one */
        if (manager->vault.fd >= 0)
                on_vault(manager, 0);
        if (manager->vault.fd < 0 && vault_link_start(manager, &err) < 0)
                daemon_log("no session survives the end of this daemon: %s", err.message);
}

static void count_entry(const char *name, const void *note, size_t note_size, int *fds, size_t n_fds, void *context) {
        size_t *n = context;
        (void) note;
        (void) note_size;
        for (size_t i = 0; i < n_fds; i++)
                fd_close(&fds[i]);
        *n += name[0] != '.';
}

void vault_link_end_empty(struct session_manager *manager) {
        size_t n = 0;
        if (manager->vault.fd >= 0 && vault_each(&manager->vault, count_entry, &n, NULL) == 0 && n == 0)
                (void) vault_end(&manager->vault, NULL);
}

void vault_link_close(struct session_manager *manager) {
        helper_retire(&manager->helpers[HELPER_VAULT]);
        vault_link_disconnect(manager);
}

/* A vault that ended is replaced when its end is noticed, and gets this kernel then; a slow one is replaced now. */
static void vault_link_judge(struct session_manager *manager, const char *name, const struct err *err) {
        if (err->code == ERR_TIMEOUT)
                give_up_vault(manager, true);
        else if (err->code != ERR_GONE)
                daemon_log("session %s: will not survive this daemon: %s", name, err->message);
}

void vault_link_put(struct session *session) {
        struct kernel *kernel = session->kernel;
        struct session_manager *manager = session->manager;
        if (session->ephemeral || manager->vault.fd < 0)
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
        int size = asprintf(&note,
                            "{\"session\": \"%s\", \"group\": \"%s\", \"pid\": %d, \"slots\": %u, \"protocol\": %d}",
                            session->row.id, kernel->group, (int) kernel->pid, slots, KERNEL_PROTOCOL);
        struct err err;
        if (size < 0) {
                note = NULL;
                (void) err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                vault_link_judge(manager, session->row.name, &err);
        } else if (vault_put(&manager->vault, kernel->id, note, (size_t) size, fds, n_fds, &err) < 0)
                vault_link_judge(manager, session->row.name, &err);
}

void vault_link_drop(struct session_manager *manager, const char *kernel_id) {
        struct err err;
        if (manager->vault.fd >= 0 && vault_drop(&manager->vault, kernel_id, &err) < 0 && err.code == ERR_TIMEOUT)
                give_up_vault(manager, true);
}
