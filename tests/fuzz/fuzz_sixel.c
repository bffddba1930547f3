/* A PNG of a box's making becomes text that a terminal can take, or nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ui/sixel.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
        char *text = sixel_from_png(bytes, size);
        /* It begins one escape sequence and ends it, and there is no other in it. */
        if (text && (strncmp(text, "\033Pq", 3) != 0 || strchr(text + 1, '\033') != text + strlen(text) - 2))
                abort();
        free(text);
        return 0;
}
