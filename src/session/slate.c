#include "session/slate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/log.h"

enum {
        PLACES = 32,
        PLACE_SIZE = 4096,
        PATH_SIZE = 1024,
        WRITE_AFTER_MS = 10,
        RETRY_AFTER_MS = 1000, /* where a file could not be written */
};

/* A place as it lies in memory. A process that is killed leaves `size` as it was before a record or after it. */
struct lines {
        _Atomic uint32_t size; /* 0: the place is free */
        uint32_t unused;
        uint64_t offset;
        char path[PATH_SIZE];
        char bytes[PLACE_SIZE - PATH_SIZE - 16];
};
_Static_assert(sizeof(struct lines) == PLACE_SIZE, "a place is a page");

/* What this process knows about it. */
struct slate_place {
        struct slate_place **holder; /* NULL: nobody's */
        struct lines *lines;
        int fd;
};

static struct slate_place places[PLACES];
static struct lines *memory; /* NULL: there is no slate */
static struct loop *events;
static struct loop_timer *timer;

static int map(struct loop *loop, int fd, struct err *err) {
        void *mapped = mmap(NULL, PLACES * PLACE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (mapped == MAP_FAILED)
                return err_sys(err, errno, "mapping the slate");
        /* Helpers that are forked off have no business with it. */
        (void) madvise(mapped, PLACES * PLACE_SIZE, MADV_DONTFORK);
        memory = mapped;
        events = loop;
        for (size_t i = 0; i < PLACES; i++)
                places[i] = (struct slate_place) { .lines = &memory[i], .fd = -1 };
        return 0;
}

int slate_make(struct loop *loop, int *ret_fd, struct err *err) {
        _cleanup_fd_ int fd = memfd_create("glovebox-slate", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        /* Memory that is there cannot be missing later; a size that cannot change cannot be less. */
        if (fd < 0 || fallocate(fd, 0, 0, PLACES * PLACE_SIZE) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
                return err_sys(err, errno, "making the slate");
        if (map(loop, fd, err) < 0)
                return -1;
        *ret_fd = take_fd(&fd);
        return 0;
}

/* ---- to the files ---- */

static int write_lines(const struct lines *lines, uint32_t size, int fd) {
        for (uint32_t done = 0; done < size;) {
                ssize_t n = pwrite(fd, lines->bytes + done, size - done, (off_t) (lines->offset + done));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -ENOSPC;
                done += (uint32_t) n;
        }
        return 0;
}

int slate_write(struct slate_place **place) {
        if (!*place)
                return 0;
        struct lines *lines = (*place)->lines;
        int code = write_lines(lines, atomic_load(&lines->size), (*place)->fd);
        if (code == 0)
                slate_forget(place);
        return code;
}

void slate_forget(struct slate_place **place) {
        if (!*place)
                return;
        atomic_store(&(*place)->lines->size, 0);
        (*place)->holder = NULL;
        *place = NULL;
}

static void write_all(void *context) {
        (void) context;
        timer = NULL;
        bool failed = false;
        for (size_t i = 0; i < PLACES; i++)
                failed |= places[i].holder && slate_write(places[i].holder) < 0;
        if (failed)
                timer = loop_timer(events, loop_now_ms() + RETRY_AFTER_MS, write_all, NULL);
}

/* The file of a session that was removed meanwhile is not missed. */
static int finish(const struct lines *lines, uint32_t size) {
        if (size > sizeof(lines->bytes) || strnlen(lines->path, PATH_SIZE) == PATH_SIZE)
                return -EBADMSG;
        _cleanup_fd_ int fd = open(lines->path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? 0 : -errno;
        struct stat status;
        if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || (uint64_t) status.st_size < lines->offset)
                return -EBADMSG;
        return write_lines(lines, size, fd);
}

int slate_take_over(struct loop *loop, int fd, struct err *err) {
        struct stat status;
        if (fstat(fd, &status) < 0 || status.st_size != PLACES * PLACE_SIZE)
                return err_set(err, ERR_PROTOCOL, "what the vault holds as the slate is none");
        if (map(loop, fd, err) < 0)
                return -1;
        for (size_t i = 0; i < PLACES; i++) {
                uint32_t size = atomic_load(&memory[i].size);
                int code = size > 0 ? finish(&memory[i], size) : 0;
                if (code < 0)
                        daemon_log("the last %u bytes of %.300s are lost: %s", size, memory[i].path, strerror(-code));
                atomic_store(&memory[i].size, 0);
        }
        return 0;
}

void slate_close(void) {
        loop_timer_drop(&timer);
        if (memory)
                (void) munmap(memory, PLACES * PLACE_SIZE);
        memory = NULL;
}

/* ---- from the journals ---- */

static struct slate_place *claim(struct slate_place **holder, const char *path, int fd, uint64_t offset) {
        size_t length = strlen(path);
        if (!memory || length >= PATH_SIZE)
                return NULL;
        for (size_t i = 0; i < PLACES; i++) {
                struct slate_place *place = &places[i];
                if (place->holder)
                        continue;
                place->holder = holder;
                place->fd = fd;
                place->lines->offset = offset;
                memcpy(place->lines->path, path, length + 1);
                if (!timer)
                        timer = loop_timer(events, loop_now_ms() + WRITE_AFTER_MS, write_all, NULL);
                return place;
        }
        return NULL;
}

void *slate_room(struct slate_place **place, const char *path, int fd, uint64_t offset, size_t size) {
        if (size > sizeof(((struct lines *) 0)->bytes))
                return NULL;
        if (!*place)
                *place = claim(place, path, fd, offset);
        if (!*place)
                return NULL;
        struct lines *lines = (*place)->lines;
        uint32_t used = atomic_load_explicit(&lines->size, memory_order_relaxed);
        if (lines->offset + used != offset || size > sizeof(lines->bytes) - used)
                return NULL;
        return lines->bytes + used;
}

void slate_add(struct slate_place *place, size_t size) {
        uint32_t used = atomic_load_explicit(&place->lines->size, memory_order_relaxed);
        atomic_store_explicit(&place->lines->size, used + (uint32_t) size, memory_order_release);
}
