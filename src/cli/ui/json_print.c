#include "cli/ui/json_print.h"

#include <errno.h>
#include <stdio.h>

#include "base/memory.h"

int json_print_answer(const json_t *answer, struct err *err) {
        json_t *shown = json_copy((json_t *) (uintptr_t) answer);
        if (json_is_object(shown))
                (void) json_object_del(shown, "ok");
        _cleanup_free_ char *text = shown ? json_dumps(shown, JSON_COMPACT) : NULL;
        json_decref(shown);
        if (!text)
                return err_set(err, ERR_SYSTEM, "out of memory");
        if (puts(text) == EOF || fflush(stdout) == EOF)
                return err_sys(err, errno, "writing the result");
        return 0;
}
