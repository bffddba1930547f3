#include "cli/ui/terminal.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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

static bool json_expected;

void terminal_expect_json(void) {
        json_expected = true;
}

static void print_json(const struct err *err, const char *message, int exit_status) {
        json_t *text = json_string(message);
        if (!text)
                text = json_string("the message is not valid UTF-8; it is on standard error");
        json_t *json =
                json_pack("{s:s, s:i, s:{s:s, s:O, s:O, s:n}}", "status", "error", "exit_code", exit_status, "error",
                          "name", err_code_name(err->code), "value", text, "message", text, "traceback");
        if (json && json_dumpf(json, stdout, JSON_COMPACT) == 0)
                (void) fputc('\n', stdout);
        (void) fflush(stdout);
        json_decref(json);
        json_decref(text);
}

int terminal_fail_with(const struct err *err, int exit_status) {
        char message[sizeof(err->message)];
        memcpy(message, err->message, sizeof(message));
        message[sizeof(message) - 1] = '\0';
        terminal_make_harmless(message);
        if (json_expected)
                print_json(err, message, exit_status);
        json_expected = false;
        (void) fflush(stdout);
        (void) dprintf(STDERR_FILENO, "glovebox: %s\n", message);
        return exit_status;
}

int terminal_fail(const struct err *err) {
        return terminal_fail_with(err, err_code_exit_status(err->code));
}
