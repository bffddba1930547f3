#include "box/host/container_view.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#include "base/fd.h"
#include "base/memory.h"
#include "box/host/host.h"

enum { MOUNTS_MAX = 1 << 20 };

/* One line of mountinfo(5); all texts point into it. */
struct mount_line {
        char *place, *options, *type;
};

static bool container_view_read_line(char *line, struct mount_line *ret_line) {
        enum { PLACE = 4, OPTIONS = 5 };
        char *type = strstr(line, " - ");
        char *fields[OPTIONS + 1] = { 0 };
        if (!type)
                return false;
        *type = '\0';
        for (size_t i = 0; i < ELEMENTS(fields); i++)
                if (!(fields[i] = strsep(&line, " ")))
                        return false;
        type += strlen(" - ");
        *ret_line = (struct mount_line) { fields[PLACE], fields[OPTIONS], strsep(&type, " ") };
        return true;
}

static char *read_mounts(void) {
        char *text = NULL;
        _cleanup_fd_ int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
        return fd >= 0 && fd_read_to_end(fd, MOUNTS_MAX, &text, NULL) == 0 ? text : NULL;
}

/* binfmt_misc lies on a directory that is made for it, and hides nothing. */
static bool is_cover(const struct mount_line *line) {
        return strncmp(line->place, "/proc/", strlen("/proc/")) == 0 &&
               strcmp(line->place, "/proc/sys/fs/binfmt_misc") != 0;
}

static bool is_read_only_group(const struct mount_line *line) {
        char options[256];
        (void) snprintf(options, sizeof(options), ",%.250s,", line->options);
        return strncmp(line->type, "cgroup", strlen("cgroup")) == 0 && strstr(options, ",ro,");
}

/* Calls `then` for each line that `is_meant`; returns how many those were. */
static size_t for_each(bool (*is_meant)(const struct mount_line *line), void (*then)(const struct mount_line *line)) {
        _cleanup_free_ char *text = read_mounts();
        char *rest = text, *next;
        struct mount_line line;
        size_t n = 0;
        while (rest && (next = strsep(&rest, "\n")))
                if (container_view_read_line(next, &line) && is_meant(&line)) {
                        n++;
                        if (then)
                                then(&line);
                }
        return n;
}

bool container_view_has_covers(void) {
        return for_each(is_cover, NULL) > 0;
}

static void make_writable(const struct mount_line *line) {
        (void) mount(NULL, line->place, NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

void container_view_open(void) {
        char mark[64];
        host_find_container(mark);
        if (!*mark)
                return;
        bool has_covers = container_view_has_covers();
        if (!has_covers && for_each(is_read_only_group, NULL) == 0)
                return;
        /* Mounts that the engine makes later appear here; mounts made here do not appear there. */
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
                return;
        (void) for_each(is_read_only_group, make_writable);
        if (has_covers)
                (void) mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}
