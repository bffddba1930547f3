/* Everything a tar file can say, compressed or not: no crash, no hang, no growth past the bound. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/fd.h"
#include "base/memory.h"
#include "image/path.h"
#include "image/tar.h"
#include "tests/support/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
        static struct tar_entry entry;
        const uint64_t max = 1 << 20;
        _cleanup_(stream_free) struct stream *stream = NULL;
        _cleanup_fd_ int fd = memory_file(bytes, size);
        if (stream_open_file(fd, 0, size, max, &stream, NULL) < 0)
                return 0;
        struct tar tar;
        tar_init(&tar, stream);
        while (tar_next(&tar, &entry, NULL) > 0) {
                char clean[BOUND_PATH + 1], parent[BOUND_PATH + 1], buffer[1000];
                uint64_t got = 0;
                if (path_clean(entry.path, clean, NULL) == 0) {
                        const char *name = path_split(clean, parent);
                        if (*clean == '/' || *parent == '/' || (*clean && !*name))
                                abort();
                }
                for (ssize_t n; (n = tar_read(&tar, buffer, sizeof(buffer), NULL)) > 0;)
                        got += (uint64_t) n;
                if (got > entry.size || stream_position(stream) > max)
                        abort();
        }
        return 0;
}
