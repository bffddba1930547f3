#include "store/meter.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/priority.h"
#include "base/process_title.h"
#include "store/disk_measure.h"

enum { PROCESSES_MAX = 256 };

/* ---- the process ---- */

static size_t read_processes(const char *path, int ret_pids[static PROCESSES_MAX]) {
        size_t n = 0;
        FILE *file = *path ? fopen(path, "re") : NULL;
        while (file && n < PROCESSES_MAX && fscanf(file, "%d", &ret_pids[n]) == 1)
                n++;
        if (file)
                (void) fclose(file);
        return n;
}

/* proc(5): what the process caused to be written to a disk. 0 where the kernel does not count it. */
static uint64_t written_by(int pid) {
        char path[64], line[128];
        unsigned long long bytes = 0;
        (void) snprintf(path, sizeof(path), "/proc/%d/io", pid);
        FILE *file = fopen(path, "re");
        while (file && fgets(line, sizeof(line), file))
                if (sscanf(line, "write_bytes: %llu", &bytes) == 1)
                        break;
        if (file)
                (void) fclose(file);
        return bytes;
}

/* The path is ours up to its last name, which is no link. */
static int meter_open_directory(const char *path) {
        return *path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
}

static void measure(const struct meter_order *order, struct meter_report *report) {
        int pids[PROCESSES_MAX];
        size_t n_pids = read_processes(order->processes, pids);
        _cleanup_fd_ int workspace = meter_open_directory(order->workspace), state = meter_open_directory(order->state);
        struct disk_counters *counters = disk_counters_make(order->max_files);
        if (!counters)
                return;
        if (state >= 0)
                disk_counters_add_tree(counters, state);
        report->state_bytes = disk_counters_amount(counters).bytes;
        if (workspace >= 0)
                disk_counters_add_tree(counters, workspace);
        disk_counters_add_removed(counters, workspace >= 0 ? workspace : state, pids, n_pids);
        const struct disk_amount amount = disk_counters_amount(counters);
        report->bytes = amount.bytes - report->state_bytes;
        report->files = amount.files;
        report->is_cut = amount.is_cut;
        for (size_t i = 0; i < n_pids; i++)
                report->written += written_by(pids[i]);
        disk_counters_free(counters);
}

_Noreturn static void meter_serve(int fd, const char *data_dir) {
        static struct meter_order order;
        struct rlimit files;
        process_title_set("meter", data_dir);
        (void) signal(SIGINT, SIG_IGN);
        priority_stand_back();
        if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* each level of a tree takes one */
                files.rlim_cur = files.rlim_max;
                (void) setrlimit(RLIMIT_NOFILE, &files);
        }
        for (;;) {
                ssize_t size = recv(fd, &order, sizeof(order), 0);
                if (size < 0 && errno == EINTR)
                        continue;
                if (size != (ssize_t) sizeof(order))
                        _exit(EXIT_SUCCESS); /* the daemon is gone */
                struct meter_report report = { 0 };
                uint64_t began_us = loop_now_us();
                memcpy(report.id, order.id, sizeof(report.id));
                measure(&order, &report);
                report.took_us = loop_now_us() - began_us;
                if (send(fd, &report, sizeof(report), MSG_NOSIGNAL) != (ssize_t) sizeof(report))
                        _exit(EXIT_FAILURE);
        }
}

/* ---- the daemon's side ---- */

static void meter_bury(struct meter *meter) {
        loop_unwatch(&meter->watch);
        fd_close(&meter->fd);
        if (meter->pid > 0) {
                (void) kill(meter->pid, SIGKILL);
                (void) waitpid(meter->pid, NULL, 0);
        }
        meter->pid = 0;
}

static void on_meter(void *context, uint32_t events) {
        struct meter *meter = context;
        struct meter_report report;
        (void) events;
        ssize_t n = recv(meter->fd, &report, sizeof(report), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n == (ssize_t) sizeof(report)) {
                report.id[sizeof(report.id) - 1] = '\0';
                meter->report(meter->context, &report);
                return;
        }
        meter_bury(meter);
        helper_died(meter->helper);
        meter->report(meter->context, NULL);
}

static int start_meter(void *context, struct err *err) {
        struct meter *meter = context;
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return err_sys(err, errno, "starting the meter");
        pid_t pid = fork();
        if (pid == 0) {
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (dup2(ends[1], 3) < 0 || syscall(SYS_close_range, 4, ~0u, 0) < 0)
                        _exit(EXIT_FAILURE);
                meter_serve(3, meter->data_dir);
        }
        int code = errno;
        fd_close(&ends[1]);
        if (pid < 0) {
                fd_close(&ends[0]);
                return err_sys(err, code, "starting the meter");
        }
        meter->pid = pid;
        meter->fd = ends[0];
        meter->watch = loop_watch(meter->helper->loop, meter->fd, EPOLLIN, on_meter, meter);
        if (!meter->watch) {
                meter_bury(meter);
                return err_set(err, ERR_SYSTEM, "out of descriptors or memory for the meter");
        }
        helper_started(meter->helper, pid);
        return 0;
}

int meter_start(struct meter *meter, struct helper *helper, const char *data_dir, struct err *err) {
        meter->helper = helper;
        meter->data_dir = data_dir;
        helper->start = start_meter;
        helper->context = meter;
        return start_meter(meter, err);
}

void meter_stop(struct meter *meter) {
        if (meter->helper)
                helper_retire(meter->helper);
        meter_bury(meter);
}

bool meter_measure(struct meter *meter, const struct meter_order *order) {
        return meter->fd >= 0 &&
               send(meter->fd, order, sizeof(*order), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t) sizeof(*order);
}
