/* Untrusted requirements: refused with a message, or safe as an argument of pip, whatever the grammar let through. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "store/requirement.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
        char *text = text_of(bytes, size);
        struct err err = { 0 };
        if (requirement_check(text, &err) < 0) {
                if (err.code != ERR_USAGE || !*err.message)
                        abort();
        } else {
                const char *marker = strchr(text, ';');
                size_t head = marker ? (size_t) (marker - text) : strlen(text);
                if (*text == '-' || strlen(text) > REQUIREMENT_MAX || strpbrk(text, "\n\r\\") ||
                    memchr(text, '/', head) || memchr(text, '@', head) || memchr(text, ':', head) ||
                    memchr(text, '$', head))
                        abort();
        }
        free(text);
        return 0;
}
