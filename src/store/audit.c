#include "store/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json_writer.h"
#include "base/priority.h"
#include "base/process_title.h"

enum {
        PAUSE_MS = 200,        /* while lines are gathered */
        LINES_MAX = 256 << 10, /* that wait; past it they are dropped */
        PIECE_MAX = 32 << 10,  /* handed over at a time */
        STOP_MS = 2000,
        PATH_ROOM = 4200,
};

/* ---- a line ---- */

static void put_member(struct json_writer *text, const char *name, const char *value) {
        if (!value)
                return;
        json_writer_put_literal(text, ",\"");
        json_writer_put(text, name, strlen(name));
        json_writer_put_literal(text, "\":");
        json_writer_put_string(text, value, strnlen(value, 256));
}

static void write_line(const struct audit_entry *entry, struct json_writer *text) {
        struct timespec now;
        struct tm parts;
        char moment[64], whole[80];
        (void) clock_gettime(CLOCK_REALTIME, &now);
        (void) strftime(moment, sizeof(moment), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &parts));
        int size = snprintf(whole, sizeof(whole), "{\"time\":\"%s.%03ldZ\"", moment, now.tv_nsec / 1000000);
        json_writer_put(text, whole, (size_t) size);
        put_member(text, "who", *entry->key ? "key" : "operator");
        put_member(text, "key", *entry->key ? entry->key : NULL);
        put_member(text, "via", entry->via);
        put_member(text, "from", entry->from);
        put_member(text, "what", entry->what);
        put_member(text, "session", entry->session);
        put_member(text, "run_id", entry->run_id);
        put_member(text, "status", entry->status);
        json_writer_put_literal(text, ",\"duration_ms\":");
        json_writer_put_number(text, (int64_t) entry->duration_ms);
        json_writer_put_literal(text, "}\n");
}

/* ---- the process ---- */

struct file {
        char path[PATH_ROOM];
        uint64_t max_bytes;
        int fd;
};

static int open_file(const char *path) {
        const int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC; /* a FIFO: ENXIO */
        return open(path, flags, 0600);
}

static void audit_rotate(struct file *file) {
        char from[PATH_ROOM + 8], to[PATH_ROOM + 8];
        for (int i = AUDIT_OLD_FILES; i > 0; i--) {
                (void) snprintf(to, sizeof(to), "%s.%d", file->path, i);
                if (i > 1)
                        (void) snprintf(from, sizeof(from), "%s.%d", file->path, i - 1);
                else
                        (void) snprintf(from, sizeof(from), "%s", file->path);
                (void) rename(from, to);
        }
        fd_close(&file->fd);
        file->fd = open_file(file->path);
}

static bool append_lines(struct file *file, const char *bytes, size_t size) {
        struct stat status;
        if (file->fd < 0)
                file->fd = open_file(file->path);
        if (file->fd >= 0 && fstat(file->fd, &status) == 0 && status.st_size > 0 &&
            (uint64_t) status.st_size + size > file->max_bytes)
                audit_rotate(file);
        return file->fd >= 0 && fd_write_all(file->fd, bytes, size) == 0;
}

/* Writes the whole lines of one message. If the disk is full, lines are counted; a line reports their number when there
 * is space again. */
_Noreturn static void audit_serve(int fd, const struct audit *audit) {
        static char bytes[PIECE_MAX];
        struct file file = { .max_bytes = audit->max_bytes, .fd = -1 };
        uint64_t n_lost = 0;
        (void) snprintf(file.path, sizeof(file.path), "%s/audit.log", audit->data_dir);
        process_title_set("audit", audit->data_dir);
        (void) signal(SIGINT, SIG_IGN);
        (void) signal(SIGTERM, SIG_IGN); /* it ends with the daemon's end of the socket */
        for (;;) {
                ssize_t size = recv(fd, bytes, sizeof(bytes), 0);
                if (size < 0 && errno == EINTR)
                        continue;
                if (size <= 0)
                        _exit(EXIT_SUCCESS);
                char line[120];
                int line_size = snprintf(line, sizeof(line), "{\"what\":\"lines.dropped\",\"number\":%llu}\n",
                                         (unsigned long long) n_lost);
                if (n_lost && append_lines(&file, line, (size_t) line_size))
                        n_lost = 0;
                if (!append_lines(&file, bytes, (size_t) size))
                        for (ssize_t i = 0; i < size; i++)
                                n_lost += bytes[i] == '\n';
        }
}

/* ---- the daemon's side ---- */

static void audit_bury(struct audit *audit) {
        loop_unwatch(&audit->watch);
        fd_close(&audit->fd);
        if (audit->pid > 0) {
                (void) kill(audit->pid, SIGKILL);
                (void) waitpid(audit->pid, NULL, 0);
        }
        audit->pid = 0;
}

static void audit_send_batch(struct audit *audit);

