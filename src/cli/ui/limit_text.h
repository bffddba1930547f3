/* The sentences that a run ends with when a limit stopped it: the same wherever its box was made. */
#pragma once

#include <stddef.h>
#include <stdint.h>

void limit_text_timeout(char *ret_text, size_t room, uint64_t timeout_ms);
void limit_text_memory(char *ret_text, size_t room, uint64_t limit_bytes, uint64_t peak_bytes);
