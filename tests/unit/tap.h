/* The Test Anything Protocol in a few lines: each check prints its own line, and the plan comes last. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_count, tap_failed;

#define ok(condition, ...)                                                                                             \
        do {                                                                                                           \
                int _good = !!(condition);                                                                             \
                tap_count++;                                                                                           \
                if (!_good)                                                                                            \
                        tap_failed++;                                                                                  \
                printf("%sok %d - ", _good ? "" : "not ", tap_count);                                                  \
                printf(__VA_ARGS__);                                                                                   \
                printf("\n");                                                                                          \
                if (!_good)                                                                                            \
                        printf("# %s:%d: %s\n", __FILE__, __LINE__, #condition);                                       \
                fflush(stdout);                                                                                        \
        } while (0)

#define is_text(got, expected, ...)                                                                                    \
        do {                                                                                                           \
                const char *_got = (got), *_expected = (expected);                                                     \
                ok(strcmp(_got, _expected) == 0, __VA_ARGS__);                                                         \
                if (strcmp(_got, _expected) != 0)                                                                      \
                        printf("# got \"%s\", expected \"%s\"\n", _got, _expected);                                    \
        } while (0)

static inline int done_testing(void) {
        printf("1..%d\n", tap_count);
        return tap_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
