#include "cli/ui/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"

static bool is_capable(int fd) {
        const char *term = getenv("TERM");
        return isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
}

bool terminal_has_colour(int fd) {
        const char *refused = getenv("NO_COLOR");
        return (!refused || !*refused) && is_capable(fd);
}

const char *terminal_style(int fd, enum terminal_style style) {
        static const char *const sequences[] = {
                [TERMINAL_PLAIN] = "\033[0m", [TERMINAL_BOLD] = "\033[1m",   [TERMINAL_DIM] = "\033[2m",
                [TERMINAL_RED] = "\033[31m",  [TERMINAL_GREEN] = "\033[32m", [TERMINAL_YELLOW] = "\033[33m",
        };
        return terminal_has_colour(fd) ? sequences[style] : "";
}

unsigned terminal_width(int fd, unsigned otherwise) {
        struct winsize size;
        return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

void terminal_make_harmless(char *text) {
        for (unsigned char *at = (unsigned char *) text; *at; at++) {
                if (*at < 0x20 || *at == 0x7f)
                        *at = '?';
                else if (*at == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f)
                        at[0] = at[1] = '?';
        }
}

int terminal_fail(const struct err *err) {
        char message[sizeof(err->message)];
        memcpy(message, err->message, sizeof(message));
        message[sizeof(message) - 1] = '\0';
        terminal_make_harmless(message);
        (void) fflush(stdout);
        (void) dprintf(STDERR_FILENO, "glovebox: %s\n", message);
        return err_code_exit_status(err->code);
}
