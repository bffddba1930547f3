/* Frames between host and agent, as docs/PROTOCOL.md describes them. Linked into the static agent too: libc only.
 *
 *   u32 payload size | u16 type | u16 zero | u32 process id of the frame's subject | payload
 *
 * All numbers are little-endian. A payload is a row of fields: numbers (u32, u64) and texts (u32 length, bytes). Each
 * side treats the other as hostile: sizes are bounded before anything is allocated, and a field that does not fit ends
 * the connection. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        FRAME_HEADER_SIZE = 12,
        FRAME_PAYLOAD_MAX = 1 << 20,
        FRAME_FDS_MAX = 6,
        FRAME_TEXTS_MAX = 4096, /* arguments or environment entries of one process */
};

enum frame_type {
        /* host to agent */
        FRAME_START = 1,  /* cwd, argc, argv…, envc, envp…; descriptors become 0, 1, 2, 3… of the process */
        FRAME_SIGNAL = 2, /* u32 signal, u32 to its whole group */
        FRAME_QUIT = 3,   /* end the box */
        /* agent to host */
        FRAME_READY = 16,
        FRAME_STARTED = 17, /* u32 pid inside the box */
        FRAME_FAILED = 18,  /* u32 errno, text which step */
        FRAME_EXITED = 19,  /* u32 wait status, u64 cpu time in us, u64 peak memory in KiB */
};

struct frame {
        uint16_t type;
        uint32_t id;
        uint32_t size;
        char *payload; /* owned; NUL follows the last byte */
        int fds[FRAME_FDS_MAX];
        size_t n_fds; /* owned until taken */
};

void frame_release(struct frame *frame);

/* Receives one frame from a blocking socket. 0, -ENODATA at a clean end, -EPROTO for a malformed frame, -errno. */
int frame_receive(int socket_fd, struct frame *ret_frame);

/* Builds a payload. A frame that outgrew FRAME_PAYLOAD_MAX remembers it and frame_send answers -E2BIG. */
struct frame_writer {
        char *bytes;
        size_t size, room;
        bool failed;
};

void frame_put_u32(struct frame_writer *writer, uint32_t value);
void frame_put_u64(struct frame_writer *writer, uint64_t value);
void frame_put_text(struct frame_writer *writer, const char *text);
void frame_writer_release(struct frame_writer *writer);

/* Sends header, payload (NULL: none) and descriptors (borrowed). */
int frame_send(int socket_fd, enum frame_type type, uint32_t id, const struct frame_writer *payload, const int *fds,
               size_t n_fds);

/* Reads the fields of a payload in order; every getter is false once something did not fit. */
struct frame_reader {
        const char *at, *end;
};

static inline struct frame_reader frame_read(const struct frame *frame) {
        return (struct frame_reader) { frame->payload, frame->payload + frame->size };
}
bool frame_get_u32(struct frame_reader *reader, uint32_t *ret_value);
bool frame_get_u64(struct frame_reader *reader, uint64_t *ret_value);
/* The text is copied, NUL-terminated and freed by the caller; texts with a NUL inside are refused. */
bool frame_get_text(struct frame_reader *reader, char **ret_text);
/* u32 count, then that many texts, as a NULL-terminated array to be freed with frame_free_texts. */
bool frame_get_texts(struct frame_reader *reader, char ***ret_texts);
void frame_free_texts(char **texts);
void frame_put_texts(struct frame_writer *writer, char *const *texts);
