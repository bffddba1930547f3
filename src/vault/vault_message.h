/* The protocol between a daemon and its vault: one request, one answer, each one message of a SEQPACKET socket with up
 * to VAULT_FDS_MAX descriptors. Both ends run on one machine: numbers are in its own order. The mark changes with the
 * format, so that a daemon of another version gets an error. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "vault/vault.h"

enum vault_operation {
        VAULT_HELLO = 1, /* the vault's first message: status: whether it serves this connection, serial: its pid */
        VAULT_PUT,
        VAULT_DROP,
        VAULT_NEXT, /* the first entry whose serial number is greater */
        VAULT_END,
};

enum vault_status {
        VAULT_OK,
        VAULT_BUSY,
        VAULT_NONE, /* no such entry, or no further one */
        VAULT_FULL,
        VAULT_MALFORMED,
};

enum { VAULT_MARK = 0x47765831 };

struct vault_message {
        uint32_t mark;
        uint32_t operation;
        uint32_t status;
        uint32_t note_size;
        uint64_t serial;
        char name[VAULT_NAME_MAX + 8]; /* NUL-terminated */
        unsigned char note[VAULT_NOTE_MAX];
};

/* Sends a message with copies of these descriptors. 0 or -errno. */
int vault_message_send(int fd, const struct vault_message *message, const int *fds, size_t n_fds, int flags);

/* Receives one: 1, or 0 when the other end is closed, or -errno; the descriptors, with close-on-exec, are the caller's.
 * -EMFILE: there were more of them than can be held; -EBADMSG: not a message of this protocol. Both have been
 * consumed. */
int vault_message_receive(int fd, struct vault_message *ret_message, int ret_fds[static VAULT_FDS_MAX],
                          size_t *ret_n_fds, int flags);

void vault_message_close_fds(int *fds, size_t n_fds);
