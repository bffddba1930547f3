#include "child.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "bounds.h"
#include "identity.h"
#include "link.h"
#include "process.h"
#include "stream.h"
#include "terminal.h"
#include "users.h"

struct child {
        uint32_t id;
        pid_t pid;
        struct streams streams;
        bool dead; /* and not reported yet, because of output; its pid may be in use again */
        int status;
        uint64_t cpu_us, memory_peak_kib;
};

static struct child children[CHILDREN_MAX];
static size_t n_children;

static struct child *find_child(uint32_t id) {
        for (size_t i = 0; i < n_children; i++)
                if (children[i].id == id)
                        return &children[i];
        return NULL;
}

/* ---- start ---- */

static int open_streams(struct request *request, uint32_t flags, struct child *child, int ret_theirs[static 3]) {
        uint32_t rows, columns;
        switch (flags) {
        case 0:
                return 0;
        case FRAME_START_STREAMS:
                request->step = "making its pipes";
                return streams_open(&child->streams, ret_theirs);
        case FRAME_START_TERMINAL:
                if (!frame_get_u32(&request->fields, &rows) || !frame_get_u32(&request->fields, &columns))
                        return -EPROTO;
                request->step = "making its terminal";
                return terminal_open(&child->streams, rows, columns, ret_theirs);
        default:
                return -EPROTO;
        }
}

/* In a box with users the agent is root; what the host starts is not. The first one gets the channel by which it starts
 * commands of other users, behind its other descriptors. */
static int start_as_sandbox(struct request *request, struct process *process) {
        const struct identity sandbox = identity_of_sandbox();
        int fds[FRAME_FDS_MAX];
        char variable[sizeof(USERS_VARIABLE) + 8];
        _cleanup_fd_ int channel_fd = -1;
        process->identity = &sandbox;
        request->step = "making the channel for its users";
        int code = users_open_channel(process->envp, &channel_fd);
        if (code < 0)
                return code;
        if (channel_fd < 0)
                return process_start(process, &request->step);
        if (process->n_fds == FRAME_FDS_MAX)
                return -EPROTO;
        memcpy(fds, process->fds, process->n_fds * sizeof(int));
        fds[process->n_fds] = channel_fd;
        (void) snprintf(variable, sizeof(variable), USERS_VARIABLE "=%zu", process->n_fds);
        size_t n = 0;
        while (process->envp[n])
                n++;
        char **envp = calloc(n + 2, sizeof(*envp)), **given = process->envp;
        if (!envp)
                return -ENOMEM;
        memcpy(envp, given, n * sizeof(*envp));
        envp[n] = variable;
        process->fds = fds;
        process->n_fds++;
        process->envp = envp;
        code = process_start(process, &request->step);
        process->envp = given;
        process->fds = NULL;
        free(envp);
        return code;
}

static int start_child(struct request *request, struct process *process, struct child *child) {
        struct frame_reader *fields = &request->fields;
        uint32_t flags = 0;
        if (!frame_get_text(fields, &process->cwd) || !frame_get_texts(fields, &process->argv) ||
            !frame_get_texts(fields, &process->envp) || !process->argv[0] ||
            (fields->at < fields->end && !frame_get_u32(fields, &flags)) || (flags && request->n_fds))
                return -EPROTO;
        int theirs[3] = { -1, -1, -1 };
        int code = open_streams(request, flags, child, theirs);
        if (code == 0) {
                process->terminal = flags == FRAME_START_TERMINAL;
                process->fds = flags ? theirs : request->fds;
                process->n_fds = flags ? 3 : request->n_fds;
                code = users_are_there() ? start_as_sandbox(request, process) : process_start(process, &request->step);
        }
        for (size_t i = 0; i < 3; i++)
                fd_close(&theirs[i]);
        return code;
}

