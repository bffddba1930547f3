/* A PNG as sixels, the pictures of old terminals that new ones know again. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The PNG comes from a stranger: 8 bits for each channel, not interlaced, bounded in size; anything else is NULL. The
 * caller frees the text. */
char *sixel_from_png(const uint8_t *png, size_t size);
