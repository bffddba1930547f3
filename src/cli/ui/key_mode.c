#include "cli/ui/key_mode.h"

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

static const int delayed[] = { SIGINT, SIGTERM, SIGHUP };
static volatile sig_atomic_t delayed_signal;

static void on_delayed(int number) {
        delayed_signal = number;
}

bool key_mode_enter(struct key_mode *mode) {
        pid_t reader = tcgetpgrp(STDIN_FILENO); /* -1: not our controlling terminal */
        if (tcgetattr(STDIN_FILENO, &mode->before) < 0 || (reader >= 0 && reader != getpgrp()))
                return false;
        struct sigaction action = { .sa_handler = on_delayed };
        for (size_t i = 0; i < ELEMENTS(delayed); i++)
                (void) sigaction(delayed[i], &action, NULL);
        struct termios keys = mode->before;
        keys.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
        keys.c_cc[VMIN] = 1;
        keys.c_cc[VTIME] = 0;
        mode->is_set = tcsetattr(STDIN_FILENO, TCSADRAIN, &keys) == 0;
        if (!mode->is_set)
                key_mode_leave(mode);
        return mode->is_set;
}

bool key_mode_wait(const struct key_mode *mode, int wait_ms) {
        struct pollfd keys = { .fd = mode->is_set ? STDIN_FILENO : -1, .events = POLLIN };
        char key = 'q'; /* the end of the input ends it, too */
        int n = poll(&keys, 1, wait_ms);
        if (delayed_signal)
                return true;
        return n > 0 && (read(STDIN_FILENO, &key, 1) < 1 || strchr("qQ\n\r\004", key));
}

void key_mode_leave(struct key_mode *mode) {
        if (mode->is_set)
                (void) tcsetattr(STDIN_FILENO, TCSADRAIN, &mode->before);
        mode->is_set = false;
        for (size_t i = 0; i < ELEMENTS(delayed); i++)
                (void) signal(delayed[i], SIG_DFL);
        if (delayed_signal)
                (void) raise((int) delayed_signal);
}
