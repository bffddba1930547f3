/* The manager's side of the maker (spawn/maker.h): starts it, takes its replies, and replaces it when it dies. */
#pragma once

#include "base/err.h"

struct session_manager;

int maker_link_start(struct session_manager *manager, struct err *err);
void maker_link_stop(struct session_manager *manager);
