/* Directories (or files) that the host watches. Each watch has the id of the frame that requested it. */
#pragma once

#include "polls.h"
#include "request.h"

int watch_start(struct request *request);
int watch_end(struct request *request);

void watches_wait(struct polls *polls);
void watches_move(const struct polls *polls);
void watches_release(void);
