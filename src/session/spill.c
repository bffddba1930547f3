#include "session/spill.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "session/client.h"

enum { SPILL_BYTES_MAX = 256 << 20 };

struct spill *spill_make(const char *dir) {
        struct spill *spill = calloc(1, sizeof(*spill));
        if (!spill)
                return NULL;
        spill->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (spill->fd >= 0)
                return spill;
        free(spill);
        return NULL;
}

void spill_free(struct spill *spill) {
        if (!spill)
                return;
        fd_close(&spill->fd);
        free(spill);
}

int spill_put(struct spill *spill, enum message_type type, uint16_t request, const void *prefix, size_t prefix_size,
              const void *bytes, size_t size) {
        unsigned char header[MESSAGE_HEADER_SIZE] = { [4] = (unsigned char) type };
        uint32_t payload_le = htole32((uint32_t) (prefix_size + size));
        uint16_t request_le = htole16(request);
        memcpy(header, &payload_le, sizeof(payload_le));
        memcpy(header + 6, &request_le, sizeof(request_le));
        int code = fd_write_all(spill->fd, header, sizeof(header));
        if (code == 0 && prefix_size)
                code = fd_write_all(spill->fd, prefix, prefix_size);
        if (code == 0 && size)
                code = fd_write_all(spill->fd, bytes, size);
        spill->end += sizeof(header) + prefix_size + size;
        return code;
}

void spill_give(struct client *client, struct spill *spill) {
        uint64_t waiting = spill->end;
        struct spill **last = &client->spills;
        for (; *last; last = &(*last)->next)
                waiting += (*last)->end - (*last)->at;
        *last = spill;
        if (waiting > SPILL_BYTES_MAX)
                client->closing = true;
}

/* One message. False when the file cannot be read: then nothing of it can be trusted any more. */
static bool send_one(struct client *client, struct spill *spill) {
        unsigned char header[MESSAGE_HEADER_SIZE];
        uint32_t size;
        uint16_t request;
        if (pread(spill->fd, header, sizeof(header), (off_t) spill->at) != (ssize_t) sizeof(header))
                return false;
        memcpy(&size, header, sizeof(size));
        memcpy(&request, header + 6, sizeof(request));
        size = le32toh(size);
        _cleanup_free_ char *payload = malloc(size + 1);
        if (!payload)
                return false;
        for (size_t done = 0; done < size;) {
                ssize_t n = pread(spill->fd, payload + done, size - done, (off_t) (spill->at + sizeof(header) + done));
                if (n <= 0)
                        return false;
                done += (size_t) n;
        }
        spill->at += sizeof(header) + size;
        client_send(client, header[4], le16toh(request), payload, size);
        return true;
}

void spill_feed(struct client *client) {
        while (client->spills && client_wants_more(client)) {
                struct spill *spill = client->spills;
                if (!send_one(client, spill))
                        client->closing = true;
                if (spill->at < spill->end)
                        continue;
                client->spills = spill->next;
                spill_free(spill);
        }
}

void spill_free_all(struct client *client) {
        while (client->spills) {
                struct spill *spill = client->spills;
                client->spills = spill->next;
                spill_free(spill);
        }
}
