/* Untrusted option values: parsed, or refused with a message, never out of the requested range. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

typedef int parser(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *ret, struct err *err);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
        static parser *const parsers[] = { units_parse_bytes, units_parse_duration_ms, units_parse_count,
                                           units_parse_thousandths };
        static const uint64_t low = 1, high = 1ull << 50, untouched = 0x5555555555555555;
        char *text = text_of(bytes, size);
        for (size_t i = 0; i < sizeof(parsers) / sizeof(parsers[0]); i++) {
                struct err err = { 0 };
                uint64_t value = untouched;
                if (parsers[i]("--value", text, low, high, &value, &err) == 0) {
                        if (value < low || value > high)
                                abort();
                } else if (value != untouched || err.code != ERR_USAGE || !strstr(err.message, "--value"))
                        abort();
        }
        free(text);
        return 0;
}
