/* Frames between host and agent, as docs/PROTOCOL.md describes them. Linked into the static agent too: libc only.
 *
 *   u32 payload size | u16 type | u16 zero | u32 id of what the frame is about | payload
 *
 * All numbers are little-endian. A payload is a row of fields: numbers (u32, u64), texts (u32 length, bytes without
 * NUL) and bytes (u32 length, any bytes). Each side treats the other as hostile: sizes are bounded before anything is
 * allocated, and nothing after a field that does not fit is read. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        FRAME_HEADER_SIZE = 12,
        FRAME_PAYLOAD_MAX = 1 << 20,
        FRAME_FDS_MAX = 6,
        FRAME_TEXTS_MAX = 1 << 17, /* arguments or environment entries of one process */
};

enum frame_type {
        /* host to agent: processes */
        FRAME_START = 1,     /* cwd, argc, argv…, envc, envp…[, u32 flags[, u32 rows, u32 columns]] */
        FRAME_SIGNAL = 2,    /* u32 signal, u32 to its whole group */
        FRAME_QUIT = 3,      /* end the box */
        FRAME_INPUT = 4,     /* bytes */
        FRAME_INPUT_END = 5, /* no more INPUT */
        FRAME_RESIZE = 6,    /* u32 rows, u32 columns */
        FRAME_ACK = 7,       /* u64 bytes of OUTPUT taken since the start */
        FRAME_PERMIT = 8, /* text run, text user, cwd, argc, argv…, envc, envp…: what the kernel may start as a user */
        /* agent to host */
        FRAME_READY = 16,
        FRAME_STARTED = 17, /* u32 pid inside the box */
        FRAME_FAILED = 18, /* u32 errno, text which step */
        FRAME_EXITED = 19, /* u32 wait status, u64 cpu time in us, u64 peak memory in KiB */
        FRAME_OUTPUT = 20, /* u32 stream (1, 2), bytes */
        FRAME_TAKEN = 21, /* u64 bytes of INPUT taken since the start */
        FRAME_DONE = 22, /* what the request promises */
        FRAME_CHANGED = 23, /* text name, u32 what, u32 whether a directory, u32 what two halves of a move share */
        /* host to agent: files */
        FRAME_STAT = 32, /* path, u32 follow → u32 mode, u64 size, u64 mtime in ns, u32 uid, u32 gid, text target */
        FRAME_LIST = 33, /* path, u64 from → u64 next, u32 count, (text name, u32 mode, u64 size, u64 mtime)… */
        FRAME_READ = 34, /* path, u64 offset, u32 size → u64 size of the file, bytes */
        FRAME_WRITE = 35, /* u32 flags[, path, u32 mode], bytes → u64 size */
        FRAME_MOVE = 36, /* path, path */
        FRAME_REMOVE = 37, /* path, u32 recursive */
        FRAME_MKDIR = 38, /* path, u32 mode, u32 parents too */
        FRAME_WATCH = 39, /* path */
        FRAME_UNWATCH = 40, /* ends the watch of this id */
};

/* START: who makes the descriptors. 0: they come with the frame and become 0, 1, 2, 3… of the process. */
enum { FRAME_START_STREAMS = 1, FRAME_START_TERMINAL = 2 };

/* WRITE: one frame with BEGIN and COMMIT, or one that begins, any number with no flag, and one that ends it. */
enum { FRAME_WRITE_BEGIN = 1, FRAME_WRITE_COMMIT = 2, FRAME_WRITE_ABANDON = 4 };

/* CHANGED: what. */
enum frame_change {
        FRAME_CHANGE_CREATED = 1,
        FRAME_CHANGE_WRITTEN = 2,
        FRAME_CHANGE_CLOSED = 3, /* after it was open for writing */
        FRAME_CHANGE_ATTRIBUTES = 4,
        FRAME_CHANGE_REMOVED = 5,
        FRAME_CHANGE_MOVED_AWAY = 6,
        FRAME_CHANGE_MOVED_HERE = 7,
        FRAME_CHANGE_GONE = 8, /* the watched path itself: the watch is over */
        FRAME_CHANGE_LOST = 9, /* too much happened at once: look at everything again */
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

/* A frame that arrives piece by piece. Zeroed: nothing has arrived. */
struct frame_inbox {
        unsigned char header[FRAME_HEADER_SIZE];
        size_t header_size, payload_size; /* of what is there */
        struct frame frame; /* what came with the header */
};

/* Takes what there is, with the MSG_ flags given. 1 and a frame; 0 when more has to come; or as frame_receive. */
int frame_inbox_receive(struct frame_inbox *inbox, int socket_fd, int flags, struct frame *ret_frame);
void frame_inbox_release(struct frame_inbox *inbox);

/* Builds a payload. A frame that outgrew FRAME_PAYLOAD_MAX remembers it and frame_send answers -E2BIG. */
struct frame_writer {
        char *bytes;
        size_t size, room;
        bool failed;
};

void frame_put_u32(struct frame_writer *writer, uint32_t value);
void frame_put_u64(struct frame_writer *writer, uint64_t value);
void frame_put_text(struct frame_writer *writer, const char *text);
void frame_put_fields(struct frame_writer *writer, const struct frame_writer *fields); /* built apart */
/* Room for up to max bytes, to be filled by the caller, who then says how many there are. NULL: no room. */
char *frame_begin_bytes(struct frame_writer *writer, size_t max);
void frame_end_bytes(struct frame_writer *writer, size_t max, size_t size);
void frame_writer_release(struct frame_writer *writer);

void frame_make_header(unsigned char ret_header[static FRAME_HEADER_SIZE], enum frame_type type, uint32_t id,
                       size_t size);

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
/* The bytes stay the frame's. */
bool frame_get_bytes(struct frame_reader *reader, const char **ret_bytes, size_t *ret_size);
/* u32 count, then that many texts, as a NULL-terminated array to be freed with frame_free_texts. */
bool frame_get_texts(struct frame_reader *reader, char ***ret_texts);
void frame_free_texts(char **texts);
void frame_put_texts(struct frame_writer *writer, char *const *texts);
