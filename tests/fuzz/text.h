/* What a fuzzer made up, as a text. */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Ends with a NUL, has no byte to spare, and is freed by the caller. */
static inline char *text_of(const uint8_t *bytes, size_t size) {
        char *text = malloc(size + 1);
        if (!text)
                abort();
        if (size)
                memcpy(text, bytes, size);
        text[size] = '\0';
        return text;
}
