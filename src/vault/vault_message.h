/* The protocol between a daemon and its vault. Each request has one answer. Both are messages of a SEQPACKET socket
 * with up to VAULT_FDS_MAX descriptors. Both ends run on one machine, so numbers are in host byte order. The mark
 * changes with the format, so that a daemon of another version gets an error. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "vault/vault.h"

enum vault_operation {
        VAULT_HELLO = 1, /* the vault's first message; status: VAULT_OK or VAULT_BUSY; serial: its pid */
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

/* Receives a message. Returns 1, or 0 if the other end is closed, or -errno. The caller owns the descriptors, which
 * have close-on-exec. -EMFILE: more descriptors than VAULT_FDS_MAX or than the limit of open files allows.
 * -EBADMSG: not a message of this protocol. In both cases the message has been consumed. */
int vault_message_receive(int fd, struct vault_message *ret_message, int ret_fds[static VAULT_FDS_MAX],
                          size_t *ret_n_fds, int flags);

void vault_message_close_fds(int *fds, size_t n_fds);
