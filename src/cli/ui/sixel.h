/* A PNG as sixels, the image format of old terminals that some new ones support. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The PNG is untrusted. It must have 8 bits for each channel, no interlacing and a bounded size; otherwise NULL. The
 * caller frees the text. */
char *sixel_from_png(const uint8_t *png, size_t size);
