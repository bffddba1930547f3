/* A run that waits behind another one of its session: a line on the terminal says so. */
#pragma once

/* Asks the daemon at `socket` over a connection of its own. Prints on standard error what the run waits for; nothing
 * if it does not wait or the daemon does not answer within a second. */
void wait_note_print(const char *socket, const char *run_id);
