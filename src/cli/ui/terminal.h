/* What differs between a person's terminal and a pipe: colour, width, a line that is rewritten in place. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum terminal_style { TERMINAL_PLAIN, TERMINAL_BOLD, TERMINAL_DIM, TERMINAL_RED, TERMINAL_GREEN, TERMINAL_YELLOW };

/* Colour only on a terminal that is not "dumb", and only if NO_COLOR is unset or empty. */
bool terminal_has_colour(int fd);

/* The escape sequence that begins a style, TERMINAL_PLAIN to end it; "" where there is no colour. */
const char *terminal_style(int fd, enum terminal_style style);

/* Columns of the terminal, or `otherwise` when fd is none (or does not know). */
unsigned terminal_width(int fd, unsigned otherwise);

/* Prints "glovebox: <message>" as one line on standard error, control characters made harmless (the message may quote
 * what a stranger wrote), and returns the exit status that belongs to the error. */
int terminal_fail(const struct err *err);

/* Replaces control characters (C0, DEL, and C1 in UTF-8) by '?', in place. */
void terminal_make_harmless(char *text);
