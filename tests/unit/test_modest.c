#include <stdlib.h>

#include "session/modest.h"
#include "tap.h"

int main(void) {
        enum { MANY = 300000 };
        char *text = malloc(3 * MANY + 3), *at = text;
        ok(modest_json("{\"a\": [1, 2]}", 13), "an answer of the usual kind");
        *at++ = '[';
        for (int i = 0; i < MANY; i++)
                at = stpcpy(at, "{},");
        ok(!modest_json(text, (size_t) (at - text)), "a list of very many values");
        memset(text, ',', 3 * MANY);
        text[0] = text[3 * MANY - 1] = '"';
        ok(modest_json(text, 3 * MANY), "a long text is one value, whatever is in it");
        text[1] = '\\';
        text[2] = '"';
        ok(modest_json(text, 3 * MANY), "a quoted quote does not end it");
        text[1] = '"';
        text[2] = ',';
        ok(!modest_json(text, 3 * MANY), "a quote does");
        ok(modest_json("\"\\", 2), "an escape at the very end is not read past");
        free(text);
        return done_testing();
}
