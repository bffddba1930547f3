#include "base/helper.h"

#include <stdio.h>

#include "base/log.h"

enum { SHORT_LIFE_MS = 1000, PAUSE_FIRST_MS = 10, PAUSE_MAX_MS = 500 };

static uint64_t pause_ms(const struct helper *helper) {
        uint64_t pause = PAUSE_FIRST_MS;
        if (helper->n_short_lives == 0)
                return 0;
        for (unsigned i = 1; i < helper->n_short_lives && pause < PAUSE_MAX_MS; i++)
                pause *= 2;
        return pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS;
}

static void helper_on_time(void *context);

static void start_later(struct helper *helper) {
        if (!helper->timer)
                helper->timer = loop_timer(helper->loop, loop_now_ms() + pause_ms(helper), helper_on_time, helper);
}

static void helper_on_time(void *context) {
        struct helper *helper = context;
        struct err err;
        helper->timer = NULL;
        if (helper->start(helper->context, &err) == 0)
                return;
        if (!*helper->trouble) /* once, not with every attempt */
                daemon_log("the %s cannot be started: %s; trying again", helper->name, err.message);
        (void) snprintf(helper->trouble, sizeof(helper->trouble), "%.150s", err.message);
        helper->n_short_lives++;
        start_later(helper);
}

void helper_started(struct helper *helper, pid_t pid) {
        helper->pid = pid;
        helper->is_wanted = true;
        helper->started_ms = loop_now_ms();
        helper->trouble[0] = '\0';
}

void helper_died(struct helper *helper) {
        bool was_short = loop_now_ms() - helper->started_ms < SHORT_LIFE_MS;
        helper->pid = 0;
        helper->n_short_lives = was_short ? helper->n_short_lives + 1 : 0;
        helper->n_restarts++;
        daemon_log("the %s has died; starting another", helper->name);
        start_later(helper);
}

void helper_retire(struct helper *helper) {
        loop_timer_drop(&helper->timer);
        helper->is_wanted = false;
        helper->pid = 0;
}

const char *helper_state(const struct helper *helper) {
        return helper->pid > 0 ? "running" : helper->is_wanted ? "restarting" : "off";
}
