/* The differences between a person's terminal and a pipe: colour, width, a line that is rewritten in place. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

enum terminal_style { TERMINAL_PLAIN, TERMINAL_BOLD, TERMINAL_DIM, TERMINAL_RED, TERMINAL_GREEN, TERMINAL_YELLOW };

/* Colour only on a terminal that is not "dumb", and only if NO_COLOR is unset or empty. */
bool terminal_has_colour(int fd);

/* The escape sequence that begins a style, TERMINAL_PLAIN to end it; "" where there is no colour. */
const char *terminal_style(int fd, enum terminal_style style);

/* Columns of the terminal, or `otherwise` if fd is no terminal or does not report them. */
unsigned terminal_width(int fd, unsigned otherwise);

/* Prints "glovebox: <message>" as one line on standard error and returns the exit status of the error. Control
 * characters are replaced, because the message may quote untrusted text. */
int terminal_fail(const struct err *err);

/* From now on the first terminal_fail also prints the error as one JSON object on standard output: with --json a
 * program reads the same members as of a run that failed. */
void terminal_expect_json(void);

/* The same with another exit status than the error's own. */
int terminal_fail_with(const struct err *err, int exit_status);

/* Replaces control characters (C0, DEL, and C1 in UTF-8) by '?', in place. */
void terminal_make_harmless(char *text);
