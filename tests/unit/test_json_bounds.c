#include <stdlib.h>

#include "base/json_bounds.h"
#include "tap.h"

int main(void) {
        enum { MANY = 300000 };
        char *text = malloc(3 * MANY + 3), *at = text;
        ok(json_is_bounded("{\"a\": [1, 2]}", 13), "an answer of the usual kind");
        *at++ = '[';
        for (int i = 0; i < MANY; i++)
                at = stpcpy(at, "{},");
        ok(!json_is_bounded(text, (size_t) (at - text)), "a list of very many values");
        memset(text, ',', 3 * MANY);
        text[0] = text[3 * MANY - 1] = '"';
        ok(json_is_bounded(text, 3 * MANY), "a long text is one value, whatever is in it");
        text[1] = '\\';
        text[2] = '"';
        ok(json_is_bounded(text, 3 * MANY), "a quoted quote does not end it");
        text[1] = '"';
        text[2] = ',';
        ok(!json_is_bounded(text, 3 * MANY), "a quote does");
        ok(json_is_bounded("\"\\", 2), "an escape at the very end is not read past");
        free(text);
        return done_testing();
}
