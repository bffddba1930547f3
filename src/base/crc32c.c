#include "base/crc32c.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const uint32_t polynomial = 0x82f63b78; /* 0x1edc6f41, reflected */

/* Eight bytes at a time: row n is for a byte that n others follow. */
static uint32_t table[8][256];

static void fill_table(void) {
        for (uint32_t i = 0; i < 256; i++) {
                uint32_t crc = i;
                for (int bit = 0; bit < 8; bit++)
                        crc = crc & 1 ? (crc >> 1) ^ polynomial : crc >> 1;
                table[0][i] = crc;
        }
        for (size_t row = 1; row < 8; row++)
                for (size_t i = 0; i < 256; i++)
                        table[row][i] = (table[row - 1][i] >> 8) ^ table[0][table[row - 1][i] & 0xff];
}

static uint32_t by_table(uint32_t crc, const uint8_t *at, size_t size) {
        if (!table[0][1])
                fill_table();
        for (; size >= 8; size -= 8, at += 8) {
                uint64_t word;
                memcpy(&word, at, sizeof(word));
                word = le64toh(word) ^ crc;
                crc = 0;
                for (size_t i = 0; i < 8; i++)
                        crc ^= table[7 - i][(word >> (8 * i)) & 0xff];
        }
        for (; size > 0; size--, at++)
                crc = (crc >> 8) ^ table[0][(crc ^ *at) & 0xff];
        return crc;
}

#if defined(__x86_64__)
/* Not __builtin_cpu_supports: that looks at the processor when the program starts, and in a virtual machine each look
 * takes the hypervisor 10 to 20 µs. Most processes never need a checksum. */
static bool has_instruction(void) {
        static enum { UNKNOWN, NO, YES } known = UNKNOWN;
        if (known == UNKNOWN) {
                unsigned a, b, c, d;
                known = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2) ? YES : NO;
        }
        return known == YES;
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *at, size_t size) {
        uint64_t wide = crc;
        for (; size >= 8; size -= 8, at += 8) {
                uint64_t word;
                memcpy(&word, at, sizeof(word));
                wide = __builtin_ia32_crc32di(wide, word);
        }
        crc = (uint32_t) wide;
        for (; size > 0; size--, at++)
                crc = __builtin_ia32_crc32qi(crc, *at);
        return crc;
}
#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t size) {
#if defined(__x86_64__)
        if (has_instruction())
                return ~by_instruction(~crc, bytes, size);
#endif
        return ~by_table(~crc, bytes, size);
}