int child_start(struct request *request) {
        if (n_children == CHILDREN_MAX) {
                request->step = "too many processes started by the host";
                return -EAGAIN;
        }
        if (find_child(request->id)) {
                request->step = "a process with this id is there already";
                return -EEXIST;
        }
        struct process process = { 0 };
        struct child child = { .id = request->id, .streams = streams_none() };
        int code = start_child(request, &process, &child);
        if (code == 0) {
                child.pid = process.pid;
                children[n_children++] = child;
                frame_put_u32(&request->answer, (uint32_t) process.pid);
        } else
                streams_release(&child.streams);
        process_release(&process);
        return code;
}

/* ---- requests about a process. The process may have ended meanwhile: that is no error. ---- */

int child_signal(struct request *request) {
        uint32_t signal_number, whole_group;
        if (!frame_get_u32(&request->fields, &signal_number) || !frame_get_u32(&request->fields, &whole_group) ||
            signal_number > 64)
                return -EPROTO;
        const struct child *child = find_child(request->id);
        if (child && !child->dead)
                process_signal(child->pid, (int) signal_number, whole_group);
        return 0;
}

int child_input(struct request *request) {
        const char *bytes;
        size_t size;
        if (!frame_get_bytes(&request->fields, &bytes, &size))
                return -EPROTO;
        struct child *child = find_child(request->id);
        if (!child || child->dead || streams_put_input(&child->streams, child->id, bytes, size))
                return 0;
        request->step = "queueing input: the process has not taken what came before";
        return -EAGAIN;
}

int child_input_end(struct request *request) {
        struct child *child = find_child(request->id);
        if (child && !child->dead)
                streams_end_input(&child->streams, child->id);
        return 0;
}

int child_resize(struct request *request) {
        uint32_t rows, columns;
        if (!frame_get_u32(&request->fields, &rows) || !frame_get_u32(&request->fields, &columns))
                return -EPROTO;
        const struct child *child = find_child(request->id);
        if (!child || child->dead)
                return 0;
        request->step = "resizing its terminal";
        if (!child->streams.terminal)
                return -ENOTTY;
        return child->streams.input.fd < 0 ? 0 : terminal_resize(child->streams.input.fd, rows, columns);
}

int child_acknowledge(struct request *request) {
        uint64_t bytes;
        if (!frame_get_u64(&request->fields, &bytes))
                return -EPROTO;
        struct child *child = find_child(request->id);
        if (child && bytes > child->streams.acknowledged)
                child->streams.acknowledged = bytes;
        return 0;
}

/* ---- end ---- */

static void report_end(const struct child *child) {
        struct frame_writer payload = { 0 };
        frame_put_u32(&payload, (uint32_t) child->status);
        frame_put_u64(&payload, child->cpu_us);
        frame_put_u64(&payload, child->memory_peak_kib);
        link_send(FRAME_EXITED, child->id, &payload);
        frame_writer_release(&payload);
}

/* The last row of the table takes its place, so callers visit the table backwards. */
static void finish_child(struct child *child) {
        if (!streams_drain(&child->streams, child->id))
                return;
        report_end(child);
        streams_release(&child->streams);
        *child = children[--n_children];
}

void children_reaped(pid_t pid, int status, const struct rusage *usage) {
        for (size_t i = 0; i < n_children; i++) {
                struct child *child = &children[i];
                if (child->pid != pid || child->dead)
                        continue;
                child->dead = true;
                child->status = status;
                child->cpu_us = (uint64_t) (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000u +
                                (uint64_t) (usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
                child->memory_peak_kib = (uint64_t) usage->ru_maxrss;
                streams_limit_output(&child->streams);
                finish_child(child);
                return;
        }
}

/* ---- turns ---- */

void children_wait(struct polls *polls) {
        for (size_t i = 0; i < n_children; i++)
                if (!children[i].dead)
                        streams_wait(&children[i].streams, polls);
}

void children_move(const struct polls *polls) {
        for (size_t i = n_children; i-- > 0;)
                if (children[i].dead)
                        finish_child(&children[i]);
                else
                        streams_move(&children[i].streams, children[i].id, polls);
}

void children_release(void) {
        while (n_children > 0)
                streams_release(&children[--n_children].streams);
}
