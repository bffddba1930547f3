/* A journal in a directory of its own, for the tests of journals. */
#pragma once

#include <errno.h>

#include "base/memory.h"
#include "journal/journal.h"
#include "scratch.h"
#include "tap.h"

/* With a pipe to feed it. */
struct fixture {
        char dir[256];
        int dir_fd;
        int pipe[2];
        struct journal *journal;
        bool torn;
        struct err err;
};

static inline void set_up(struct fixture *f) {
        *f = (struct fixture) { 0 };
        scratch_make(f->dir);
        f->dir_fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        must(f->dir_fd >= 0 && pipe2(f->pipe, O_CLOEXEC) == 0, "pipe");
}

static inline int open_it(struct fixture *f) {
        journal_close(f->journal);
        f->journal = NULL;
        f->torn = false;
        return journal_open(f->dir_fd, &f->journal, &f->torn, &f->err);
}

static inline void tear_down(struct fixture *f) {
        journal_close(f->journal);
        close(f->dir_fd);
        close(f->pipe[0]);
        close(f->pipe[1]);
        scratch_remove(f->dir);
}

static inline int begin(struct fixture *f, const char *run_id) {
        struct journal_request run = { .type = 1, .timeout_ms = 1000, .payload = "{}", .size = 2 };
        *stpncpy(run.id, run_id, sizeof(run.id) - 1) = '\0';
        return journal_begin(f->journal, &run, &f->err);
}

static inline int end(struct fixture *f, const char *result, size_t size) {
        return journal_end(f->journal, result, size, JOURNAL_HOLDS_KERNEL, &f->err);
}

static inline size_t feed(struct fixture *f, enum journal_stream stream, const char *bytes, size_t size) {
        must(write(f->pipe[1], bytes, size) == (ssize_t) size, "write");
        size_t took = 0;
        bool closed;
        return journal_take(f->journal, stream, f->pipe[0], 1 << 20, &took, &closed, &f->err) == 0 ? took : 0;
}

/* All that a run's events say, as "O<stdout>E<stderr>R<result>" in order. */
static inline const char *tell(struct fixture *f, const char *run_id) {
        static char text[1 << 16];
        size_t length = 0;
        struct journal_event event;
        for (uint64_t i = 1; journal_event(f->journal, run_id, i, &event, &f->err) == 0; i++) {
                text[length++] = "OER"[event.kind];
                size_t n = 0;
                if (journal_read(f->journal, &event, 0, text + length, sizeof(text) - length - 2, &n, &f->err) < 0)
                        return "unreadable";
                length += n;
        }
        text[length] = '\0';
        return text;
}

static inline const char *stream_of(struct fixture *f, const char *run_id, enum journal_stream stream) {
        static char *bytes;
        free(bytes);
        bytes = NULL;
        size_t size;
        return journal_read_stream(f->journal, run_id, stream, 1 << 20, &bytes, &size, &f->err) < 0 ? "?" : bytes;
}
