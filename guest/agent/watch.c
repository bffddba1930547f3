#include "watch.h"

#include <errno.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/memory.h"
#include "bounds.h"
#include "link.h"
#include "path.h"

static struct {
        uint32_t id;
        int number; /* of inotify, which gives the same for two names of one directory */
} watches[WATCHES_MAX];
static size_t n_watches;
static int inotify_fd = -1;
static size_t place;

static const struct {
        uint32_t mask;
        enum frame_change what;
} kinds[] = {
        { IN_CREATE, FRAME_CHANGE_CREATED },      { IN_MODIFY, FRAME_CHANGE_WRITTEN },
        { IN_CLOSE_WRITE, FRAME_CHANGE_CLOSED },  { IN_ATTRIB, FRAME_CHANGE_ATTRIBUTES },
        { IN_DELETE, FRAME_CHANGE_REMOVED },      { IN_MOVED_FROM, FRAME_CHANGE_MOVED_AWAY },
        { IN_MOVED_TO, FRAME_CHANGE_MOVED_HERE }, { IN_DELETE_SELF, FRAME_CHANGE_GONE },
        { IN_MOVE_SELF, FRAME_CHANGE_GONE },      { IN_UNMOUNT, FRAME_CHANGE_GONE },
        { IN_Q_OVERFLOW, FRAME_CHANGE_LOST },
};

int watch_start(struct request *request) {
        _cleanup_free_ char *path = NULL;
        int code = path_get(&request->fields, &path);
        if (code < 0)
                return code;
        request->step = "watching the path";
        for (size_t i = 0; i < n_watches; i++)
                if (watches[i].id == request->id)
                        return -EEXIST;
        if (n_watches == WATCHES_MAX)
                return -ENOSPC;
        if (inotify_fd < 0 && (inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) < 0)
                return -errno;
        uint32_t mask = IN_EXCL_UNLINK;
        for (size_t i = 0; i < ELEMENTS(kinds); i++)
                mask |= kinds[i].mask & IN_ALL_EVENTS;
        int number = inotify_add_watch(inotify_fd, path, mask);
        if (number < 0)
                return -errno;
        watches[n_watches].id = request->id;
        watches[n_watches++].number = number;
        return 0;
}

static void drop_watch(size_t i) {
        int number = watches[i].number;
        watches[i] = watches[--n_watches];
        for (size_t other = 0; other < n_watches; other++)
                if (watches[other].number == number)
                        return;
        (void) inotify_rm_watch(inotify_fd, number); /* the kernel may have done so itself */
}

int watch_end(struct request *request) {
        request->step = "there is no watch with this id";
        for (size_t i = 0; i < n_watches; i++) {
                if (watches[i].id != request->id)
                        continue;
                drop_watch(i);
                return 0;
        }
        return -ENOENT;
}

static void send_change(uint32_t id, const struct inotify_event *event, enum frame_change what) {
        struct frame_writer payload = { 0 };
        frame_put_text(&payload, event->len ? event->name : "");
        frame_put_u32(&payload, what);
        frame_put_u32(&payload, event->mask & IN_ISDIR ? 1 : 0);
        frame_put_u32(&payload, event->cookie);
        link_send(FRAME_CHANGED, id, &payload);
        frame_writer_release(&payload);
}

static void report_event(const struct inotify_event *event) {
        if (event->len && strncmp(event->name, WRITE_PREFIX, sizeof(WRITE_PREFIX) - 1) == 0)
                return; /* a temporary file of the host's own write; its rename is reported */
        for (size_t kind = 0; kind < ELEMENTS(kinds); kind++) {
                if (!(event->mask & kinds[kind].mask))
                        continue;
                enum frame_change what = kinds[kind].what;
                for (size_t i = n_watches; i-- > 0;) {
                        if (what != FRAME_CHANGE_LOST && watches[i].number != event->wd)
                                continue;
                        send_change(watches[i].id, event, what);
                        if (what == FRAME_CHANGE_GONE)
                                drop_watch(i);
                }
        }
}

void watches_wait(struct polls *polls) {
        place = n_watches > 0 && !link_is_full() ? polls_add(polls, inotify_fd, POLLIN) : 0;
}

void watches_move(const struct polls *polls) {
        if (!polls_happened(polls, place))
                return;
        _Alignas(struct inotify_event) char bytes[4096];
        ssize_t size = read(inotify_fd, bytes, sizeof(bytes));
        for (ssize_t at = 0; at < size;) {
                const struct inotify_event *event = (const struct inotify_event *) (const void *) (bytes + at);
                report_event(event);
                at += (ssize_t) (sizeof(*event) + event->len);
        }
}

void watches_release(void) {
        n_watches = 0;
        fd_close(&inotify_fd);
}
