#include "session/touch.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/fd.h"

static int inotify_fd = -1;
static struct loop_watch *watch;
static uint64_t count;

static void on_touch(void *context, uint32_t events) {
        (void) context;
        (void) events;
        char bytes[4096];
        if (read(inotify_fd, bytes, sizeof(bytes)) > 0) /* what and where does not matter */
                count++;
}

void touch_open(struct loop *loop) {
        inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
        watch = inotify_fd >= 0 ? loop_watch(loop, inotify_fd, EPOLLIN, on_touch, NULL) : NULL;
        if (!watch)
                fd_close(&inotify_fd);
}

void touch_close(void) {
        loop_unwatch(&watch);
        fd_close(&inotify_fd);
}

int touch_watch(int dir_fd, const char *name) {
        char path[64];
        if (inotify_fd < 0)
                return -ENOSYS;
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir_fd, name);
        /* Once: a box that makes files all day long is heard once between two looks. */
        int code = inotify_add_watch(inotify_fd, path,
                                     IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONESHOT |
                                             IN_ONLYDIR | IN_DONT_FOLLOW);
        return code < 0 ? -errno : 0;
}

int touch_fd(void) {
        return inotify_fd;
}

uint64_t touch_count(void) {
        return count;
}
