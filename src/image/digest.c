#include "image/digest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/sha256.h"
#include "image/interrupt.h"
#include "image/path.h"

/* As the bytes lie in the archive, compressed or not. */
static int digest_compute(const struct archive *archive, const struct archive_member *member, char ret_hex[static 65],
                          struct err *err) {
        char buffer[1 << 16];
        uint8_t digest[SHA256_SIZE];
        struct sha256 sha;
        sha256_init(&sha);
        for (uint64_t done = 0; done < member->size;) {
                if (interrupt_pending())
                        return interrupt_error(err);
                size_t wanted = member->size - done < sizeof(buffer) ? (size_t) (member->size - done) : sizeof(buffer);
                ssize_t n = pread(archive->fd, buffer, wanted, (off_t) (member->offset + done));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return err_sys(err, n < 0 ? errno : ENODATA, "cannot read the archive");
                sha256_add(&sha, buffer, (size_t) n);
                done += (uint64_t) n;
        }
        sha256_finish(&sha, digest);
        for (size_t i = 0; i < SHA256_SIZE; i++)
                (void) snprintf(ret_hex + 2 * i, 3, "%02x", digest[i]);
        return 0;
}

int digest_check(const struct archive *archive, const struct archive_member *member, const char *name,
                 struct err *err) {
        static const char blobs[] = "blobs/", stem[] = "blobs/sha256/";
        char hex[65], shown[204];
        if (strncmp(name, blobs, strlen(blobs)) != 0)
                return 0;
        if (strncmp(name, stem, strlen(stem)) != 0)
                return err_set(err, ERR_UNSUPPORTED,
                               "the archive names \"%s\" by a digest that is not SHA-256; export the image again with "
                               "SHA-256 digests",
                               path_for_message(name, shown));
        if (digest_compute(archive, member, hex, err) < 0)
                return -1;
        if (strcasecmp(hex, name + strlen(stem)) != 0)
                return err_set(err, ERR_PROTOCOL,
                               "the archive's \"%s\" does not have the digest that its name says: it is damaged or was "
                               "changed; save the image again",
                               path_for_message(name, shown));
        return 0;
}
