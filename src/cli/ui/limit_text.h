/* Messages for a run that a limit has stopped: the same with and without a daemon. */
#pragma once

#include <stddef.h>
#include <stdint.h>

void limit_text_timeout(char *ret_text, size_t room, uint64_t timeout_ms);
void limit_text_memory(char *ret_text, size_t room, uint64_t limit_bytes, uint64_t peak_bytes);
