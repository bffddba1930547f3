/* A terminal that delivers each key at once, without Enter and without showing it. Ctrl-C still sends SIGINT. */
#pragma once

#include <stdbool.h>
#include <termios.h>

struct key_mode {
        bool is_set;
        struct termios before;
};

/* False if standard input is no terminal, or one that another program is reading from. While it is set, SIGINT, SIGTERM
 * and SIGHUP are delayed until key_mode_leave: otherwise they would leave the terminal like this. */
bool key_mode_enter(struct key_mode *mode);

/* Waits for a key that means "end": q, Enter, Ctrl-D, or a delayed signal. False when the time is over. */
bool key_mode_wait(const struct key_mode *mode, int wait_ms);

/* Restores the terminal. A delayed signal takes effect then. */
void key_mode_leave(struct key_mode *mode);
