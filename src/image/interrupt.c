#include "image/interrupt.h"

#include <signal.h>
#include <stddef.h>

#include "base/memory.h"

static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
static struct sigaction before[ELEMENTS(signals)];
static volatile sig_atomic_t came;

static void interrupt_note(int signal_number) {
        came = signal_number;
}

void interrupt_begin(void) {
        came = 0;
        /* No SA_RESTART: a read that waits for a pipe must come back. */
        struct sigaction action = { .sa_handler = interrupt_note };
        sigemptyset(&action.sa_mask);
        for (size_t i = 0; i < ELEMENTS(signals); i++) {
                (void) sigaction(signals[i], NULL, &before[i]);
                if (before[i].sa_handler != SIG_IGN) /* nohup and shells' background jobs stay as they are */
                        (void) sigaction(signals[i], &action, NULL);
        }
}

void interrupt_end(void) {
        for (size_t i = 0; i < ELEMENTS(signals); i++)
                (void) sigaction(signals[i], &before[i], NULL);
}

bool interrupt_pending(void) {
        return came != 0;
}

int interrupt_signal(void) {
        return (int) came;
}

int interrupt_error(struct err *err) {
        return err_set(err, ERR_GONE, "interrupted; nothing was changed");
}
