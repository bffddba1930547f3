/* The checksum against known values, and in pieces. */
#include "base/crc32c.h"

#include <string.h>

#include "tap.h"

int main(void) {
        uint8_t bytes[256];
        memset(bytes, 0, 32);
        ok(crc32c(0, bytes, 32) == 0x8a9136aa, "32 zeros, as RFC 3720 has it");
        memset(bytes, 0xff, 32);
        ok(crc32c(0, bytes, 32) == 0x62a8ab43, "32 times 0xff");
        for (int i = 0; i < 32; i++)
                bytes[i] = (uint8_t) i;
        ok(crc32c(0, bytes, 32) == 0x46dd794e, "0 to 31");
        ok(crc32c(0, "123456789", 9) == 0xe3069283, "the usual nine digits");
        for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = (uint8_t) (i * 7);
        uint32_t whole = crc32c(0, bytes, sizeof(bytes));
        size_t equal = 0;
        for (size_t i = 0; i <= sizeof(bytes); i++)
                equal += crc32c(crc32c(0, bytes, i), bytes + i, sizeof(bytes) - i) == whole;
        ok(equal == sizeof(bytes) + 1, "in two pieces, cut anywhere, it is the same");
        return done_testing();
}
