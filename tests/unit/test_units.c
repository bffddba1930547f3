#include <stdint.h>

#include "base/units.h"
#include "tap.h"

static const struct {
        const char *text;
        uint64_t bytes; /* 0: must be refused */
} sizes[] = {
        { "512m", 512ull << 20 },
        { "1g", 1ull << 30 },
        { "1.5G", 3ull << 29 },
        { "4096", 4096 },
        { "1MiB", 1 << 20 },
        { "0", 0 },
        { "-1", 0 },
        { "99e99", 0 },
        { "12x", 0 },
        { "", 0 },
        { "m", 0 },
        { " 1m", 0 },
        { "1 m", 0 },
        { "1.m", 0 },
        { ".5m", 0 },
        { "18446744073709551616", 0 },
        { "99999999t", 0 },
        { "1m ", 0 },
        { "+1m", 0 },
        { "0x10", 0 },
        { "1.0000000001g", 0 },
        { "nan", 0 },
        { "inf", 0 },
};

int main(void) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                struct err err = { 0 };
                uint64_t bytes = 0;
                int code = units_parse_bytes("--memory", sizes[i].text, 1, 1ull << 50, &bytes, &err);
                if (sizes[i].bytes)
                        ok(code == 0 && bytes == sizes[i].bytes, "\"%s\" is a size", sizes[i].text);
                else
                        ok(code < 0 && err.code == ERR_USAGE && strstr(err.message, "--memory"),
                           "\"%s\" is refused by name", sizes[i].text);
        }
        uint64_t value = 0;
        struct err err;
        ok(units_parse_duration_ms("t", "250ms", 1, 1000000, &value, &err) == 0 && value == 250, "milliseconds");
        ok(units_parse_duration_ms("t", "1.5", 1, 1000000, &value, &err) == 0 && value == 1500, "seconds by default");
        ok(units_parse_duration_ms("t", "2m", 1, 1000000, &value, &err) == 0 && value == 120000, "minutes");
        ok(units_parse_duration_ms("t", "0", 1, 1000000, &value, &err) < 0, "no time is not a time limit");
        ok(units_parse_thousandths("c", "0.5", 10, 8000, &value, &err) == 0 && value == 500, "half a processor");
        ok(units_parse_count("p", "1.5", 1, 10, &value, &err) < 0, "half a process is refused");
        char text[32];
        is_text(units_format_bytes(512ull << 20, text), "512 MiB", "whole sizes read whole");
        is_text(units_format_bytes(3ull << 29, text), "1.5 GiB", "halves read as halves");
        return done_testing();
}