/* It sends nothing, so this is its end. */
static void on_process(void *context, uint32_t events) {
        struct audit *audit = context;
        (void) events;
        audit_bury(audit);
        helper_died(audit->helper);
}

static int start_audit(void *context, struct err *err) {
        struct audit *audit = context;
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return err_sys(err, errno, "starting the audit log");
        pid_t pid = fork();
        if (pid == 0) {
                if (dup2(ends[1], 3) < 0 || syscall(SYS_close_range, 4, ~0u, 0) < 0)
                        _exit(EXIT_FAILURE);
                priority_stand_back();
                audit_serve(3, audit);
        }
        int code = errno;
        fd_close(&ends[1]);
        if (pid < 0) {
                fd_close(&ends[0]);
                return err_sys(err, code, "starting the audit log");
        }
        audit->pid = pid;
        audit->fd = ends[0];
        audit->watch = loop_watch(audit->helper->loop, audit->fd, EPOLLIN, on_process, audit);
        if (!audit->watch) {
                audit_bury(audit);
                return err_set(err, ERR_SYSTEM, "out of descriptors or memory for the audit log");
        }
        helper_started(audit->helper, pid);
        audit_send_batch(audit);
        return 0;
}

int audit_start(struct audit *audit, struct helper *helper, const char *data_dir, uint64_t max_bytes, struct err *err) {
        audit->helper = helper;
        audit->data_dir = data_dir;
        audit->max_bytes = max_bytes;
        if (max_bytes == 0)
                return 0;
        helper->start = start_audit;
        helper->context = audit;
        audit->lines = malloc(LINES_MAX);
        return audit->lines ? start_audit(audit, err) : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
}

/* The largest number of whole lines that goes in one message. */
static size_t piece_of(const struct audit *audit) {
        if (audit->size <= PIECE_MAX)
                return audit->size;
        const char *end = memrchr(audit->lines, '\n', PIECE_MAX);
        return end ? (size_t) (end - audit->lines) + 1 : audit->size;
}

static void audit_on_time(void *context) {
        struct audit *audit = context;
        audit->timer = NULL;
        audit_send_batch(audit);
}

static void audit_send_batch(struct audit *audit) {
        while (audit->fd >= 0 && audit->size > 0) {
                size_t size = piece_of(audit);
                if (send(audit->fd, audit->lines, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t) size)
                        break;
                audit->size -= size;
                memmove(audit->lines, audit->lines + size, audit->size);
        }
        if (audit->size > 0 && !audit->timer)
                audit->timer = loop_timer(audit->helper->loop, loop_now_ms() + PAUSE_MS, audit_on_time, audit);
}

static bool put_line(struct audit *audit, const struct json_writer *text) {
        if (text->failed || text->size > LINES_MAX - audit->size)
                return false;
        memcpy(audit->lines + audit->size, text->bytes, text->size);
        audit->size += text->size;
        return true;
}

void audit_write(struct audit *audit, const struct audit_entry *entry) {
        _cleanup_json_writer_ struct json_writer text = { 0 };
        if (!audit->lines)
                return;
        if (audit->n_dropped) {
                _cleanup_json_writer_ struct json_writer dropped = { 0 };
                json_writer_put_literal(&dropped, "{\"what\":\"lines.dropped\",\"number\":");
                json_writer_put_number(&dropped, (int64_t) audit->n_dropped);
                json_writer_put_literal(&dropped, "}\n");
                if (put_line(audit, &dropped))
                        audit->n_dropped = 0;
        }
        write_line(entry, &text);
        if (!put_line(audit, &text))
                audit->n_dropped++;
        if (entry->is_urgent)
                audit_send_batch(audit);
        else if (!audit->timer)
                audit->timer = loop_timer(audit->helper->loop, loop_now_ms() + PAUSE_MS, audit_on_time, audit);
}

void audit_stop(struct audit *audit) {
        if (audit->helper)
                helper_retire(audit->helper);
        loop_timer_drop(&audit->timer);
        if (audit->fd >= 0 && audit->size > 0) {
                size_t size = piece_of(audit);
                (void) !send(audit->fd, audit->lines, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        if (audit->fd >= 0 && shutdown(audit->fd, SHUT_WR) == 0) { /* it writes what it has, and ends */
                struct pollfd ended = { .fd = audit->fd, .events = POLLIN };
                (void) poll(&ended, 1, STOP_MS);
        }
        audit_bury(audit);
        free(audit->lines);
        audit->lines = NULL;
}

void audit_append(const char *data_dir, const struct audit_entry *entry) {
        char path[PATH_ROOM];
        _cleanup_json_writer_ struct json_writer text = { 0 };
        (void) snprintf(path, sizeof(path), "%s/audit.log", data_dir);
        _cleanup_fd_ int fd = open_file(path);
        write_line(entry, &text);
        if (fd >= 0 && !text.failed)
                (void) fd_write_all(fd, text.bytes, text.size);
}
