#include "write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "bounds.h"
#include "path.h"

struct write {
        uint32_t id;
        int code; /* the first error; reported at the end */
        const char *step;
        int dir_fd, fd;
        uint64_t size;
        char *path;
        const char *name; /* in path */
        char beside[sizeof(WRITE_PREFIX) + 16];
};

static struct write writes[WRITES_MAX];
static size_t n_writes;

static struct write *find_write(uint32_t id) {
        for (size_t i = 0; i < n_writes; i++)
                if (writes[i].id == id)
                        return &writes[i];
        return NULL;
}

static mode_t choose_mode(const struct write *write, uint32_t mode) {
        struct stat status;
        if (mode)
                return mode & 0777;
        if (fstatat(write->dir_fd, write->name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode))
                return status.st_mode & 0777;
        return 0644;
}

static int create_beside(struct write *write) {
        for (int attempt = 0; attempt < 8; attempt++) {
                uint64_t number;
                if (getrandom(&number, sizeof(number), 0) != (ssize_t) sizeof(number))
                        return -EIO;
                (void) snprintf(write->beside, sizeof(write->beside), WRITE_PREFIX "%016llx",
                                (unsigned long long) number);
                write->fd = openat(write->dir_fd, write->beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                   0600);
                if (write->fd >= 0 || errno != EEXIST)
                        break;
        }
        if (write->fd >= 0)
                return 0;
        int code = -errno;
        write->beside[0] = '\0';
        return code;
}

static int open_files(struct write *write, struct frame_reader *fields) {
        uint32_t mode;
        write->step = "reading the request";
        int code = path_get(fields, &write->path);
        if (code < 0)
                return code;
        if (!frame_get_u32(fields, &mode))
                return -EPROTO;
        write->step = "opening the directory";
        write->dir_fd = path_open_parent(write->path, &write->name);
        if (write->dir_fd < 0)
                return write->dir_fd;
        write->step = "making the file";
        code = create_beside(write);
        if (code == 0 && fchmod(write->fd, choose_mode(write, mode)) < 0)
                code = -errno;
        return code;
}

/* NULL: there is no room. */
static struct write *begin_write(uint32_t id, struct frame_reader *fields) {
        struct write *write = find_write(id);
        if (write) { /* then neither of the two is the file that the host meant */
                write->step = "a write with this id was open already";
                write->code = -EEXIST;
                return write;
        }
        if (n_writes == WRITES_MAX)
                return NULL;
        write = &writes[n_writes++];
        *write = (struct write) { .id = id, .dir_fd = -1, .fd = -1 };
        write->code = open_files(write, fields);
        return write;
}

static int append_to_write(struct write *write, struct frame_reader *fields) {
        const char *bytes;
        size_t size;
        write->step = "reading the request";
        if (!frame_get_bytes(fields, &bytes, &size))
                return -EPROTO;
        write->step = "writing the file";
        int code = fd_write_all(write->fd, bytes, size);
        if (code == 0)
                write->size += size;
        return code;
}

static int write_commit(struct write *write) {
        write->step = "putting the file in its place";
        fd_close(&write->fd); /* before it has its name: a watcher of the directory sees a complete file */
        if (renameat(write->dir_fd, write->beside, write->dir_fd, write->name) < 0)
                return -errno;
        write->beside[0] = '\0';
        return 0;
}

static void write_release(struct write *write) {
        if (write->beside[0])
                (void) unlinkat(write->dir_fd, write->beside, 0);
        fd_close(&write->fd);
        fd_close(&write->dir_fd);
        free(write->path);
}

static void drop_write(struct write *write) {
        write_release(write);
        *write = writes[--n_writes];
}

static int finish_write(struct request *request, struct write *write, bool keep) {
        if (keep && write->code == 0)
                write->code = write_commit(write);
        int code = write->code;
        request->step = write->step;
        if (code == 0 || !keep) {
                frame_put_u64(&request->answer, write->size);
                code = 0;
        }
        drop_write(write);
        return code;
}

/* A write has one answer, at its end: an earlier error is kept until then. */
int write_serve(struct request *request) {
        uint32_t flags;
        if (!frame_get_u32(&request->fields, &flags) ||
            (flags & ~(uint32_t) (FRAME_WRITE_BEGIN | FRAME_WRITE_COMMIT | FRAME_WRITE_ABANDON)))
                return -EPROTO;
        bool ends = flags & (FRAME_WRITE_COMMIT | FRAME_WRITE_ABANDON);
        struct write *write =
                flags & FRAME_WRITE_BEGIN ? begin_write(request->id, &request->fields) : find_write(request->id);
        if (!write) {
                request->step = "no write with this id was begun, or too many were open";
                return ends ? -EBADF : REQUEST_ANSWERED_LATER;
        }
        if (write->code == 0)
                write->code = append_to_write(write, &request->fields);
        return ends ? finish_write(request, write, !(flags & FRAME_WRITE_ABANDON)) : REQUEST_ANSWERED_LATER;
}

void writes_release(void) {
        while (n_writes > 0)
                drop_write(&writes[n_writes - 1]);
}
