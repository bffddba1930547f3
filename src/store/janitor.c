#include "store/janitor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/priority.h"
#include "base/process_title.h"
#include "base/remove_tree.h"

enum {
        PATH_ROOM = 4096,
        AT_ONCE = 16,    /* sent before it answers: they must fit into the socket */
        DEATHS_MAX = 3,  /* over one directory; then it is left for a person to look at */
        STOP_MS = 20000,
};

/* As it is sent: what to do, then the path without its end. */
enum { REMOVE = 'r', EMPTY = 'e' };

struct chore {
        struct chore *next;
        size_t size;
        char words[]; /* REMOVE or EMPTY, the path, NUL */
};

/* ---- the process ---- */

static void do_chore(const char *words) {
        if (words[0] == EMPTY)
                empty_tree(words + 1);
        else
                remove_tree(words + 1);
}

_Noreturn static void janitor_serve(int fd, const char *data_dir) {
        static char words[PATH_ROOM + 2];
        process_title_set("janitor", data_dir);
        (void) signal(SIGINT, SIG_IGN); /* Ctrl-C at the daemon is the daemon's to handle */
        priority_stand_back();
        for (;;) {
                ssize_t size = recv(fd, words, sizeof(words) - 1, 0);
                if (size < 0 && errno == EINTR)
                        continue;
                if (size < 2)
                        _exit(EXIT_SUCCESS); /* there is no more to do */
                words[size] = '\0';
                do_chore(words);
                if (send(fd, "d", 1, MSG_NOSIGNAL) != 1)
                        _exit(EXIT_FAILURE);
        }
}

static int janitor_start_process(struct janitor *janitor) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return -errno;
        pid_t pid = fork();
        if (pid == 0) {
                /* Nothing of the daemon's stays open here, least of all a box's descriptors. */
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (dup2(ends[1], 3) < 0 || syscall(SYS_close_range, 4, ~0u, 0) < 0)
                        _exit(EXIT_FAILURE);
                janitor_serve(3, janitor->data_dir);
        }
        int code = pid < 0 ? -errno : 0;
        fd_close(&ends[1]);
        if (code < 0)
                fd_close(&ends[0]);
        janitor->pid = pid;
        janitor->fd = ends[0];
        return code;
}

/* ---- the daemon's side ---- */

static void forget_oldest(struct janitor *janitor) {
        struct chore *chore = janitor->chores;
        janitor->chores = chore->next;
        free(chore);
        janitor->n_deaths = 0;
        if (janitor->n_sent > 0)
                janitor->n_sent--;
}

static void send_chores(struct janitor *janitor) {
        struct chore *chore = janitor->chores;
        for (size_t i = 0; chore && i < janitor->n_sent; i++)
                chore = chore->next;
        for (; chore && janitor->n_sent < AT_ONCE; chore = chore->next) {
                ssize_t n = send(janitor->fd, chore->words, chore->size, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n != (ssize_t) chore->size)
                        return; /* its next answer, or its end, comes back here */
                janitor->n_sent++;
        }
}

static void janitor_bury(struct janitor *janitor) {
        loop_unwatch(&janitor->watch);
        fd_close(&janitor->fd);
        if (janitor->pid > 0) {
                (void) kill(janitor->pid, SIGKILL);
                (void) waitpid(janitor->pid, NULL, 0);
        }
        janitor->pid = 0;
        janitor->n_sent = 0;
}

static void begin_again(struct janitor *janitor) {
        janitor_bury(janitor);
        if (janitor->chores && ++janitor->n_deaths >= DEATHS_MAX) {
                daemon_log("%s cannot be removed: the janitor dies of it", janitor->chores->words + 1);
                forget_oldest(janitor);
        }
        helper_died(janitor->helper);
}

/* Takes the answers that are there. False when it is gone. */
static bool janitor_read_answer(struct janitor *janitor) {
        for (;;) {
                char byte;
                ssize_t n = recv(janitor->fd, &byte, 1, MSG_DONTWAIT);
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return true;
                if (n != 1 || !janitor->chores)
                        return false;
                forget_oldest(janitor);
        }
}

static void on_janitor(void *context, uint32_t events) {
        struct janitor *janitor = context;
        (void) events;
        if (janitor_read_answer(janitor))
                send_chores(janitor);
        else
                begin_again(janitor);
}

static int start_janitor(void *context, struct err *err) {
        struct janitor *janitor = context;
        int code = janitor_start_process(janitor);
        if (code < 0)
                return err_sys(err, -code, "starting the janitor");
        janitor->watch = loop_watch(janitor->helper->loop, janitor->fd, EPOLLIN, on_janitor, janitor);
        if (!janitor->watch) {
                janitor_bury(janitor);
                return err_set(err, ERR_SYSTEM, "out of descriptors or memory for the janitor");
        }
        helper_started(janitor->helper, janitor->pid);
        send_chores(janitor);
        return 0;
}

int janitor_start(struct janitor *janitor, struct helper *helper, const char *data_dir, struct err *err) {
        janitor->helper = helper;
        janitor->data_dir = data_dir;
        helper->start = start_janitor;
        helper->context = janitor;
        return start_janitor(janitor, err);
}

void janitor_stop(struct janitor *janitor) {
        if (janitor->helper)
                helper_retire(janitor->helper);
        uint64_t deadline = loop_now_ms() + STOP_MS;
        while (janitor->fd >= 0 && janitor->chores && loop_now_ms() < deadline) {
                struct pollfd watched = { .fd = janitor->fd, .events = POLLIN };
                send_chores(janitor);
                (void) poll(&watched, 1, (int) (deadline - loop_now_ms()));
                if (watched.revents && !janitor_read_answer(janitor))
                        break;
        }
        janitor_bury(janitor);
        while (janitor->chores)
                forget_oldest(janitor);
}

static void janitor_add(struct janitor *janitor, char what, const char *path) {
        size_t length = strlen(path);
        struct chore *chore = length < PATH_ROOM ? malloc(sizeof(*chore) + length + 2) : NULL;
        if (!chore)
                return; /* the next daemon finds it */
        chore->next = NULL;
        chore->size = length + 1;
        chore->words[0] = what;
        memcpy(chore->words + 1, path, length + 1);
        if (janitor->chores)
                janitor->newest->next = chore;
        else
                janitor->chores = chore;
        janitor->newest = chore;
        if (janitor->fd >= 0)
                send_chores(janitor);
}

void janitor_remove(struct janitor *janitor, const char *path) {
        janitor_add(janitor, REMOVE, path);
}

void janitor_empty(struct janitor *janitor, const char *path) {
        janitor_add(janitor, EMPTY, path);
}
