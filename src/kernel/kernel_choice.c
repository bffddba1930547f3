#include "kernel/kernel_choice.h"

#include <string.h>

#include "base/memory.h"

enum { CODE_MAX = 64 << 10 }; /* a longer text is not searched: it runs long enough */

/* Without one of these, code imports nothing. exec may run a text that is not seen here; save and load use pandas. */
static const char *const signs[] = { "import", "exec", "save", "load" };

bool kernel_choice_is_light(const char *code, size_t size) {
        if (size > CODE_MAX)
                return false;
        for (size_t i = 0; i < ELEMENTS(signs); i++)
                if (memmem(code, size, signs[i], strlen(signs[i])))
                        return false;
        return true;
}
