#include "session/run_displays.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "session/run.h"

enum { KEPT_MAX = 32 << 10 }; /* in memory */

bool run_displays_have_room(const struct run_displays *displays, size_t size) {
        size_t used = displays->written + displays->text.size;
        return displays->n < RUN_DISPLAYS_MAX && used < RUN_DISPLAYS_BYTES_MAX && size <= RUN_DISPLAYS_BYTES_MAX - used;
}

/* A part of it that was written is written again later, in the same place. */
static int write_all_at(int fd, const char *bytes, size_t size, size_t at) {
        while (size > 0) {
                ssize_t n = pwrite(fd, bytes, size, (off_t) at);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return -1;
                bytes += n;
                at += (size_t) n;
                size -= (size_t) n;
        }
        return 0;
}

static void put_aside(struct run_displays *displays, const char *state_dir) {
        if (displays->fd < 0)
                displays->fd = open(state_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (displays->text.failed || displays->fd < 0 ||
            write_all_at(displays->fd, displays->text.bytes, displays->text.size, displays->written) < 0)
                return;
        displays->written += displays->text.size;
        json_writer_release(&displays->text);
}

void run_displays_add(struct run_displays *displays, const char *state_dir, const char *data, size_t size) {
        if (displays->n++ > 0)
                json_writer_put_literal(&displays->text, ",");
        json_writer_put(&displays->text, data, size);
        if (displays->text.size > KEPT_MAX)
                put_aside(displays, state_dir);
}

static int read_all(int fd, char *bytes, size_t size) {
        for (size_t at = 0; at < size;) {
                ssize_t n = pread(fd, bytes + at, size - at, (off_t) at);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return -1;
                at += (size_t) n;
        }
        return 0;
}

void run_displays_load(struct run_displays *displays) {
        if (displays->written == 0)
                return;
        struct json_writer all = { 0 };
        _cleanup_free_ char *bytes = malloc(displays->written);
        if (bytes && read_all(displays->fd, bytes, displays->written) == 0)
                json_writer_put(&all, bytes, displays->written);
        else
                all.failed = true;
        json_writer_put(&all, displays->text.bytes, displays->text.size);
        json_writer_release(&displays->text);
        displays->text = all;
        displays->written = 0;
}

void run_displays_release(struct run_displays *displays) {
        json_writer_release(&displays->text);
        fd_close(&displays->fd);
}
