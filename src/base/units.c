#include "base/units.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"

struct unit {
        const char *suffix;
        uint64_t factor;
};

static const struct unit byte_units[] = {
        { "", 1 },
        { "b", 1 },
        { "k", 1ull << 10 },
        { "kb", 1ull << 10 },
        { "kib", 1ull << 10 },
        { "m", 1ull << 20 },
        { "mb", 1ull << 20 },
        { "mib", 1ull << 20 },
        { "g", 1ull << 30 },
        { "gb", 1ull << 30 },
        { "gib", 1ull << 30 },
        { "t", 1ull << 40 },
        { "tb", 1ull << 40 },
        { "tib", 1ull << 40 },
};
static const struct unit duration_units[] = {
        { "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 },
};
static const struct unit count_units[] = { { "", 1 } };
static const struct unit thousandth_units[] = { { "", 1000 } };

/* digits [ "." digits ] suffix, in exact integer arithmetic: value = whole*factor + fraction*factor. At most nine
 * digits of fraction are read; more would not change any value we accept. */
static bool units_parse(const char *text, const struct unit *units, size_t n_units, bool fraction_allowed,
                        uint64_t *ret_value) {
        if (!isdigit((unsigned char) *text))
                return false;
        uint64_t whole = 0;
        for (; isdigit((unsigned char) *text); text++) {
                if (__builtin_mul_overflow(whole, 10u, &whole) ||
                    __builtin_add_overflow(whole, (uint64_t) (*text - '0'), &whole))
                        return false;
        }
        uint64_t fraction = 0, scale = 1;
        if (*text == '.') {
                if (!fraction_allowed || !isdigit((unsigned char) text[1]))
                        return false;
                for (text++; isdigit((unsigned char) *text); text++) {
                        if (scale == 1000000000u)
                                return false;
                        fraction = fraction * 10 + (uint64_t) (*text - '0');
                        scale *= 10;
                }
        }
        for (size_t i = 0; i < n_units; i++) {
                if (strcasecmp(text, units[i].suffix) != 0)
                        continue;
                uint64_t value;
                if (__builtin_mul_overflow(whole, units[i].factor, &value))
                        return false;
                unsigned __int128 part = (unsigned __int128) fraction * units[i].factor / scale;
                return !__builtin_add_overflow(value, (uint64_t) part, ret_value);
        }
        return false;
}

#define PARSE(text, units, fraction, ret) units_parse(text, units, ELEMENTS(units), fraction, ret)

int units_parse_bytes(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *ret_bytes,
                      struct err *err) {
        uint64_t value;
        char low[32], high[32];
        if (!PARSE(text, byte_units, true, &value))
                return err_set(err, ERR_USAGE, "%s: \"%.40s\" is not a size; write for example 512m or 1g", what, text);
        if (value < min || value > max)
                return err_set(err, ERR_USAGE, "%s: \"%.40s\" is out of range; choose from %s to %s", what, text,
                               units_format_bytes(min, low), units_format_bytes(max, high));
        *ret_bytes = value;
        return 0;
}

int units_parse_duration_ms(const char *what, const char *text, uint64_t min_ms, uint64_t max_ms, uint64_t *ret_ms,
                            struct err *err) {
        uint64_t value;
        if (!PARSE(text, duration_units, true, &value))
                return err_set(err, ERR_USAGE, "%s: \"%.40s\" is not a time; write seconds, or for example 500ms or 2m",
                               what, text);
        if (value < min_ms || value > max_ms)
                return err_set(err, ERR_USAGE, "%s: \"%.40s\" is out of range; choose from %g to %g seconds", what,
                               text, (double) min_ms / 1000, (double) max_ms / 1000);
        *ret_ms = value;
        return 0;
}

int units_parse_count(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *ret_count,
                      struct err *err) {
        uint64_t value;
        if (!PARSE(text, count_units, false, &value))
                return err_set(err, ERR_USAGE, "%s: \"%.40s\" is not a whole number", what, text);
        if (value < min || value > max)
                return err_set(err, ERR_USAGE, "%s: \"%.40s\" is out of range; choose from %" PRIu64 " to %" PRIu64,
                               what, text, min, max);
        *ret_count = value;
        return 0;
}

int units_parse_thousandths(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *ret_thousandths,
                            struct err *err) {
        uint64_t value;
        if (!PARSE(text, thousandth_units, true, &value))
                return err_set(err, ERR_USAGE, "%s: \"%.40s\" is not a number; write for example 1 or 0.5", what, text);
        if (value < min || value > max)
                return err_set(err, ERR_USAGE, "%s: \"%.40s\" is out of range; choose from %g to %g", what, text,
                               (double) min / 1000, (double) max / 1000);
        *ret_thousandths = value;
        return 0;
}

const char *units_format_bytes(uint64_t bytes, char buffer[static 32]) {
        static const char *const names[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
        double value = (double) bytes;
        size_t unit = 0;
        while (value >= 1024 && unit + 1 < ELEMENTS(names)) {
                value /= 1024;
                unit++;
        }
        (void) snprintf(buffer, 32, value < 10 && unit > 0 ? "%.3g %s" : "%.4g %s", value, names[unit]);
        return buffer;
}
