/* The processes that the host requested, from START to EXITED. */
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include "polls.h"
#include "request.h"

int child_start(struct request *request);
int child_signal(struct request *request);
int child_input(struct request *request);
int child_input_end(struct request *request);
int child_resize(struct request *request);
int child_acknowledge(struct request *request);

/* A process of the box has ended. If the host requested it, EXITED follows when all of its output has been sent. */
void children_reaped(pid_t pid, int status, const struct rusage *usage);

void children_wait(struct polls *polls);
void children_move(const struct polls *polls);
void children_release(void);
